"""The environment of the task image, without what the sandbox runtime added."""

from __future__ import annotations

import os
from typing import Mapping, Optional

_ADDED, _SAVED = "AGENTIX_ADDED_", "AGENTIX_SAVED_"


def get_env_without_agentix(environ: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """Return environ (default: this process's) with the runtime's path entries taken out and
    the variables that it had set aside put back."""
    source = dict(os.environ if environ is None else environ)
    result = {k: v for k, v in source.items() if not k.startswith((_ADDED, _SAVED))}
    for name, value in source.items():
        if name.startswith(_ADDED):
            target = name[len(_ADDED) :]
            added = set(value.split(os.pathsep))
            kept = [entry for entry in result.get(target, "").split(os.pathsep) if entry and entry not in added]
            if kept:
                result[target] = os.pathsep.join(kept)
            else:
                result.pop(target, None)
    for name, value in source.items():
        if name.startswith(_SAVED):
            result.setdefault(name[len(_SAVED) :], value)
    return result


def image_env(extra: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """Return the environment for a command of the image: as above, with BASH_ENV pointing at
    ~/.bashrc where that exists, and with extra on top."""
    result = get_env_without_agentix()
    bashrc = os.path.expanduser("~/.bashrc")
    if "BASH_ENV" not in result and os.path.isfile(bashrc):
        result["BASH_ENV"] = bashrc
    result.update(extra or {})
    return result

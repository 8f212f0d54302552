"""What code in a sandbox imports; on a host the SDK's half joins it.

In a sandbox: `RemoteCallable`, `Namespace`, `RemoteSioError`, `context`, `trace`.
Names of the host half (`SandboxConfig`, …) are there when the SDK is installed.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; at run time names are imported when they are asked for
    from agentix import context, trace, utils
    from agentix._callables import RemoteCallable
    from agentix._namespace import Namespace, RemoteSioError, register_namespace
    from agentix.utils.trace import span

__path__ = pkgutil.extend_path(__path__, __name__)

_OWN = {
    "RemoteCallable": "agentix._callables",
    "Namespace": "agentix._namespace",
    "RemoteSioError": "agentix._namespace",
    "register_namespace": "agentix._namespace",
    "span": "agentix.utils.trace",
}
_MODULES = ("context", "trace", "utils")

__all__ = ["Namespace", "RemoteCallable", "RemoteSioError", "context", "register_namespace", "span", "trace", "utils"]


def __getattr__(name: str) -> Any:
    if name in _OWN:
        return getattr(importlib.import_module(_OWN[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"agentix.{name}")
    if not name.startswith("_"):
        host = _host_half()
        if host is not None and name in host.__all__:
            return getattr(host, name)
    raise AttributeError(f"module 'agentix' has no attribute {name!r}")


def __dir__() -> list[str]:
    host = _host_half()
    return sorted({*globals(), *__all__, *(host.__all__ if host is not None else ())})


def _host_half() -> Any:
    """Return the module of the SDK that holds the host names, None where it is not installed."""
    try:
        return importlib.import_module("agentix._host")
    except ModuleNotFoundError as e:
        if e.name == "agentix._host":
            return None
        raise

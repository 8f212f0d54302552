"""References to functions: from a function object to `module::qualname`, or a refusal."""

from __future__ import annotations

import os
import sys
import types
from typing import Any, Callable


class RemoteCallable:
    """Admission of functions that can be called by reference in a sandbox."""

    @staticmethod
    def validate(fn: Callable[..., Any]) -> str:
        """Return the reference `module::qualname` of an importable function.

        Raises TypeError for anything that a sandbox could not find by that name. Whether
        the module exists over there is not checked.
        """
        name = describe(fn)
        if not callable(fn):
            raise TypeError(f"{name} is not callable")
        if isinstance(fn, types.MethodType):
            raise TypeError(f"{name} is a bound method; pass a top-level function instead")
        qualname = getattr(fn, "__qualname__", "") or ""
        if getattr(fn, "__name__", "") == "<lambda>" or "<lambda>" in qualname:
            raise TypeError(f"{name} is a lambda, which has no name to import; define a top-level function")
        if "<locals>" in qualname:
            raise TypeError(f"{name} is a local (nested) function, which cannot be imported; move it to module level")
        if not isinstance(fn, (types.FunctionType, types.BuiltinFunctionType)) or not (fn.__name__ and qualname):
            raise TypeError(
                f"{name} is no function: only importable top-level functions can be called remotely, "
                "not functools.partial objects, callable instances, classes or closures"
            )
        module = fn.__module__
        if module == "__main__":
            module = main_module_name()
        if not module:
            raise TypeError(f"{name} has no importable module path")
        return f"{module}::{qualname}"


def describe(fn: Any) -> str:
    """Name a target in a message; never raises."""
    module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualname, str):
        return f"{module}.{qualname}"
    try:
        return repr(fn)[:200]
    except Exception:
        return f"<{type(fn).__name__}>"


def main_module_name() -> str:
    """Return the name under which `__main__` can be imported elsewhere, or "" if there is none."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name and spec.name != "__main__":
        return str(spec.name)
    script = getattr(main, "__file__", None)
    if not script or not str(script).endswith(".py"):
        return ""
    path = os.path.realpath(script)
    for entry in sys.path:
        root = os.path.realpath(entry or os.getcwd())
        if not path.startswith(root + os.sep):
            continue
        parts = os.path.relpath(path, root)[: -len(".py")].split(os.sep)
        return ".".join(parts) if all(part.isidentifier() for part in parts) else ""
    return ""

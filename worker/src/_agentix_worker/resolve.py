"""From `module::qualname` to a callable."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_CO_COROUTINE, _CO_ITERABLE_COROUTINE = 0x80, 0x100


def resolve(reference: str) -> Any:
    """Import the module, walk the attributes, require a callable.

    Raises ValueError for a malformed reference, whatever the import raises,
    AttributeError, or TypeError when the thing is not callable.
    """
    module_name, sep, qualname = reference.partition("::")
    if not sep or not module_name or not qualname:
        raise ValueError(f"callable {reference!r} is not of the form module::qualname")
    target: Any = sys.modules.get(module_name)
    if target is None or getattr(getattr(target, "__spec__", None), "_initializing", False):
        target = import_module(module_name)
    for part in qualname.split("."):
        target = getattr(target, part)
    if not callable(target):
        raise TypeError(f"{reference} is not callable, it is a {type(target).__name__}")
    return target


def is_coroutine_function(fn: Any) -> bool:
    """Tell whether calling fn gives a coroutine, so that it belongs on the loop."""
    code = getattr(fn, "__code__", None)
    if code is not None and type(code.co_flags) is int and code.co_flags & _CO_COROUTINE:
        return True
    import inspect

    return inspect.iscoroutinefunction(fn)

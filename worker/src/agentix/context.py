"""What travels with a call: its id, its baggage, its trace.

A host sets baggage before `sandbox.remote(...)`, code in the sandbox reads it here. One
way: changes made in the sandbox do not come back.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import Any, Iterator, Optional

from _agentix_worker import ambient

__all__ = ["baggage", "call_id", "encode", "get_baggage", "register", "set_baggage", "traceparent", "with_baggage"]


def call_id() -> Optional[str]:
    """Return the id of the remote call that runs here, None outside one."""
    return ambient.call_id.get()


def traceparent() -> Optional[str]:
    """Return the W3C trace parent that the caller sent, None without one."""
    return ambient.traceparent.get()


def baggage() -> dict[str, Any]:
    """Return a copy of the baggage."""
    return dict(ambient.baggage.get() or {})


def get_baggage(key: str, default: Any = None) -> Any:
    """Return one baggage value, default when it is not set."""
    return (ambient.baggage.get() or {}).get(key, default)


def set_baggage(key: str, value: Any) -> None:
    """Set one baggage value in the current context."""
    ambient.baggage.set({**baggage(), key: value})


@contextlib.contextmanager
def with_baggage(**values: Any) -> Iterator[None]:
    """Set baggage values for the duration of a `with` block."""
    token = ambient.baggage.set({**baggage(), **values})
    try:
        yield
    finally:
        ambient.baggage.reset(token)


def register(name: str, var: ContextVar[Any]) -> None:
    """Let a further context variable travel with calls, under the same name on both sides.

    Raises ValueError when the name is taken by another variable.
    """
    if ambient.propagated.setdefault(name, var) is not var:
        raise ValueError(f"a context variable named {name} is registered already")


def encode() -> Optional[bytes]:
    """Return the current context as it travels, None when there is nothing to tell."""
    import pickle

    values = {}
    for name, var in ambient.propagated.items():
        value = var.get(None)
        if value is not None and value != {}:
            values[name] = value
    return pickle.dumps(values, 4) if values else None

"""Traces and spans of code in a sandbox.

    with trace("rollout", seed=7):
        with span("step", n=1) as s:
            s.set_attribute("reward", 0.5)
            s.add_event("checkpoint", path="/tmp/x")

Both work as `with`, `async with` and decorator. Each start and end leaves at once with the
id of the running call; a span that an exception leaves has status "error".
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Callable, Generic, Optional, TypeVar

from _agentix_worker import ambient, coerce

__all__ = ["Span", "Trace", "current_span", "current_trace", "span", "trace"]

UNBOUND = "trace_unbound"
"""Trace id of spans that are in no trace."""
MAX_EVENTS = 1000
"""Events of one span; further ones are counted in the attribute `dropped_events`."""

Item = TypeVar("Item", bound="_Timed")
F = TypeVar("F", bound=Callable[..., Any])


_second: tuple[int, str] = (-1, "")


def _now() -> str:
    """Return the time as text, from one reading of the clock."""
    global _second
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    known, text = _second
    if known != seconds:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        _second = (seconds, text)
    return f"{text}.{nanos // 1000:06d}Z"


class _Timed:
    """What a trace and a span have in common: a beginning and an end."""

    def _start(self) -> None:
        raise NotImplementedError

    def _end(self, exc: Optional[BaseException]) -> None:
        raise NotImplementedError


class Trace(_Timed):
    """A tree of spans under one id. Travels with calls as it is."""

    def __init__(self, name: str, metadata: Optional[dict[str, Any]] = None) -> None:
        self.trace_id = "trace_" + os.urandom(16).hex()
        self.name = name
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.started_at: Optional[str] = None
        self.ended_at: Optional[str] = None

    def _start(self) -> None:
        self.started_at = _now()
        data = {
            "trace_id": self.trace_id,
            "call_id": ambient.call_id.get(),
            "name": coerce.text(self.name, 1024),
            "metadata": coerce.attributes(self.metadata) if self.metadata else None,
            "started_at": self.started_at,
        }
        ambient.sink.span("trace_start", data)

    def _end(self, exc: Optional[BaseException]) -> None:
        self.ended_at = _now()
        data = {"trace_id": self.trace_id, "call_id": ambient.call_id.get(), "ended_at": self.ended_at}
        ambient.sink.span("trace_end", data)


class Span(_Timed):
    """One timed operation. Travels with calls as it is."""

    def __init__(self, name: str, attrs: Optional[dict[str, Any]] = None) -> None:
        trace_id, parent_id = _surroundings()
        self.span_id = "span_" + os.urandom(12).hex()
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.name = name
        self.attrs: dict[str, Any] = dict(attrs or {})
        self.started_at: Optional[str] = None
        self.ended_at: Optional[str] = None
        self.status = "unset"
        self.status_description: Optional[str] = None
        self.error: Optional[dict[str, Any]] = None
        self.events: list[dict[str, Any]] = []

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; it is told when the span ends."""
        self.attrs[key] = value

    def set_attributes(self, **values: Any) -> None:
        """Set several attributes."""
        self.attrs.update(values)

    def add_event(self, name: str, **attributes: Any) -> None:
        """Note something that happened now."""
        if len(self.events) >= MAX_EVENTS:
            self.attrs["dropped_events"] = int(self.attrs.get("dropped_events", 0)) + 1
            return
        self.events.append(
            {
                "name": coerce.text(str(name), 1024),
                "timestamp": _now(),
                "attributes": coerce.attributes(attributes) if attributes else None,
            }
        )

    def set_status(self, status: str, description: Optional[str] = None) -> None:
        """Set the status; ValueError unless it is unset, ok or error."""
        if status not in ("unset", "ok", "error"):
            raise ValueError(f"status {status!r} is not one of unset, ok, error")
        self.status, self.status_description = status, description

    def set_error(self, error: Any, **data: Any) -> None:
        """Mark the span as failed, by an exception or a message."""
        if isinstance(error, BaseException):
            data = {"type": type(error).__name__, **data}
            error = str(error) or type(error).__name__
        message = coerce.text(str(error))
        self.status, self.status_description = "error", message
        self.error = {"message": message, "data": coerce.attributes(data) if data else None}

    def _data(self) -> dict[str, Any]:
        return {
            "trace_id": self.trace_id,
            "call_id": ambient.call_id.get(),
            "span_id": self.span_id,
            "parent_id": self.parent_id,
            "name": coerce.text(self.name, 1024),
            "attrs": coerce.attributes(self.attrs) if self.attrs else None,
            "started_at": self.started_at,
        }

    def _start(self) -> None:
        self.started_at = _now()
        ambient.sink.span("span_start", self._data())

    def _end(self, exc: Optional[BaseException]) -> None:
        self.ended_at = _now()
        if exc is not None and self.error is None:
            self.set_error(exc)
        elif self.status == "unset":
            self.status = "ok"
        data = self._data()
        data["ended_at"] = self.ended_at
        data["status"] = self.status
        description = self.status_description
        data["status_description"] = None if description is None else coerce.text(str(description))
        if self.error is not None:
            data["error"] = self.error
        if self.events:
            data["events"] = self.events
        ambient.sink.span("span_end", data)


def _surroundings() -> tuple[str, Optional[str]]:
    """Return the trace id and the parent span id for a new span."""
    parent, around = ambient.current_span.get(), ambient.current_trace.get()
    if parent is not None and (around is None or parent.trace_id in (around.trace_id, UNBOUND)):
        return (around or parent).trace_id, parent.span_id
    if around is not None:
        return around.trace_id, None
    fields = (ambient.traceparent.get() or "").split("-")
    if len(fields) >= 4 and len(fields[1]) == 32 and len(fields[2]) == 16:
        return "trace_" + fields[1], "span_" + fields[2]
    return UNBOUND, None


class _Scope(Generic[Item]):
    """`with`, `async with` and decorator around one trace or span."""

    def __init__(self, make: Callable[[], Item], var: ContextVar[Any]) -> None:
        self._make = make
        self._var = var
        self._open: list[tuple[Item, Token[Any]]] = []

    def __enter__(self) -> Item:
        item = self._make()
        item._start()
        self._open.append((item, self._var.set(item)))
        return item

    def __exit__(self, kind: Optional[type[BaseException]], exc: Optional[BaseException], tb: Optional[TracebackType]) -> None:
        item, token = self._open.pop()
        try:
            self._var.reset(token)
        except ValueError:  # left in another context than it was entered in (a generator)
            pass
        item._end(exc)

    async def __aenter__(self) -> Item:
        return self.__enter__()

    async def __aexit__(
        self, kind: Optional[type[BaseException]], exc: Optional[BaseException], tb: Optional[TracebackType]
    ) -> None:
        self.__exit__(kind, exc, tb)

    def __call__(self, fn: F) -> F:
        make, var = self._make, self._var

        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _Scope(make, var):
                return fn(*args, **kwargs)

        @functools.wraps(fn)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with _Scope(make, var):
                return await fn(*args, **kwargs)

        return awaited if inspect.iscoroutinefunction(fn) else wrapped  # type: ignore[return-value]


def trace(name: str, /, **metadata: Any) -> _Scope[Trace]:
    """Open a trace; spans inside it, here and in what it calls, belong to it."""
    return _Scope(lambda: Trace(str(name), metadata), ambient.current_trace)


def span(name: str, /, **attrs: Any) -> _Scope[Span]:
    """Open a span below the current one."""
    return _Scope(lambda: Span(str(name), attrs), ambient.current_span)


def current_trace() -> Optional[Trace]:
    """Return the trace that is open here."""
    found: Optional[Trace] = ambient.current_trace.get()
    return found


def current_span() -> Optional[Span]:
    """Return the span that is open here."""
    found: Optional[Span] = ambient.current_span.get()
    return found

"""What surrounds the running call: its id, the propagated context, where records go.

The worker sets these, the public package `agentix` reads them. Outside a worker nothing
is set and records go nowhere.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Callable, Optional

call_id: ContextVar[Optional[str]] = ContextVar("agentix_call_id", default=None)
"""Id of the remote call that is running here, None outside one."""
traceparent: ContextVar[Optional[str]] = ContextVar("agentix_traceparent", default=None)
"""W3C trace parent of the call, None when the caller sent none."""
baggage: ContextVar[Optional[dict[str, Any]]] = ContextVar("agentix_context_baggage", default=None)
current_trace: ContextVar[Any] = ContextVar("agentix_trace_current_trace", default=None)
current_span: ContextVar[Any] = ContextVar("agentix_trace_current_span", default=None)

propagated: dict[str, ContextVar[Any]] = {
    "agentix_context_baggage": baggage,
    "agentix_trace_current_trace": current_trace,
    "agentix_trace_current_span": current_span,
}
"""Variables that travel with a call, by their name on the wire."""


class Sink:
    """Where records of this process go. The worker puts its own here at start."""

    def span(self, event: str, data: dict[str, Any]) -> None:
        """Take one trace event; data holds packable values only."""

    def open_namespace(self, namespace: str, on_event: Callable[[str, Any], None]) -> None:
        """Announce a plugin namespace and take its inbound events."""
        raise RuntimeError("namespaces work inside a sandbox only")

    def emit(self, namespace: str, event: str, data: Any) -> None:
        """Send one plugin event; data is packable."""
        raise RuntimeError("namespaces work inside a sandbox only")


sink: Sink = Sink()

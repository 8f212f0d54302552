"""What of this process's context goes with a call."""

from __future__ import annotations

from agentix import context


def traceparent_and_baggage() -> tuple[str, dict[str, str]]:
    """Return the W3C trace context and the baggage of `agentix.context`; empty if none."""
    baggage = {str(key): str(value) for key, value in context.baggage().items()}
    return context.traceparent() or "", baggage

"""The context that travels with a call: decoded into the context variables."""

from __future__ import annotations

from typing import Any

from _agentix_worker import ambient


def enter(blob: Any, baggage: Any, traceparent: Any) -> None:
    """Set the propagated variables in the current context.

    blob is a pickled map of variable names (unknown ones are ignored), baggage a map of
    strings that adds to the one inside it, traceparent a W3C trace parent.
    """
    if isinstance(blob, bytes) and blob:
        import pickle

        values = pickle.loads(blob)
        if isinstance(values, dict):
            for name, value in values.items():
                var = ambient.propagated.get(name)
                if var is not None:
                    var.set(value)
    if isinstance(baggage, dict) and baggage:
        known = ambient.baggage.get()
        ambient.baggage.set({**(known if isinstance(known, dict) else {}), **baggage})
    if isinstance(traceparent, str) and traceparent:
        ambient.traceparent.set(traceparent)

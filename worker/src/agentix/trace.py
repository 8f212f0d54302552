"""Traces and spans: `from agentix.trace import trace, span`, or `agentix.trace("name")` itself."""

from __future__ import annotations

import sys
import types
from typing import Any

from agentix.utils.trace import Span, Trace, current_span, current_trace, span, trace

__all__ = ["Span", "Trace", "current_span", "current_trace", "span", "trace"]


class _CallableModule(types.ModuleType):
    """Makes `from agentix import trace; with trace("name"): ...` work."""

    def __call__(self, name: str, **metadata: Any) -> Any:
        return trace(name, **metadata)


sys.modules[__name__].__class__ = _CallableModule

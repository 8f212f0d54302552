"""The ready frame: what the worker says about itself."""

from __future__ import annotations

import os
import sys
from typing import Any


def ready_frame(*capabilities: str, **extra: Any) -> dict[str, Any]:
    """Return the ready frame of this worker."""
    return {
        "type": "ready",
        "worker": "agentix",
        "protocol": 1,
        "python": ".".join(map(str, sys.version_info[:3])),
        "pid": os.getpid(),
        "capabilities": ["encoding", "deadline", "baggage", *capabilities],
        **extra,
    }

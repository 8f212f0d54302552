"""The host half of `agentix`: sandboxes and calls through a daemon.

Its names are reached from `agentix` itself, for example `agentix.AgentixProvider`.
"""

from __future__ import annotations

from ._admitted import allow_type
from ._call import CallStatus, RemoteCall
from ._config import Health, SandboxConfig, SandboxInfo, SandboxResource
from ._exceptions import (
    AgentixError,
    CallCancelled,
    CallTimeout,
    LimitExceeded,
    RemoteCallError,
    RemoteError,
    RequestRefused,
    RestrictedUnpickleError,
    RuntimeUnreachable,
    SandboxNotFound,
    WorkerExited,
)
from ._outcome import Failed, Ok
from ._provider import AgentixProvider
from ._sandbox import Sandbox

__all__ = [
    "AgentixError",
    "AgentixProvider",
    "CallCancelled",
    "CallStatus",
    "CallTimeout",
    "Failed",
    "Health",
    "LimitExceeded",
    "Ok",
    "RemoteCall",
    "RemoteCallError",
    "RemoteError",
    "RequestRefused",
    "RestrictedUnpickleError",
    "RuntimeUnreachable",
    "Sandbox",
    "SandboxConfig",
    "SandboxInfo",
    "SandboxNotFound",
    "SandboxResource",
    "WorkerExited",
    "allow_type",
]

"""The connection to the daemon, and what its statuses mean."""

from __future__ import annotations

import os
from collections.abc import Sequence

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from ._exceptions import (
    AgentixError,
    LimitExceeded,
    RequestRefused,
    RuntimeUnreachable,
    SandboxNotFound,
)

DEFAULT_ADDRESS = "unix:///var/lib/agentix/agentixd.sock"
_OPTIONS: Sequence[tuple[str, int | str]] = (
    # The daemon has the limits and names them; gRPC's own would only hide them.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A call is sent once: only the daemon knows whether it ran.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
_UNREACHABLE = frozenset({"RUNTIME_UNAVAILABLE", "PROVIDER_UNAVAILABLE", "STOPPING"})


class Endpoint:
    """Where a daemon is, and what a client shows it."""

    def __init__(self, address: str | None, token: str | None) -> None:
        """Take what is given, else AGENTIX_ADDRESS and AGENTIX_TOKEN, else the default socket."""
        self.address = address or os.environ.get("AGENTIX_ADDRESS") or DEFAULT_ADDRESS
        self._token = token or os.environ.get("AGENTIX_TOKEN") or ""

    def connect(self) -> grpc.aio.Channel:
        """Return a channel; it connects when it is first used."""
        return grpc.aio.insecure_channel(_target(self.address), options=_OPTIONS)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what goes with each request."""
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    def __repr__(self) -> str:
        """Name the address, never the token."""
        return f"Endpoint({self.address!r})"


def _target(address: str) -> str:
    if address.startswith("unix:///"):
        return "unix:" + address[len("unix://") :]
    if address.startswith("/"):
        return "unix:" + address
    return address[len("http://") :] if address.startswith("http://") else address


def translate(error: grpc.aio.AioRpcError, address: str) -> AgentixError:
    """Return the SDK's error for a status."""
    info, violations = _details(error)
    message = error.details() or error.code().name
    if info is None:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            return RuntimeUnreachable(f"cannot reach the daemon at {address}: {message}")
        return RequestRefused(message, code=error.code().name)
    if info.reason in _UNREACHABLE:
        return RuntimeUnreachable(f"{info.reason}: {message}")
    kinds = {"SANDBOX_NOT_FOUND": SandboxNotFound, "LIMIT_EXCEEDED": LimitExceeded}
    metadata: dict[str, str] = dict(info.metadata)
    return kinds.get(info.reason, RequestRefused)(
        message,
        code=error.code().name,
        reason=info.reason,
        metadata=metadata,
        violations=violations,
    )


def _details(
    error: grpc.aio.AioRpcError,
) -> tuple[error_details_pb2.ErrorInfo | None, list[tuple[str, str]]]:
    info: error_details_pb2.ErrorInfo | None = None
    violations: list[tuple[str, str]] = []
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin" or not isinstance(value, bytes):
            continue
        status = status_pb2.Status.FromString(value)
        for detail in status.details:
            found, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
            if detail.Unpack(found):
                info = found
            elif detail.Unpack(bad):
                violations += [(each.field, each.description) for each in bad.field_violations]
    return info, violations

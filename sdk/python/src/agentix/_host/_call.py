"""The handle of one call that goes on by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable
from typing import Any, Callable, Generic, TypeVar, cast

import grpc
import grpc.aio
from agentix.v1 import remote_service_pb2 as messages
from agentix.v1 import remote_service_pb2_grpc as services

from ._channel import Endpoint, translate
from ._exceptions import CallCancelled, CallTimeout, RemoteCallError, RemoteError, WorkerExited
from ._restricted import loads

T = TypeVar("T")


def failure(reference: str, sent: messages.RemoteError, deadline: float | None) -> Exception:
    """Return the SDK's error for an outcome without a result."""
    error = RemoteError(
        type=sent.type,
        message=sent.message,
        traceback=sent.traceback,
        cancelled=sent.cancelled,
        returncode=sent.returncode if sent.HasField("returncode") else None,
        cause=sent.cause,
    )
    if error.cancelled:
        return CallCancelled(reference, error)
    if error.type == "WorkerDied":
        return WorkerExited(reference, error)
    if error.type == "DeadlineExceeded" and deadline is not None:
        return CallTimeout(f"{reference}: no result within {deadline} s")
    return RemoteCallError(reference, error)


@dataclasses.dataclass(frozen=True)
class CallStatus:
    """Where a call is in its life."""

    state: str
    """`running`, `succeeded`, `failed` or `cancelled`."""
    error_type: str = ""
    """For `failed` and `cancelled`: type of the error."""
    still_running: bool = False
    """True: the call is over (cancelled, or out of time), but its function goes on."""
    outcome_expired: bool = False
    """True: the call is over, and its outcome is no longer kept."""


class RemoteCall(Generic[T]):
    """A submitted call; made by `Sandbox.submit` and `Sandbox.call`.

    The call goes on whatever becomes of this handle, this process and the daemon. Its `name`
    may be kept; `Sandbox.call` makes a handle of it again.
    """

    def __init__(
        self,
        stub: services.RemoteServiceAsyncStub,
        endpoint: Endpoint,
        name: str,
        deadline: float | None = None,
    ) -> None:
        """For sandboxes: hold the call of this name."""
        self.name = name
        self._stub = stub
        self._endpoint = endpoint
        self._deadline = deadline

    async def result(self) -> T:
        """Wait for the call and return its result.

        Raises what `Sandbox.remote` raises, and RemoteCallError of type `ResultUnavailable`
        if the outcome is no longer kept. Cancelling this coroutine leaves the call alone, and
        so does RuntimeUnreachable: once the daemon is there again, so is the call.
        """
        call = await self._ask(self._stub.WaitCall, messages.WaitCallRequest(name=self.name))
        kind = call.outcome.WhichOneof("outcome")
        if kind == "error":
            raise failure(call.callable, call.outcome.error, self._deadline)
        if kind is None:
            gone = RemoteError("ResultUnavailable", "the outcome is no longer kept")
            raise RemoteCallError(call.callable, gone)
        if kind != "pickle_value":
            text = f"the call was made for a {kind}, not for this SDK"
            raise RemoteCallError(call.callable, RemoteError("ResultUnavailable", text))
        return cast("T", loads(call.outcome.pickle_value))

    async def status(self) -> CallStatus:
        """Return where the call is now. Raises RequestRefused if it is not known any more."""
        return _status(await self._ask(self._stub.GetCall, messages.GetCallRequest(name=self.name)))

    async def cancel(self) -> CallStatus:
        """Ask for the end of the call and return how it ended; one that is over stays so."""
        request = messages.CancelCallRequest(name=self.name)
        return _status(await self._ask(self._stub.CancelCall, request))

    async def _ask(
        self, method: Callable[..., Awaitable[messages.Call]], request: Any
    ) -> messages.Call:
        try:
            return await method(request, metadata=self._endpoint.metadata())
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._endpoint.address) from error

    def __repr__(self) -> str:
        """Name the call."""
        return f"RemoteCall({self.name!r})"


def _status(call: messages.Call) -> CallStatus:
    return CallStatus(
        state=messages.CallState.Name(call.state)[len("CALL_STATE_") :].lower(),
        error_type=call.error_type,
        still_running=call.still_running,
        outcome_expired=call.outcome_expired,
    )

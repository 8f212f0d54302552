"""The handle of one sandbox."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, TypeVar, overload

import grpc
import grpc.aio
from agentix.v1 import remote_service_pb2 as messages
from agentix.v1 import remote_service_pb2_grpc as services
from agentix.v1 import sandbox_service_pb2 as sandboxes
from agentix.v1 import sandbox_service_pb2_grpc as sandbox_services

from agentix import RemoteCallable

from ._ambient import traceparent_and_baggage
from ._call import RemoteCall, failure
from ._channel import Endpoint, translate
from ._config import Health
from ._exceptions import CallTimeout, RemoteCallError, RuntimeUnreachable
from ._follower import Follower
from ._outcome import Failed, Ok
from ._restricted import loads

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")


class Sandbox:
    """A sandbox; made by a provider.

    `aclose` ends the connection and leaves the sandbox alive; `async with` does the same.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        endpoint: Endpoint,
        sandbox_id: str,
        status: str,
        runtime_url: str,
        *,
        from_start: bool,
    ) -> None:
        """For providers: hold the sandbox with this id."""
        self.sandbox_id = sandbox_id
        self.runtime_url = runtime_url
        self.status = status
        self.call_deadline: float | None = None
        self._endpoint = endpoint
        self._calls: services.RemoteServiceAsyncStub = services.RemoteServiceStub(channel)
        self._sandboxes: sandbox_services.SandboxServiceAsyncStub = (
            sandbox_services.SandboxServiceStub(channel)
        )
        self._follower = Follower(channel, endpoint, sandbox_id, from_start)

    @overload
    async def remote(
        self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def remote(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def remote(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` in the sandbox and return its result.

        `fn` is an importable top-level function; its code need not run here, its module
        must be importable there. Raises TypeError for another target, RemoteCallError
        if it raised, WorkerExited if its worker died, CallCancelled if somebody cancelled
        the call, CallTimeout if `call_deadline` passed, RuntimeUnreachable without a
        connection, RequestRefused if the daemon refuses the call, RestrictedUnpickleError
        if the result holds a type that is not admitted. Cancelling this coroutine cancels
        the function.
        """
        reference = str(RemoteCallable.validate(fn))
        request = self._request(reference, pickle.dumps((args, kwargs)))
        self._follower.start()
        try:
            response = await self._calls.Remote(request, metadata=self._endpoint.metadata())
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._endpoint.address) from error
        if response.WhichOneof("outcome") == "error":
            raise failure(reference, response.error, self.call_deadline)
        return loads(response.pickle_value)

    @overload
    async def try_remote(
        self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Ok[T] | Failed: ...

    @overload
    async def try_remote(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Ok[T] | Failed: ...

    async def try_remote(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call as `remote` does and return `Ok(value)` or `Failed(error)`.

        Failed covers RemoteCallError and its kin, CallTimeout and RuntimeUnreachable;
        everything else is raised.
        """
        try:
            return Ok(await self.remote(fn, *args, **kwargs))
        except (RemoteCallError, CallTimeout, RuntimeUnreachable) as error:
            return Failed(error)

    @overload
    async def submit(
        self, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> RemoteCall[T]: ...

    @overload
    async def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> RemoteCall[T]: ...

    async def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> RemoteCall[Any]:
        """Start `fn(*args, **kwargs)` in the sandbox and return a handle once it is accepted.

        The call goes on without this process; `call_deadline`, RemoteCall.cancel or the end
        of the sandbox ends it early. Raises TypeError, RuntimeUnreachable and RequestRefused
        as `remote` does.
        """
        reference = str(RemoteCallable.validate(fn))
        request = self._request(reference, pickle.dumps((args, kwargs)))
        self._follower.start()
        try:
            call = await self._calls.SubmitCall(
                messages.SubmitCallRequest(call=request), metadata=self._endpoint.metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._endpoint.address) from error
        return RemoteCall(self._calls, self._endpoint, call.name, self.call_deadline)

    def call(self, name: str) -> RemoteCall[Any]:
        """Return the handle of a call of this sandbox by its name, or by its id alone."""
        prefix = f"sandboxes/{self.sandbox_id}/calls/"
        return RemoteCall(
            self._calls, self._endpoint, name if name.startswith("sandboxes/") else prefix + name
        )

    async def health(self) -> Health:
        """Return how the sandbox is. Raises SandboxNotFound, RuntimeUnreachable."""
        request = sandboxes.GetSandboxRequest(name=f"sandboxes/{self.sandbox_id}")
        try:
            found = await self._sandboxes.GetSandbox(request, metadata=self._endpoint.metadata())
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._endpoint.address) from error
        ready = found.state == sandboxes.SANDBOX_STATE_READY
        state = sandboxes.SandboxState.Name(found.state)[len("SANDBOX_STATE_") :].lower()
        return Health(status="ok" if ready else state, version=found.runtime.version)

    async def aclose(self) -> None:
        """Replay what the sandbox has logged so far and let go of it. Safe to call twice."""
        await asyncio.shield(self._follower.stop())

    async def __aenter__(self) -> Sandbox:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()

    def __repr__(self) -> str:
        """Name the sandbox."""
        return f"Sandbox({self.sandbox_id!r}, status={self.status!r})"

    def _request(self, reference: str, arguments: bytes) -> messages.RemoteRequest:
        traceparent, baggage = traceparent_and_baggage()
        request = messages.RemoteRequest(
            sandbox=f"sandboxes/{self.sandbox_id}",
            callable=reference,
            pickle_arguments=arguments,
            result_encoding=messages.ENCODING_PICKLE,
            traceparent=traceparent,
            baggage=baggage,
        )
        if self.call_deadline is not None:
            request.timeout.FromNanoseconds(int(self.call_deadline * 1e9))
        return request

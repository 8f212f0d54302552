"""The follower against a server whose answers a test chooses, and cut-off creations."""

from __future__ import annotations

import asyncio
import logging
import os
import pathlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Callable

import grpc
import grpc.aio
import pytest
from agentix.v1 import event_service_pb2 as events
from agentix.v1 import event_service_pb2_grpc as services
from agentix.v1 import remote_service_pb2 as remote
from agentix.v1 import remote_service_pb2_grpc as remote_services
from agentix.v1 import sandbox_service_pb2 as messages
from agentix.v1 import sandbox_service_pb2_grpc as sandbox_services
from google.protobuf import empty_pb2
from google.rpc import error_details_pb2, status_pb2

import agentix
from agentix._host._channel import Endpoint
from agentix._host._follower import Follower

Script = Callable[[events.StreamEventsRequest, Any], AsyncIterator[events.StreamEventsResponse]]


class _Events(services.EventServiceServicer):
    """Answers the nth StreamEvents by the nth script, later ones by the last."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = scripts
        self.requests: list[events.StreamEventsRequest] = []

    async def StreamEvents(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.requests.append(request)
        script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        async for response in script(request, context):
            yield response


def _said(text: str, cursor: str) -> events.StreamEventsResponse:
    log = events.LogRecord(logger="app", level_number=20, message=text)
    return events.StreamEventsResponse(events=[events.Event(log=log)], cursor=cursor)


def _follow(
    tmp_path: pathlib.Path,
    servicer: _Events,
    body: Callable[[Follower], Awaitable[None]],
    *,
    from_start: bool = True,
) -> None:
    async def main() -> None:
        server = grpc.aio.server()
        services.add_EventServiceServicer_to_server(servicer, server)
        server.add_insecure_port(f"unix:{tmp_path}/s")
        await server.start()
        endpoint = Endpoint(f"{tmp_path}/s", None)
        async with endpoint.connect() as channel:
            follower = Follower(channel, endpoint, "box", from_start)
            follower.start()
            follower.start()
            await body(follower)
            await follower.stop()
            await follower.stop()
        await server.stop(None)

    asyncio.run(asyncio.wait_for(main(), 60))


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


def test_it_goes_on_where_a_lost_connection_ended(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def cut(request: Any, context: Any) -> AsyncIterator[events.StreamEventsResponse]:
        yield _said("one", "c1")
        yield events.StreamEventsResponse()
        await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")

    async def rest(request: Any, context: Any) -> AsyncIterator[events.StreamEventsResponse]:
        yield _said("two", "c2")
        if request.follow:
            await asyncio.sleep(3600)

    async def body(follower: Follower) -> None:
        await _until(lambda: len(caplog.records) >= 2)

    caplog.set_level(logging.INFO)
    servicer = _Events(cut, rest)
    _follow(tmp_path, servicer, body)

    assert [record.getMessage() for record in caplog.records[:2]] == ["one", "two"]
    assert [request.after for request in servicer.requests] == ["", "c1", "c2"]
    assert [request.follow for request in servicer.requests] == [True, True, False]


def test_an_expired_cursor_begins_again(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def expired(request: Any, context: Any) -> AsyncIterator[events.StreamEventsResponse]:
        yield _said("one", "c1")
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "expired")

    async def again(request: Any, context: Any) -> AsyncIterator[events.StreamEventsResponse]:
        assert request.after == ""
        yield _said("two", "c9")

    async def body(follower: Follower) -> None:
        await _until(lambda: len(caplog.records) >= 3)

    caplog.set_level(logging.INFO)
    _follow(tmp_path, _Events(expired, again), body)

    assert [record.getMessage() for record in caplog.records] == [
        "one",
        "events of sandbox box were lost",
        "two",
    ]


@pytest.mark.parametrize(
    ("code", "warnings"), [(grpc.StatusCode.NOT_FOUND, 0), (grpc.StatusCode.INTERNAL, 1)]
)
def test_it_ends_with_the_sandbox_or_a_fault(
    code: grpc.StatusCode, warnings: int, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(request: Any, context: Any) -> AsyncIterator[events.StreamEventsResponse]:
        await context.abort(code, "no")
        yield events.StreamEventsResponse()

    async def body(follower: Follower) -> None:
        await _until(lambda: follower._gone)

    servicer = _Events(refuse)
    _follow(tmp_path, servicer, body, from_start=False)

    assert len(servicer.requests) == 1
    assert servicer.requests[0].WhichOneof("start") == "tail"
    assert len(caplog.records) == warnings


def test_a_handler_that_raises_does_not_end_it(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if record.getMessage() == "one":
                raise RuntimeError
            return True

    async def two(request: Any, context: Any) -> AsyncIterator[events.StreamEventsResponse]:
        yield _said("one", "c1")
        yield _said("two", "c2")

    async def body(follower: Follower) -> None:
        await _until(lambda: follower._gone)

    caplog.set_level(logging.INFO)
    broken = Broken()
    logging.getLogger("app").addFilter(broken)
    try:
        _follow(tmp_path, _Events(two), body)
    finally:
        logging.getLogger("app").removeFilter(broken)

    assert [record.getMessage() for record in caplog.records] == [
        "cannot replay an event of sandbox box",
        "two",
    ]


class _Sandboxes(sandbox_services.SandboxServiceServicer):
    def __init__(self) -> None:
        self.creating = asyncio.Event()
        self.wanted = ""
        self.deleted: list[str] = []
        self.code: grpc.StatusCode | None = None

    async def CreateSandbox(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.wanted = request.sandbox_id
        self.creating.set()
        if self.code is not None:
            await context.abort(self.code, "cut")
        await asyncio.sleep(3600)

    async def DeleteSandbox(self, request: Any, context: Any) -> Any:  # noqa: N802
        assert request.allow_missing
        self.deleted.append(request.name)
        return empty_pb2.Empty()


def _create(tmp_path: pathlib.Path, body: Callable[[Any, _Sandboxes], Awaitable[None]]) -> None:
    async def main() -> None:
        server = grpc.aio.server()
        servicer = _Sandboxes()
        sandbox_services.add_SandboxServiceServicer_to_server(servicer, server)
        server.add_insecure_port(f"unix:{tmp_path}/s")
        await server.start()
        async with agentix.AgentixProvider(f"{tmp_path}/s") as provider:
            await body(provider, servicer)
        await server.stop(None)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_cancelled_creation_leaves_no_sandbox(tmp_path: pathlib.Path) -> None:
    async def body(provider: Any, servicer: _Sandboxes) -> None:
        task = asyncio.ensure_future(provider.create(agentix.SandboxConfig()))
        await servicer.creating.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert servicer.deleted == [f"sandboxes/{servicer.wanted}"]

    _create(tmp_path, body)


def test_a_creation_whose_answer_was_lost_leaves_no_sandbox(tmp_path: pathlib.Path) -> None:
    async def body(provider: Any, servicer: _Sandboxes) -> None:
        servicer.code = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(agentix.RuntimeUnreachable):
            await provider.create(agentix.SandboxConfig())
        assert servicer.deleted == [f"sandboxes/{servicer.wanted}"]

    _create(tmp_path, body)


def test_a_refused_creation_deletes_nothing(tmp_path: pathlib.Path) -> None:
    async def body(provider: Any, servicer: _Sandboxes) -> None:
        servicer.code = grpc.StatusCode.ALREADY_EXISTS
        with pytest.raises(agentix.RequestRefused):
            await provider.create(agentix.SandboxConfig())
        assert servicer.deleted == []

    _create(tmp_path, body)


class _Calls(remote_services.RemoteServiceServicer):
    def __init__(self, status: status_pb2.Status | None) -> None:
        self.status = status

    async def Remote(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.status is not None:
            details = ("grpc-status-details-bin", self.status.SerializeToString())
            context.set_trailing_metadata((("other", "x"), details))
            await context.abort(grpc.StatusCode.UNAVAILABLE, "for a while")
        error = remote.RemoteError(type="Cancelled", message="by somebody", cancelled=True)
        return remote.RemoteResponse(error=error)


def _call(tmp_path: pathlib.Path, servicer: _Calls) -> BaseException:
    async def main() -> BaseException:
        server = grpc.aio.server()
        remote_services.add_RemoteServiceServicer_to_server(servicer, server)
        server.add_insecure_port(f"unix:{tmp_path}/s")
        await server.start()
        async with agentix.AgentixProvider(f"{tmp_path}/s") as provider:
            made = messages.Sandbox(name="sandboxes/x", state=messages.SANDBOX_STATE_READY)
            async with provider._handle(made, from_start=True) as sandbox:
                failed = await sandbox.try_remote(os.getpid)
        await server.stop(None)
        assert isinstance(failed, agentix.Failed)
        return failed.error

    return asyncio.run(asyncio.wait_for(main(), 60))


def test_a_call_that_somebody_cancelled(tmp_path: pathlib.Path) -> None:
    error = _call(tmp_path, _Calls(None))

    assert type(error) is agentix.CallCancelled


@pytest.mark.parametrize("reason", ["RUNTIME_UNAVAILABLE", "PROVIDER_UNAVAILABLE", "STOPPING"])
def test_reasons_that_mean_unreachable(reason: str, tmp_path: pathlib.Path) -> None:
    status = status_pb2.Status(code=14, message="for a while")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason))
    status.details.add().Pack(error_details_pb2.RetryInfo())

    error = _call(tmp_path, _Calls(status))

    assert type(error) is agentix.RuntimeUnreachable
    assert str(error) == f"{reason}: for a while"

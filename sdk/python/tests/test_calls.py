"""Calls that go on by themselves, through a real daemon."""

from __future__ import annotations

import asyncio
import pathlib
from types import SimpleNamespace

import pytest
import sdk_app
from agentix.v1 import remote_service_pb2 as messages
from conftest import Daemon
from test_sandbox import _run, _session, _until

import agentix
from agentix._host._call import RemoteCall
from agentix._host._channel import Endpoint


def test_submitted_calls(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            call = await sandbox.submit(sdk_app.run_async, 1, b=41)
            assert call.name.startswith(f"sandboxes/{sandbox.sandbox_id}/calls/")
            assert call.name in repr(call)
            assert await call.result() == 42
            assert await call.status() == agentix.CallStatus("succeeded")
            for name in (call.name, call.name.rsplit("/", 1)[1]):
                assert await sandbox.call(name).result() == 42
            failed = await sandbox.submit(sdk_app.boom, "no")
            with pytest.raises(agentix.RemoteCallError, match="ValueError: no"):
                await failed.result()
            assert await failed.status() == agentix.CallStatus("failed", "ValueError")

    _run(main())


def test_a_submitted_call_is_left_alone_until_it_is_cancelled(
    daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    cancelled, started = tmp_path / "cancelled", tmp_path / "started"

    async def main() -> None:
        async with _session(daemon) as sandbox:
            call = await sandbox.submit(sdk_app.wait_for_cancel, str(cancelled), str(started))
            await _until(started.exists, "the function to run")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(call.result(), 0.2)
            assert (await call.status()).state == "running"
            assert not cancelled.exists()
            ended = await sandbox.call(call.name).cancel()
            assert (ended.state, ended.error_type) == ("cancelled", "Cancelled")
            await _until(cancelled.exists, "the function to see its cancellation")
            with pytest.raises(agentix.CallCancelled):
                await call.result()

    _run(main())


def test_a_deadline_ends_a_submitted_call(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            sandbox.call_deadline = 0.2
            call = await sandbox.submit(
                sdk_app.wait_for_cancel, str(tmp_path / "cancelled"), str(tmp_path / "started")
            )
            with pytest.raises(agentix.CallTimeout):
                await call.result()

    _run(main())


def test_what_is_not_there_or_not_ours(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            with pytest.raises(agentix.RequestRefused) as refused:
                await sandbox.call("nope").status()
            assert refused.value.reason == "CALL_NOT_FOUND"
            there = sandbox.sandbox_id
            sandbox.sandbox_id = "nowhere"
            with pytest.raises(agentix.SandboxNotFound):
                await sandbox.submit(sdk_app.run, input="x")
            sandbox.sandbox_id = there

    _run(main())


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (None, "no longer kept"),
        (messages.RemoteResponse(value="1"), "made for a value"),
    ],
)
def test_outcomes_that_cannot_be_loaded(outcome: messages.RemoteResponse | None, text: str) -> None:
    async def wait(request: messages.WaitCallRequest, **_: object) -> messages.Call:
        return messages.Call(name=request.name, callable="app::run", outcome=outcome)

    call: RemoteCall[object] = RemoteCall(
        SimpleNamespace(WaitCall=wait),  # type: ignore[arg-type]
        Endpoint("unix:///none", None),
        "sandboxes/a/calls/b",
    )
    with pytest.raises(agentix.RemoteCallError, match=text) as raised:
        asyncio.run(call.result())
    assert raised.value.error.type == "ResultUnavailable"

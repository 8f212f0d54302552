"""Sandboxes and calls through a real daemon."""

from __future__ import annotations

import asyncio
import logging
import pathlib
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Callable

import pytest
import sdk_app
from conftest import Daemon

import agentix
from agentix import context


def _run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 120))


@asynccontextmanager
async def _session(daemon: Daemon, **options: Any) -> AsyncIterator[agentix.Sandbox]:
    config = agentix.SandboxConfig(project=str(daemon.project), env=options.pop("env", None))
    async with agentix.AgentixProvider(daemon.address) as provider:
        async with provider.session(config, **options) as sandbox:
            yield sandbox


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.01)


def test_remote_returns_values(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            assert await sandbox.remote(sdk_app.run, input="hello") == {"output": "HELLO"}
            assert await sandbox.remote(sdk_app.run_async, 1, b=41) == 42
            mixed = ([1, 1.0, -0.0, 2**70, None, b"\x00", (1, {2})], {"k": "é\U0001f600"})
            args, kwargs = await sandbox.remote(sdk_app.echo, *mixed[0], **mixed[1])
            assert repr((list(args), kwargs)) == repr(mixed)
            assert await sandbox.remote(sdk_app.environment, "HOME") is not None

    _run(main())


def test_large_values_both_ways(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            assert await sandbox.remote(sdk_app.size_of, b"x" * (20 << 20)) == 20 << 20
            assert len(await sandbox.remote(sdk_app.large, 20 << 20)) == 20 << 20

    _run(main())


def test_many_calls_at_once(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            calls = [sandbox.remote(sdk_app.run_async, number) for number in range(64)]
            assert await asyncio.gather(*calls) == [number + 2 for number in range(64)]

    _run(main())


def test_own_types_need_allow_type(daemon: Daemon, allowed: None) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            with pytest.raises(agentix.RestrictedUnpickleError, match=r"sdk_app\.Answer"):
                await sandbox.remote(sdk_app.answer)
            agentix.allow_type(sdk_app.Answer)
            assert await sandbox.remote(sdk_app.answer) == sdk_app.Answer("ok", [1, 2])

    _run(main())


def test_hostile_results_are_refused(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            with pytest.raises(agentix.RestrictedUnpickleError, match=r"posix\.system"):
                await sandbox.try_remote(sdk_app.hostile)

    _run(main())


def test_failures(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            with pytest.raises(agentix.RemoteCallError) as caught:
                await sandbox.remote(sdk_app.boom, "why")
            error = caught.value
            assert error.display_name == "sdk_app::boom"
            assert (error.error.type, error.error.message) == ("ValueError", "why")
            assert "in boom" in error.error.traceback
            assert str(error).startswith("sdk_app::boom: ValueError: why\n")
            assert type(error) is agentix.RemoteCallError

            failed = await sandbox.try_remote(sdk_app.boom, "again")
            assert isinstance(failed, agentix.Failed)
            assert isinstance(failed.error, agentix.RemoteCallError)
            assert await sandbox.try_remote(sdk_app.run, "x") == agentix.Ok({"output": "X"})

    _run(main())


def test_worker_that_dies(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            with pytest.raises(agentix.WorkerExited) as caught:
                await sandbox.remote(sdk_app.leave, 7)
            assert caught.value.returncode == 7
            with pytest.raises(agentix.WorkerExited) as caught:
                await sandbox.remote(sdk_app.killed)
            assert caught.value.returncode == -signal.SIGKILL
            assert await sandbox.remote(sdk_app.run, "x") == {"output": "X"}

    _run(main())


def test_call_deadline(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with _session(daemon, call_deadline=0.5) as sandbox:
            seen = tmp_path / "seen"
            call = sandbox.try_remote(sdk_app.wait_for_cancel, str(seen), str(tmp_path / "started"))
            failed = await call
            assert isinstance(failed, agentix.Failed)
            assert isinstance(failed.error, agentix.CallTimeout)
            await _until(seen.exists, "the function sees its cancellation")
            assert await sandbox.remote(sdk_app.run, "x") == {"output": "X"}

    _run(main())


def test_cancelling_the_caller_cancels_the_function(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            seen, started = tmp_path / "seen", tmp_path / "started"
            call = asyncio.ensure_future(
                sandbox.remote(sdk_app.wait_for_cancel, str(seen), str(started))
            )
            await _until(started.exists, "the function runs")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await _until(seen.exists, "the function sees its cancellation")

    _run(main())


def test_targets_that_have_no_name(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            with pytest.raises(TypeError, match="lambda"):
                await sandbox.remote(lambda: None)
            with pytest.raises(TypeError, match="bound method"):
                await sandbox.try_remote(daemon.stop)

    _run(main())


def test_what_is_not_accepted(daemon: Daemon) -> None:
    async def main() -> None:
        async with agentix.AgentixProvider(daemon.address) as provider:
            with pytest.raises(KeyError):
                await provider.get("no-such-sandbox")
            with pytest.raises(agentix.SandboxNotFound) as caught:
                await provider.attach("no-such-sandbox")
            assert caught.value.reason == "SANDBOX_NOT_FOUND"
            assert "no-such-sandbox" in str(caught.value)
            await provider.delete("no-such-sandbox")
            with pytest.raises(agentix.RequestRefused) as refused:
                await provider.create(agentix.SandboxConfig(project="/root"))
            assert refused.value.reason == "HOST_PATH_REFUSED"
            assert refused.value.code == "PERMISSION_DENIED"
            with pytest.raises(agentix.RequestRefused) as bad:
                await provider.create(agentix.SandboxConfig(env={"AGENTIX_X": "1"}))
            assert bad.value.reason == "INVALID_FIELD"
            assert "env" in str(bad.value)

    _run(main())


def test_session_always_deletes(daemon: Daemon) -> None:
    async def main() -> None:
        config = agentix.SandboxConfig(project=str(daemon.project))
        async with agentix.AgentixProvider(daemon.address) as provider:
            with pytest.raises(ZeroDivisionError):
                async with provider.session(config) as sandbox:
                    assert (await provider.get(sandbox.sandbox_id)).status == "running"
                    raise ZeroDivisionError
            with pytest.raises(agentix.SandboxNotFound):
                await provider.get(sandbox.sandbox_id)
            with pytest.raises(agentix.SandboxNotFound):
                await sandbox.remote(sdk_app.run, "x")

    _run(main())


def test_attach_and_health(daemon: Daemon) -> None:
    async def main() -> None:
        async with agentix.AgentixProvider(daemon.address) as provider:
            async with _session(daemon) as owner, await provider.attach(owner.sandbox_id) as other:
                assert await other.remote(sdk_app.run, "x") == {"output": "X"}
                health = await other.health()
                assert health.status == "ok"
                assert health.version
                assert other.status == "running"
                assert owner.sandbox_id in repr(other)
            with pytest.raises(agentix.SandboxNotFound):
                await other.health()

    _run(main())


def test_tcp_with_a_token(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            async with agentix.AgentixProvider() as provider:
                other = await provider.attach(sandbox.sandbox_id)
                assert await other.remote(sdk_app.run, "x") == {"output": "X"}
                await other.aclose()
            async with agentix.AgentixProvider(token="wrong") as provider:
                with pytest.raises(agentix.RequestRefused) as caught:
                    await provider.get(sandbox.sandbox_id)
                assert caught.value.reason == "UNAUTHENTICATED"

    monkeypatch.setenv("AGENTIX_ADDRESS", daemon.tcp)
    monkeypatch.setenv("AGENTIX_TOKEN", daemon.token)
    _run(main())


def test_no_daemon(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with agentix.AgentixProvider(f"unix://{tmp_path}/none") as provider:
            with pytest.raises(agentix.RuntimeUnreachable, match="none"):
                await provider.create(agentix.SandboxConfig())
            with pytest.raises(agentix.RuntimeUnreachable):
                await provider.delete("x")

    _run(main())


def test_baggage_travels(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            with context.with_baggage(user="ü", n=1):
                assert await sandbox.remote(sdk_app.baggage) == {"user": "ü", "n": "1"}
            assert await sandbox.remote(sdk_app.baggage) == {}

    _run(main())


def test_environment_of_the_sandbox(daemon: Daemon) -> None:
    async def main() -> None:
        async with _session(daemon, env={"COLOR": "red"}) as sandbox:
            assert await sandbox.remote(sdk_app.environment, "COLOR") == "red"

    _run(main())


def test_records_and_output_are_replayed(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            await sandbox.remote(sdk_app.talk, 50)

    caplog.set_level(logging.INFO)
    _run(main())

    ours = [record for record in caplog.records if record.name == "sdk.app"]
    texts = [record.getMessage() for record in ours]
    assert texts[:50] == [f"record {number} of 100%s" for number in range(50)]
    assert [record.number for record in ours[:50]] == list(range(50))  # type: ignore[attr-defined]
    assert texts[50] == "failed \\x1b[31m"
    assert "KeyError: 'inner'" in (ours[50].exc_text or "")
    assert (ours[0].funcName, ours[0].module, ours[0].levelname) == ("talk", "sdk_app", "INFO")
    assert len({record.agentix_call_id for record in ours}) == 1  # type: ignore[attr-defined]
    lines = [
        record.getMessage() for record in caplog.records if record.name == "agentix.sandbox.stdout"
    ]
    assert [line for line in lines if line.startswith("line ")] == [
        f"line {number} %s" for number in range(50)
    ]
    assert "from a child" in lines
    assert "no end of line" in lines
    errors = [record for record in caplog.records if record.name == "agentix.sandbox.stderr"]
    assert [record.getMessage() for record in errors] == ["to stderr"]


def test_the_last_line_before_the_worker_dies_arrives(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            for _ in range(5):
                with pytest.raises(agentix.WorkerExited):
                    await sandbox.remote(sdk_app.leave, 1)

    caplog.set_level(logging.INFO, "agentix.sandbox.stdout")
    _run(main())

    assert [record.getMessage() for record in caplog.records].count("the last line") == 5


def test_records_of_disabled_loggers_are_dropped(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with _session(daemon) as sandbox:
            await sandbox.remote(sdk_app.talk, 3)

    caplog.set_level(logging.INFO)
    caplog.set_level(logging.ERROR, "sdk.app")
    _run(main())

    names = [record.levelname for record in caplog.records if record.name == "sdk.app"]
    assert names == ["ERROR"]


def test_a_daemon_that_is_killed(tmp_path_factory: pytest.TempPathFactory) -> None:
    import tempfile

    async def main(own: Daemon) -> None:
        async with agentix.AgentixProvider(own.address) as provider:
            sandbox = await provider.create(agentix.SandboxConfig(project=str(own.project)))
            call = asyncio.ensure_future(sandbox.try_remote(sdk_app.slow, 60.0))
            await _until(lambda: sandbox._follower._cursor != "", "the call is under way")
            own.stop(signal.SIGKILL)
            failed = await call
            assert isinstance(failed, agentix.Failed)
            assert isinstance(failed.error, agentix.RuntimeUnreachable)
            own.start()
            assert (await provider.get(sandbox.sandbox_id)).status == "running"
            assert await sandbox.remote(sdk_app.run, "x") == {"output": "X"}
            await sandbox.aclose()
            await provider.delete(sandbox.sandbox_id)

    with tempfile.TemporaryDirectory(prefix="agx") as directory:
        own = Daemon(pathlib.Path(directory))
        try:
            _run(main(own))
        finally:
            own.stop()

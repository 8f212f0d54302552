"""The neighbour's own client at our runtime, where UPSTREAM_PYTHON names an interpreter that has it installed."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import pathlib
import random
from typing import Any

import pytest

from conftest import FULL, UPSTREAM, StartRuntime
from peers.proxy import Proxy
from peers.runtime import HERE, PROJECT, Runtime, until


async def upstream(url: str, scenario: str, *arguments: str, on_line: Any = None, timeout: float = 120) -> Any:
    """Run a scenario of the neighbour's client; what it saw."""
    command = [UPSTREAM, str(HERE / "upstream" / "host.py"), url, str(PROJECT), scenario, *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTIX_", "PYTHON"))}
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=1 << 28
    )
    assert process.stdout is not None and process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    last = None

    async def read() -> None:
        nonlocal last
        assert process.stdout is not None
        async for line in process.stdout:
            last = json.loads(line)
            if on_line is not None:
                on_line(last)

    try:
        await asyncio.wait_for(read(), timeout)
    finally:
        if process.returncode is None and last is None:
            process.kill()
        await process.wait()
    assert process.returncode == 0, (await errors).decode()[-3000:]
    await errors
    return last


async def test_upstream_host_calls(runtime: Runtime) -> None:
    seen = await upstream(runtime.url, "calls")
    assert seen["values"] == [None, 1, 1.5, "é", [1, {"a": None}]]
    assert (seen["async"], seen["bytes"], seen["up"]) == (7, 3 << 20, 3 << 20)
    assert seen["fail"] == ["RemoteCallError", "ValueError", None]
    assert seen["own_cancel"][0] in ("RemoteCallError", "CallCancelled")
    assert seen["leave"][0] == "RemoteCallError"
    assert seen["die"] == ["WorkerExited", "WorkerDied", 7]
    assert (seen["after"], seen["slow"], seen["failed"]) == ("alive", 1.5, "Failed")


async def test_upstream_host_streams(runtime: Runtime) -> None:
    n = 1000
    seen = await upstream(runtime.url, "streams", str(n))
    assert [r for r in seen["records"] if r[0] == "interop.app"] == [["interop.app", "INFO", str(i)] for i in range(n)]
    lines = [r[2] for r in seen["records"] if r[0] == "agentix.sandbox.stdout"]
    assert lines == [f"{i:07d} {'.' * 91}" for i in range(n)]
    counts = collections.Counter(s[0] for s in seen["spans"])
    assert counts == {"trace_start": 1, "trace_end": 1, "span_start": n, "span_end": n}
    assert [s[2]["i"] for s in seen["spans"] if s[0] == "span_end"] == list(range(n))


async def test_upstream_host_cancels(runtime: Runtime, tmp_path: pathlib.Path) -> None:
    stopped = tmp_path / "stopped"
    assert await upstream(runtime.url, "cancel", str(stopped)) == {"after": 1}
    await until(stopped.exists, "the function's CancelledError")


async def test_upstream_host_deadline(runtime: Runtime, tmp_path: pathlib.Path) -> None:
    stopped = tmp_path / "stopped"
    seen = await upstream(runtime.url, "deadline", str(stopped))
    assert seen["seen"][0] == "CallTimeout"
    await until(stopped.exists, "the function's CancelledError")


async def test_upstream_host_plugin(runtime: Runtime) -> None:
    seen = await upstream(runtime.url, "plugin")
    assert seen == {"value": [{"q": [1, None]}, "ok"], "error": ["ValueError", "no"]}


async def test_upstream_host_with_user_info(start: StartRuntime) -> None:
    runtime = await start(first_line={"neighbour_secret": "s3cret"})
    seen = await upstream(runtime.url.replace("://", "://any:s3cret@"), "streams", "10")
    assert len(seen["records"]) == 20
    with pytest.raises(AssertionError):
        await upstream(runtime.url.replace("://", "://any:wrong@"), "streams", "10")


async def test_upstream_host_over_a_link_that_is_cut(runtime: Runtime, tmp_path: pathlib.Path) -> None:
    """No double run, and each call ends: in its result, or in an error that says it is not to be had."""
    n, cuts = (2000, 60) if FULL else (300, 8)
    proxy = Proxy(runtime.port)
    await proxy.start()
    ran = tmp_path / "ran"
    going = False

    def line(text: Any) -> None:
        nonlocal going
        going = text == "began"

    async def cut() -> None:
        rng = random.Random(3)
        await until(lambda: going, "the storm", 30)
        while going and proxy.cuts < cuts:
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            proxy.cut()

    cutter = asyncio.create_task(cut())
    seen = await upstream(proxy.url, "storm", str(ran), str(n), on_line=line, timeout=900 if FULL else 120)
    await cutter
    executions = collections.Counter(ran.read_text().split())
    assert max(executions.values()) == 1
    kinds = collections.Counter(o[0] if o[0] == "value" else (o[0], o[1]) for o in seen["outcomes"])
    assert sum(kinds.values()) == n
    assert ("TimeoutError", None) not in kinds, kinds
    assert kinds["value"] <= len(executions) <= n
    messages = collections.Counter(r[2] for r in seen["records"])
    assert messages == collections.Counter([m for name in executions for m in (f"record {name}", f"line {name}")])
    print(f"\n{n} calls, {proxy.cuts} cuts: {dict(kinds)}, {len(executions)} ran")
    await proxy.stop()

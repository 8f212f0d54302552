"""wire §10 to §12: the reliable streams, log records and spans."""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
import time
from typing import Any, AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from conftest import FULL, MakeHost, StartRuntime
from peers import wire
from peers.host import Host
from peers.proxy import Proxy
from peers.raw import RawHost
from peers.runtime import Runtime, until
from peers.streams import follow

KEYS = {
    "name", "level", "levelno", "message", "created", "pathname", "funcName", "module", "lineno",
    "exc_text", "stack_info", "agentix_context", "extras",
}  # fmt: skip


@pytest_asyncio.fixture
async def before() -> AsyncIterator[Callable[[Runtime], Awaitable[Proxy]]]:
    """Put proxies before runtimes."""
    proxies: list[Proxy] = []

    async def one(runtime: Runtime) -> Proxy:
        proxies.append(Proxy(runtime.port))
        await proxies[-1].start()
        return proxies[-1]

    yield one
    for proxy in proxies:
        await proxy.stop()


@pytest_asyncio.fixture
async def proxy(runtime: Runtime, before: Callable[[Runtime], Awaitable[Proxy]]) -> Proxy:
    """A proxy before the runtime."""
    return await before(runtime)


async def resumed(runtime: Runtime, since: int = 0) -> RawHost:
    raw = RawHost(runtime.url)
    await raw.open()
    await raw.join(wire.RPC, wire.LOG, wire.TRACE)
    for namespace in (wire.LOG, wire.TRACE):
        await raw.emit(namespace, "_resume", wire.pack({"since_seq": since}))
    return raw


def records(raw: RawHost) -> list[dict[str, Any]]:
    return [d for n, e, d in raw.events() if (n, e) == (wire.LOG, "record")]


async def test_s10_envelopes(runtime: Runtime, raw: RawHost) -> None:
    raw = await resumed(runtime)
    await raw.remote("interop_app::records", 5)
    await raw.remote("interop_app::spans", 2)
    logs = records(raw)
    assert [r["_seq"] for r in logs] == [1, 2, 3, 4, 5]
    traces = [d for n, _, d in raw.events() if n == wire.TRACE]
    assert [t["_seq"] for t in traces] == list(range(1, len(traces) + 1))
    for sid in (logs[0]["_sid"], traces[0]["_sid"]):
        assert re.fullmatch("[0-9a-f]{8}", sid)
    assert logs[0]["_sid"] != traces[0]["_sid"]
    assert set(logs[0]) == set(traces[0]) == {"_sid", "_seq", "data"}
    await raw.close()


async def test_s10_live_events_wait_for_the_replay(runtime: Runtime, tmp_path: pathlib.Path) -> None:
    """TRAP a: an event sent before the replay would move the cursor past what is missing."""
    first = await resumed(runtime)
    await first.remote("interop_app::records", 10)
    await first.close()
    second = RawHost(runtime.url)
    await second.open()
    await second.join(wire.RPC, wire.LOG)
    await second.remote("interop_app::records", 3)
    assert records(second) == [], "sent before _resume"
    await second.emit(wire.LOG, "_resume", wire.pack({"since_seq": 4}))
    await second.wait(wire.LOG, "record", 9)
    assert [r["_seq"] for r in records(second)] == list(range(5, 14))
    await second.close()


async def test_s10_a_host_that_never_resumes_gets_what_comes(runtime: Runtime) -> None:
    raw = RawHost(runtime.url)
    await raw.open()
    await raw.join(wire.RPC, wire.LOG)
    await raw.remote("interop_app::records", 3)
    await raw.wait(wire.LOG, "record", 3)
    await raw.close()


@pytest.mark.parametrize("since", [0, 3, 10])
async def test_s10_resume_since(runtime: Runtime, since: int) -> None:
    raw = await resumed(runtime)
    await raw.remote("interop_app::records", 10)
    await raw.emit(wire.LOG, "_resume", wire.pack({"since_seq": since}))
    await raw.remote("interop_app::echo", 1)
    assert [r["_seq"] for r in records(raw)][10:] == list(range(since + 1, 11))
    await raw.close()


async def test_s10_ack_frees(runtime: Runtime) -> None:
    raw = await resumed(runtime)
    await raw.remote("interop_app::records", 10)
    await raw.emit(wire.LOG, "_ack", wire.pack({"seq": 7}))
    await raw.emit(wire.LOG, "_resume", wire.pack({"since_seq": 0}))
    await raw.remote("interop_app::echo", 1)
    assert [r["_seq"] for r in records(raw)][10:] == [8, 9, 10]
    await raw.close()


async def test_s10_cursors_of_an_older_stream(runtime: Runtime) -> None:
    """TRAP b: a number greater than any sent belongs to another stream."""
    raw = await resumed(runtime, since=1000)
    await raw.emit(wire.LOG, "_ack", wire.pack({"seq": 1000}))
    await raw.remote("interop_app::records", 3)
    await raw.wait(wire.LOG, "record", 3)
    await raw.emit(wire.LOG, "_ack", wire.pack({"seq": 1000}))
    await raw.emit(wire.LOG, "_resume", wire.pack({"since_seq": 1000}))
    await raw.remote("interop_app::echo", 1)
    assert [r["_seq"] for r in records(raw)] == [1, 2, 3, 1, 2, 3]
    await raw.close()


@pytest.mark.parametrize("event", ["_ack", "_resume"])
@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\xc0",
        b"\xc1",
        b"\x01",
        wire.pack({"seq": -1, "since_seq": -1}),
        wire.pack({"seq": "x", "since_seq": None}),
        wire.pack({"seq": 2**64 - 1, "since_seq": 2**64 - 1}),
        wire.pack({"seq": 1.5, "since_seq": True}),
        wire.pack([1]),
    ],
)
async def test_s10_malformed_control(event: str, document: bytes, runtime: Runtime) -> None:
    raw = await resumed(runtime)
    await raw.emit(wire.LOG, event, document)
    await raw.send(f'42/log,["{event}",300000000]', f'42/log,["{event}"]')
    await raw.remote("interop_app::records", 2)
    await raw.wait(wire.LOG, "record", 2)
    await raw.close()


async def test_s10_an_ack_of_one_host_does_not_free_for_another(make: MakeHost, runtime: Runtime, proxy: Proxy) -> None:
    """TRAP c: upstream's hosts ack everything; the one that is away must not lose by it."""
    away, there = make(**OPTIONS), make()
    log, _ = follow(away)
    other_log, _ = follow(there)
    await away.connect(proxy.url)
    await there.connect(runtime.url)
    await away.remote("interop_app::records", 5)
    await until(lambda: log.delivered == 5, "the first records")
    proxy.take_down()
    await until(lambda: bool(away.disconnects), "the cut")
    await there.remote("interop_app::records", 20)
    await until(lambda: other_log.delivered == 25, "the records of the host that is there")
    await there.remote("interop_app::echo", 1)
    proxy.bring_up()
    await until(lambda: log.delivered == 25, "the records of the time away")
    assert (log.holes, other_log.holes) == (0, 0)


OPTIONS = {"reconnection_delay": 0.05, "reconnection_delay_max": 0.2}


async def test_s10_records_survive_a_respawn(make: MakeHost, runtime: Runtime) -> None:
    host = make()
    log, _ = follow(host)
    await host.connect(runtime.url)
    await host.remote("interop_app::records", 5)
    assert (await host.failure("interop_app::die", 3))["type"] == "WorkerDied"
    await host.remote("interop_app::records", 5)
    await until(lambda: log.delivered == 11, "records of both workers")
    messages = [d["message"] for _, d in log.items]
    assert messages == [*"01234", "last words", *"01234"]
    assert (log.holes, log.duplicates) == (0, 0)


async def test_s10_records_of_a_sync_function_arrive_while_it_runs(host: Host, tmp_path: pathlib.Path) -> None:
    """Upstream's wait for its end."""
    go = tmp_path / "go"
    await host.emit(wire.RPC, "call", wire.call("c1", "interop_app::wait_for", str(go)))
    (record,) = await host.wait(wire.LOG, "record", timeout=5)
    assert record.data["data"]["message"] == "waits"
    assert host.outcomes("c1") == []
    go.touch()
    await host.outcome("c1")


async def test_s11_2_a_log_record(host: Host) -> None:
    began = time.time()
    await host.failure("interop_app::fail", "no")
    await host.remote("interop_app::records", 1)
    data = [e.data["data"] for e in await host.wait(wire.LOG, "record", count=2)]
    failed = next(d for d in data if d["level"] == "ERROR")
    assert set(failed) >= KEYS
    assert "ValueError: no" in failed["exc_text"]
    told = next(d for d in data if d["name"] == "interop.app")
    assert set(told) >= KEYS
    assert (told["level"], told["levelno"], told["message"]) == ("INFO", 20, "0")
    assert told["pathname"].endswith("interop_app.py") and told["funcName"] == "records" and told["module"] == "interop_app"
    assert told["lineno"] > 0 and told["exc_text"] is None and told["stack_info"] is None
    assert began - 5 < told["created"] < time.time() + 5


async def test_s11_2_a_captured_line(host: Host) -> None:
    await host.remote("interop_app::lines", 1)
    (event,) = await host.wait(wire.LOG, "record")
    data = event.data["data"]
    assert set(data) >= KEYS
    assert (data["name"], data["level"], data["levelno"], data["module"]) == ("agentix.sandbox.stdout", "INFO", 20, "stdio")
    assert (data["pathname"], data["funcName"], data["lineno"], data["exc_text"]) == ("", "", 0, None)
    assert data["extras"]["agentix_stream"] == "stdout"
    assert re.fullmatch("[0-9a-f]{8}", data["extras"]["worker_id"])
    assert data["message"] == f"{0:07d} {'.' * 91}"


async def test_s12_1_spans(host: Host) -> None:
    call_id = wire.new_id()
    await host.remote("interop_app::spans", 1, call_id=call_id)
    events = await host.wait(wire.TRACE, count=4)
    assert [e.name for e in events] == ["trace_start", "span_start", "span_end", "trace_end"]
    start, opened, closed, end = (e.data["data"] for e in events)
    assert set(start) >= {"trace_id", "call_id", "name", "metadata", "started_at"}
    assert set(end) >= {"trace_id", "call_id", "ended_at"}
    assert set(opened) >= {"trace_id", "call_id", "span_id", "parent_id", "name", "attrs", "started_at"}
    assert set(closed) >= set(opened) | {"ended_at", "status", "status_description"}
    assert {d["call_id"] for d in (start, opened, closed, end)} == {call_id}
    assert {d["trace_id"] for d in (start, opened, closed, end)} == {start["trace_id"]}
    assert re.fullmatch("trace_[0-9a-f]{32}", start["trace_id"])
    assert re.fullmatch("span_[0-9a-f]{24}", opened["span_id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", opened["started_at"])
    assert (opened["name"], opened["attrs"], start["metadata"]) == ("step", {"i": 0}, {"kind": "test"})


async def test_s12_1_odd_attributes_are_coerced(host: Host) -> None:
    """A key that is no string would end upstream's worker link (§9.8)."""
    await host.emit(wire.RPC, "call", wire.call("bystander", "interop_app::nap", 0.3))
    assert await host.remote("interop_app::odd_span") == "told"
    events = await host.wait(wire.TRACE, count=2)
    assert [e.name for e in events] == ["span_start", "span_end"]
    assert set(events[0].data["data"]["attrs"]) == {"set", "when", "big", "map"}
    assert (await host.outcome("bystander")).name == "call:result"


@pytest.mark.parametrize("kind", ["records", "spans", "lines"])
async def test_s10_a_burst_arrives_whole(kind: str, make: MakeHost, runtime: Runtime) -> None:
    n = 20_000 if FULL else 3_000
    host = make()
    log, trace = follow(host, keep=False)
    await host.connect(runtime.url)
    await host.remote(f"interop_app::{kind}", n, timeout=120)
    cursor = trace if kind == "spans" else log
    want = 2 * n + 2 if kind == "spans" else n
    await until(lambda: cursor.delivered >= want, f"{want} events", 120)
    assert (cursor.delivered, cursor.holes, cursor.duplicates) == (want, 0, 0)


async def test_thirty_thousand_records_while_the_link_is_down(
    make: MakeHost, runtime: Runtime, proxy: Proxy, tmp_path: pathlib.Path
) -> None:
    n = 30_000
    host = make(**OPTIONS)
    log, _ = follow(host, keep=False)
    await host.connect(proxy.url)
    await host.remote("interop_app::echo", 1)
    began, done = tmp_path / "began", tmp_path / "done"
    await host.emit(wire.RPC, "call", wire.call("c1", "interop_app::lines_while", str(began), str(done), n))
    await until(began.exists, "the function")
    proxy.take_down()
    await asyncio.sleep(3)
    await until(done.exists, "the end of the function", 60)
    proxy.bring_up()
    await until(lambda: log.items and log.items[-1][1]["message"] == str(n - 1), "the last record", 120)
    told = [d for _, d in log.items]
    gaps = [d["extras"]["agentix_dropped"] for d in told if d["name"] == "agentix.runtime"]
    numbers = [int(d["message"]) for d in told if d["name"] == "interop.app"]
    assert len(gaps) <= 1
    assert len(numbers) + sum(gaps) == n
    assert numbers == sorted(set(numbers))
    assert log.duplicates == 0


async def test_records_over_the_limit_are_told_by_one_gap(
    make: MakeHost, start: StartRuntime, before: Callable[[Runtime], Awaitable[Proxy]], tmp_path: pathlib.Path
) -> None:
    runtime = await start(env={"AGENTIX_LOG_BUFFER": "1000", "AGENTIX_TRACE_BUFFER": "1000"})
    proxy = await before(runtime)
    host = make(**OPTIONS)
    log, trace = follow(host)
    await host.connect(proxy.url)
    await host.remote("interop_app::records", 10)
    await until(lambda: log.delivered == 10, "the first records")
    await asyncio.sleep(0.2)  # their acks
    for name, args in (("lines_while", (str(tmp_path / "a"), str(tmp_path / "b"), 5000)), ("spans", (2000,))):
        await host.emit(wire.RPC, "call", wire.call(name, f"interop_app::{name}", *args))
    await until((tmp_path / "a").exists, "the function")
    proxy.take_down()
    await until((tmp_path / "b").exists, "the records", 60)
    await asyncio.sleep(2)
    proxy.bring_up()
    await until(lambda: any(d["message"] == "4999" for _, d in log.items), "the last record", 60)

    def gaps(source: str) -> list[int]:
        told = [d["extras"] for _, d in log.items if d["name"] == "agentix.runtime"]
        return [extras["agentix_dropped"] for extras in told if extras["agentix_source"] == source]

    await until(lambda: trace.items[-1][0] == "trace_end", "the end of the trace", 60)
    assert len(gaps(wire.LOG)) == 1 and sum(gaps(wire.LOG)) >= 3000
    assert sum(gaps(wire.LOG)) + log.delivered - 1 == 5010
    assert len(gaps(wire.TRACE)) <= 1
    assert sum(gaps(wire.TRACE)) + trace.delivered == 4002


async def test_a_ring_that_is_full_waits_for_the_host(make: MakeHost, start: StartRuntime) -> None:
    runtime = await start(env={"AGENTIX_LOG_BUFFER": "100", "AGENTIX_TRACE_BUFFER": "100"})
    host = make()
    log, trace = follow(host)
    await host.connect(runtime.url)
    await host.remote("interop_app::records", 3000, timeout=60)
    await host.remote("interop_app::lines", 3000, timeout=60)
    await host.remote("interop_app::spans", 1000, timeout=60)
    await until(lambda: log.delivered >= 6000 and trace.delivered >= 2002, "all of them", 60)
    assert [d["message"] for _, d in log.items[:3000]] == [str(i) for i in range(3000)]
    assert [d["message"] for _, d in log.items[3000:]] == [f"{i:07d} {'.' * 91}" for i in range(3000)]
    assert (log.holes, trace.holes, log.duplicates, trace.duplicates) == (0, 0, 0, 0)


async def test_a_host_that_acks_nothing_holds_nobody_up(make: MakeHost, start: StartRuntime) -> None:
    runtime = await start(env={"AGENTIX_LOG_BUFFER": "100"})
    silent = make()
    await silent.connect(runtime.url)
    await silent.resume_streams()
    assert await silent.remote("interop_app::records", 3000, timeout=60) == 3000
    last = (await silent.wait(wire.LOG, "record", count=100))[-1].data["_seq"]
    await until(lambda: silent.of(wire.LOG, "record")[-1].data["_seq"] == 3000, f"the last record after {last}")


@pytest.mark.parametrize("n", [1_000_000 if FULL else 30_000])
async def test_a_million_printed_lines(n: int, make: MakeHost, runtime: Runtime, peer: str) -> None:
    """A host that acks gets every line, and the runtime's memory is bounded."""
    host = make()
    log, _ = follow(host, keep=False)
    seen = 0

    wrong: list[Any] = []

    def count(name: str, data: dict[str, Any]) -> None:
        nonlocal seen
        if data["message"] != f"{seen:07d} {'.' * 91}":
            wrong.append((seen, data["message"]))
        seen += 1

    log._deliver = count
    await host.connect(runtime.url)
    call_id = wire.new_id()
    await host.emit(wire.RPC, "call", wire.call(call_id, "interop_app::lines", n))
    peak = 0

    def done() -> bool:
        nonlocal peak
        peak = max(peak, runtime.rss())
        return seen >= n or bool(wrong)

    await until(done, f"{n} lines", 1200 if FULL else 120)
    assert (seen, wrong[:3], log.holes, log.duplicates) == (n, [], 0, 0)
    assert peak < 300 << 20, f"{peak >> 20} MiB"
    await host.outcome(call_id)
    print(f"\n{n} lines to {peer} (pid {os.getpid()}): runtime peak {peak >> 20} MiB")

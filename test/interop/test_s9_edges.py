"""wire §9: servers and workers of both sides, in every combination with one of ours, behind every host."""

from __future__ import annotations

import asyncio
import pathlib
import re
from typing import Any, AsyncIterator

import pytest
import pytest_asyncio

from conftest import FULL, MakeHost
from peers import wire
from peers.edges import EDGES, Edge
from peers.host import Host
from peers.runtime import until
from peers.streams import Cursor, follow


@pytest_asyncio.fixture(params=[e for e in EDGES if "our" in e])
async def edge(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> AsyncIterator[Edge]:
    """A server with a worker of the other side."""
    e = Edge(request.param)
    await e.start(tmp_path)
    yield e
    await e.stop()


@pytest_asyncio.fixture
async def there(edge: Edge, make: MakeHost) -> tuple[Host, Cursor, Cursor]:
    """A host that follows /log and /trace."""
    host = make()
    log, trace = follow(host)
    await host.connect(edge.url)
    return host, log, trace


There = tuple[Host, Cursor, Cursor]


async def test_s9_6_values_and_errors(there: There) -> None:
    host, log, _ = there
    for value in (None, True, -1, 1 << 70, 1.5, "é", b"\x00\xff", [1, "a"], {"a": [None]}, {1}, (1, (2,))):
        assert await host.remote("interop_app::echo", value) == value
        assert await host.remote("interop_app::aecho", value=value) == value
    for callable_, args, kind in (
        ("interop_app::fail", ["no"], "ValueError"), ("no_such_module::f", [], "ModuleNotFoundError"),
        ("interop_app::nothing", [], "AttributeError"), ("interop_app", [], "ValueError"),
    ):  # fmt: skip
        error = await host.failure(callable_, *args)
        assert (error["type"], error["cancelled"], error["returncode"]) == (kind, False, None)
    await until(lambda: any(d["level"] == "ERROR" and "ValueError: no" in (d["exc_text"] or "") for _, d in log.items), "the log record")


@pytest.mark.parametrize("size", [1, 65_536, (1 << 20) + 1, *([200 << 20] if FULL else [32 << 20])])
async def test_s9_3_sizes(size: int, there: There, peer: str) -> None:
    host, _, _ = there
    down = min(size, 90 << 20) if peer == "socket.io-client" else size
    assert await host.remote("interop_app::size", b"x" * size, timeout=120) == size
    assert len(await host.remote("interop_app::fill", down, timeout=120)) == down


async def test_s9_6_many_at_once(there: There) -> None:
    host, _, _ = there
    values = await asyncio.gather(*(host.remote("interop_app::echo" if i % 2 else "interop_app::aecho", i) for i in range(200)))
    assert values == list(range(200))


async def test_s9_7_cancel(there: There, edge: Edge, tmp_path: pathlib.Path) -> None:
    host, log, _ = there
    stopped = tmp_path / "stopped"
    await host.emit(wire.RPC, "call", wire.call("c1", "interop_app::forever", str(stopped)))
    await until(lambda: any(d["message"] == "waits" for _, d in log.items), "the function")
    await host.emit(wire.RPC, "cancel", wire.pack({"call_id": "c1"}))
    assert (await host.outcome("c1")).data["error"]["cancelled"] is True
    if edge.server != "upstream":  # which tells no worker, its own neither
        await until(stopped.exists, "the function's CancelledError")
    await host.remote("interop_app::echo", 1)
    assert len(host.outcomes("c1")) == 1


@pytest.mark.parametrize(("callable_", "arg", "code"), [("interop_app::die", 7, 7), ("interop_app::kill_self", 9, -9)])
async def test_s9_8_a_worker_that_dies_is_followed_by_another(callable_: str, arg: int, code: int, there: There) -> None:
    host, log, _ = there
    await host.emit(wire.RPC, "call", wire.call("bystander", "interop_app::anap", 60))
    first = await host.remote("interop_app::environment", "AGENTIX_WORKER_ID")
    error = await host.failure(callable_, arg, timeout=10)
    assert (error["type"], error["returncode"]) == ("WorkerDied", code)
    assert (await host.outcome("bystander")).data["error"]["type"] == "WorkerDied"
    second = await host.remote("interop_app::environment", "AGENTIX_WORKER_ID")
    assert first and second and first != second
    await host.remote("interop_app::records", 3)
    await until(lambda: [d["message"] for _, d in log.items][-3:] == ["0", "1", "2"], "the records of the new worker")


async def test_s9_9_captured_lines(there: There, edge: Edge) -> None:
    host, log, _ = there
    n = 2000
    assert await host.remote("interop_app::lines", n) == n
    await until(lambda: log.delivered >= n, f"{n} lines", 60)
    lines = [d for _, d in log.items if d["name"] == "agentix.sandbox.stdout"]
    assert [d["message"] for d in lines] == [f"{i:07d} {'.' * 91}" for i in range(n)]
    assert {d["extras"]["agentix_stream"] for d in lines} == {"stdout"}
    assert (log.holes, log.duplicates) == (0, 0)


async def test_s10_records_and_spans_arrive_once(there: There, edge: Edge) -> None:
    host, log, trace = there
    await host.remote("interop_app::records", 1000)
    await host.remote("interop_app::spans" if edge.has_package else "reference_worker::spans", 500)
    await until(lambda: log.delivered >= 1000 and trace.delivered >= 1000, "all of them", 60)
    assert [d["message"] for _, d in log.items if d["name"] == "interop.app"] == [str(i) for i in range(1000)]
    starts = [d for event, d in trace.items if event == "span_start"]
    assert [d["attrs"]["i"] for d in starts] == list(range(500))
    assert all(re.fullmatch("span_[0-9a-f]{24}", d["span_id"]) for d in starts)
    assert (log.holes, log.duplicates, trace.holes, trace.duplicates) == (0, 0, 0, 0)


async def test_s10_records_survive_a_reconnect(edge: Edge, make: MakeHost) -> None:
    first = make()
    log, _ = follow(first)
    await first.connect(edge.url)
    await first.remote("interop_app::records", 5)
    await until(lambda: log.delivered == 5, "the first records")
    await first.remote("interop_app::echo", 1)  # their acks were handled before
    await first.close()
    second = make()
    again, _ = follow(second)
    again.sid, again.seq = log.sid, log.seq
    await second.connect(edge.url)
    await second.remote("interop_app::records", 5)
    await until(lambda: again.delivered >= 5, "the later ones")
    assert (again.delivered, again.holes) == (5, 0)


@pytest.mark.parametrize("data", [None, {"k": [b"\x00", "é", 1.5]}])
async def test_s8_plugins(data: Any, edge: Edge, make: MakeHost) -> None:
    if not edge.has_package or edge.worker == "upstream":
        return  # the functions of this project use our package
    host = make()
    await host.connect(edge.url, [wire.RPC, "/abridge"])
    await host.remote("interop_app::open_plugin", "/abridge")
    await host.emit("/abridge", "ping", wire.pack(data))
    (pong,) = await host.wait("/abridge", "pong")
    assert pong.data == data


async def test_s13_context(there: There, edge: Edge) -> None:
    if not edge.has_package or edge.worker == "upstream":
        return
    host, _, _ = there
    golden = bytes.fromhex(
        "80049531000000000000007d948c176167656e7469785f636f6e746578745f62616767616765947d948c0674656e616e74948c0461636d659473732e"
    )
    await host.emit(wire.RPC, "call", wire.call("c1", "interop_app::baggage", context=golden))
    assert wire.value_of((await host.outcome("c1")).args[0]) == {"tenant": "acme"}

"""Links that are cut at random: every call ends once, every record arrives once."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import pathlib
import pickle
import random
import time
from typing import Any

import pytest

from conftest import FULL, MakeHost
from peers import wire
from peers.host import Event, Host
from peers.proxy import Proxy
from peers.runtime import Runtime, until
from peers.streams import Cursor

CALLS, CUTS, AT_ONCE = (10_000, 200, 64) if FULL else (500, 10, 32)


class Caller:
    """Emits each call until its result is there: again, with the same id, after each reconnect."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.pending: dict[str, tuple[bytes, asyncio.Future[Event]]] = {}
        self.results: collections.Counter[str] = collections.Counter()
        self.log, self.trace = Cursor(host, wire.LOG), Cursor(host, wire.TRACE)
        self._tasks: set[asyncio.Task[None]] = set()
        host.on_event, host.on_join = self._event, self._joined

    def _event(self, event: Event) -> None:
        self.host.events.clear()
        if event.namespace == wire.RPC:
            self._outcome(event)
        else:
            (self.log if event.namespace == wire.LOG else self.trace).take(event)

    def _outcome(self, event: Event) -> None:
        call_id = event.data["call_id"]
        self._emit("ack", wire.pack({"call_id": call_id}))
        waiting = self.pending.pop(call_id, None)
        if waiting is not None:
            self.results[call_id] += 1
            waiting[1].set_result(event)

    def _joined(self, namespace: str) -> None:
        if namespace == wire.RPC:
            for body, _ in list(self.pending.values()):
                self._emit("call", body)
        else:
            (self.log if namespace == wire.LOG else self.trace).joined()

    def _emit(self, event: str, body: bytes) -> None:
        task = asyncio.ensure_future(self._try(event, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try(self, event: str, body: bytes) -> None:
        with contextlib.suppress(Exception):  # the link is down: the reconnect will send it
            await self.host.emit(wire.RPC, event, body)

    async def call(self, call_id: str, callable_: str, *args: Any) -> Any:
        """Call a function; its value."""
        body = wire.call(call_id, callable_, *args)
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self.pending[call_id] = (body, future)
        self._emit("call", body)
        event = await future
        assert event.name == "call:result", event.data
        return pickle.loads(event.data["value"])


async def cut_at_random(proxy: Proxy, host: Host, busy: Any) -> None:
    rng = random.Random(7)
    while proxy.cuts < CUTS and busy():
        await asyncio.sleep(rng.uniform(0.005, 0.2))
        joined = len(host.joined)
        proxy.cut()
        if rng.random() < 0.8:  # else it is cut again while it connects
            with contextlib.suppress(AssertionError):
                await until(lambda before=joined: len(host.joined) >= before + 3, "the reconnect", 5)


@pytest.mark.parametrize("transports", [["polling", "websocket"], ["websocket"]], ids="+".join)
async def test_calls_and_records_over_a_link_that_is_cut(
    transports: list[str], peer: str, make: MakeHost, runtime: Runtime, tmp_path: pathlib.Path
) -> None:
    proxy = Proxy(runtime.port)
    await proxy.start()
    host = make(reconnection_delay=0.01, reconnection_delay_max=0.05)
    caller = Caller(host)
    await host.connect(proxy.url, transports=transports)
    ran = tmp_path / "ran"
    names = [f"c{i}" for i in range(CALLS)]
    todo = iter(names)
    values: dict[str, Any] = {}

    async def work() -> None:
        for name in todo:
            values[name] = await caller.call(name, "interop_app::count_and_tell", str(ran), name)
            # The cuts are spread over the whole of the work.
            await until(lambda: proxy.cuts >= CUTS or len(values) * CUTS <= CALLS * (proxy.cuts + 1), "a cut", 30)

    began = time.monotonic()
    cutter = asyncio.create_task(cut_at_random(proxy, host, lambda: len(values) < CALLS - AT_ONCE))
    await asyncio.wait_for(asyncio.gather(*(work() for _ in range(AT_ONCE))), 1500 if FULL else 90)
    await cutter
    await until(lambda: caller.log.delivered >= 2 * CALLS and caller.trace.delivered >= 2 * CALLS, "all records", 60)

    assert proxy.cuts >= CUTS - 1
    assert values == {name: name for name in names}
    assert caller.results == collections.Counter(names)
    executions = collections.Counter(ran.read_text().split())
    assert [name for name, n in executions.items() if n != 1] == [] and len(executions) == CALLS
    messages = collections.Counter(d["message"] for _, d in caller.log.items)
    assert messages == collections.Counter([m for name in names for m in (f"record {name}", f"line {name}")])
    spans = collections.Counter((event, d["attrs"]["ran"]) for event, d in caller.trace.items)
    assert spans == collections.Counter([(event, name) for name in names for event in ("span_start", "span_end")])
    assert (caller.log.holes, caller.trace.holes) == (0, 0)
    print(f"\n{CALLS} calls by {peer}, {proxy.cuts} cuts, {time.monotonic() - began:.0f} s")
    await proxy.stop()

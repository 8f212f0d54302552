"""wire §5: Socket.IO, by packets and by libraries."""

from __future__ import annotations

import asyncio
import json
import pathlib
import time
from typing import Any

import pytest
import socketio

from conftest import MakeHost, StartRuntime
from peers import wire
from peers.host import NOTHING, Host
from peers.raw import RawHost
from peers.runtime import Runtime

BOOTS = {
    "never ready": "/bin/sleep 600",
    "ends at once": "/bin/false",
    "not there": "/nothing/here",
    "speaks no frames": "/usr/bin/yes",
}


GOLDEN = pathlib.Path(__file__).parents[2] / "runtime" / "wire" / "testdata" / "golden.json"


@pytest.mark.parametrize("entry", [e for e in json.loads(GOLDEN.read_text()) if e["kind"] == "packet"], ids=lambda e: str(e["name"]))
def test_s21_golden_packets_are_those_of_python_socketio(entry: dict[str, Any]) -> None:
    text = bytes.fromhex(entry["hex"]).decode()
    packet = socketio.packet.Packet(encoded_packet=text[1:])
    assert (packet.packet_type, packet.namespace) == (entry["type"], entry["namespace"])
    if entry["event"]:
        assert packet.add_attachment(b"payload")
        assert packet.data == [entry["event"], b"payload"]
        assert packet.encode()[0] == text[1:]


@pytest.mark.parametrize("worker", BOOTS)
async def test_s5_2_every_connect_is_answered_within_a_second(worker: str, start: StartRuntime, make: MakeHost) -> None:
    """The host allows one second of silence for each namespace, whatever the worker does."""
    runtime = await start(worker_command=BOOTS[worker])
    host = make()
    await host.connect(runtime.url, [wire.RPC, wire.TRACE, wire.LOG, "/abridge", "/a/b"], wait=1.0)
    assert sorted(host.joined) == sorted([wire.RPC, wire.TRACE, wire.LOG, "/abridge", "/a/b"])


async def test_s5_2_while_a_worker_boots(start: StartRuntime) -> None:
    runtime = await start()
    began = time.monotonic()
    raw = RawHost(runtime.url)
    await raw.open()
    await raw.join(wire.RPC, wire.TRACE, wire.LOG)
    assert time.monotonic() - began < 1
    assert await raw.remote("interop_app::echo", 1) == 1
    await raw.close()


@pytest.mark.parametrize("namespace", ["/", "/abridge", "/x/y", "/ünï", "/rpc2", "/a.b-c_d", "/" + "n" * 500])
async def test_s5_2_any_namespace_is_accepted(namespace: str, make: MakeHost, runtime: Runtime) -> None:
    host = make()
    await host.connect(runtime.url, [namespace, wire.RPC])
    await host.emit(namespace, "whatever", b"\xc0")
    assert await host.remote("interop_app::echo", 1) == 1
    assert host.disconnects == []


async def test_s5_2_replies(raw: RawHost) -> None:
    await raw.send("40/rpc,{}", "40/trace,{}", "40/log,{}", '40/x,{"any":["auth"]}', "40/y,", "40/z?a=b,{}", "40")
    for namespace in ("/rpc,", "/trace,", "/log,", "/x,", "/y,", "/z,", ""):
        reply = await raw.expect(f'40{namespace}{{"sid":"')
        assert reply.endswith('"}')


async def test_s5_2_a_second_connect_is_refused(raw: RawHost) -> None:
    await raw.join(wire.RPC)
    await raw.send("40/rpc,{}")
    reply = await raw.expect("4")
    assert reply.startswith("44/rpc,"), reply
    assert await raw.remote("interop_app::echo", 1) == 1


async def test_s5_2_events_before_joining_are_dropped(raw: RawHost) -> None:
    await raw.join(wire.LOG)
    await raw.emit(wire.RPC, "call", wire.call("c1", "interop_app::echo", 1))
    await raw.join(wire.RPC)
    assert await raw.remote("interop_app::echo", 2) == 2
    assert not [d for _, _, d in raw.events() if d.get("call_id") == "c1"]


async def test_s5_3_one_binary_argument_right_after_its_text(host: Host, raw: RawHost) -> None:
    """Concurrent results and records: no packet comes between an event and its attachment."""
    await raw.join(wire.RPC, wire.LOG, wire.TRACE)
    for namespace in (wire.LOG, wire.TRACE):
        await raw.emit(namespace, "_resume", wire.pack({"since_seq": 0}))
    calls = [host.remote("interop_app::records", 20), host.remote("interop_app::lines", 20), host.remote("interop_app::spans", 20)]
    await asyncio.gather(*calls, *(host.remote("interop_app::aecho", i) for i in range(100)))
    await raw.wait(wire.RPC, "call:result", 103)
    for i, packet in enumerate(raw.packets):
        if isinstance(packet, bytes):
            before = raw.packets[i - 1]
            assert isinstance(before, str) and before.startswith("451-"), before
            assert before.endswith('{"_placeholder":true,"num":0}]'), before
        elif packet.startswith("45"):
            assert isinstance(raw.packets[i + 1], bytes)


@pytest.mark.parametrize("event", ["call", "ack", "cancel", "resume"])
@pytest.mark.parametrize(
    "argument",
    ["7", "300000000", "-1", "1e300", "true", "null", '"text"', "[]", '["a"]', "{}", '{"call_id":"x"}', '{"_placeholder":true,"num":99}'],
)
async def test_s5_3_json_arguments_are_harmless(event: str, argument: str, runtime: Runtime, raw: RawHost) -> None:
    """A number must not be taken for a size."""
    await raw.join(wire.RPC)
    before = runtime.rss()
    await raw.send(f'42/rpc,["{event}",{argument}]')
    assert await raw.remote("interop_app::echo", 1) == 1
    assert raw.closed is None
    assert runtime.rss() - before < 64 << 20


@pytest.mark.parametrize(
    "text",
    [
        "45999999999-/rpc,[]", "4599999999999999999999-/rpc,[]", '45100000-/rpc,["call"]', '450-/rpc,["call"]',
        "42/rpc," + "1" * 200 + '["call"]', '42/rpc,["call"' + ",1" * 50_000 + "]", "42/rpc," + "[" * 100_000, '42/rpc,[1,"call"]',
        '42/rpc,[null]', "42/rpc,[]", '42/rpc,["connect",1]', '42/rpc,["disconnect"]', "46-/rpc,1[]", "43/rpc,99[]", '461-/rpc,1["x"]',
    ],
)  # fmt: skip
async def test_s5_1_hostile_packets_cost_their_sender_alone(text: str, runtime: Runtime, raw: RawHost) -> None:
    await raw.join(wire.RPC)
    before = runtime.rss()
    bad = RawHost(runtime.url)
    await bad.open()
    await bad.join(wire.RPC)
    await bad.send(text)
    assert await raw.remote("interop_app::echo", 1) == 1
    assert bad.goodbyes() == []
    assert runtime.rss() - before < 64 << 20
    await bad.close()


async def test_s5_3_no_data_is_an_empty_map(raw: RawHost) -> None:
    await raw.join(wire.RPC)
    await raw.send('42/rpc,["call"]')
    for document in (b"", b"\xc0", b"\x80", wire.pack([]), wire.pack({"call_id": 7})):
        await raw.emit(wire.RPC, "call", document)
    errors = await raw.wait(wire.RPC, "call:error", 6)
    for error in errors:
        assert error == {"call_id": "", "error": {"type": "BadRequest", "message": "missing call_id"}}


async def test_s5_3_further_arguments_are_ignored(raw: RawHost) -> None:
    await raw.join(wire.RPC)
    document = wire.call("c1", "interop_app::echo", 1)
    await raw.send('452-/rpc,["call",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]', document, b"more")
    await raw.send('451-/rpc,["ack",{"_placeholder":true,"num":0},"more",{"a":1}]', wire.pack({"call_id": "none"}))
    (event,) = await raw.wait(wire.RPC, "call:result")
    assert event["call_id"] == "c1"


async def test_s5_4_acknowledgements(raw: RawHost) -> None:
    await raw.join(wire.RPC, wire.LOG, "/nobody")
    await raw.emit(wire.RPC, "call", wire.call("c1", "interop_app::nap", 0.2), ack="7")
    assert await raw.expect("43/rpc,7") == "43/rpc,7[]"
    for number, event in enumerate(("cancel", "ack", "resume"), 8):
        await raw.emit(wire.RPC, event, wire.pack({"call_id": "none", "call_ids": []}), ack=str(number))
        assert await raw.expect("43/rpc,") == f"43/rpc,{number}[]"
    await raw.emit(wire.LOG, "_resume", wire.pack({"since_seq": 0}), ack="77")
    assert await raw.expect("43/log,") == "43/log,77[]"
    await raw.emit(wire.RPC, "unknown", b"\xc0", ack="99")  # nothing handles it, nothing answers
    await raw.emit("/nobody", "event", b"\xc0", ack="99")
    await raw.remote("interop_app::echo", 1)
    assert not [p for p in raw.packets if isinstance(p, str) and p.startswith("43")]


async def test_s5_4_libraries_get_their_acknowledgement(host: Host) -> None:
    assert await host.ask(wire.RPC, "cancel", wire.pack({"call_id": "none"})) == []
    with pytest.raises(asyncio.TimeoutError):
        await host.ask(wire.RPC, "unknown", b"\xc0", timeout=0.3)
    await host.emit(wire.RPC, "cancel", NOTHING)
    assert await host.remote("interop_app::echo", 1) == 1


async def test_s5_5_scope(make: MakeHost, runtime: Runtime) -> None:
    """Completions go to all on /rpc, a cancel's among them; refusals and resumes to who asked."""
    a, b = make(), make()
    await a.connect(runtime.url)
    await b.connect(runtime.url)
    await a.emit(wire.RPC, "call", wire.call("c1", "interop_app::echo", 1))
    for host in (a, b):
        assert (await host.outcome("c1")).name == "call:result"
    await a.emit(wire.RPC, "call", wire.pack({}))
    await a.wait(wire.RPC, "call:error")
    await a.emit(wire.RPC, "call", wire.call("c2", "interop_app::anap", 60))
    await a.emit(wire.RPC, "cancel", wire.pack({"call_id": "c2"}))
    assert (await a.outcome("c2")).data["error"]["type"] == "Cancelled"
    await b.emit(wire.RPC, "resume", wire.pack({"call_ids": ["c1"]}))
    await b.wait(wire.RPC, "call:result", count=2)
    await a.remote("interop_app::echo", 1)
    assert len(a.outcomes("c1")) == 1
    assert [e.data["call_id"] for e in b.of(wire.RPC, "call:error")] == ["c2"]


async def test_s5_5_records_precede_the_result_that_follows_them(host: Host) -> None:
    await host.remote("interop_app::count_and_tell", "/dev/null", "x")
    names = [(e.namespace, e.name) for e in host.events]
    result = names.index((wire.RPC, "call:result"))
    assert names[:result].count((wire.LOG, "record")) == 2
    assert [n for n in names[:result] if n[0] == wire.TRACE] == [(wire.TRACE, "span_start"), (wire.TRACE, "span_end")]

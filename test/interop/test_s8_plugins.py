"""wire §8: namespaces of plugins, and requests and answers over them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conftest import MakeHost
from peers import wire
from peers.host import Event, Host
from peers.raw import RawHost
from peers.runtime import Runtime

NS = "/abridge"


async def joined(make: MakeHost, runtime: Runtime) -> Host:
    """A host on the plugin's namespace, whose plugin was opened."""
    host = make()
    await host.connect(runtime.url, [wire.RPC, wire.LOG, NS])
    await host.remote("interop_app::open_plugin", NS)
    return host


@pytest.mark.parametrize("data", [None, 1, "é", b"\x00\xff", [1, [2.5, None]], {"k": {"n": [b"", ""]}}, -(2**63), 2**64 - 1, True])
async def test_s8_events_both_ways(data: Any, make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    await host.emit(NS, "ping", wire.pack(data))
    (pong,) = await host.wait(NS, "pong")
    assert pong.data == data and type(pong.data) is type(data)
    await host.remote("interop_app::plugin_emit", "told", data)
    assert (await host.wait(NS, "told"))[0].data == data


async def test_s8_str_and_bin_keep_their_kind(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    await host.emit(NS, "ping", wire.pack({"text": "a", "bytes": b"a"}))
    (pong,) = await host.wait(NS, "pong")
    assert pong.data == {"text": "a", "bytes": b"a"}


async def test_s5_3_event_names_of_any_characters(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    await host.emit(NS, "/v1/odd:name", wire.pack(7))
    (seen,) = await host.wait(NS, "/v1/odd:name:seen")
    assert seen.data == 7


async def test_s8_an_emit_reaches_every_host_of_the_namespace(make: MakeHost, runtime: Runtime) -> None:
    a, b = await joined(make, runtime), make()
    await b.connect(runtime.url, [wire.RPC, NS])
    elsewhere = make()
    await elsewhere.connect(runtime.url, [wire.RPC])
    await a.remote("interop_app::plugin_emit", "told", 1)
    for host in (a, b):
        await host.wait(NS, "told")
    await elsewhere.remote("interop_app::echo", 1)
    assert elsewhere.of(NS) == []


async def test_s8_before_it_is_opened_events_are_dropped(make: MakeHost, runtime: Runtime) -> None:
    host = make()
    await host.connect(runtime.url, [wire.RPC, NS])
    await host.emit(NS, "ping", wire.pack("early"))
    await host.remote("interop_app::open_plugin", NS)
    await host.emit(NS, "ping", wire.pack("late"))
    await host.wait(NS, "pong")
    assert await host.remote("interop_app::plugin_got") == ["late"]


async def test_s8_an_event_starts_no_second_worker(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    first = await host.remote("interop_app::environment", "AGENTIX_WORKER_ID")
    assert (await host.failure("interop_app::die", 1))["type"] == "WorkerDied"
    await host.emit(NS, "ping", wire.pack(1))  # the forwarder stays, the new worker has no handler
    second = await host.remote("interop_app::environment", "AGENTIX_WORKER_ID")
    assert first != second
    assert host.of(NS, "pong") == []


def responder(host: Host, answer: Any) -> None:
    """Answer requests as the convention says."""

    def event(e: Event) -> None:
        if e.namespace == NS and isinstance(e.data, dict) and "request_id" in e.data:
            kind, fields = answer(e.name, e.data["data"])
            body = wire.pack({"request_id": e.data["request_id"], **fields})
            tasks.add(asyncio.ensure_future(host.emit(NS, f"{e.name}:{kind}", body)))

    tasks: set[Any] = set()
    host.on_event = event


async def test_s8_requests(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    responder(host, lambda name, data: ("result", {"value": {"body": b"ok", "status_code": 200, "asked": [name, data]}}))
    for event in ("/v1/messages", "ask"):
        value = await host.remote("interop_app::plugin_request", event, {"q": 1})
        assert value == {"body": b"ok", "status_code": 200, "asked": [event, {"q": 1}]}
    ids = [e.data["request_id"] for e in host.of(NS)]
    assert len(set(ids)) == len(ids) == 2 and all(len(i) == 32 and int(i, 16) >= 0 for i in ids)


async def test_s8_requests_that_fail(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    responder(host, lambda *_: ("error", {"error": {"type": "Nope", "message": "no", "status_code": 418}}))
    assert await host.remote("interop_app::plugin_request_error", "ask", None) == ["Nope", "no", 418]
    responder(host, lambda *_: ("error", {"error": {"type": "Nope", "message": "no"}}))
    assert await host.remote("interop_app::plugin_request_error", "ask", None) == ["Nope", "no", None]


async def test_s8_a_request_without_an_answer_ends(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    error = await host.failure("interop_app::plugin_request", "ask", None, 0.2)
    assert error["type"] == "TimeoutError"
    await host.emit(NS, "ask:result", wire.pack({"request_id": "0" * 32, "value": 1}))  # nobody's
    assert await host.remote("interop_app::echo", 1) == 1


@pytest.mark.parametrize("path", ["/", "/rpc", "/log", "/trace", "no-slash", ""])
async def test_s8_reserved_paths(path: str, make: MakeHost, runtime: Runtime) -> None:
    host = make()
    await host.connect(runtime.url, [wire.RPC])
    assert (await host.failure("interop_app::open_plugin", path))["type"] == "ValueError"


@pytest.mark.parametrize("document", [b"\xc1", b"\x81\x01\x02", b"\xdd\xff\xff\xff\xff", b"\x91" * 300 + b"\xc0", b"\xa2\xff\xff"])
async def test_s2_1_malformed_documents_cost_nobody_else_anything(document: bytes, make: MakeHost, runtime: Runtime) -> None:
    """An integer key or a bad length would end upstream's worker link."""
    host = await joined(make, runtime)
    await host.emit(wire.RPC, "call", wire.call("bystander", "interop_app::nap", 0.2))
    for namespace in (NS, wire.LOG, wire.RPC):
        await host.emit(namespace, "ping" if namespace == NS else "resume", document)
    await host.emit(NS, "ping", wire.pack("after"))
    await host.wait(NS, "pong")
    assert (await host.outcome("bystander")).name == "call:result"
    assert await host.remote("interop_app::plugin_got") == ["after"]


@pytest.mark.parametrize("argument", ["5", '"text"', "[1,2]", '{"a":1}', "null"])
async def test_s5_3_json_arguments_on_a_forwarder(argument: str, make: MakeHost, runtime: Runtime, raw: RawHost) -> None:
    """The protocol forwards them as the JSON value."""
    await joined(make, runtime)
    await raw.join(wire.RPC, NS)
    await raw.send(f'42{NS},["ping",{argument}]')
    import json

    (pong,) = await raw.wait(NS, "pong")
    assert pong == json.loads(argument)


async def test_s5_4_an_event_on_a_forwarder_is_acknowledged(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    assert await host.ask(NS, "ping", wire.pack(1)) == []


async def test_s5_5_plugin_events_precede_the_result_that_follows_them(make: MakeHost, runtime: Runtime) -> None:
    host = await joined(make, runtime)
    for i in range(50):
        await host.remote("interop_app::plugin_emit", "told", i)
        assert [e.data for e in host.of(NS, "told")] == list(range(i + 1))


async def test_s2_2_extension_types_pass_through(make: MakeHost, runtime: Runtime) -> None:
    """A host that sends numpy's extension gets it back as it was."""
    import msgpack

    golden = bytes.fromhex("c70e013c69347c32000000000001000000")
    host = await joined(make, runtime)
    await host.emit(NS, "ping", golden)
    (pong,) = await host.wait(NS, "pong")
    assert pong.args[0] == golden or isinstance(pong.data, (list, msgpack.ExtType)), pong.args

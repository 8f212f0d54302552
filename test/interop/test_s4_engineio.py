"""wire §4: Engine.IO, by packets and by libraries."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import time
from typing import Any

import aiohttp
import pytest

from conftest import MakeHost, StartRuntime
from peers import wire
from peers.host import Host
from peers.pyhost import PyHost
from peers.raw import SEPARATOR, PollingHost, RawHost
from peers.runtime import Runtime, until

TRANSPORTS = {
    "polling then websocket": (["polling", "websocket"], "websocket"),
    "websocket": (["websocket"], "websocket"),
    "polling": (["polling"], "polling"),
}


@pytest.mark.parametrize("way", TRANSPORTS)
async def test_s4_3_transports(way: str, make: MakeHost, runtime: Runtime) -> None:
    transports, in_use = TRANSPORTS[way]
    host = make()
    await host.connect(runtime.url, transports=transports)
    assert await host.remote("interop_app::echo", {"a": [1, b"\x00"]}) == {"a": [1, b"\x00"]}
    await until_transport(host, in_use)
    assert await host.remote("interop_app::echo", 2) == 2


async def until_transport(host: Host, name: str) -> None:
    for _ in range(200):
        if await host.transport() == name:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the transport is {await host.transport()}, not {name}")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 1 << 20, (1 << 24) + 1])
@pytest.mark.parametrize("way", TRANSPORTS)
async def test_s4_7_sizes_both_ways(size: int, way: str, make: MakeHost, runtime: Runtime) -> None:
    host = make()
    await host.connect(runtime.url, [wire.RPC], transports=TRANSPORTS[way][0])
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert await host.remote("interop_app::echo", data, timeout=60) == data


@pytest.mark.parametrize("way", ["websocket", "polling"])
async def test_s4_7_200_mib_both_ways(way: str, peer: str, make: MakeHost, runtime: Runtime) -> None:
    host = make()
    await host.connect(runtime.url, [wire.RPC], transports=TRANSPORTS[way][0])
    up = down = (200 if way == "websocket" else 32) << 20
    if peer == "socket.io-client":
        down = min(down, 90 << 20)  # its WebSocket library reads messages of at most 100 MiB
    assert await host.remote("interop_app::size", b"x" * up, timeout=120) == up
    assert len(await host.remote("interop_app::fill", down, timeout=120)) == down
    assert host.disconnects == []


async def test_s4_1_endpoint(runtime: Runtime) -> None:
    async with aiohttp.ClientSession(runtime.url) as http:
        for path in (
            "/socket.io/?EIO=4&transport=polling",
            "/socket.io?EIO=4&transport=polling",
            "/socket.io/?EIO=4",
            "/socket.io/?EIO=4&t=17.5",
        ):
            async with http.get(path) as answer:
                assert (answer.status, (await answer.text())[0]) == (200, "0"), path
                assert "Set-Cookie" not in answer.headers
        for path in (
            "/socket.io/",
            "/socket.io/?EIO=3&transport=polling",
            "/socket.io/?EIO=4&transport=carrier-pigeon",
            "/socket.io/?EIO=4&transport=polling&sid=nothing",
        ):
            async with http.get(path) as answer:
                assert answer.status == 400, path


async def test_s4_2_open(runtime: Runtime, raw: RawHost) -> None:
    polling = PollingHost(runtime.url)
    opening = await polling.open()
    assert opening["upgrades"] == ["websocket"]
    assert raw.opening["upgrades"] == []
    for o in (opening, raw.opening):
        assert isinstance(o["sid"], str) and o["sid"]
        assert o["pingInterval"] > 0 and o["pingTimeout"] >= o["pingInterval"]
        assert o["maxPayload"] >= wire.MAX_MESSAGE
    await polling.close()


async def upgraded(runtime: Runtime) -> tuple[PollingHost, RawHost]:
    polling = PollingHost(runtime.url)
    opening = await polling.open()
    ws = RawHost(runtime.url)
    await ws.open(sid=opening["sid"])
    await ws.send("2probe")
    await until(lambda: ws.packets, "3probe")
    return polling, ws


async def test_s4_3_the_frame_after_the_probe_is_3probe(runtime: Runtime) -> None:
    polling, ws = await upgraded(runtime)
    assert ws.packets == ["3probe"]
    ws.packets.clear()
    await ws.send("5", "40/rpc,{}")
    await ws.expect("40/rpc,")
    assert await ws.remote("interop_app::echo", 1) == 1
    assert ws.goodbyes() == []
    await polling.close()
    await ws.close()


async def test_s4_3_a_probe_that_goes_nowhere_leaves_polling(runtime: Runtime) -> None:
    polling, ws = await upgraded(runtime)
    await ws.close()
    await polling.post("40/rpc,{}")
    await polling.until("40/rpc,")
    await polling.close()


async def test_s4_3_packets_queued_before_the_upgrade_arrive_after_it(runtime: Runtime) -> None:
    polling, ws = await upgraded(runtime)
    await polling.post(*(f"40/n{i},{{}}" for i in range(10)))
    ws.packets.clear()
    await ws.send("5")
    seen: set[str] = set()
    for _i in range(10):
        seen.add((await ws.expect("40/n"))[:6])
    assert len(seen) == 10
    await polling.close()
    await ws.close()


async def test_s4_4_pings_of_a_client_are_harmless(raw: RawHost) -> None:
    await raw.join(wire.RPC)
    await raw.send("2", "2probe", "6", "3")
    assert await raw.remote("interop_app::echo", 1) == 1
    assert raw.closed is None


async def test_s4_5_at_most_16_packets_in_a_payload(runtime: Runtime) -> None:
    polling = PollingHost(runtime.url)
    await polling.open()
    await polling.post("40/rpc,{}", "40/log,{}")
    await polling.until("40/log")
    for i in range(60):
        body = base64.b64encode(wire.call(f"c{i}", "interop_app::echo", i)).decode()
        assert await polling.post('451-/rpc,["call",{"_placeholder":true,"num":0}]', "b" + body) == "ok"
    await runtime.worker_ready()
    await asyncio.sleep(0.5)  # let results pile up
    results = 0
    while results < 60:
        results += sum(p.startswith("451-/rpc") for p in await polling.poll())
    assert max(map(len, polling.payloads)) <= 16
    await polling.close()


async def test_s4_5_python_reads_a_burst_by_polling(make: MakeHost, runtime: Runtime) -> None:
    host = make()
    await host.connect(runtime.url, transports=["polling"])
    await host.resume_streams()
    assert await host.remote("interop_app::lines", 300) == 300
    await host.wait(wire.LOG, "record", count=300)
    assert host.disconnects == []


async def test_s4_5_posts_are_answered_ok(runtime: Runtime) -> None:
    polling = PollingHost(runtime.url)
    await polling.open()
    assert (await polling.post("40/rpc,{}")).lower() == "ok"
    await polling.close()


async def test_s4_5_a_close_ends_the_waiting_poll(runtime: Runtime) -> None:
    polling = PollingHost(runtime.url)
    await polling.open()
    await polling.post("40/rpc,{}")
    await polling.until("40/rpc,")
    waiting = asyncio.create_task(polling.poll())
    await asyncio.sleep(0.1)
    await polling.post("1")
    assert "1" not in await asyncio.wait_for(waiting, 5)
    await polling.close()


async def test_s4_5_binary_is_base64_in_a_payload(runtime: Runtime) -> None:
    polling = PollingHost(runtime.url)
    await polling.open()
    await polling.post("40/rpc,{}")
    await polling.until("40/rpc")
    await polling.post('451-/rpc,["call",{"_placeholder":true,"num":0}]', "b" + base64.b64encode(b"\x80").decode())
    packets: list[str] = []
    while len(packets) < 2:
        packets += [p for p in await polling.poll() if p != "2"]
    assert packets[0] == '451-/rpc,["call:error",{"_placeholder":true,"num":0}]'
    assert packets[1][0] == "b"
    error = wire.unpack(base64.b64decode(packets[1][1:]))
    assert error == {"call_id": "", "error": {"type": "BadRequest", "message": "missing call_id"}}
    await polling.close()


@pytest.mark.parametrize("transport", ["polling", "websocket"])
async def test_s4_6_ten_thousand_pings_and_no_false_timeout(start: StartRuntime, transport: str) -> None:
    """Many sessions at a short interval, each answering as it should."""
    runtime = await start(flags=["--ping-interval", "40ms", "--ping-timeout", "2s"], worker_command="/bin/sleep 600")
    pings = 0

    async def session() -> None:
        nonlocal pings
        host = PyHost(reconnection=False)
        await host.connect(runtime.url, [wire.RPC], transports=[transport], wait=5)
        answer = host.sio.eio._send_packet

        async def counted(packet: Any) -> None:
            nonlocal pings
            pings += packet.packet_type == 3
            await answer(packet)

        host.sio.eio._send_packet = counted
        while pings < 10_000 and not host.disconnects:
            await asyncio.sleep(0.02)
        assert host.disconnects == [], f"after {pings} pings"
        await host.close()

    await asyncio.gather(*(session() for _ in range(40)))
    assert pings >= 10_000


async def test_s4_6_a_peer_that_answers_no_ping_is_dropped(start: StartRuntime) -> None:
    runtime = await start(flags=["--ping-interval", "50ms", "--ping-timeout", "150ms"], worker_command="/bin/sleep 600")
    raw = RawHost(runtime.url)
    raw.answers_pings = False
    await raw.open()
    assert (raw.opening["pingInterval"], raw.opening["pingTimeout"]) == (50, 150)
    await raw.gone(timeout=5)
    assert raw.goodbyes() == []
    await raw.close()


async def test_s4_8_a_stopping_runtime_says_no_goodbye(make: MakeHost, runtime: Runtime, raw: RawHost) -> None:
    """Upstream's host takes EIO close and SIO disconnect as final; a cut it mends."""
    host = make()
    await host.connect(runtime.url)
    await raw.join(wire.RPC, wire.LOG)
    polling = PollingHost(runtime.url)
    await polling.open()
    await polling.post("40/rpc,{}")
    await polling.until("40/rpc,")
    waiting = asyncio.create_task(polling.poll())
    await asyncio.sleep(0.1)
    runtime.signal(signal.SIGTERM)
    await raw.gone()
    assert raw.goodbyes() == []
    try:
        packets = await waiting
    except (aiohttp.ClientError, AssertionError):
        packets = []
    assert "1" not in packets and not any(p.startswith("41") for p in packets)
    await until(lambda: bool(host.disconnects), "the host notices")
    assert not any("server disconnect" in reason for reason in host.disconnects)
    await polling.close()


async def test_s4_8_a_host_comes_back_to_a_runtime_that_was_restarted(make: MakeHost, start: StartRuntime) -> None:
    first = await start()
    host = make(reconnection_delay=0.05, reconnection_delay_max=0.2)
    await host.connect(first.url)
    assert await host.remote("interop_app::echo", 1) == 1
    joined = len(host.joined)
    await first.stop()
    await start(port=first.port)
    await until(lambda: len(host.joined) >= joined + 3, "the host is back")
    assert await host.remote("interop_app::echo", 2) == 2


async def test_s4_8_a_bare_close_is_normal(runtime: Runtime, raw: RawHost) -> None:
    other = RawHost(runtime.url)
    await other.open()
    await other.join(wire.RPC)
    await other.emit(wire.RPC, "call", wire.call("c1", "interop_app::nap", 0.2))
    await runtime.worker_ready()
    await other.close()
    await raw.join(wire.RPC)
    await raw.emit(wire.RPC, "resume", wire.pack({"call_ids": ["c1"]}))
    (event,) = await raw.wait(wire.RPC, "call:result")
    assert event["call_id"] == "c1"


@pytest.mark.parametrize(
    "packet",
    [
        "7",
        "9x",
        "",
        "x",
        "4",
        "49",
        "4{",
        '42/rpc,{"a":1}',
        b"stray attachment",
        '451-/rpc,["call",{"_placeholder":true,"num":5}]',
        "45x-/rpc,[]",
    ],
)
async def test_s4_8_garbage_costs_its_sender_alone(packet: Any, runtime: Runtime, raw: RawHost) -> None:
    await raw.join(wire.RPC)
    bad = RawHost(runtime.url)
    await bad.open()
    await bad.join(wire.RPC)
    await bad.send(packet)
    await bad.send("2")
    assert await raw.remote("interop_app::echo", 1) == 1
    assert bad.goodbyes() == [], "a host that is cut off may come back"
    assert raw.closed is None
    await bad.close()


async def test_s4_5_garbage_by_polling(runtime: Runtime, raw: RawHost) -> None:
    await raw.join(wire.RPC)
    for body in ("", SEPARATOR, "x" * 100, "b!!!", SEPARATOR.join(["40/rpc,{}"] * 17), "4" + "[" * 100_000):
        bad = PollingHost(runtime.url)
        await bad.open()
        async with bad.session.post(bad._query(), data=body) as answer:
            assert answer.status in (200, 400, 413), body[:20]
        try:
            packets = await asyncio.wait_for(bad.poll(), 0.3)
        except (AssertionError, asyncio.TimeoutError, aiohttp.ClientError):
            packets = []
        assert "1" not in packets and not any(p.startswith("41") for p in packets), body[:20]
        await bad.close()
    assert await raw.remote("interop_app::echo", 1) == 1


async def test_s4_7_a_message_over_the_limit_closes_with_1009(runtime: Runtime) -> None:
    raw = RawHost(runtime.url)
    await raw.open()
    await raw.join(wire.RPC)
    with contextlib.suppress(ConnectionError, aiohttp.ClientError):
        await raw.send(b"x" * (wire.MAX_MESSAGE + (17 << 20)))
    await raw.gone(30)
    assert raw.goodbyes() == []
    await raw.close()
    async with aiohttp.ClientSession(runtime.url) as http, http.get("/health") as answer:
        assert json.loads(await answer.text())["status"] == "ok"


async def test_s4_6_a_slow_reader_costs_no_other(runtime: Runtime, raw: RawHost) -> None:
    """One that reads nothing: the others hear in time, and memory is bounded."""
    await runtime.worker_ready()
    await raw.join(wire.RPC)
    reader, writer = await asyncio.open_connection("127.0.0.1", runtime.port)
    writer.write(
        b"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x81\x89\0\0\0\0" + b"40/rpc,{}")  # an empty mask
    before = runtime.rss()
    began = time.monotonic()
    for _ in range(40):
        assert len(await raw.remote("interop_app::fill", 4 << 20)) == 4 << 20
        raw.packets.clear()
    assert time.monotonic() - began < 30
    assert runtime.rss() - before < 600 << 20  # the results retained are 512 MiB at most
    writer.close()

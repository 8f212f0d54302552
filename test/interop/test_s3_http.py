"""wire §3: HTTP, /health and /call."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any, AsyncIterator, Optional

import aiohttp
import pytest
import pytest_asyncio

from conftest import StartRuntime
from peers import wire
from peers.host import Host
from peers.raw import RawHost
from peers.runtime import Runtime


@pytest_asyncio.fixture
async def http(runtime: Runtime) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP client of the runtime."""
    async with aiohttp.ClientSession(runtime.url) as session:
        yield session


async def post(http: aiohttp.ClientSession, body: bytes, prefer: Optional[str] = None) -> tuple[int, Any, Any]:
    """POST /call; status, headers, document."""
    headers = {"Content-Type": "application/msgpack", **({"Prefer": prefer} if prefer is not None else {})}
    async with http.post("/call", data=io.BytesIO(body), headers=headers) as answer:
        data = await answer.read()
        packed = answer.headers["Content-Type"] == "application/msgpack"
        return answer.status, answer.headers, wire.unpack(data) if packed else data


def executions(path: pathlib.Path) -> list[str]:
    """Return which functions ran, one entry for each time."""
    return path.read_text().split() if path.exists() else []


async def test_s3_1_health_is_ok_before_any_worker(start: StartRuntime) -> None:
    runtime = await start(worker_command="/bin/sleep 60")
    async with aiohttp.ClientSession() as http, http.get(runtime.url + "/health") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        body = json.loads(await answer.text())
    assert body["status"] == "ok" and isinstance(body["version"], str)


async def test_s3_2_a_short_call_is_answered_and_broadcast(http: aiohttp.ClientSession, raw: RawHost) -> None:
    await raw.join(wire.RPC)
    status, headers, body = await post(http, wire.call("h1", "interop_app::echo", 3), "respond-async, wait=20")
    assert (status, body) == (200, {"ok": True, "value": bytes.fromhex("80044b032e")})
    assert headers["Preference-Applied"] == "wait=20"
    (event,) = await raw.wait(wire.RPC, "call:result")
    assert event == {"call_id": "h1", "value": body["value"]}


async def test_s3_2_a_failure_is_answered_with_the_five_keys(http: aiohttp.ClientSession) -> None:
    status, _, body = await post(http, wire.call("h1", "interop_app::fail", "no"), "wait=20")
    assert (status, body["ok"]) == (200, False)
    error = body["error"]
    assert {"type", "message", "traceback", "cancelled", "returncode"} <= set(error)
    assert (error["type"], error["message"], error["cancelled"], error["returncode"]) == ("ValueError", "no", False, None)
    assert "raise ValueError(text)" in error["traceback"]


async def test_s3_2_a_long_call_gets_202_and_its_result_on_rpc(runtime: Runtime, http: aiohttp.ClientSession, raw: RawHost) -> None:
    await runtime.worker_ready()
    await raw.join(wire.RPC)
    status, headers, body = await post(http, wire.call("h1", "interop_app::nap", 0.4), "respond-async, wait=0.05")
    assert (status, body) == (202, {"call_id": "h1"})
    assert headers["Preference-Applied"] == "wait=0.05"
    assert headers["Location"] == "/call/h1"
    (event,) = await raw.wait(wire.RPC, "call:result")
    assert event["call_id"] == "h1"
    async with http.get("/call/h1") as answer:
        assert answer.status in (404, 405)


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        (None, "1"), ("respond-async", "1"), ("wait=later", "1"), ("respond-async, wait=3", "3"), ("WAIT=3", "3"),
        ('a;wait = "2"', "2"), ("wait=0.25", "0.25"), ("wait=.5", "0.5"), ("wait=2, wait=9", "2"), ("await=7", "1"),
        ("wait=99999999999999999999", None),
    ],
)  # fmt: skip
async def test_s3_2_prefer(http: aiohttp.ClientSession, prefer: Optional[str], applied: Optional[str]) -> None:
    status, headers, _body = await post(http, wire.call(wire.new_id(), "interop_app::echo", 1), prefer)
    assert status in (200, 202)
    assert headers["Preference-Applied"].startswith("wait=")
    if applied is not None:
        assert headers["Preference-Applied"] == "wait=" + applied


async def test_s3_2_wait_0_answers_at_once(http: aiohttp.ClientSession) -> None:
    status, _, body = await post(http, wire.call("h1", "interop_app::nap", 0.2), "wait=0")
    assert (status, body) == (202, {"call_id": "h1"})


@pytest.mark.parametrize(
    "body", [b"", wire.pack([1]), wire.pack("x"), wire.pack({}), wire.pack({"call_id": 7}), wire.pack({"call_id": None})]
)
async def test_s3_2_400_without_a_call_id(http: aiohttp.ClientSession, body: bytes) -> None:
    status, _, answer = await post(http, body)
    assert status == 400
    assert answer == {"ok": False, "error": {"type": "BadRequest", "message": "missing or invalid call_id"}}


@pytest.mark.parametrize("body", [b"\xc1", b"\x81", b"\x81\x01\x02", wire.pack({"call_id": "x"}) + b"x", b"\x82\xa7call_id"])
async def test_s3_2_500_for_what_is_no_msgpack(http: aiohttp.ClientSession, body: bytes) -> None:
    status, headers, answer = await post(http, body)
    assert status == 500
    assert headers["Content-Type"].startswith("text/plain")
    assert answer.strip() == b"Internal Server Error"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_s3_2_405_for_other_methods(http: aiohttp.ClientSession, method: str) -> None:
    async with http.request(method, "/call") as answer:
        assert answer.status == 405
        assert "POST" in answer.headers["Allow"]


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"arguments": b""}, "KeyError", "'callable'"),
        ({"callable": "interop_app::echo"}, "KeyError", "'arguments'"),
        ({"callable": 7, "arguments": b""}, "ValidationError", None),
        ({"callable": "interop_app::echo", "arguments": 7}, "ValidationError", None),
        ({"callable": "interop_app::echo", "arguments": b"no pickle"}, "ArgumentsDecodeError", None),
        ({"callable": "interop_app::echo", "arguments": bytes.fromhex("80044b032e")}, "ArgumentsDecodeError", None),
        ({"callable": "no colons", "arguments": wire.arguments()}, "ValueError", None),
        ({"callable": "interop_app::nothing", "arguments": wire.arguments()}, "AttributeError", None),
        ({"callable": "no_such_module::x", "arguments": wire.arguments()}, "ModuleNotFoundError", None),
        ({"callable": "interop_app::log", "arguments": wire.arguments()}, "TypeError", None),
        ({"callable": "interop_app::generator", "arguments": wire.arguments()}, "ResultEncodeError", None),
    ],
)
async def test_s3_2_malformed_fields_are_a_completed_call(
    http: aiohttp.ClientSession, fields: dict[str, Any], kind: str, message: Optional[str]
) -> None:
    status, _, body = await post(http, wire.pack({"call_id": wire.new_id(), **fields}), "wait=20")
    assert (status, body["ok"], body["error"]["type"]) == (200, False, kind)
    if message is not None:
        assert body["error"]["message"] == message


async def test_s3_2_unknown_keys_nil_context_and_str_arguments(http: aiohttp.ClientSession) -> None:
    fields = {"call_id": "h1", "callable": "interop_app::echo", "arguments": wire.arguments(1), "context": None, "more": [1]}
    status, _, body = await post(http, wire.pack(fields), "wait=20")
    assert (status, body["ok"]) == (200, True)
    text = "((I1\nt(dt."  # protocol 0 of ((1,), {}), all ASCII
    status, _, body = await post(http, wire.pack({**fields, "call_id": "h2", "arguments": text}), "wait=20")
    assert (status, body) == (200, {"ok": True, "value": bytes.fromhex("80044b012e")})


async def test_s3_2_a_call_id_of_any_characters(http: aiohttp.ClientSession, raw: RawHost) -> None:
    await raw.join(wire.RPC)
    for call_id in ("", "ünï-☃", "a b/c?d", "\x01", "x" * 1000):
        status, _headers, body = await post(http, wire.call(call_id, "interop_app::nap", 0.05), "wait=0")
        assert (status, body) == (202, {"call_id": call_id})
    await raw.wait(wire.RPC, "call:result", 5)


async def test_s3_2_a_replay_never_runs_again(tmp_path: pathlib.Path, http: aiohttp.ClientSession, raw: RawHost) -> None:
    ran = tmp_path / "ran"
    await raw.join(wire.RPC)
    body = wire.call("h1", "interop_app::count", str(ran), "h1")
    assert (await post(http, body, "wait=20"))[0] == 200
    # While its result is retained the protocol answers 202, and /rpc has the result.
    status, _, answer = await post(http, body, "wait=20")
    assert (status, answer) in [(202, {"call_id": "h1"})] or answer["ok"] is True
    await raw.emit(wire.RPC, "ack", wire.pack({"call_id": "h1"}))
    await raw.remote("interop_app::echo", 1)  # the ack was handled before this
    status, _, answer = await post(http, body, "wait=20")
    assert (status, answer["ok"], answer["error"]["type"]) == (200, False, "ResultUnavailable")
    await raw.emit(wire.RPC, "call", body)
    (error,) = await raw.wait(wire.RPC, "call:error")
    assert error["error"]["type"] == "ResultUnavailable"
    assert executions(ran) == ["h1"]


async def test_s3_2_a_replay_while_it_runs_joins(
    tmp_path: pathlib.Path, runtime: Runtime, http: aiohttp.ClientSession, raw: RawHost
) -> None:
    await runtime.worker_ready()
    ran = tmp_path / "ran"
    await raw.join(wire.RPC)
    body = wire.call("h1", "interop_app::slow_count", str(ran), "h1", 0.5)
    assert (await post(http, body, "wait=0"))[0] == 202
    assert (await post(http, body, "wait=0"))[0] == 202
    await raw.emit(wire.RPC, "call", body)
    await raw.wait(wire.RPC, "call:result")
    assert executions(ran) == ["h1"]


async def test_s3_2_closing_the_connection_cancels_nothing(tmp_path: pathlib.Path, runtime: Runtime, raw: RawHost) -> None:
    await runtime.worker_ready()
    ran = tmp_path / "ran"
    await raw.join(wire.RPC)
    body = wire.call("h1", "interop_app::slow_count", str(ran), "h1", 0.3)
    async with aiohttp.ClientSession(runtime.url, timeout=aiohttp.ClientTimeout(total=0.1)) as short:
        with pytest.raises(TimeoutError):
            await post(short, body, "wait=20")
    (event,) = await raw.wait(wire.RPC, "call:result")
    assert event["call_id"] == "h1"


async def test_s3_2_a_host_mixes_both_ways(host: Host, http: aiohttp.ClientSession) -> None:
    """An upstream host falls back to /rpc with the same id when POST /call fails on its way."""
    call_id = wire.new_id()
    body = wire.call(call_id, "interop_app::nap", 0.3)
    await post(http, body, "wait=0")
    await host.emit(wire.RPC, "call", body)
    assert (await host.outcome(call_id)).name == "call:result"
    await host.remote("interop_app::echo", 1)
    assert len(host.outcomes(call_id)) == 1


async def test_s3_3_query_strings_are_ignored(runtime: Runtime, http: aiohttp.ClientSession) -> None:
    async with http.get("/health?x=1") as answer:
        assert answer.status == 200
    raw = RawHost(runtime.url)
    try:
        await raw.open()
    finally:
        await raw.close()


async def test_s3_4_unknown_paths(http: aiohttp.ClientSession) -> None:
    async with http.get("/nothing") as answer:
        assert answer.status == 404


@pytest.mark.parametrize("path", ["/call", "/health", "/socket.io/?EIO=4&transport=polling"])
async def test_foreign_origins_are_refused(http: aiohttp.ClientSession, path: str) -> None:
    """Against §4.1: a page in a browser on the machine must not drive a sandbox."""
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        method = "POST" if path == "/call" else "GET"
        async with http.request(method, path, headers={"Origin": origin}) as answer:
            assert answer.status == 403
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_call_too_large_is_answered(http: aiohttp.ClientSession) -> None:
    """§9.6: an oversized call gets its terminal error, which upstream's runtime forgets."""
    head = b"\x83\xa7call_id\xa1%d\xa8callable\xb1interop_app::size\xa9arguments\xc6"
    for i, size in enumerate((wire.MAX_MESSAGE + 1, wire.MAX_MESSAGE - 10)):
        status, _, body = await post(http, head % i + size.to_bytes(4, "big") + bytes(size), "wait=60")
        assert status == 200, body
        assert (body["ok"], body["error"]["type"]) == (False, "FrameTooLarge")

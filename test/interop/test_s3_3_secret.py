"""wire §3.3: user info in the base URL, the only credential that an upstream host can present."""

from __future__ import annotations

import json

import aiohttp
import pytest

from conftest import MakeHost, StartRuntime
from peers import wire
from peers.raw import RawHost
from peers.runtime import Runtime

GOOD = ("anyone", "s3cret/%:@")
LINES = {
    "secret": {"neighbour_secret": GOOD[1]},
    "token and secret": {"token": "daemon-token", "neighbour_secret": GOOD[1]},
}


@pytest.fixture(params=LINES)
async def guarded(request: pytest.FixtureRequest, start: StartRuntime) -> Runtime:
    """A runtime that wants a secret."""
    return await start(first_line=LINES[request.param])


@pytest.mark.parametrize("transports", [["polling"], ["websocket"], None])
async def test_s3_3_the_secret_opens_every_transport(guarded: Runtime, make: MakeHost, transports: list[str] | None) -> None:
    host = make()
    await host.connect(guarded.url, auth=GOOD, transports=transports)
    await host.resume_streams()
    assert await host.remote("interop_app::echo", 7) == 7
    await host.remote("interop_app::lines", 3)
    await host.wait(wire.LOG, "record", count=3)


@pytest.mark.parametrize(
    "auth", [None, ("anyone", ""), ("anyone", "wrong"), (GOOD[1].replace(":", ""), ""), ("daemon-token", "daemon-token")]
)
@pytest.mark.parametrize("transport", ["polling", "websocket"])
async def test_s3_3_without_it_nothing_is_joined(guarded: Runtime, make: MakeHost, transport: str, auth: tuple[str, str] | None) -> None:
    with pytest.raises(Exception, match=r"(?i)401|unauthorized|refused|error|failed"):
        await make(reconnection=False).connect(guarded.url, [wire.RPC], auth=auth, transports=[transport])


async def test_s3_3_http(guarded: Runtime) -> None:
    body = wire.call("c1", "interop_app::echo", 1)
    async with aiohttp.ClientSession(guarded.url) as http:
        async with http.get("/health") as answer:
            assert (answer.status, sorted(json.loads(await answer.text()))) == (200, ["status", "version"])
        for headers in ({}, wire.basic("x", "wrong"), {"Authorization": "Basic !"}, {"Authorization": "Bearer " + GOOD[1]}):
            async with http.post("/call", data=body, headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"].startswith("Basic ")
        good = wire.basic(*GOOD)
        async with http.get("/health", headers=good) as answer:
            assert "capabilities" in json.loads(await answer.text())
        async with http.post("/call", data=body, headers={**good, "Prefer": "wait=20"}) as answer:
            assert wire.unpack(await answer.read())["ok"] is True


async def test_s3_3_the_secret_makes_no_daemon(guarded: Runtime) -> None:
    raw = RawHost(guarded.url, headers=wire.basic(*GOOD))
    await raw.open()
    await raw.send('40/rpc,{"role":"daemon","epoch":99}')
    assert "unauthorized" in await raw.expect("44/rpc,")
    await raw.join(wire.RPC)
    assert await raw.remote("interop_app::echo", 1) == 1
    await raw.close()


async def test_a_token_alone_admits_no_neighbour(start: StartRuntime) -> None:
    runtime = await start(first_line={"token": "daemon-token"})
    raw = RawHost(runtime.url)
    await raw.open()
    await raw.send("40/rpc,{}")
    await raw.expect("44/rpc,")
    await raw.close()
    raw = RawHost(runtime.url, headers={"Authorization": "Bearer daemon-token"})
    await raw.open()
    await raw.send('40/rpc,{"token":"daemon-token","role":"daemon","epoch":1}')
    await raw.expect("40/rpc,")
    await raw.close()


async def test_the_secret_is_nowhere_in_the_sandbox(guarded: Runtime, make: MakeHost) -> None:
    host = make()
    await host.connect(guarded.url, auth=GOOD)
    for name in ("environ", "cmdline"):
        data = await host.remote("interop_app::read_proc", guarded.process.pid, name)
        assert GOOD[1].encode() not in data

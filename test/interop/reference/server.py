"""A runtime of the public protocol around a worker, written from its description alone, on python-socketio.

It relays: calls to frames, frames to events. Usage: server.py PORT COMMAND [ARGUMENT…]
"""

from __future__ import annotations

import asyncio
import collections
import os
import secrets
import struct
import sys
from typing import Any, Optional

import msgpack
import socketio
from aiohttp import web

PORT, COMMAND = int(sys.argv[1]), sys.argv[2:]
LIMIT = 268_435_456
sio = socketio.AsyncServer(
    async_mode="aiohttp", namespaces="*", ping_interval=25, ping_timeout=300, max_http_buffer_size=LIMIT, cors_allowed_origins=[]
)


def pack(value: Any) -> bytes:
    return bytes(msgpack.packb(value, use_bin_type=True))


class Worker:
    """One worker process, spawned when it is needed."""

    def __init__(self) -> None:
        self.process: Optional[asyncio.subprocess.Process] = None
        self.ready = asyncio.Event()
        self.running: set[str] = set()
        self.retained: collections.OrderedDict[str, tuple[str, bytes]] = collections.OrderedDict()
        self.opened = {"/log", "/trace"}
        self.spawning = asyncio.Lock()

    async def start(self) -> None:
        async with self.spawning:
            if self.process is not None and self.process.returncode is None and self.ready.is_set():
                return
            self.ready.clear()
            env = {**os.environ, "AGENTIX_WORKER_ID": secrets.token_hex(4)}
            self.process = await asyncio.create_subprocess_exec(
                *COMMAND, env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LIMIT
            )
            self.reader = asyncio.ensure_future(self.read(self.process))
            await asyncio.wait_for(self.ready.wait(), 15)

    async def send(self, **frame: Any) -> None:
        await self.start()
        assert self.process is not None and self.process.stdin is not None
        body = pack(frame)
        self.process.stdin.write(struct.pack("<I", len(body)) + body)
        await self.process.stdin.drain()

    async def read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while True:
                (n,) = struct.unpack("<I", await process.stdout.readexactly(4))
                body = await process.stdout.readexactly(n)
                await self.frame(msgpack.unpackb(body, strict_map_key=True, max_bin_len=LIMIT) if n else {})
        except asyncio.IncompleteReadError:
            code = await process.wait()
        text = f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
        error = {
            "type": "WorkerDied",
            "message": "runtime worker exited: " + text,
            "traceback": None,
            "cancelled": False,
            "returncode": code,
        }
        for call_id in list(self.running):
            await self.complete(call_id, "call:error", {"call_id": call_id, "error": error})

    async def frame(self, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if kind == "ready":
            self.ready.set()
        elif kind == "result":
            await self.complete(frame["call_id"], "call:result", {"call_id": frame["call_id"], "value": frame["value"]})
        elif kind == "error":
            await self.complete(frame["call_id"], "call:error", {"call_id": frame["call_id"], "error": frame["error"]})
        elif kind == "sio_open":
            self.opened.add(frame["namespace"])
        elif kind == "sio_emit":
            await sio.emit(frame["event"], pack(frame["data"]), namespace=frame["namespace"])

    async def complete(self, call_id: str, event: str, payload: dict[str, Any]) -> None:
        if call_id in self.running:
            self.running.discard(call_id)
            self.retained[call_id] = (event, pack(payload))
            await sio.emit(event, self.retained[call_id][1], namespace="/rpc")


worker: Worker


async def rpc(event: str, sid: str, m: dict[str, Any]) -> None:
    """Handle one event on /rpc."""
    call_id = m.get("call_id", "")
    if event == "call" and call_id not in worker.running and call_id not in worker.retained:
        worker.running.add(call_id)
        await worker.send(type="call", call_id=call_id, callable=m["callable"], arguments=m["arguments"], context=m.get("context"))
    elif event == "ack":
        worker.retained.pop(call_id, None)
    elif event == "cancel" and call_id in worker.running:
        worker.running.discard(call_id)
        await worker.send(type="cancel", call_id=call_id)
        error = {"type": "Cancelled", "message": "remote call cancelled", "traceback": None, "cancelled": True, "returncode": None}
        await sio.emit("call:error", pack({"call_id": call_id, "error": error}), namespace="/rpc", to=sid)
    elif event == "resume":
        for known in m.get("call_ids", []):
            if known in worker.retained:
                name, payload = worker.retained[known]
                await sio.emit(name, payload, namespace="/rpc", to=sid)


async def any_event(event: str, namespace: str, sid: str, *args: Any) -> None:
    """Relay what a host sent."""
    data = msgpack.unpackb(args[0], strict_map_key=True, max_bin_len=LIMIT) if args else None
    if namespace == "/rpc":
        await rpc(event, sid, data or {})
    elif namespace in worker.opened:
        await worker.send(type="sio_inbound", namespace=namespace, event=event, data=data)


async def health(_: web.Request) -> web.Response:
    """Say that the server runs."""
    return web.json_response({"status": "ok", "version": "0.2.7"})


async def main() -> None:
    """Serve until a signal."""
    global worker
    worker = Worker()
    sio.on("*", any_event, namespace="*")
    app = web.Application(client_max_size=LIMIT)
    app.router.add_get("/health", health)
    sio.attach(app)
    runner = web.AppRunner(app, handle_signals=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PORT).start()
    await asyncio.Event().wait()


asyncio.run(main())

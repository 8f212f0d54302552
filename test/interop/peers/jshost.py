"""A host of the JavaScript socket.io-client, in a process of its own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pathlib
import shutil
from typing import Any, Optional, Sequence

from peers import wire
from peers.host import NOTHING, Event, Host
from peers.runtime import HERE, until

NODE = shutil.which("node") or "node"


class JSHost(Host):
    """Drives js/host.mjs."""

    name = "socket.io-client"

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        self._directory = directory
        self._process: Optional[asyncio.subprocess.Process] = None
        self._reader: Optional[asyncio.Task[None]] = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = 0
        self.refused: list[str] = []

    async def connect(
        self,
        url: str,
        namespaces: Sequence[str] = (wire.RPC, wire.TRACE, wire.LOG),
        *,
        transports: Optional[list[str]] = None,
        auth: Optional[tuple[str, str]] = None,
        wait: float = 1.0,
    ) -> None:
        self._process = await asyncio.create_subprocess_exec(
            NODE, "host.mjs", cwd=HERE / "js", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=1 << 24, env={**os.environ, "AGENTIX_INTEROP_TMP": str(self._directory)},
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read())
        headers = wire.basic(*auth) if auth is not None else None
        await self._say(do="connect", url=url, namespaces=list(namespaces), transports=transports, headers=headers)
        done = lambda: len(self.joined) + len(self.refused) >= len(namespaces)  # noqa: E731
        await until(done, "every CONNECT is answered", wait + 10)  # the process has to start, too
        if self.refused:
            await self.close()
            raise ConnectionError("; ".join(self.refused))

    async def _say(self, **message: Any) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        async for line in self._process.stdout:
            self._report(json.loads(line))

    def _report(self, m: dict[str, Any]) -> None:
        if "name" in m:
            self.got(Event(m["namespace"], m["name"], [_decode(a) for a in m["args"]]))
        elif "joined" in m:
            self.joined.append(m["joined"])
            if self.on_join is not None:
                self.on_join(m["joined"])
        elif "left" in m:
            self.disconnects.append(m["reason"])
        elif "refused" in m:
            self.refused.append(m["message"])
        else:
            self._waiting.pop(int(m.get("ack", m.get("tag", 0)))).set_result(m)

    def _encode(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, bytes):
            return {"json": value}
        if len(value) < 1 << 16:
            return {"bytes": base64.b64encode(value).decode()}
        self._numbers += 1
        path = self._directory / f"to-js-{self._numbers}"
        path.write_bytes(value)
        return {"file": str(path)}

    async def emit(self, namespace: str, event: str, data: Any = NOTHING) -> None:
        args = [] if data is NOTHING else [self._encode(data)]
        await self._say(do="emit", namespace=namespace, name=event, args=args)

    async def _answer(self, timeout: float, field: str, **message: Any) -> Any:
        self._numbers += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._numbers] = future
        await self._say(**message, **{field: self._numbers})
        return await asyncio.wait_for(future, timeout)

    async def ask(self, namespace: str, event: str, data: Any = NOTHING, timeout: float = 10.0) -> list[Any]:
        args = [] if data is NOTHING else [self._encode(data)]
        answer = await self._answer(timeout, "ack", do="emit", namespace=namespace, name=event, args=args)
        return [_decode(a) for a in answer["args"]]

    async def transport(self) -> str:
        return str((await self._answer(10, "tag", do="transport"))["transport"])

    async def close(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            try:
                await self._say(do="close")
                await asyncio.wait_for(self._process.wait(), 5)
            except (ConnectionError, asyncio.TimeoutError):
                self._process.kill()
                await self._process.wait()
        if self._reader is not None:
            await self._reader


def _decode(arg: dict[str, Any]) -> Any:
    if "file" in arg:
        path = pathlib.Path(arg["file"])
        data = path.read_bytes()
        path.unlink()
        return data
    if "bytes" in arg:
        return base64.b64decode(arg["bytes"])
    return arg["json"]

"""A host of python-socketio, connected as upstream's client does."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from typing import Any, Optional, Sequence

import socketio

from peers import wire
from peers.host import NOTHING, Event, Host


class PyHost(Host):
    """An AsyncClient."""

    name = "python-socketio"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        options.setdefault("websocket_extra_options", {"max_msg_size": wire.MAX_MESSAGE})
        self.sio = socketio.AsyncClient(**options)

    async def connect(
        self,
        url: str,
        namespaces: Sequence[str] = (wire.RPC, wire.TRACE, wire.LOG),
        *,
        transports: Optional[list[str]] = None,
        auth: Optional[tuple[str, str]] = None,
        wait: float = 1.0,
    ) -> None:
        for namespace in namespaces:
            self._watch(namespace)
        if auth is not None:
            # As upstream's host has it: user info in the base URL.
            url = url.replace("://", "://" + ":".join(urllib.parse.quote(part, safe="") for part in auth) + "@")
        await self.sio.connect(url, namespaces=list(namespaces), transports=transports, wait_timeout=wait)

    def _watch(self, namespace: str) -> None:
        def connected() -> None:
            self.joined.append(namespace)
            if self.on_join is not None:
                self.on_join(namespace)

        def disconnected(reason: str) -> None:
            self.disconnects.append(reason)

        def event(name: str, *args: Any) -> None:
            self.got(Event(namespace, name, list(args)))

        self.sio.on("*", event, namespace=namespace)
        self.sio.on("connect", connected, namespace=namespace)
        self.sio.on("disconnect", disconnected, namespace=namespace)

    async def emit(self, namespace: str, event: str, data: Any = NOTHING) -> None:
        await self.sio.emit(event, *([] if data is NOTHING else [data]), namespace=namespace)

    async def ask(self, namespace: str, event: str, data: Any = NOTHING, timeout: float = 10.0) -> list[Any]:
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def acked(*args: Any) -> None:
            if not answer.done():
                answer.set_result(list(args))

        await self.sio.emit(event, None if data is NOTHING else data, namespace=namespace, callback=acked)
        return await asyncio.wait_for(answer, timeout)

    async def transport(self) -> str:
        return str(self.sio.transport())

    async def close(self) -> None:
        # By polling it waits for its last GET, and may leave without having told that it goes.
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.sio.disconnect(), 1)

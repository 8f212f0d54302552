"""A TCP proxy whose connections the tests cut, hold and let go."""

from __future__ import annotations

import asyncio
from typing import Optional


class Proxy:
    """Forwards a loopback port to another."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.cuts = 0
        self.down = False
        self._server: Optional[asyncio.AbstractServer] = None
        self._links: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The address that hosts use."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.down:
            writer.transport.abort()
            return
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        links = {writer, to_writer}
        self._links |= links
        for pair in ((reader, to_writer), (to_reader, writer)):
            task = asyncio.create_task(self._pump(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._links.discard(writer)
            writer.close()

    def cut(self) -> None:
        """Break every connection, in the middle of whatever passes."""
        self.cuts += 1
        for link in list(self._links):
            link.transport.abort()

    def take_down(self) -> None:
        """Break every connection and refuse new ones."""
        self.down = True
        self.cut()

    def bring_up(self) -> None:
        """Accept again."""
        self.down = False

    async def stop(self) -> None:
        """End everything."""
        self.take_down()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        await asyncio.gather(*self._tasks, return_exceptions=True)

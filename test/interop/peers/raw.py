"""A host that knows nothing: it writes packets as they are told and keeps what comes."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Optional, Union

import aiohttp

from peers import wire
from peers.runtime import until

Packet = Union[str, bytes]
SEPARATOR = "\x1e"


class RawHost:
    """One Engine.IO session over a websocket."""

    def __init__(self, url: str, *, headers: Optional[dict[str, str]] = None) -> None:
        self.url = url
        self.packets: list[Packet] = []
        self.times: list[float] = []
        self.opening: dict[str, Any] = {}
        self.closed: Optional[int] = None  # the websocket's close code
        self._session = aiohttp.ClientSession(headers=headers)
        self._ws: Optional[aiohttp.ClientWebSocketResponse] = None
        self._reader: Optional[asyncio.Task[None]] = None
        self.answers_pings = True

    async def open(self, sid: str = "") -> dict[str, Any]:
        """Open the websocket; the OPEN packet, where it is a new session."""
        query = f"EIO=4&transport=websocket{'&sid=' + sid if sid else ''}"
        self._ws = await self._session.ws_connect(f"{self.url}/socket.io/?{query}", max_msg_size=wire.MAX_MESSAGE)
        self._reader = asyncio.create_task(self._read())
        if not sid:
            await until(lambda: self.packets, "OPEN")
            first = self.packets.pop(0)
            assert isinstance(first, str) and first[0] == "0", first
            self.opening = json.loads(first[1:])
        return self.opening

    async def _read(self) -> None:
        assert self._ws is not None
        async for message in self._ws:
            if message.data == "2" and self.answers_pings:
                await self._ws.send_str("3")
                continue
            self.packets.append(message.data)
            self.times.append(time.monotonic())
        self.closed = self._ws.close_code or 1006

    async def send(self, *packets: Packet) -> None:
        """Send packets."""
        assert self._ws is not None
        for packet in packets:
            await (self._ws.send_str(packet) if isinstance(packet, str) else self._ws.send_bytes(packet))

    async def join(self, *namespaces: str) -> None:
        """Join namespaces."""
        for namespace in namespaces:
            await self.send(f"40{namespace},{{}}")
            await self.expect(f"40{namespace},")

    async def expect(self, prefix: str, timeout: float = 10) -> str:
        """Wait for a text packet and take it out."""
        await until(lambda: any(isinstance(p, str) and p.startswith(prefix) for p in self.packets), prefix, timeout)
        found = next(p for p in self.packets if isinstance(p, str) and p.startswith(prefix))
        self.packets.remove(found)
        return found

    async def emit(self, namespace: str, event: str, document: bytes, ack: str = "") -> None:
        """Send an event as every host does: its name, and one attachment."""
        await self.send(f'451-{namespace},{ack}["{event}",{{"_placeholder":true,"num":0}}]', document)

    def events(self) -> list[tuple[str, str, Any]]:
        """Return the events that came whole: namespace, name, document."""
        found = []
        for text, data in zip(self.packets, self.packets[1:]):
            if isinstance(text, str) and text.startswith("451-"):
                assert isinstance(data, bytes), "an event and its attachment are not adjacent"
                namespace, _, body = text[4:].partition(",")
                found.append((namespace, json.loads(body)[0], wire.unpack(data)))
        return found

    async def wait(self, namespace: str, name: str, count: int = 1, timeout: float = 20) -> list[Any]:
        """Wait for events; their documents."""

        def match() -> list[Any]:
            return [d for n, e, d in self.events() if (n, e) == (namespace, name)]

        await until(lambda: len(match()) >= count, f"{count} {name} on {namespace}", timeout)
        return match()

    async def remote(self, callable_: str, *args: Any) -> Any:
        """Call a function and return its value."""
        call_id = wire.new_id()
        await self.emit(wire.RPC, "call", wire.call(call_id, callable_, *args))
        import pickle

        def value() -> list[bytes]:
            return [d["value"] for _, e, d in self.events() if e == "call:result" and d["call_id"] == call_id]

        await until(lambda: bool(value()), callable_)
        return pickle.loads(value()[0])

    def goodbyes(self) -> list[Packet]:
        """Return what upstream's host takes as final: EIO close, SIO disconnect."""
        return [p for p in self.packets if isinstance(p, str) and (p == "1" or p.startswith("41"))]

    async def gone(self, timeout: float = 10) -> None:
        """Wait until the runtime closed the connection."""
        await until(lambda: self.closed is not None, "the end of the connection", timeout)

    async def close(self) -> None:
        """Close the transport."""
        if self._ws is not None:
            await self._ws.close()
        if self._reader is not None:
            await self._reader
        await self._session.close()


class PollingHost:
    """One Engine.IO session over polling, one request at a time."""

    def __init__(self, url: str, *, headers: Optional[dict[str, str]] = None) -> None:
        self.url = url
        self.sid = ""
        self.payloads: list[list[str]] = []
        self.session = aiohttp.ClientSession(headers=headers)

    def _query(self) -> str:
        return f"{self.url}/socket.io/?EIO=4&transport=polling{'&sid=' + self.sid if self.sid else ''}"

    async def open(self) -> dict[str, Any]:
        """Open a session."""
        (first,) = await self.poll()
        assert first[0] == "0", first
        opening: dict[str, Any] = json.loads(first[1:])
        self.sid = opening["sid"]
        return opening

    async def poll(self) -> list[str]:
        """Do one GET; its packets."""
        async with self.session.get(self._query()) as answer:
            text = await answer.text()
            assert answer.status == 200, f"{answer.status} {text}"
        packets = text.split(SEPARATOR)
        self.payloads.append(packets)
        if "2" in packets:
            await self.post("3")
        return packets

    async def post(self, *packets: str) -> str:
        """Do one POST; its body."""
        async with self.session.post(self._query(), data=SEPARATOR.join(packets), headers={"Content-Type": "text/plain"}) as answer:
            text = await answer.text()
            assert answer.status == 200, f"{answer.status} {text}"
            return text

    async def until(self, prefix: str, tries: int = 200) -> str:
        """Poll until a packet with this beginning comes."""
        for _ in range(tries):
            for packet in await self.poll():
                if packet.startswith(prefix):
                    return packet
        raise AssertionError(f"no {prefix} came")

    async def close(self) -> None:
        """Go away."""
        await self.session.close()

"""A host of the public protocol, as the tests drive it, whatever library it is made of."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
import time
from typing import Any, AsyncIterator, Callable, Optional, Sequence

from peers import wire
from peers.runtime import until

NOTHING = object()
"""No argument at all."""


@dataclasses.dataclass
class Event:
    """One event that came, with its arguments; binary ones are bytes."""

    namespace: str
    name: str
    args: list[Any]
    at: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def data(self) -> Any:
        """The msgpack document that events of this protocol carry."""
        (payload,) = self.args
        assert isinstance(payload, bytes), f"{self.name} carries {type(payload).__name__}"
        return wire.unpack(payload)


class Host(abc.ABC):
    """One connection to a runtime, with reconnection as its library does it."""

    name: str

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.joined: list[str] = []  # one entry for each CONNECT that was answered
        self.disconnects: list[str] = []  # reasons, one for each namespace each time
        self.on_event: Optional[Callable[[Event], None]] = None
        self.on_join: Optional[Callable[[str], None]] = None

    @abc.abstractmethod
    async def connect(
        self,
        url: str,
        namespaces: Sequence[str] = (wire.RPC, wire.TRACE, wire.LOG),
        *,
        transports: Optional[list[str]] = None,
        auth: Optional[tuple[str, str]] = None,
        wait: float = 1.0,
    ) -> None:
        """Connect and join; every namespace must be answered within `wait` seconds."""

    @abc.abstractmethod
    async def emit(self, namespace: str, event: str, data: Any = NOTHING) -> None:
        """Send an event with one argument, bytes or JSON."""

    @abc.abstractmethod
    async def ask(self, namespace: str, event: str, data: Any = NOTHING, timeout: float = 10.0) -> list[Any]:
        """Send an event that wants an acknowledgement; its arguments."""

    @abc.abstractmethod
    async def transport(self) -> str:
        """Return the transport in use: polling or websocket."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Leave without a goodbye to wait for."""

    # --- what tests say ------------------------------------------------------------------

    def got(self, event: Event) -> None:
        """Take an event of the library."""
        self.events.append(event)
        if self.on_event is not None:
            self.on_event(event)

    def of(self, namespace: str, *names: str) -> list[Event]:
        """Return the events of a namespace, by name."""
        return [e for e in self.events if e.namespace == namespace and (not names or e.name in names)]

    async def wait(self, namespace: str, *names: str, count: int = 1, timeout: float = 20.0) -> list[Event]:
        """Wait for a number of events; returns them."""
        await until(lambda: len(self.of(namespace, *names)) >= count, f"{count} {names} on {namespace}", timeout)
        return self.of(namespace, *names)

    def outcomes(self, call_id: str) -> list[Event]:
        """Return the terminal events of a call."""
        return [e for e in self.of(wire.RPC, "call:result", "call:error") if e.data["call_id"] == call_id]

    async def outcome(self, call_id: str, timeout: float = 20.0) -> Event:
        """Wait for the first terminal event of a call."""
        await until(lambda: bool(self.outcomes(call_id)), f"the outcome of {call_id}", timeout)
        return self.outcomes(call_id)[0]

    async def remote(self, callable_: str, *args: Any, call_id: str = "", timeout: float = 20.0, **kwargs: Any) -> Any:
        """Call a function by /rpc, ack its result and return it."""
        call_id = call_id or wire.new_id()
        await self.emit(wire.RPC, "call", wire.call(call_id, callable_, *args, **kwargs))
        event = await self.outcome(call_id, timeout)
        await self.emit(wire.RPC, "ack", wire.pack({"call_id": call_id}))
        assert event.name == "call:result", event.data
        return wire.value_of(event.args[0])

    async def failure(self, callable_: str, *args: Any, timeout: float = 20.0) -> dict[str, Any]:
        """Call a function that fails; its error map."""
        call_id = wire.new_id()
        await self.emit(wire.RPC, "call", wire.call(call_id, callable_, *args))
        event = await self.outcome(call_id, timeout)
        assert event.name == "call:error", event
        return dict(event.data["error"])

    async def resume_streams(self, since: int = 0) -> None:
        """Ask for the streams, as upstream's host does when it has joined them."""
        for namespace in (wire.TRACE, wire.LOG):
            await self.emit(namespace, "_resume", wire.pack({"since_seq": since}))

    @contextlib.asynccontextmanager
    async def on(self, url: str, *args: Any, **kwargs: Any) -> AsyncIterator[Host]:
        """Be connected within a block."""
        await asyncio.wait_for(self.connect(url, *args, **kwargs), 60)
        try:
            yield self
        finally:
            await self.close()

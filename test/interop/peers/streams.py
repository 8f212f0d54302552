"""What a host of the public protocol keeps of /log and /trace: wire §10."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Optional

from peers import wire
from peers.host import Event, Host


class Cursor:
    """Delivers each event once, acks it, and resumes after a reconnect, as upstream's host does."""

    def __init__(self, host: Host, namespace: str, deliver: Optional[Callable[[str, dict[str, Any]], None]] = None) -> None:
        self.host = host
        self.namespace = namespace
        self.sid = ""
        self.seq = 0
        self.delivered = 0
        self.duplicates = 0
        self.holes = 0
        self.items: list[tuple[str, dict[str, Any]]] = []
        self._deliver = deliver or (lambda name, data: self.items.append((name, data)))
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, event: Event) -> None:
        """Take an event of the namespace."""
        envelope = event.data
        seq = envelope.get("_seq")
        if not isinstance(seq, int):
            self._deliver(event.name, envelope.get("data", envelope))
            return
        if envelope["_sid"] != self.sid:
            self.sid, self.seq = envelope["_sid"], 0
        if seq <= self.seq:
            self.duplicates += 1
        else:
            self.holes += seq - self.seq - 1
            self.seq = seq
            self.delivered += 1
            self._deliver(event.name, envelope["data"])
        self._send("_ack", {"seq": self.seq})

    def joined(self) -> None:
        """Resume."""
        self._send("_resume", {"since_seq": self.seq})

    def _send(self, event: str, document: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._emit(event, document))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _emit(self, event: str, document: dict[str, Any]) -> None:
        try:
            await self.host.emit(self.namespace, event, wire.pack(document))
        except Exception:  # the link is down; the resume will mend it
            return


def follow(host: Host, keep: bool = True) -> tuple[Cursor, Cursor]:
    """Let a host follow /log and /trace; call it before connecting."""
    log, trace = Cursor(host, wire.LOG), Cursor(host, wire.TRACE)
    cursors = {wire.LOG: log, wire.TRACE: trace}

    def event(e: Event) -> None:
        cursor = cursors.get(e.namespace)
        if cursor is not None:
            cursor.take(e)
            if not keep:
                host.events.pop()

    def joined(namespace: str) -> None:
        if namespace in cursors:
            cursors[namespace].joined()

    host.on_event, host.on_join = event, joined
    return log, trace

"""Plugin namespaces of this worker: who listens to which, and what goes out."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable

from _agentix_worker import codec
from _agentix_worker.errors import CallFailure
from _agentix_worker.limits import MAX_EVENT_BYTES
from _agentix_worker.pipe import FrameWriter

OnEvent = Callable[[str, Any], None]
RESERVED = ("/", "/rpc", "/trace", "/log")


class Plugins:
    """Registry of namespaces; `inbound` is called on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: FrameWriter) -> None:
        self._loop = loop
        self._writer = writer
        self._lock = threading.Lock()
        self._listeners: dict[str, OnEvent] = {}

    def open(self, namespace: str, on_event: OnEvent) -> None:
        """Announce a namespace; ValueError when its name is reserved or already taken."""
        if namespace in RESERVED:
            raise ValueError(f"namespace {namespace} is reserved")
        with self._lock:
            if namespace in self._listeners:
                raise ValueError(f"namespace {namespace} is registered already")
            self._listeners[namespace] = on_event
        self._writer.send({"type": "sio_open", "namespace": namespace})

    def emit(self, namespace: str, event: str, data: Any) -> None:
        """Send one event; ValueError when its data cannot be sent or is over the limit."""
        from _agentix_worker import plain  # not needed to start

        try:
            packed = plain.encode(data, "msgpack")
        except CallFailure as e:
            raise ValueError(f"event {event!r}: {e.message.replace('the result', 'its data')}") from None
        if len(packed) > MAX_EVENT_BYTES:
            raise ValueError(f"event {event!r} of {len(packed)} bytes is over the limit of {MAX_EVENT_BYTES} bytes")
        head = b"\x84\xa4type\xa8sio_emit\xa9namespace" + codec.pack_str(namespace)
        self._writer.send_body(head + b"\xa5event" + codec.pack_str(event) + b"\xa4data", packed)

    def inbound(self, namespace: str, event: str, data: Any) -> None:
        """Hand an event of the host to its namespace; without one it is dropped."""
        listener = self._listeners.get(namespace)
        if listener is not None:
            listener(event, data)

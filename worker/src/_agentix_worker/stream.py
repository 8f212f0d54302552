"""The sending end of a reliable stream, under a server that leaves it to the worker."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from typing import Any, Callable, Optional

from _agentix_worker import codec
from _agentix_worker.limits import MAX_STREAM_BYTES, MAX_STREAM_RING
from _agentix_worker.pipe import FrameWriter

_log = logging.getLogger("agentix.sio")  # never forwarded, or an overflow would feed itself


class ReliableStream:
    """Numbers events, keeps the unacked ones, sends them again on request.

    A host that resumes and has missed what is not kept any more is told by `gap`: it gets the
    count and the number of the last one lost.
    """

    def __init__(
        self,
        writer: FrameWriter,
        namespace: str,
        ring: int = MAX_STREAM_RING,
        gap: Optional[Callable[[int, int], None]] = None,
    ) -> None:
        self.sid = os.urandom(4).hex()
        self.dropped = 0
        self._writer = writer
        self._namespace = namespace
        self._ring = ring
        self._head = b"\x84\xa4type\xa8sio_emit\xa9namespace" + codec.pack_str(namespace) + b"\xa5event"
        self._middle = b"\xa4data\x83\xa4_sid" + codec.pack_str(self.sid) + b"\xa4_seq"
        self._lock = threading.RLock()
        self._seq = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._opened = False
        self._gap = gap
        self._lost = (1, 0)  # first and last number that was dropped unacked

    def open(self) -> None:
        """Announce the namespace, once."""
        with self._lock:
            if not self._opened:
                self._opened = True
                self._writer.send({"type": "sio_open", "namespace": self._namespace})

    def emit(self, event: str, data: dict[str, Any]) -> None:
        """Number, keep and send one event; numbers leave in order from any thread."""
        self.emit_packed(event, codec.pack(data))

    def emit_packed(self, event: str, data: bytes) -> None:
        """Do the same with data that is packed already."""
        name = codec.pack_str(event)
        with self._lock:
            self.open()
            self._seq = seq = self._seq + 1
            body = b"".join((self._head, name, self._middle, codec.pack_int(seq), b"\xa4data", data))
            self._kept.append((seq, body))
            self._kept_bytes += len(body)
            while len(self._kept) > self._ring or (self._kept_bytes > MAX_STREAM_BYTES and len(self._kept) > 1):
                lost, old = self._kept.popleft()
                self._kept_bytes -= len(old)
                self._lost = (self._lost[0] if self._lost[1] else lost, lost)
                self.dropped += 1
                if self.dropped % 1000 == 1:
                    _log.warning("%s: %d unacked events dropped so far", self._namespace, self.dropped)
            self._writer.send_body(body)

    def control(self, event: str, data: Any) -> None:
        """Take `_ack` or `_resume`; anything else is ignored."""
        fields = data if isinstance(data, dict) else {}
        number = fields.get("seq" if event == "_ack" else "since_seq")
        if not isinstance(number, int) or isinstance(number, bool):
            return
        foreign = fields.get("_sid", self.sid) != self.sid
        with self._lock:
            if event == "_ack":
                # An ack beyond what was sent belongs to a stream before this one.
                if not foreign and number <= self._seq:
                    self._free(number)
            elif event == "_resume":
                since = 0 if foreign or number > self._seq else number
                first, last = self._lost
                missed = last - max(first - 1, since)
                if missed > 0 and self._gap is not None:
                    self._gap(missed, last)
                for seq, body in list(self._kept):
                    if seq > since:
                        self._writer.send_body(body)

    def send_numbered(self, event: str, number: int, data: dict[str, Any]) -> None:
        """Send an event in the place of one that was lost."""
        body = (self._head, codec.pack_str(event), self._middle, codec.pack_int(number), b"\xa4data", codec.pack(data))
        self._writer.send_body(b"".join(body))

    def _free(self, number: int) -> None:
        if self._lost[1]:
            first, last = self._lost
            self._lost = (max(first, number + 1), last) if number < last else (1, 0)
        while self._kept and self._kept[0][0] <= number:
            self._kept_bytes -= len(self._kept.popleft()[1])

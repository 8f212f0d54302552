"""The outlet under our own runtime: bare log and span frames, output read by the runtime."""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import Any, Optional

from _agentix_worker import ambient, codec
from _agentix_worker.greeting import ready_frame
from _agentix_worker.logs import Bridge
from _agentix_worker.output import CallText, TaggedWriter
from _agentix_worker.pipe import FrameWriter


class NativeOutlet:
    """Carries records to the runtime as they are; the runtime numbers and keeps them."""

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer
        self._marker = os.urandom(16)
        self._streams: list[CallText] = []

    def install(self) -> None:
        """Take over sys.stdout, sys.stderr and the root logger."""
        for name, fd in (("stdout", 1), ("stderr", 2)):
            os.set_blocking(fd, True)
            stream = CallText(TaggedWriter(fd, self._marker))
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
            self._streams.append(stream)
        faulthandler.enable(2)
        Bridge(self._log, dict(os.environ)).install()

    def ready(self) -> dict[str, Any]:
        """Return the ready frame."""
        return ready_frame("native-worker", "stopped", output_marker=self._marker)

    def before_terminal(self, call_id: str) -> None:
        """Write out what the call printed, so that it precedes the call's end."""
        for stream in self._streams:
            try:
                stream.flush_call(call_id)
            except Exception:  # a stream that user code closed or redirected to a full disk
                continue

    def on_failure(self, call_id: str, exc: BaseException) -> None:
        """Say nothing: the error frame tells it all."""

    def _log(self, record: bytes, call_id: Optional[str]) -> None:
        head = b"\x83\xa4type\xa3log\xa7call_id" + codec.pack_str(call_id) if call_id else b"\x82\xa4type\xa3log"
        self._writer.send_body(b"".join((head, b"\xa6record", record)))

    def span(self, event: str, data: dict[str, Any]) -> None:
        """Send one trace event."""
        data["call_id"] = data.get("call_id") or ambient.call_id.get()
        self._writer.send_body(codec.pack_known({"type": "span", "event": event, "data": data}))

    def control(self, namespace: str, event: str, data: Any) -> bool:
        """Take an inbound event that belongs to a stream of ours: none here."""
        return namespace in ("/log", "/trace")

    def close(self) -> None:
        """Write out all that was printed."""
        for stream in self._streams:
            try:
                stream.flush()
            except Exception:
                continue

    def after_fork(self) -> None:
        """Reset the output streams of a forked child."""
        for stream in self._streams:
            stream.after_fork()

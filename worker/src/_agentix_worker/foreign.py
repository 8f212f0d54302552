"""The outlet under a neighbour's server: reliable streams and captured output of our own."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import time
from typing import Any, Optional

from _agentix_worker import ambient, codec
from _agentix_worker.capture import Capture
from _agentix_worker.errors import user_frames
from _agentix_worker.greeting import ready_frame
from _agentix_worker.limits import MAX_STREAM_RING
from _agentix_worker.logs import Bridge, context_name
from _agentix_worker.pipe import FrameWriter
from _agentix_worker.stream import ReliableStream

_log = logging.getLogger("agentix.runtime.server.worker.invoker")


def _ring(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() and int(text) > 0 else MAX_STREAM_RING


class ForeignOutlet:
    """Carries records in envelopes on /log and /trace and keeps them until they are acked."""

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer
        self._logs = ReliableStream(writer, "/log", _ring("AGENTIX_LOG_BUFFER"), self._log_gap)
        self._traces = ReliableStream(writer, "/trace", _ring("AGENTIX_TRACE_BUFFER"), self._trace_gap)
        self._context = context_name(dict(os.environ))
        self._worker_id = os.environ.get("AGENTIX_WORKER_ID", "")
        self._captures: list[Capture] = []
        self._stderr = -1

    def install(self) -> None:
        """Capture fd 1 and 2 and take over the root logger."""
        self._stderr = os.dup(2)
        faulthandler.enable(self._stderr)
        for name, fd in (("stdout", 1), ("stderr", 2)):
            self._captures.append(Capture(fd, self._line_of(name)))
            stream = open(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        Bridge(self._log, dict(os.environ)).install()
        self._traces.open()

    def ready(self) -> dict[str, Any]:
        """Return the ready frame."""
        return ready_frame()

    def before_terminal(self, call_id: str) -> None:
        """Emit the lines that were written so far, so that they precede the call's end."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                continue
        for capture in self._captures:
            capture.drain()

    def on_failure(self, call_id: str, exc: BaseException) -> None:
        """Log what a function raised, as hosts of this protocol expect."""
        _log.error("remote call %s failed", call_id, exc_info=(type(exc), exc, user_frames(exc.__traceback__)))

    def _log(self, record: bytes, call_id: Optional[str]) -> None:
        self._logs.emit_packed("record", record)

    def _line_of(self, stream: str) -> Any:
        def emit(line: str) -> None:
            extras = {"agentix_stream": stream, "worker_id": self._worker_id}
            record = self._record(f"agentix.sandbox.{stream}", logging.INFO, line, "stdio", extras)
            self._logs.emit("record", record)

        return emit

    def _record(self, name: str, level: int, message: str, module: str, extras: dict[str, Any]) -> dict[str, Any]:
        """Make the record of something that no logger told."""
        return {
            "name": name,
            "level": logging.getLevelName(level),
            "levelno": level,
            "message": message,
            "created": time.time(),
            "pathname": "",
            "lineno": 0,
            "funcName": "",
            "module": module,
            "exc_text": None,
            "stack_info": None,
            "agentix_context": self._context,
            "extras": extras,
        }

    def _gap(self, source: str, dropped: int) -> dict[str, Any]:
        text = f"{dropped} events of {source} were lost: more came than are kept while no host acked them"
        extras = {"agentix_source": source, "agentix_dropped": dropped}
        return self._record("agentix.runtime", logging.WARNING, text, "stream", extras)

    def _log_gap(self, dropped: int, last: int) -> None:
        self._logs.send_numbered("record", last, self._gap("/log", dropped))

    def _trace_gap(self, dropped: int, last: int) -> None:
        # Told where records are, beside the numbers of /log.
        frame = {"type": "sio_emit", "namespace": "/log", "event": "record", "data": self._gap("/trace", dropped)}
        self._writer.send(frame)

    def span(self, event: str, data: dict[str, Any]) -> None:
        """Send one trace event."""
        data["call_id"] = data.get("call_id") or ambient.call_id.get()
        self._traces.emit_packed(event, codec.pack_known(data))

    def control(self, namespace: str, event: str, data: Any) -> bool:
        """Take an inbound event of /log or /trace; False for any other namespace."""
        stream = {"/log": self._logs, "/trace": self._traces}.get(namespace)
        if stream is None:
            return False
        stream.control(event, data)
        return True

    def close(self) -> None:
        """Emit all that was written and give fd 2 back."""
        self.before_terminal("")
        for capture in self._captures:
            capture.close()
        os.dup2(self._stderr, 2)

    def after_fork(self) -> None:
        """Leave the captured pipes' reading ends to the parent."""
        for capture in self._captures:
            capture.after_fork()

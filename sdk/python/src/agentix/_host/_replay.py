"""Replays log records and output of a sandbox into this process's `logging`.

Everything here was made by untrusted code: it is never a format string, control
characters are escaped, and names, lines and buffers are bounded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

from agentix.v1 import event_service_pb2 as events

from . import _limits

OWN = logging.getLogger("agentix.sandbox")
_STREAMS: dict[int, tuple[str, logging.Logger]] = {
    events.OUTPUT_STREAM_STDOUT: ("stdout", logging.getLogger("agentix.sandbox.stdout")),
    events.OUTPUT_STREAM_STDERR: ("stderr", logging.getLogger("agentix.sandbox.stderr")),
}
_RESERVED: set[str] = {
    *vars(logging.LogRecord("", 0, "", 0, "", (), None)),
    "message",
    "asctime",
    "taskName",
    "agentix_sandbox",
    "agentix_call_id",
}


def printable(text: str) -> str:
    """Return `text` with its control characters, but tab and newline, escaped."""
    if text.isprintable():
        return text
    return "".join(
        f"\\x{ord(char):02x}" if (char < " " and char not in "\t\n") or "\x7f" <= char < "\xa0"
        else char
        for char in text
    )  # fmt: skip


class Replayer:
    """Turns events of one sandbox into records, in order."""

    def __init__(self, sandbox_id: str) -> None:
        """Replay events of the sandbox with this id."""
        self._sandbox_id = sandbox_id
        self._names: set[str] = set()
        self._lines: dict[tuple[int, str], bytearray] = {}

    def handle(self, event: events.Event) -> None:
        """Replay one event; events of other kinds than log, output, call and gap do nothing."""
        kind = event.WhichOneof("kind")
        if kind == "log":
            self._log(event.log, event.call_id)
        elif kind == "output":
            self._output(event.output, event.call_id)
        elif kind == "call" and event.call.phase == events.CALL_PHASE_FINISHED:
            self.flush(event.call_id)
        elif kind == "gap":
            OWN.warning("%d events of sandbox %s were lost", event.gap.dropped, self._sandbox_id)

    def flush(self, call_id: str = "") -> None:
        """Replay the lines that are not ended, of one call or of all."""
        for key in [key for key in self._lines if call_id in ("", key[1])]:
            rest = self._lines.pop(key)
            if rest:
                self._line(key, bytes(rest))

    def _log(self, log: events.LogRecord, call_id: str) -> None:
        logger = self._logger(log.logger)
        level = log.level_number if 0 <= log.level_number <= 1000 else logging.INFO
        if not logger.isEnabledFor(level):
            return
        record = logger.makeRecord(
            logger.name, level, printable(log.pathname), log.line, printable(log.message), (), None,
            func=printable(log.function), extra=self._extra(call_id, log.extras),
        )  # fmt: skip
        record.module = printable(log.module)
        record.exc_text = printable(log.exception_text) or None
        record.stack_info = printable(log.stack_info) or None
        logger.handle(record)

    def _logger(self, name: str) -> logging.Logger:
        """Return the logger of that name; loggers live for ever, so their number is bounded."""
        shown = printable(name)[: _limits.MAX_LOGGER_NAME].replace("\n", " ")
        if not shown or shown == "root":
            return logging.getLogger()
        if shown not in self._names:
            if len(self._names) >= _limits.MAX_LOGGERS:
                return OWN
            self._names.add(shown)
        return logging.getLogger(shown)

    def _extra(self, call_id: str, extras: str) -> dict[str, Any]:
        found: dict[str, Any] = {"agentix_sandbox": self._sandbox_id, "agentix_call_id": call_id}
        if extras:
            try:
                sent = json.loads(extras)
            except (ValueError, RecursionError):
                return found
            if isinstance(sent, dict):
                found.update((key, value) for key, value in sent.items() if key not in _RESERVED)
        return found

    def _output(self, output: events.Output, call_id: str) -> None:
        key = (int(output.stream), call_id)
        if output.stream not in _STREAMS:
            return
        if key not in self._lines and len(self._lines) >= _limits.MAX_OPEN_LINES:
            self.flush()
        buffer = self._lines.setdefault(key, bytearray())
        buffer += output.data
        for line in _take_lines(buffer):
            self._line(key, line)

    def _line(self, key: tuple[int, str], line: bytes) -> None:
        name, logger = _STREAMS[key[0]]
        if not logger.isEnabledFor(logging.INFO):
            return
        text = printable(line.decode("utf-8", "backslashreplace"))
        extra = {**self._extra(key[1], ""), "agentix_stream": name}
        record = logger.makeRecord(
            logger.name, logging.INFO, "", 0, text, (), None, func="", extra=extra
        )
        record.module = "stdio"
        logger.handle(record)


def _take_lines(buffer: bytearray) -> Iterator[bytes]:
    """Take the ended lines, and pieces of one that is too long, out of `buffer`."""
    lines: list[bytes] = bytes(buffer).split(b"\n")
    rest = lines.pop()
    for line in lines:
        ended = line[:-1] if line.endswith(b"\r") else line
        yield from _pieces(ended)
        if not ended:
            yield b""
    while len(rest) > _limits.MAX_LINE_BYTES:
        yield rest[: _limits.MAX_LINE_BYTES]
        rest = rest[_limits.MAX_LINE_BYTES :]
    buffer[:] = rest


def _pieces(line: bytes) -> Iterator[bytes]:
    for start in range(0, len(line), _limits.MAX_LINE_BYTES):
        yield line[start : start + _limits.MAX_LINE_BYTES]

"""sys.stdout and sys.stderr in native mode.

The runtime reads the output pipes. A write made in a call's context carries a marker and
the call id in front, so that the runtime can tell whose it is; everything else (child
processes, C code, writes outside calls) goes as it is. A line is in the pipe when `print`
returns.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Any, Optional, Union

from _agentix_worker import ambient
from _agentix_worker.limits import MAX_TAGGED_BYTES

_PARTIAL_CHARS = 65536  # an unfinished line is held up to such a piece
_PARTIAL_PIECES = 4096  # or so many writes


class TaggedWriter(io.RawIOBase):
    """Unbuffered binary writer over fd 1 or 2 that marks what a call writes."""

    def __init__(self, fd: int, marker: bytes) -> None:
        self._fd = fd
        self._marker = marker
        self._pipe = _identity(fd)
        self._heads: dict[str, bytes] = {}

    def fileno(self) -> int:
        """Return the descriptor, for subprocesses."""
        return self._fd

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Tell whether the descriptor is a terminal now."""
        return os.isatty(self._fd)

    def write(self, data: Any) -> int:
        """Write all of data."""
        view = memoryview(data).cast("B")
        self.write_as(ambient.call_id.get(), bytes(view))
        return len(view)

    def write_as(self, call_id: Optional[str], data: bytes) -> None:
        """Write data for a call; unmarked without one or when the descriptor was redirected."""
        if not data:
            return
        head = self._head(call_id) if call_id else b""
        if not head or _identity(self._fd) != self._pipe:
            self._write_all(data)
            return
        size, room = len(data), MAX_TAGGED_BYTES - len(head) - 2
        if size <= room:
            self._write_all(head + size.to_bytes(2, "little") + data)
            return
        for at in range(0, len(data), room):
            piece = data[at : at + room]
            self._write_all(head + len(piece).to_bytes(2, "little") + piece)

    def _head(self, call_id: str) -> bytes:
        head = self._heads.get(call_id)
        if head is None:
            name = call_id.encode("utf-8", "replace")
            head = self._marker + bytes((len(name),)) + name if len(name) < 256 else b""
            if len(self._heads) > 64:
                self._heads.clear()
            self._heads[call_id] = head
        return head

    def _write_all(self, data: bytes) -> None:
        view: Union[bytes, memoryview] = data
        while view:
            try:
                n = os.write(self._fd, view)
                if n == len(view):
                    return
                view = memoryview(view)[n:]
            except BlockingIOError:  # a child made the shared pipe non-blocking
                import select

                poller = select.poll()
                poller.register(self._fd, select.POLLOUT)
                poller.poll(1000)


def _identity(fd: int) -> Optional[tuple[int, int]]:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_ino, status.st_dev


class CallText(io.TextIOWrapper):
    """Line-buffered text over a TaggedWriter, with one unfinished line per call.

    Two calls that print at once never share a line or a call id.
    """

    def __init__(self, writer: TaggedWriter) -> None:
        super().__init__(writer, encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True)  # type: ignore[arg-type]
        self._writer = writer
        self._tails: dict[Optional[str], list[str]] = {}
        self._tails_lock = threading.RLock()

    def write(self, s: str) -> int:
        """Write text; complete lines leave at once."""
        if not isinstance(s, str):
            raise TypeError(f"write() argument must be str, not {type(s).__name__}")
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        call_id = ambient.call_id.get()
        cut = s.rfind("\n") + 1
        with self._tails_lock:
            tail = self._tails.get(call_id)
            if not cut and len(s) < _PARTIAL_CHARS and not self.write_through:
                if tail is None:
                    self._tails[call_id] = [s]
                    return len(s)
                tail.append(s)
                if len(tail) < _PARTIAL_PIECES:
                    return len(s)
                lines = ""
            else:
                lines = s[:cut] if cut and not self.write_through else s
                if tail is not None:
                    tail.append(lines)
            if tail is not None:
                del self._tails[call_id]
                lines = "".join(tail)
            if cut < len(s) and cut and not self.write_through:
                self._tails[call_id] = [s[cut:]]
            self._writer.write_as(call_id, lines.encode(self.encoding, self.errors or "strict"))
        return len(s)

    def flush(self) -> None:
        """Write the unfinished lines of all calls, each with its own call id."""
        if self._tails:
            with self._tails_lock:
                for call_id in list(self._tails):
                    self.flush_call(call_id)

    def flush_call(self, call_id: Optional[str]) -> None:
        """Write the unfinished line of one call."""
        if self._tails:
            with self._tails_lock:
                tail = "".join(self._tails.pop(call_id, ()))
                self._writer.write_as(call_id, tail.encode(self.encoding, self.errors or "strict"))

    def after_fork(self) -> None:
        """In a forked child: drop what the parent will write itself."""
        self._tails_lock = threading.RLock()
        self._tails = {}

"""Captures a descriptor of this process line by line, where no runtime reads it."""

from __future__ import annotations

import os
import select
import threading
from typing import Callable

from _agentix_worker.limits import MAX_LINE_BYTES

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 18  # room for code that writes while it holds the interpreter


class Capture:
    """Makes fd a pipe and hands each line written to it to `emit`."""

    def __init__(self, fd: int, emit: Callable[[str], None]) -> None:
        self._fd = fd
        self._emit = emit
        self._lock = threading.RLock()
        self._tail = b""
        self._read, write = os.pipe()
        try:
            import fcntl

            fcntl.fcntl(write, _F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # over the user's budget of pipe pages
        os.set_blocking(self._read, False)
        os.dup2(write, fd)
        os.close(write)
        self._thread = threading.Thread(target=self._run, name=f"agentix-capture-{fd}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        while True:
            poller.poll()
            if not self.drain():
                return

    def drain(self) -> bool:
        """Read and emit what is in the pipe now; False at its end."""
        with self._lock:
            while True:
                try:
                    data = os.read(self._read, 65536)
                except BlockingIOError:
                    return True
                except OSError:
                    return False
                if not data:
                    self._flush()
                    return False
                self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, self._tail = (self._tail + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._tail) >= MAX_LINE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._tail:
            tail, self._tail = self._tail, b""
            self._line(tail)

    def _line(self, line: bytes) -> None:
        for at in range(0, len(line) or 1, MAX_LINE_BYTES):
            piece = line[at : at + MAX_LINE_BYTES]
            self._emit(piece.decode("utf-8", "replace").rstrip("\r\n"))

    def close(self) -> None:
        """Emit everything that was written, the unfinished line included."""
        with self._lock:
            self.drain()
            self._flush()

    def after_fork(self) -> None:
        """In a forked child: leave the reading to the parent."""
        os.close(self._read)

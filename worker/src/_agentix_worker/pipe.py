"""The worker's end of the frame pipe: a writer that any thread may use.

A frame is in the pipe when `send` returns, so a record that was logged before
`os._exit` or a SIGKILL is not lost. A full pipe blocks: that is the back-pressure.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Any, Union

from _agentix_worker import codec
from _agentix_worker.framing import frame_header

_JOINED_BYTES = 65536  # smaller frames are one write, larger ones are not copied together


class FrameWriter:
    """Writes whole frames to a descriptor, in the order of `send`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._lock = threading.RLock()
        self._queue: deque[Union[bytes, memoryview]] = deque()
        self._pumping = False
        self.closed = False

    def send(self, frame: dict[str, Any]) -> None:
        """Pack and write a frame; CodecError or FrameError when it cannot be framed."""
        self.send_body(codec.pack(frame))

    def send_body(self, *parts: bytes) -> None:
        """Write a frame whose packed body is the concatenation of parts."""
        body = parts[0] if len(parts) == 1 else b""
        size = len(body) or sum(map(len, parts))
        header = frame_header(size)
        whole = header + (body or b"".join(parts)) if size <= _JOINED_BYTES else b""
        with self._lock:
            if self.closed:
                return
            if whole:
                self._queue.append(whole)
            else:
                self._queue.extend((header, *parts))
            # Re-entered from a signal handler or a finaliser of the thread that is writing:
            # the outer call writes this frame after its own.
            if not self._pumping:
                self._pump()

    def _pump(self) -> None:
        self._pumping = True
        queue = self._queue
        try:
            while queue:
                chunk = queue[0]
                n = os.write(self.fd, chunk)
                if n == len(chunk):
                    queue.popleft()
                else:
                    queue[0] = memoryview(chunk)[n:]
        except OSError:
            self.closed = True  # the runtime is gone; the reader sees its end of file
            queue.clear()
        finally:
            self._pumping = False

    def abandon(self) -> None:
        """Never write again: this process is a fork of the worker."""
        self._lock = threading.RLock()
        self._queue = deque()
        self._pumping = False
        self.closed = True

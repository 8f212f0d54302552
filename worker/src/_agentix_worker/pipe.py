"""The worker's end of the frame pipe: a writer that any thread may use.

A frame is in the pipe when `send` returns, so a record that was logged before
`os._exit` or a SIGKILL is not lost. A full pipe blocks: that is the back-pressure.
"""

from __future__ import annotations

import io
import sys
import threading
from collections import deque
from types import FrameType
from typing import Any, Optional

from _agentix_worker import codec
from _agentix_worker.framing import frame_header

_JOINED_BYTES = 65536  # smaller frames are one write, larger ones are not copied together
_BUFFER_BYTES = 131072


class FrameWriter:
    """Writes whole frames to a descriptor, in the order of `send`.

    Signal handlers of user code may raise, or send themselves, at any point in here. The
    buffered file below knows in C how much of a frame has left, so a frame that was cut
    short goes on with the next one instead of being torn or repeated.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.closed = False
        self._file = io.BufferedWriter(io.FileIO(fd, "wb", closefd=False), _BUFFER_BYTES)
        self._lock = threading.RLock()
        self._later: deque[bytes] = deque()
        self._writing: Optional[FrameType] = None

    def send(self, frame: dict[str, Any]) -> None:
        """Pack and write a frame; CodecError or FrameError when it cannot be framed."""
        self.send_body(codec.pack(frame))

    def send_body(self, *parts: bytes) -> None:
        """Write a frame whose packed body is the concatenation of parts."""
        size = sum(map(len, parts))
        header = frame_header(size)
        whole = b"".join((header, *parts)) if size <= _JOINED_BYTES else b""
        with self._lock:
            if self.closed:
                return
            if self._writing is not None and _is_below(self._writing):
                # Called from a signal handler or a finaliser of the very call that is
                # writing: that one writes this frame after its own.
                self._later.append(whole or b"".join((header, *parts)))
                return
            try:
                self._writing = sys._getframe()
                if whole:
                    self._file.write(whole)
                else:
                    self._file.write(header)
                    for part in parts:
                        self._file.write(part)
                self._file.flush()
                while self._later:
                    self._file.write(self._later.popleft())
                    self._file.flush()
            except OSError as e:
                if e.errno is None:
                    raise  # not the pipe's: a handler raised, say, TimeoutError
                self.closed = True  # the runtime is gone; the reader sees its end of file
            finally:
                self._writing = None

    def abandon(self) -> None:
        """Never write again: this process is a fork of the worker."""
        self._lock = threading.RLock()
        self.closed = True


def _is_below(frame: FrameType) -> bool:
    """Tell whether a Python frame is still on this thread's stack.

    One that is not was left by an exception that came between two instructions.
    """
    at: Optional[FrameType] = sys._getframe()
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None

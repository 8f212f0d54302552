"""Frames of the worker pipe: a little-endian u32 length and that many bytes. No I/O here."""

from __future__ import annotations

from typing import Optional, Union

MAX_FRAME_BYTES = 268435456
"""256 MiB: one frame; keep equal to MaxFrameBytes in runtime/wire/limits.go."""
LARGE_BYTES = 1 << 18
"""Frames from this size on get their memory at once and are read straight into it."""

Body = Union[bytes, bytearray]


class FrameError(ValueError):
    """The stream is out of step: a length over the limit. Nothing after it can be trusted."""


def frame_header(size: int) -> bytes:
    """Return the four bytes before a body of size bytes; FrameError over the limit."""
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
    return size.to_bytes(4, "little")


class FrameDecoder:
    """Cuts a byte stream into frame bodies.

    The rest of a large frame can be read straight into its place: where `space` gives a
    view, fill some of it and tell how much by `filled` instead of calling `feed`.
    """

    __slots__ = ("_buffer", "_have", "_large")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._large: Optional[bytearray] = None
        self._have = 0

    def feed(self, data: bytes) -> list[Body]:
        """Take bytes as they come and return the bodies that are complete."""
        bodies: list[Body] = []
        if self._large is not None:
            n = min(len(data), len(self._large) - self._have)
            self._large[self._have : self._have + n] = data[:n]
            body = self.filled(n)
            if body is None:
                return bodies
            bodies.append(body)
            data = data[n:]
        buffer = self._buffer
        buffer += data
        at, have = 0, len(buffer)
        while have - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "little")
            if size > MAX_FRAME_BYTES:
                raise FrameError(f"frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
            at += 4
            if have - at < size:
                if size >= LARGE_BYTES:
                    self._begin_large(size, at)
                    return bodies
                at -= 4
                break
            bodies.append(bytes(memoryview(buffer)[at : at + size]))
            at += size
        if at:
            del buffer[:at]
        return bodies

    def _begin_large(self, size: int, at: int) -> None:
        self._large = bytearray(size)
        self._have = len(self._buffer) - at
        self._large[: self._have] = memoryview(self._buffer)[at:]
        self._buffer = bytearray()

    def space(self) -> Optional[memoryview]:
        """Return where the rest of a large frame goes, None when there is no such frame."""
        return None if self._large is None else memoryview(self._large)[self._have :]

    def filled(self, n: int) -> Optional[Body]:
        """Say that n bytes of `space` were filled; return the body when it is complete."""
        self._have += n
        large = self._large
        if large is None or self._have < len(large):
            return None
        self._large = None
        return large

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame that are held."""
        return len(self._buffer) if self._large is None else self._have

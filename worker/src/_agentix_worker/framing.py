"""Frames of the worker pipe: a little-endian u32 length and that many bytes. No I/O here."""

from __future__ import annotations

MAX_FRAME_BYTES = 268435456
"""256 MiB: one frame; keep equal to MaxFrameBytes in runtime/wire/limits.go."""


class FrameError(ValueError):
    """The stream is out of step: a length over the limit. Nothing after it can be trusted."""


def frame_header(size: int) -> bytes:
    """Return the four bytes before a body of size bytes; FrameError over the limit."""
    if size > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
    return size.to_bytes(4, "little")


class FrameDecoder:
    """Cuts a byte stream into frame bodies."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they come and return the bodies that are complete."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        at, have = 0, len(buffer)
        while have - at >= 4:
            size = int.from_bytes(buffer[at : at + 4], "little")
            if size > MAX_FRAME_BYTES:
                raise FrameError(f"frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
            if have - at - 4 < size:
                break
            bodies.append(bytes(memoryview(buffer)[at + 4 : at + 4 + size]))
            at += 4 + size
        if at:
            del buffer[:at]
        return bodies

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame that are held."""
        return len(self._buffer)

"""Cutting a byte stream into frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _agentix_worker.framing import LARGE_BYTES, MAX_FRAME_BYTES, FrameDecoder, FrameError, frame_header


def frame(body: bytes) -> bytes:
    return frame_header(len(body)) + body


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 20)))
def test_frames_come_out_however_the_bytes_arrive(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    decoder = FrameDecoder()
    found: list[bytes] = []
    for cut in cuts:
        found += decoder.feed(stream[:cut])
        stream = stream[cut:]
    found += decoder.feed(stream)
    assert found == bodies
    assert decoder.pending == 0


@given(st.integers(LARGE_BYTES - 2, LARGE_BYTES + 2), st.binary(max_size=10), st.integers(0, 30), st.booleans())
def test_large_frames_are_read_into_place(size: int, tail: bytes, cut: int, direct: bool) -> None:
    body = bytes(i % 251 for i in range(100)) * (size // 100) + b"x" * (size % 100)
    stream = frame(b"first") + frame(body) + frame(tail)
    decoder = FrameDecoder()
    found = decoder.feed(stream[:cut])
    at = cut
    while at < len(stream):
        space = decoder.space()
        if space is not None and direct:
            n = min(100_000, len(space), len(stream) - at)
            space[:n] = stream[at : at + n]
            done = decoder.filled(n)
            found += [] if done is None else [done]
        else:
            n = 70_000
            found += decoder.feed(stream[at : at + n])
        at += n
    assert found == [b"first", body, tail]
    assert decoder.pending == 0


def test_golden_frames() -> None:
    assert frame(b"\x81\xa4type\xa5ready").hex() == "0c00000081a474797065a57265616479"
    assert frame(b"\x81\xa4type\xa8shutdown").hex() == "0f00000081a474797065a873687574646f776e"


def test_the_limit_is_268435456_bytes() -> None:
    assert MAX_FRAME_BYTES == 268435456
    assert frame_header(268435456) == b"\x00\x00\x00\x10"
    with pytest.raises(FrameError, match="268435457"):
        frame_header(268435457)
    decoder = FrameDecoder()
    assert decoder.feed(b"\x00\x00\x00\x10") == []
    assert len(decoder.space() or b"") == 268435456
    with pytest.raises(FrameError, match="268435457"):
        FrameDecoder().feed(b"\x01\x00\x00\x10")


def test_an_empty_frame_is_a_body_of_no_bytes() -> None:
    assert FrameDecoder().feed(b"\0\0\0\0") == [b""]

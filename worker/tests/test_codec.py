"""The codec: the pure one and the C one are held to the same tests."""

from __future__ import annotations

import datetime
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _agentix_worker import codec

assert codec.accelerated, "the tests need the C msgpack to compare with"
BOTH = pytest.mark.parametrize(
    ("pack", "unpack"), [(codec.pack_pure, codec.unpack_pure), (codec.pack, codec.unpack)], ids=["pure", "c"]
)

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.builds(codec.Ext, st.integers(0, 127), st.binary())
)
values = st.recursive(leaves, lambda s: st.lists(s) | st.dictionaries(st.text(), s), max_leaves=30)


@given(values)
@settings(max_examples=300)
def test_both_codecs_write_the_same_bytes_and_read_them_back(value: Any) -> None:
    data = codec.pack_pure(value)
    assert data == codec.pack(value)
    assert codec.unpack_pure(data) == value
    assert codec.unpack(data) == value


@given(st.binary(max_size=64))
@settings(max_examples=500)
def test_any_bytes_give_a_value_or_a_codec_error_and_both_codecs_agree(data: bytes) -> None:
    results = []
    for unpack in (codec.unpack_pure, codec.unpack):
        try:
            results.append(repr(unpack(data)))
        except codec.CodecError:
            results.append("error")
    assert results[0] == results[1]


@BOTH
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": "ready"}, "81a474797065a57265616479"),
        ({"type": "shutdown"}, "81a474797065a873687574646f776e"),
        ({"call_ids": ["a"]}, "81a863616c6c5f69647391a161"),
        ({"since_seq": 0}, "81a973696e63655f73657100"),
        ({"seq": 1}, "81a373657101"),
        (codec.Ext(1, b"<i4|2\0\0\0\0\0\1\0\0\0"), "c70e013c69347c32000000000001000000"),
        (127, "7f"),
        (128, "cc80"),
        (65536, "ce00010000"),
        (2**64 - 1, "cfffffffffffffffff"),
        (-32, "e0"),
        (-33, "d0df"),
        (-(2**63), "d38000000000000000"),
        (1.5, "cb3ff8000000000000"),
        (-0.0, "cb8000000000000000"),
        (b"a", "c40161"),
        ("a" * 32, "d920" + "61" * 32),
    ],
)
def test_golden_bytes(pack: Any, unpack: Any, value: Any, text: str) -> None:
    assert pack(value).hex() == text
    assert unpack(bytes.fromhex(text)) == value


@BOTH
def test_float32_and_timestamps_are_read(pack: Any, unpack: Any) -> None:
    assert unpack(b"\xca" + struct.pack(">f", 0.5)) == 0.5
    expected = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    assert unpack(b"\xd6\xff" + int(expected.timestamp()).to_bytes(4, "big")) == expected
    assert math.isnan(unpack(pack(float("nan"))))


@BOTH
@pytest.mark.parametrize(
    "bad", [{1: 2}, {None: 1}, [{1.5: 1}], {"a": {b"k": 1}}, 2**64, -(2**63) - 1, "\ud800", object(), {1, 2}]
)
def test_what_the_wire_cannot_carry_is_refused(pack: Any, unpack: Any, bad: Any) -> None:
    with pytest.raises(codec.CodecError):
        pack(bad)


@BOTH
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x81\x01\x02",  # an integer key
        b"\x81\xc0\x02",  # a nil key
        b"\xa2a",  # cut short
        b"\xa1\xff",  # not UTF-8
        b"\xdf\xff\xff\xff\xff",  # a map of 4 G entries in five bytes
        b"\xdd\xff\xff\xff\xff\x01",
        b"\xc6\xff\xff\xff\xff\x01",
        b"\x01\x02",  # two documents
        b"\x91" * 300 + b"\x01",
        b"\x81\xa1a" * 100000 + b"\x01",
    ],
)
def test_bad_bytes_are_refused(pack: Any, unpack: Any, data: bytes) -> None:
    with pytest.raises(codec.CodecError):
        unpack(data)


@BOTH
def test_nesting_is_bounded_by_256(pack: Any, unpack: Any) -> None:
    def nest(n: int) -> Any:
        value: Any = []
        for _ in range(n - 1):
            value = [value]
        return value

    assert unpack(pack(nest(256))) == nest(256)
    with pytest.raises(codec.CodecError, match="256"):
        pack(nest(257))
    assert codec.nesting(nest(200), 300) == 200
    shared: Any = [1]
    for _ in range(100):
        shared = [shared, shared]
    assert codec.nesting(shared, 300) == 101  # 2**100 paths, looked at once each

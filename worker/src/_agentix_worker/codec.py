"""msgpack, as the wire wants it: str and bin apart, string map keys, bounded nesting.

The C extension of `msgpack` is used where it is importable, the code below otherwise;
both behave the same. Nothing here does I/O.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, NamedTuple, Union

MAX_NESTING = 256
"""Levels of arrays and maps that are packed or unpacked; a value of the wire has at most 200."""

_f64 = struct.Struct(">d")
_f32 = struct.Struct(">f")
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class CodecError(ValueError):
    """A value that msgpack cannot carry, or bytes that are not one msgpack document."""


class Ext(NamedTuple):
    """An extension value that is passed through untouched."""

    code: int
    data: bytes


# --- packing -------------------------------------------------------------------------


def pack_int(n: int) -> bytes:
    """Pack an integer in its smallest form."""
    if 0 <= n < 128:
        return bytes((n,))
    if n >= 0:
        if n < 1 << 8:
            return b"\xcc" + n.to_bytes(1, "big")
        if n < 1 << 16:
            return b"\xcd" + n.to_bytes(2, "big")
        if n < 1 << 32:
            return b"\xce" + n.to_bytes(4, "big")
        if n <= _INT_MAX:
            return b"\xcf" + n.to_bytes(8, "big")
    elif n >= -32:
        return (n & 0xFF).to_bytes(1, "big")
    elif n >= -(1 << 7):
        return b"\xd0" + n.to_bytes(1, "big", signed=True)
    elif n >= -(1 << 15):
        return b"\xd1" + n.to_bytes(2, "big", signed=True)
    elif n >= -(1 << 31):
        return b"\xd2" + n.to_bytes(4, "big", signed=True)
    elif n >= _INT_MIN:
        return b"\xd3" + n.to_bytes(8, "big", signed=True)
    raise CodecError("integer does not fit in 64 bits")


def pack_str(text: str) -> bytes:
    """Pack a string; a lone surrogate is an error."""
    try:
        data = text.encode()
    except UnicodeEncodeError as e:
        raise CodecError("string is not valid Unicode") from e
    n = len(data)
    if n < 32:
        return bytes((0xA0 | n,)) + data
    if n < 1 << 8:
        return b"\xd9" + n.to_bytes(1, "big") + data
    if n < 1 << 16:
        return b"\xda" + n.to_bytes(2, "big") + data
    if n < 1 << 32:
        return b"\xdb" + n.to_bytes(4, "big") + data
    raise CodecError("string is too long")


def pack_bin_header(n: int) -> bytes:
    """Return what goes before n bytes of binary data."""
    if n < 1 << 8:
        return b"\xc4" + n.to_bytes(1, "big")
    if n < 1 << 16:
        return b"\xc5" + n.to_bytes(2, "big")
    if n < 1 << 32:
        return b"\xc6" + n.to_bytes(4, "big")
    raise CodecError("binary is too long")


def pack_float(number: float) -> bytes:
    """Pack a float."""
    return b"\xcb" + _f64.pack(number)


def _pack_ext(value: Ext) -> bytes:
    code, n = value.code, len(value.data)
    if not -128 <= code <= 127:
        raise CodecError("extension code does not fit in 8 bits")
    tail = code.to_bytes(1, "big", signed=True) + bytes(value.data)
    fixed = {1: b"\xd4", 2: b"\xd5", 4: b"\xd6", 8: b"\xd7", 16: b"\xd8"}.get(n)
    if fixed is not None:
        return fixed + tail
    if n < 1 << 8:
        return b"\xc7" + n.to_bytes(1, "big") + tail
    if n < 1 << 16:
        return b"\xc8" + n.to_bytes(2, "big") + tail
    return b"\xc9" + n.to_bytes(4, "big") + tail


def _header(n: int, fix: int, wide: bytes, wider: bytes) -> bytes:
    if n < 16:
        return bytes((fix | n,))
    return wide + n.to_bytes(2, "big") if n < 1 << 16 else wider + n.to_bytes(4, "big")


_keys: dict[str, bytes] = {}


def _pack_key(key: str) -> bytes:
    """Pack a map key and remember it: the same few keys come again and again."""
    packed = pack_str(key)
    if len(_keys) < 1024 and len(key) <= 32:
        _keys[key] = packed
    return packed


def _pack_into(value: Any, out: bytearray, depth: int) -> None:
    kind = type(value)
    if kind is str:
        out += pack_str(value)
    elif value is None:
        out.append(0xC0)
    elif kind is bool:
        out.append(0xC3 if value else 0xC2)
    elif kind is int:
        out += pack_int(value)
    elif kind is float:
        out.append(0xCB)
        out += _f64.pack(value)
    elif kind is bytes:
        out += pack_bin_header(len(value))
        out += value
    elif kind is dict or kind is list or kind is tuple:
        if depth >= MAX_NESTING:
            raise CodecError(f"nested deeper than {MAX_NESTING} levels")
        if kind is dict:
            out += _header(len(value), 0x80, b"\xde", b"\xdf")
            for key, item in value.items():
                if type(key) is not str:
                    raise CodecError(f"map key of type {type(key).__name__}, only strings are allowed")
                out += _keys.get(key) or _pack_key(key)
                _pack_into(item, out, depth + 1)
        else:
            out += _header(len(value), 0x90, b"\xdc", b"\xdd")
            for item in value:
                _pack_into(item, out, depth + 1)
    elif kind is Ext:
        out += _pack_ext(value)
    else:
        raise CodecError(f"cannot pack a value of type {kind.__name__}")


def pack_pure(value: Any) -> bytes:
    """Pack one value of exact built-in types (and Ext)."""
    out = bytearray()
    _pack_into(value, out, 0)
    return bytes(out)


# --- unpacking -----------------------------------------------------------------------


class _Reader:
    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def take(self, n: int) -> bytes:
        start = self.at
        stop = start + n
        if stop > self.end:
            raise CodecError("data ends inside a value")
        self.at = stop
        return self.data[start:stop]

    def uint(self, n: int) -> int:
        return int.from_bytes(self.take(n), "big")

    def text(self, n: int) -> str:
        try:
            return self.take(n).decode()
        except UnicodeDecodeError as e:
            raise CodecError("string is not valid UTF-8") from e

    def value(self, depth: int) -> Any:
        tag = self.take(1)[0]
        if tag < 0x80:
            return tag
        if tag >= 0xE0:
            return tag - 256
        if tag >= 0xC0:
            return self.tagged(tag, depth)
        if tag >= 0xA0:
            return self.text(tag & 31)
        return self.array(tag & 15, depth) if tag >= 0x90 else self.map(tag & 15, depth)

    def tagged(self, tag: int, depth: int) -> Any:
        if tag <= 0xC3:
            if tag == 0xC1:
                raise CodecError("byte 0xc1 is not msgpack")
            return None if tag == 0xC0 else tag == 0xC3
        if tag <= 0xC6:
            return self.take(self.uint(1 << (tag - 0xC4)))
        if tag <= 0xC9:
            return self.ext(self.uint(1 << (tag - 0xC7)))
        if tag == 0xCA:
            return float(_f32.unpack(self.take(4))[0])
        if tag == 0xCB:
            return float(_f64.unpack(self.take(8))[0])
        if tag <= 0xCF:
            return self.uint(1 << (tag - 0xCC))
        if tag <= 0xD3:
            return int.from_bytes(self.take(1 << (tag - 0xD0)), "big", signed=True)
        if tag <= 0xD8:
            return self.ext(1 << (tag - 0xD4))
        if tag <= 0xDB:
            return self.text(self.uint(1 << (tag - 0xD9)))
        n = self.uint(2 if tag in (0xDC, 0xDE) else 4)
        return self.array(n, depth) if tag <= 0xDD else self.map(n, depth)

    def enter(self, n: int, depth: int) -> None:
        if depth >= MAX_NESTING:
            raise CodecError(f"nested deeper than {MAX_NESTING} levels")
        if n > self.end - self.at:
            raise CodecError("data ends inside a value")

    def array(self, n: int, depth: int) -> list[Any]:
        self.enter(n, depth)
        value, depth = self.value, depth + 1
        return [value(depth) for _ in range(n)]

    def map(self, n: int, depth: int) -> dict[Any, Any]:
        self.enter(2 * n, depth)
        out: dict[Any, Any] = {}
        for _ in range(n):
            key = self.value(depth + 1)
            if type(key) is not str and type(key) is not bytes:
                raise CodecError(f"map key of type {type(key).__name__}, only strings are allowed")
            out[key] = self.value(depth + 1)
        return out

    def ext(self, n: int) -> Any:
        code = int.from_bytes(self.take(1), "big", signed=True)
        data = self.take(n)
        return _timestamp(data) if code == -1 else Ext(code, data)


def _timestamp(data: bytes) -> Any:
    import datetime  # rarely needed

    if len(data) == 4:
        seconds, nanos = int.from_bytes(data, "big"), 0
    elif len(data) == 8:
        whole = int.from_bytes(data, "big")
        seconds, nanos = whole & ((1 << 34) - 1), whole >> 34
    elif len(data) == 12:
        nanos = int.from_bytes(data[:4], "big")
        seconds = int.from_bytes(data[4:], "big", signed=True)
    else:
        raise CodecError("timestamp of a wrong length")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    try:
        return epoch + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as e:
        raise CodecError("timestamp is out of range") from e


def unpack_pure(data: Union[bytes, bytearray]) -> Any:
    """Unpack exactly one msgpack document."""
    reader = _Reader(bytes(data))
    value = reader.value(0)
    if reader.at != reader.end:
        raise CodecError("bytes after the value")
    return value


# --- the C extension, held to the same rules -----------------------------------------


def nesting(value: Any, limit: int) -> int:
    """Return how many container levels value has, at most limit + 1 are looked at."""
    depth = 0
    level: list[Any] = [value]
    while depth <= limit:
        found = {id(v): v for v in level if isinstance(v, (dict, list, tuple)) and type(v) is not Ext}
        if not found:
            return depth
        depth += 1
        level = []
        for v in found.values():
            level.extend(v.values() if isinstance(v, dict) else v)
    return depth


def _accelerated(msgpack: Any) -> tuple[Callable[[Any], bytes], Callable[[Union[bytes, bytearray]], Any]]:
    def plain(value: Any) -> Any:
        if type(value) is Ext:
            return msgpack.ExtType(value.code, value.data)
        if type(value) is tuple:  # strict types leave tuples to us
            return list(value)
        raise CodecError(f"cannot pack a value of type {type(value).__name__}")

    def pack_c(value: Any) -> bytes:
        _check_keys(value)
        try:
            return bytes(msgpack.packb(value, use_bin_type=True, strict_types=True, default=plain))
        except (ValueError, TypeError, OverflowError) as e:
            raise e if isinstance(e, CodecError) else CodecError(str(e)) from e

    def unpack_c(data: Union[bytes, bytearray]) -> Any:
        try:
            value = msgpack.unpackb(data, raw=False, strict_map_key=True, timestamp=3, ext_hook=Ext)
        except Exception as e:
            raise CodecError(str(e) or type(e).__name__) from e
        if nesting(value, MAX_NESTING) > MAX_NESTING:
            raise CodecError(f"nested deeper than {MAX_NESTING} levels")
        return value

    return pack_c, unpack_c


def _check_keys(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MAX_NESTING + 1):
        found = {id(v): v for v in level if type(v) in (dict, list, tuple)}
        if not found:
            return
        level = []
        for v in found.values():
            if type(v) is not dict:
                level.extend(v)
                continue
            for key in v:
                if type(key) is not str:
                    raise CodecError(f"map key of type {type(key).__name__}, only strings are allowed")
            level.extend(v.values())
    raise CodecError(f"nested deeper than {MAX_NESTING} levels")


pack_known: Callable[[Any], bytes] = pack_pure
"""Pack a value that our own code made packable: nothing is checked twice."""
pack: Callable[[Any], bytes] = pack_pure
"""Pack one value of exact built-in types; CodecError when msgpack cannot carry it."""
unpack: Callable[[Union[bytes, bytearray]], Any] = unpack_pure
"""Unpack exactly one document; CodecError when the bytes are anything else."""

try:
    import msgpack as _msgpack
    import msgpack._cmsgpack as _cmsgpack  # noqa: F401  (the pure fallback of that package is slower than ours)
except Exception:  # a broken installation must not stop the worker
    accelerated = False
else:
    accelerated = True
    pack, unpack = _accelerated(_msgpack)
    pack_known = _msgpack.packb

"""The restricted loader on pickles that want to do harm: all refused, quickly, in little memory."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
import tracemalloc
from typing import Any

import numpy
import pytest

from agentix._host import _limits
from agentix._host._admitted import allow_type
from agentix._host._exceptions import RestrictedUnpickleError
from agentix._host._restricted import loads

_SECONDS = 5.0  # far above what each takes, far below what each asks for
_BYTES = 128 << 20


def _u32(number: int) -> bytes:
    return struct.pack("<I", number)


def _u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def _glob(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def _call(module: str, name: str, *args: bytes) -> bytes:
    return _glob(module, name) + b"(" + b"".join(args) + b"tR."


class _Reduces:
    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __reduce__(self) -> Any:
        return self._parts


_INT_1E9 = b"J" + struct.pack("<i", 10**9)
_LONG = b"\x8a\x09" + (2**64).to_bytes(9, "little")
_ENTRIES = b"(" + b"N" * 200_000 + b"l"

REFUSED: dict[str, bytes] = {
    # Names that are not on the list.
    "os.system": pickle.dumps(_Reduces(os.system, ("true",))),
    "eval": pickle.dumps(_Reduces(eval, ("1",))),
    "getattr": pickle.dumps(_Reduces(getattr, (1, "real"))),
    "object": pickle.dumps(object()),
    "type": pickle.dumps(type),
    "NotImplemented": pickle.dumps(NotImplemented),
    "Ellipsis": pickle.dumps(...),
    "import side effect": _glob("antigravity", "x") + b".",
    "print": _call("builtins", "print", b"K\x01"),
    "open": _call("builtins", "open", b"X\x04\x00\x00\x00/tmp"),
    "python 2 names": _glob("__builtin__", "set") + b".",
    "python 2 exceptions": _glob("exceptions", "ValueError") + b".",
    "codecs": pickle.dumps(b"x", 2),
    "dotted name": b"\x8c\x08builtins\x8c\x0bint.__class_\x93.",
    "submodule path": b"\x8c\x08datetime\x8c\x0cdatetime.now\x93.",
    "sys.modules": _glob("sys", "modules") + b".",
    "simple namespace": pickle.dumps(__import__("types").SimpleNamespace(a=1)),
    "enum": pickle.dumps(__import__("http").HTTPStatus.OK),
    "regex": pickle.dumps(__import__("re").compile("a")),
    "ip address": pickle.dumps(__import__("ipaddress").ip_address("::1")),
    "array": pickle.dumps(__import__("array").array("i", [1])),
    "numpy scalar": pickle.dumps(numpy.float64(1)),
    "numpy array of protocol 5": pickle.dumps(numpy.arange(3), 5),
    "control characters in a name": b"\x8c\x02\x1b[\x8c\x01x\x93.",
    # Opcodes that are not admitted.
    "ext1": b"\x82\x01.",
    "ext2": b"\x83\x01\x00.",
    "ext4": b"\x84\x01\x00\x00\x00.",
    "persistent id": b"Pid\n.",
    "binary persistent id": b"NQ.",
    "next buffer": b"\x97.",
    "readonly buffer": b"N\x98.",
    "unknown opcode": b"\xff.",
    "protocol 6": b"\x80\x06N.",
    # Malformed streams.
    "empty": b"",
    "no stop": b"N",
    "only stop": b".",
    "two values": b"NN.",
    "open mark": b"(N.",
    "trailing bytes": b"N.N",
    "empty stack": b"a.",
    "no mark": b"t.",
    "below a mark": b"](a.",
    "tuple below a mark": b"N(\x85.",
    "build below a mark": b"N(}b.",
    "memo never written": b"h\x00.",
    "memo gap read": b"Nr\x05\x00\x00\x000h\x00.",
    "no arguments": b"]" + _glob("builtins", "int") + b"N" + b"R.",
    "line without end": b"I123",
    "global without end": b"cos\nsystem",
    "global of numbers": b"K\x01K\x02\x93.",
    "malformed after a global": _glob("builtins", "int") + b"\xff.",
    "cut after a global": _glob("builtins", "int") + b"X\xff\xff\xff\x7f",
    "ext after a global": _glob("builtins", "int") + b"0\x82\x01.",
    "trailing after a global": _glob("builtins", "int") + b".N",
    "line after a global": _glob("builtins", "int") + b"I12",
    "end after a global": _glob("builtins", "int") + b"N",
    "bad utf-8": b"X\x01\x00\x00\x00\xff.",
    "bad integer": b"Ixyz\n.",
    "bad float": b"Fxyz\n.",
    "long float": b"F" + b"1" * 401 + b"\n.",
    "unhashable key": b"}]Ns.",
    "unhashable item": b"\x8f(]\x90.",
    "odd items": b"}(Nu.",
    "append to a dict": b"}Na.",
    "items of a list": b"](NNu.",
    "add to a list": b"](N\x90.",
    "extend a number": b"K\x01(Ne.",
    # Lengths beyond the data.
    "bytes of 2 GiB": b"B" + _u32(2**31) + b".",
    "bytes of 2**63": b"\x8e" + _u64(2**63) + b".",
    "text of 4 GiB": b"X" + _u32(2**32 - 1) + b".",
    "text of 2**62": b"\x8d" + _u64(2**62) + b".",
    "bytearray of 2**40": b"\x96" + _u64(2**40) + b".",
    "integer of 2 GiB": b"\x8b" + _u32(2**31 - 1) + b".",
    "memo index 2**32": b"Nr" + _u32(2**32 - 1) + b".",
    "memo index as text": b"Np" + b"9" * 30 + b"\n.",
    "negative memo index": b"Np-1\n.",
    "digits": b"I" + b"9" * 100_000 + b"\n.",
    "digits of a long": b"L" + b"9" * 100_000 + b"L\n.",
    # Arguments that ask for much.
    "bytearray(n)": _call("builtins", "bytearray", _INT_1E9),
    "bytes(n)": _call("builtins", "bytes", _INT_1E9),
    "bytes(range)": _glob("builtins", "bytes")
    + b"("
    + _glob("builtins", "range")
    + b"("
    + _INT_1E9
    + b"tRtR.",
    "list(range)": _glob("builtins", "list")
    + b"("
    + _glob("builtins", "range")
    + b"("
    + _LONG
    + b"tRtR.",
    "deque(range)": _glob("collections", "deque")
    + b"("
    + _glob("builtins", "range")
    + b"("
    + _LONG
    + b"tRtR.",
    "deque maxlen": _call("collections", "deque", b")", b"G" + b"\x00" * 8),
    "counter of a range": _glob("collections", "Counter")
    + b"("
    + _glob("builtins", "range")
    + b"("
    + _LONG
    + b"tRtR.",
    "str(nested)": _call("builtins", "str", b"]"),
    "str with a codec": _call("builtins", "str", b"C\x01x", b"X\x03\x00\x00\x00zip"),
    "int of digits": _call("builtins", "int", b"X" + _u32(9000) + b"9" * 9000),
    "fraction 1e999999999": _call("fractions", "Fraction", b"X\x0b\x00\x00\x001e999999999"),
    "fraction of a decimal": _glob("fractions", "Fraction")
    + b"("
    + _glob("decimal", "Decimal")
    + b"(X\x0b\x00\x00\x001e999999999tRtR.",
    "fraction of large integers": _call(
        "fractions", "Fraction", b"\x8b" + _u32(4000) + b"\x7f" * 4000, b"K\x03"
    ),
    "decimal of a list": _call("decimal", "Decimal", b"]"),
    "decimal of a long text": _call("decimal", "Decimal", b"X" + _u32(200_000) + b"1" * 200_000),
    "path of bytes": _call("pathlib", "Path", b"C\x01x"),
    "reconstructor with a base that does not fit": _glob("copyreg", "_reconstructor")
    + b"("
    + _glob("builtins", "ValueError")
    + _glob("builtins", "list")
    + b"]tR.",
    "text of an unknown codec": _call("builtins", "bytearray", b"X\x01\x00\x00\x00x", b"N"),
    "negative length in eight bytes after a global": _glob("builtins", "int")
    + b"\x8e"
    + _u64(2**64 - 1)
    + b".",
    "line without end in raw text": b"Vabc",
    "many memo gaps": b"N"
    + b"".join(b"r" + _u32(n) for n in range(60_000, 240_000, 60_000))
    + b".",
    "long integer over the limit": b"\x8b" + _u32(1048577) + b"\x00" * 1048577 + b".",
    "memo index that is no number": b"Npx\n.",
    "memo line without end": b"Np12",
    "numpy dtype of nothing": _call("numpy", "dtype"),
    "numpy dtype with odd flags": _call("numpy", "dtype", b"X\x02\x00\x00\x00f8", b"K\x01"),
    "missing result class": _glob("agentix.files", "UploadResult") + b".",
    "date of a list": _call("datetime", "date", b"]"),
    "defaultdict with a function": _glob("collections", "defaultdict")
    + b"("
    + _glob("copyreg", "__newobj__")
    + b"tR.",
    "ndarray(n)": _call("numpy", "ndarray", b"(" + _LONG + b"t"),
    "reconstruct(n)": _glob("numpy._core.multiarray", "_reconstruct")
    + b"("
    + _glob("numpy", "ndarray")
    + b"("
    + _LONG
    + b"tC\x01btR.",
    "dtype of a structure": _call("numpy", "dtype", b"X\x05\x00\x00\x00i4,i4"),
    "dtype of a list": _call("numpy", "dtype", b"]"),
    # Things that must not be called or changed.
    "call a value": b"K\x01)R.",
    "call a list": b"])R.",
    "newobj of a value": b"K\x01)\x81.",
    "newobj of a function": _glob("copyreg", "__newobj__") + b")\x81.",
    "newobj_ex keywords": _glob("builtins", "int") + b")}\x8c\x01xK\x01s\x92.",
    "newobj of a list with a range": _glob("builtins", "list")
    + _glob("builtins", "range")
    + b"("
    + _INT_1E9
    + b"tR\x85\x81.",
    "reconstructor of a dict": _glob("copyreg", "_reconstructor")
    + b"("
    + _glob("builtins", "dict")
    + _glob("builtins", "object")
    + b"NtR.",
    "state of a list": b"]}b.",
    "state of a class": _glob("builtins", "int") + b"}b.",
    "slots of a class": _glob("builtins", "ValueError") + b"N}\x8c\x01xK\x01s\x86b.",
    "state of a function": _glob("copyreg", "__newobj__") + b"}b.",
    "special attribute of an exception": _glob("builtins", "ValueError")
    + b")R}\x8c\x09__class__K\x01sb.",
    "odd state of an exception": _glob("builtins", "ValueError") + b")RK\x01b.",
    "odd state of a uuid": _glob("uuid", "UUID") + b")\x81}\x8c\x03intNsb.",
    "uuid with another field": _glob("uuid", "UUID") + b")\x81}\x8c\x01xNsb.",
    "instance opcode": b"(ios\nsystem\n.",
    "object opcode": b"(" + _glob("os", "system") + b"X\x04\x00\x00\x00trueo.",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    modules = set(sys.modules)
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(RestrictedUnpickleError) as caught:
            loads(REFUSED[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    took = time.monotonic() - began

    assert str(caught.value).startswith("refusing "), str(caught.value)
    assert str(caught.value).isprintable()
    assert "AGENTIX_PICKLE_TRUST" in str(caught.value)
    assert "allow_type" in str(caught.value)
    assert took < _SECONDS
    assert peak < _BYTES
    assert set(sys.modules) - modules <= {"numpy._core.multiarray"}


def test_error_texts() -> None:
    def text(data: bytes) -> str:
        with pytest.raises(RestrictedUnpickleError) as caught:
            loads(data)
        return str(caught.value)

    assert text(REFUSED["os.system"]).startswith(
        f"refusing to reconstruct {os.system.__module__}.system:"
    )
    assert text(REFUSED["eval"]).startswith("refusing builtins.eval:")
    assert text(REFUSED["ext1"]).startswith("refusing pickle EXTn:")
    assert text(REFUSED["ext after a global"]).startswith("refusing pickle EXTn:")
    assert text(REFUSED["no stop"]).startswith("refusing malformed pickle opcode stream:")
    assert text(REFUSED["malformed after a global"]).startswith(
        "refusing malformed pickle opcode stream:"
    )


def test_nothing_runs_before_the_whole_stream_is_known_to_be_well_formed(allowed: None) -> None:
    allow_type(_Witness)
    data = pickle.dumps(_Witness())[:-1]

    with pytest.raises(RestrictedUnpickleError, match="malformed"):
        loads(data)

    assert _Witness.made == 1


class _Witness:
    made = 0

    def __new__(cls) -> _Witness:
        cls.made += 1
        return super().__new__(cls)


# Streams of a few hundred kilobytes that ask for gigabytes, or for a deep structure.
def _copies() -> bytes:
    """Copy a list of two hundred thousand entries two thousand times."""
    copy = b"h\x01h\x00\x85R0"
    return _ENTRIES + b"q\x000" + _glob("builtins", "list") + b"q\x010" + copy * 2_000 + b"N."


def _tuples() -> bytes:
    """Nest a hundred thousand tuples, which would overflow the C stack when hashed."""
    return b")" + b"\x85" * 100_000 + b"."


def _nested_key() -> bytes:
    return b"})" + b"\x85" * 100_000 + b"Ns."


def _lists() -> bytes:
    return b"]" * 100_000 + b"a" * 99_999 + b"."


def _sets() -> bytes:
    return b"(" + b"\x8f" * 300_000 + b"t."


def _laughs() -> bytes:
    """Double a tuple forty times and ask for its text."""
    double = b"h\x00h\x00\x86q\x000"
    return b"X\x03\x00\x00\x00lolq\x000" + double * 40 + _glob("builtins", "str") + b"h\x00\x85R."


def _doubles() -> bytes:
    return b"](" + b"]N\x86" * 300_000 + b"e."


@pytest.mark.parametrize("build", [_copies, _tuples, _nested_key, _lists, _sets, _laughs, _doubles])
def test_bombs_are_refused(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # An eighth of the real budget, for the sake of the tests' time only.
    monkeypatch.setattr(_limits, "MEMORY_BASE_BYTES", 8 << 20)
    data = build()
    began = time.process_time()

    with pytest.raises(RestrictedUnpickleError):
        loads(data)

    # About a second; a tracer for coverage makes it twenty.
    assert time.process_time() - began < 60


def test_limits_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _limits.MAX_VALUE_BYTES == 268431360
    assert _limits.MAX_OPCODES == 10_000_000
    assert _limits.MAX_DEPTH == 1000
    assert _limits.MEMORY_BASE_BYTES == 67108864

    assert loads(b")" + b"\x85" * 1000 + b".") is not None
    with pytest.raises(RestrictedUnpickleError, match="1000 levels of nesting"):
        loads(b")" + b"\x85" * 1001 + b".")

    monkeypatch.setattr(_limits, "MAX_OPCODES", 1000)
    assert loads(b"N0" * 499 + b"N.") is None
    with pytest.raises(RestrictedUnpickleError, match="1000 instructions"):
        loads(b"N0" * 500 + b"N.")

    monkeypatch.setattr(_limits, "MAX_VALUE_BYTES", 2)
    assert loads(b"N.") is None
    with pytest.raises(RestrictedUnpickleError, match="2 bytes"):
        loads(b"NN.")


@pytest.mark.parametrize(
    "state",
    [
        (1, (10,), numpy.dtype("f8"), False, b""),
        (1, (-1,), numpy.dtype("f8"), False, b""),
        (1, (2**40,), numpy.dtype("V0"), False, b""),
        (1, (1,), numpy.dtype("O"), False, b"\x00" * 8),
        (1, (1,), numpy.dtype("O"), False, []),
        (1, [1], numpy.dtype("f8"), False, b"\x00" * 8),
        (1, (1,) * 65, numpy.dtype("f8"), False, b"\x00" * 8),
        (1, (1,), "f8", False, b"\x00" * 8),
        (1, (1,)),
        ("1", (1,), numpy.dtype("f8"), False, b"\x00" * 8),
    ],
    ids=str,
)
def test_array_states_that_do_not_fit(state: Any) -> None:
    data = pickle.dumps(numpy.ndarray((0,), "i1"), 4)
    # The state tuple of a real pickle is replaced by ours.
    head = data[: data.index(b"R") + 2]
    body = pickle.dumps(state, 4)

    with pytest.raises(RestrictedUnpickleError, match=r"ndarray|dtype"):
        loads(head + body[2 if body[2] != 0x95 else 11 : -1].replace(b"\x94", b"") + b"b.")


def _dtype_with(state: Any, name: str = "f8") -> bytes:
    head = _glob("numpy", "dtype") + b"(X" + _u32(len(name)) + name.encode() + b"\x89\x88tR"
    return head + pickle.dumps(state, 3)[2:-1] + b"b."


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("f8", (3, "|", None, None, None, -1, -1, 1)),
        ("f8", (3, "|", None, None, None, -1, -1, 63)),
        ("f8", (3, "x", None, None, None, -1, -1, 0)),
        ("f8", (3, "|", None, None, None, 1000, -1, 0)),
        ("f8", (3, "|", None, None, None, -1, 1000, 0)),
        ("f8", (9, "|", None, None, None, -1, -1, 0)),
        ("f8", (3, "|", 1, None, None, -1, -1, 0)),
        ("f8", (3, "|", None, None, None, "1", -1, 0)),
        ("f8", (3, "|", None, ("a",), {"a": 1}, -1, -1, 0)),
        ("V8", (3, "|", None, ("a",), {"a": 1}, 8, 1, 16)),
        ("V8", (3, "|", None, ("a", "a"), {}, 8, 1, 16)),
        ("V8", (3, "|", None, ("a",), {"a": (1, 2)}, 8, 1, 16)),
        ("V8", (3, "|", None, None, None, 8, 1, 1)),
        ("f8", (4, "<", None, None, None, -1, -1, 0, ({}, (b"ns", 1, 1, 1)))),
        ("M8", (4, "<", None, None, None, -1, -1, 0, 5)),
        ("f8", (3,)),
        ("M8", (4, "<", None, None, None, -1, -1, 0, ({"a": 1}, (b"ns", 1, 1, 1)))),
        ("M8", (4, "<", None, None, None, -1, -1, 0, ({}, (b"xx", 1, 1, 1)))),
        ("M8", (4, "<", None, None, None, -1, -1, 0, ({}, (b"ns", 0, 1, 1)))),
    ],
)
def test_dtype_states_that_do_not_fit(name: str, state: Any) -> None:
    with pytest.raises(RestrictedUnpickleError, match="dtype"):
        loads(_dtype_with(state, name))


def test_field_outside_of_a_structure() -> None:
    real = numpy.dtype([("a", "i4"), ("b", "i4")])
    data = pickle.dumps(real, 2)
    assert loads(data) == real

    moved = data.replace(b"K\x04\x86", b"K\x05\x86")
    assert moved != data
    with pytest.raises(RestrictedUnpickleError, match="outside"):
        loads(moved)


def test_numpys_own_dtypes_are_never_changed() -> None:
    before = numpy.dtype("f8").byteorder
    loads(_dtype_with((3, ">", None, None, None, -1, -1, 0)).replace(b"\x89\x88tR", b"\x89\x89tR"))

    assert numpy.dtype("f8").byteorder == before

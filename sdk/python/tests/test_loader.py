"""The restricted loader on values that are admitted."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import pickle
import uuid
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentix._host._admitted import allow_type
from agentix._host._exceptions import RestrictedUnpickleError
from agentix._host._restricted import loads

_ZONE = datetime.timezone(datetime.timedelta(hours=2), "there")
_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    255,
    65536,
    -1,
    2**63,
    2**70,
    -(2**2000),
    1.5,
    -0.0,
    float("inf"),
    "",
    "é\U0001f600" * 100,
    "\ud800",
    b"",
    b"\x00" * 300,
    bytearray(b"abc"),
    [],
    [1, [2, {"a": (1, 2, 3, 4), "b": [None]}]],
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    tuple(range(10)),
    {1: "a", (1, 2): "b", "c": {}},
    {1, 2, 3},
    frozenset({1}),
    frozenset(),
    complex(1, -2),
    range(1, 10, 2),
    slice(1, None, 2),
    datetime.date(2026, 11, 29),
    datetime.datetime(2026, 11, 29, 1, 2, 3, 4, _ZONE),
    datetime.time(1, 2, 3, tzinfo=datetime.timezone.utc),
    datetime.timedelta(1, 2, 3),
    _ZONE,
    decimal.Decimal("1.50"),
    decimal.Decimal("NaN").copy_abs(),
    fractions.Fraction(-1, 3),
    uuid.UUID(int=7),
    collections.OrderedDict([("b", 1), ("a", 2)]),
    collections.defaultdict(list, {1: [2]}),
    collections.defaultdict(None, {1: 2}),
    collections.Counter("abca"),
    collections.deque([1, 2], 5),
    pathlib.PurePosixPath("/a/b"),
    pathlib.PureWindowsPath("c:\\x"),
    pathlib.Path("a/b"),
    ValueError("a", 1),
    KeyError("k"),
    FileNotFoundError(2, "no", "file"),
    UnicodeDecodeError("utf8", b"x", 0, 1, "why"),
    StopIteration(3),
    SystemExit(2),
    int,
    dict,
    ValueError,
]


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("value", _VALUES, ids=lambda value: repr(value)[:30])
def test_admitted_values_come_back_equal(value: Any, protocol: int) -> None:
    found = loads(pickle.dumps(value, protocol))

    assert type(found) is type(value)
    if isinstance(value, (BaseException, decimal.Decimal)):
        assert repr(found) == repr(value)
    else:
        assert found == value


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_plain_data_of_any_protocol(protocol: int) -> None:
    value = {"a": [1, 2**40, -5, 2**70, 1.5, None, True, "ü\n"], "b": (1, (2, 3, 4, 5))}

    assert loads(pickle.dumps(value, protocol)) == value


def test_signed_zero_and_integers_stay_what_they_are() -> None:
    found = loads(pickle.dumps([-0.0, 1, 1.0, True, 9007199254740993]))

    assert [repr(each) for each in found] == ["-0.0", "1", "1.0", "True", "9007199254740993"]


def test_shared_and_cyclic_values_stay_so() -> None:
    shared: list[Any] = [1]
    shared.append(shared)

    found = loads(pickle.dumps([shared, shared]))

    assert found[0] is found[1]
    assert found[0][1] is found[0]


def test_exception_attributes_and_notes() -> None:
    error = ValueError("x")
    error.extra = [1]  # type: ignore[attr-defined]
    error.__dict__["__notes__"] = ["note"]

    found = loads(pickle.dumps(error))

    assert found.extra == [1]
    assert found.__notes__ == ["note"]


_ARRAYS = [
    numpy.arange(6).reshape(2, 3),
    numpy.asfortranarray(numpy.ones((2, 3))),
    numpy.array(["a", "bc"]),
    numpy.array([b"x", b"yz"]),
    numpy.array([1, "a", None], dtype=object),
    numpy.array(["2020-01-01"], "M8[ns]"),
    numpy.array([3], "m8[D]"),
    numpy.zeros((0, 3)),
    numpy.array(3.5),
    numpy.array([True, False]),
    numpy.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    numpy.array([(1, 2.0)], dtype=numpy.dtype([("a", "i1"), ("b", "f8")], align=True)),
]


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("array", _ARRAYS, ids=lambda array: str(array.dtype))
def test_numpy_arrays(array: Any, protocol: int) -> None:
    found = loads(pickle.dumps(array, protocol))

    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert (found == array).all()


@pytest.mark.parametrize("name", ["f8", ">i4", "U5", "M8[us]", "O", "?"])
def test_numpy_dtypes(name: str) -> None:
    dtype = numpy.dtype(name)

    assert loads(pickle.dumps(dtype)) == dtype


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: list[int]


class Pair(NamedTuple):
    a: int
    b: int


class Slotted:
    __slots__ = ("value",)
    value: int


class Words(list):  # type: ignore[type-arg]
    pass


class Table(dict):  # type: ignore[type-arg]
    pass


class OwnError(Exception):
    pass


class Outer:
    @dataclasses.dataclass
    class Inner:
        x: int


def _slotted() -> Slotted:
    made = Slotted()
    made.value = 3
    return made


@pytest.mark.parametrize(
    "value",
    [
        Point(1, [2]),
        Pair(1, 2),
        Words([1, 2]),
        Table({"a": 1}),
        OwnError("x"),
        Outer.Inner(4),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_allow_type_admits_exactly_that_class(value: Any, protocol: int, allowed: None) -> None:
    if isinstance(value, Outer.Inner) and protocol < 4:
        protocol = 4  # older ones name a nested class by a call of getattr
    data = pickle.dumps(value, protocol)
    with pytest.raises(RestrictedUnpickleError, match="refusing to reconstruct"):
        loads(data)
    allow_type(type(value))

    found = loads(data)

    assert type(found) is type(value)
    assert found == value or repr(found) == repr(value)


def test_allow_type_of_a_class_with_slots(allowed: None) -> None:
    allow_type(Slotted)

    assert loads(pickle.dumps(_slotted(), 4)).value == 3


def test_allow_type_refuses_what_is_no_class() -> None:
    with pytest.raises(TypeError, match="class"):
        allow_type(len)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["1", " true ", "YES"])
def test_trust_switch_is_plain_pickle(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_PICKLE_TRUST", word)

    assert loads(pickle.dumps(Point(1, [2]))) == Point(1, [2])


@pytest.mark.parametrize("word", ["", "0", "on", "truely"])
def test_other_words_do_not_trust(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_PICKLE_TRUST", word)

    with pytest.raises(RestrictedUnpickleError):
        loads(pickle.dumps(Point(1, [2])))


_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@given(_plain, st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_plain_data_equals_what_pickle_loads(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    if b"_codecs" in data or b"__builtin__" in data:  # bytes before protocol 3: not admitted
        return

    assert loads(data) == value


def test_nesting_of_two_hundred_comes_back() -> None:
    value: Any = "deep"
    for _ in range(200):
        value = [value]

    found = loads(pickle.dumps(value))

    for _ in range(200):
        found = found[0]
    assert found == "deep"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"cbuiltins\nstr\n(C\x02\xc3\xa9X\x05\x00\x00\x00utf-8tR.", "é"),
        (b"cbuiltins\nstr\n)R.", ""),
        (b"cbuiltins\nbytes\n(](K\x01K\x02etR.", b"\x01\x02"),
        (b"cbuiltins\nbytes\n(\x96\x01\x00\x00\x00\x00\x00\x00\x00xtR.", b"x"),
        (b"cbuiltins\nbytearray\n(X\x01\x00\x00\x00xX\x07\x00\x00\x00latin-1tR.", bytearray(b"x")),
        (b"cbuiltins\nint\n(X\x02\x00\x00\x0012tR.", 12),
        (b"cbuiltins\nlist\n((K\x01ttR.", [1]),
        (b"cbuiltins\nint\nK\x05\x85\x81.", 5),
        (b"cbuiltins\nint\nK\x05\x85}\x92.", 5),
        (b"ccopyreg\n__newobj__\n(cbuiltins\nint\nK\x05tR.", 5),
        (b"ccopyreg\n__newobj_ex__\n(cbuiltins\nint\nK\x05\x85}tR.", 5),
        (b"cfractions\nFraction\n(X\x03\x00\x00\x001/3tR.", fractions.Fraction(1, 3)),
        (b"(K\x01ibuiltins\nint\n.", 1),
        (b"(cbuiltins\nint\nK\x01o.", 1),
        (b"(K\x01K\x02l.", [1, 2]),
        (b"(K\x01K\x02d.", {1: 2}),
        (b"}K\x01K\x02s.", {1: 2}),
        (b"]K\x01a.", [1]),
        (b"K\x01(N1.", 1),
        (b"K\x01(0.", 1),
        (b"K\x01N0.", 1),
        (b"K\x012\x86.", (1, 1)),
        (b"K\x01p0\ng0\n\x86.", (1, 1)),
        (b"K\x01r\x05\x00\x00\x00j\x05\x00\x00\x00\x86.", (1, 1)),
        (b"K\x01q\x00K\x02q\x00\x86h\x00\x86.", ((1, 2), 2)),
        (b"I01\nI00\n\x86.", (True, False)),
        (b"L12L\nF1.5\n\x86.", (12, 1.5)),
        (b"V\\u00e9\n.", "é"),
        (b"\x8b\x01\x00\x00\x00\xff.", -1),
        (b"\x8d\x01\x00\x00\x00\x00\x00\x00\x00x.", "x"),
        (b"\x8e\x01\x00\x00\x00\x00\x00\x00\x00x.", b"x"),
        (b"cnumpy\ndtype\n(X\x02\x00\x00\x00f8tR.", numpy.dtype("f8")),
        (b"cbuiltins\nValueError\n)RNb(K\x011.", None),
    ],
)  # fmt: skip
def test_streams_that_other_writers_make(data: bytes, value: Any) -> None:
    found = loads(data)

    if value is not None:
        assert found == value
        assert type(found) is type(value)


def test_reconstructor_of_trusted_classes(allowed: None) -> None:
    allow_type(Words)
    allow_type(Point)
    module = __name__.encode()
    rebuild = b"ccopyreg\n_reconstructor\n(c" + module

    words = loads(rebuild + b"\nWords\ncbuiltins\nlist\n](K\x01K\x02etR.")

    assert words == [1, 2]
    assert type(words) is Words


def test_state_by_setstate(allowed: None) -> None:
    allow_type(Stateful)

    assert loads(pickle.dumps(Stateful(5))).value == 10


class Stateful:
    def __init__(self, value: int) -> None:
        self.value = value

    def __getstate__(self) -> int:
        return self.value

    def __setstate__(self, state: int) -> None:
        self.value = state * 2


def test_special_attributes_are_not_set_on_trusted_classes(allowed: None) -> None:
    allow_type(Point)
    data = b"c" + __name__.encode() + b"\nPoint\n)\x81N}\x8c\x09__class__K\x01s\x86b."

    with pytest.raises(RestrictedUnpickleError, match="state"):
        loads(data)


def test_reconstructor_of_a_base_that_does_not_fit(allowed: None) -> None:
    allow_type(Point)
    rebuild = b"ccopyreg\n_reconstructor\n(c" + __name__.encode()

    with pytest.raises(RestrictedUnpickleError, match="base"):
        loads(rebuild + b"\nPoint\ncbuiltins\nlist\n]tR.")


def test_result_classes_of_the_public_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    module = types.ModuleType("agentix.files")
    module.UploadResult = type("UploadResult", (), {"__module__": "agentix.files"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agentix.files", module)

    found = loads(b"cagentix.files\nUploadResult\n)\x81}\x8c\x04pathK\x01sb.")

    assert type(found) is module.UploadResult
    assert found.path == 1
    module.UploadResult = print  # type: ignore[attr-defined]
    with pytest.raises(RestrictedUnpickleError, match="refusing to reconstruct"):
        loads(b"cagentix.files\nUploadResult\n.")


def test_a_trusted_class_that_raises(allowed: None) -> None:
    allow_type(Moody)

    with pytest.raises(RestrictedUnpickleError, match="KeyError"):
        loads(b"c" + __name__.encode() + b"\nMoody\n)R.")


class Moody:
    def __new__(cls) -> Moody:
        raise KeyError("mood")


def test_state_of_a_trusted_numpy_scalar(allowed: None) -> None:
    allow_type(numpy.float64)

    assert type(loads(b"cnumpy\nfloat64\n)RK\x01b.")) is numpy.float64

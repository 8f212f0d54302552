"""Binding by annotations: what each one takes, what it refuses, and where it says so."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import pathlib
import sys
import uuid
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import WorkerProcess, decode

sys.path.insert(0, str(pathlib.Path(__file__).parent / "project"))
import shapes

from _agentix_worker import binding, convert, encodings
from _agentix_worker.errors import CallFailure


def converted(annotation: Any, value: Any, *, binary: bool = False) -> Any:
    errors = convert.Errors(binary=binary)
    made = convert.converter(annotation)(value, (None, "x"), errors)
    return errors.found or made


OK = [
    ("bytes", "AAH/", b"\x00\x01\xff"),
    ("bytearray", "AAE=", bytearray(b"\x00\x01")),
    ("list[int]", [1, 2], [1, 2]),
    ("Sequence[int]", [1], [1]),
    ("typing.List[int]", [1], [1]),
    ("tuple[int, str]", [1, "a"], (1, "a")),
    ("tuple[int, ...]", [1, 2, 3], (1, 2, 3)),
    ("set[int]", [1, 2, 1], {1, 2}),
    ("frozenset[str]", ["a"], frozenset({"a"})),
    ("deque[int]", [1], deque([1])),
    ("dict[str, int]", {"a": 1}, {"a": 1}),
    ("dict[int, str]", {"1": "a", "-2": "b"}, {1: "a", -2: "b"}),
    ("Mapping[Color, Any]", {"red": [1.5]}, {shapes.Color.RED: [1.5]}),
    ("Optional[int]", None, None),
    ("Optional[int]", 3, 3),
    ("Union[int, str]", "3", "3"),
    ("Union[Item, Point]", {"x": 1}, shapes.Point(1)),
    ("Union[bytes, str]", "plain text!", "plain text!"),
    ("Literal", 1, 1),
    ("Color", "blue", shapes.Color.BLUE),
    ("Level", 2, shapes.Level.HIGH),
    ("datetime", "2020-01-02T03:04:05Z", datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)),
    ("datetime", "2020-01-02T03:04:05.5", datetime.datetime(2020, 1, 2, 3, 4, 5, 500000))
    if sys.version_info >= (3, 11)
    else ("datetime", "2020-01-02T03:04:05", datetime.datetime(2020, 1, 2, 3, 4, 5)),
    ("date", "2020-01-02", datetime.date(2020, 1, 2)),
    ("time", "03:04:05", datetime.time(3, 4, 5)),
    ("Decimal", "1.10", decimal.Decimal("1.10")),
    ("Decimal", 3, decimal.Decimal(3)),
    ("Decimal", 0.1, decimal.Decimal("0.1")),
    ("UUID", "12345678123456781234567812345678", uuid.UUID("12345678123456781234567812345678")),
    ("Path", "/a/b", pathlib.Path("/a/b")),
    ("Item", {"name": "n", "child": {"name": "c"}}, shapes.Item("n", child=shapes.Item("c"))),
    ("Item", {"name": "n", "price": 2}, shapes.Item("n", 2)),
    ("list[Item]", [{"name": "n"}], [shapes.Item("n")]),
    ("Point", [1, 2], shapes.Point(1, 2)),
    ("Point", {"x": 1}, shapes.Point(1)),
    ("Needed", {"name": "n", "when": "2020-01-02", "extra": 1}, {"name": "n", "when": datetime.date(2020, 1, 2), "extra": 1}),
    ("UserId", 3, 3),
    ("T", [1], [1]),
    ("B", 1, 1),
    ("Any", {"a": [1]}, {"a": [1]}),
    ("None", None, None),
    ("float", 1, 1),
    ("float", 1.5, 1.5),
]


@pytest.mark.parametrize(("name", "value", "expected"), OK)
def test_accepted(name: str, value: Any, expected: Any) -> None:
    made = converted(shapes.ANNOTATIONS[name], value)
    assert made == expected
    assert type(made) is type(expected)


BAD = [
    ("int", 1.0, "x", "expected an integer, got a number 1.0"),
    ("int", True, "x", "expected an integer, got true"),
    ("int", "1", "x", "expected an integer, got a string '1'"),
    ("float", "1", "x", "expected a number"),
    ("bool", 1, "x", "expected a boolean, got an integer 1"),
    ("str", 1, "x", "expected a string"),
    ("str", None, "x", "got null"),
    ("bytes", "no base64!", "x", "base64"),
    ("bytes", 3, "x", "base64"),
    ("list[int]", "ab", "x", "expected an array, got a string 'ab'"),
    ("list[int]", [1, "a"], "x[1]", "expected an integer"),
    ("tuple[int, str]", [1], "x", "an array of 2"),
    ("set[int]", {"a": 1}, "x", "an array, got an object"),
    ("dict[int, str]", {"a": "b"}, "x.a", "integer as the key"),
    ("dict[int, str]", {"01": "b"}, "x.01", "integer as the key"),
    ("dict[str, int]", {"a": "b"}, "x.a", "expected an integer"),
    ("Mapping[Color, Any]", {"green": 1}, "x.green", "one of 'red', 'blue'"),
    ("Optional[int]", "a", "x", "expected int or null"),
    ("Union[int, str]", 1.5, "x", "expected int or str"),
    ("Union[Item, Point]", {"name": 1}, "x.name", "expected a string"),
    ("Literal", "b", "x", "one of 'a', 1, True"),
    ("Literal", 1.0, "x", "one of"),
    ("Color", "RED", "x", "one of 'red', 'blue'"),
    ("Level", 3, "x", "one of 1, 2"),
    ("datetime", "yesterday", "x", "ISO 8601 date and time"),
    ("date", 3, "x", "ISO 8601 date"),
    ("Decimal", "abc", "x", "decimal"),
    ("UUID", "abc", "x", "UUID"),
    ("Path", "a\0b", "x", "path"),
    ("Item", [], "x", "expected an object (Item), got an array"),
    ("Item", {}, "x.name", "required field of Item is missing"),
    ("Item", {"name": "n", "secret": 1}, "x.secret", "unexpected field of Item"),
    ("Item", {"name": "n", "child": {"name": 2}}, "x.child.name", "expected a string"),
    ("Item", {"name": "forbidden"}, "x", "Item: ValueError: that name is forbidden"),
    ("Point", [1, 2, 3], "x", "an array of 2 (Point)"),
    ("Point", {"y": 1}, "x.x", "missing"),
    ("Needed", {}, "x.name", "required key"),
    ("B", "a", "x", "expected an integer"),
    ("None", 0, "x", "expected null"),
    ("Thing", 0, "x", "shapes.Thing"),
]


@pytest.mark.parametrize(("name", "value", "path", "text"), BAD)
def test_refused(name: str, value: Any, path: str, text: str) -> None:
    found = converted(shapes.ANNOTATIONS[name], value)
    assert [p for p, _ in found] == [path]
    assert text in found[0][1]


def test_msgpack_has_bytes_of_its_own() -> None:
    assert converted(bytes, b"\x00", binary=True) == b"\x00"
    assert "expected bytes, got a string" in converted(bytes, "AAE=", binary=True)[0][1]
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    assert converted(datetime.datetime, moment, binary=True) == moment


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
        max_leaves=10,
    )
)
def test_any_value_for_any_annotation_is_converted_or_refused(value: Any) -> None:
    for annotation in shapes.ANNOTATIONS.values():
        converted(annotation, value)


def bound(fn: Any, *args: Any, **kwargs: Any) -> Any:
    a, k = binding.bind(fn, list(args), kwargs, "json")
    return fn(*a, **k)


def violations(fn: Any, *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
    with pytest.raises(CallFailure) as caught:
        binding.bind(fn, list(args), kwargs, "json")
    assert caught.value.kind == "ArgumentsInvalid"
    return [(v["path"], v["message"]) for v in caught.value.extra["violations"]]


def test_binding_to_the_signature() -> None:
    assert bound(shapes.takes_many, 1) == [1, "b", [], False, {}]
    assert bound(shapes.takes_many, 1, "x", 2, 3.5, key=True, data="aGk=") == [1, "x", [2, 3.5], True, {"data": "hi"}]
    assert bound(shapes.positional_only, 1, c=5) == [1, 2, 5]
    assert bound(shapes.default_none, None) is None
    assert bound(shapes.unresolvable, "anything", 1) == ["anything", 1]
    assert bound(shapes.untyped, {"a": 1}) == {"a": 1}
    assert bound(shapes.Thing, 3).size == 3
    assert bound(shapes.thing, 3) == 3
    assert bound(len, [1]) == 1
    assert bound(max, 1, 2) == 2  # a builtin that tells no signature


def test_all_violations_are_told_at_once() -> None:
    assert violations(shapes.takes_many, "a", 2, "c", key=1, data="!") == [
        ("a", "expected an integer, got a string 'a'"),
        ("b", "expected a string, got an integer 2"),
        ("rest[0]", "expected a number, got a string 'c'"),
        ("key", "expected a boolean, got an integer 1"),
        ("data", "expected bytes as base64 text"),
    ]
    found = violations(shapes.positional_only, 1, 2, 3, 4, b=1, d=2)
    assert [p for p, _ in found] == ["args[3]", "b", "d"]
    assert violations(shapes.takes_int) == [("x", "required argument is missing")]
    assert violations(shapes.takes_int, 1, x=2) == [("x", "given twice: by position and by name")]
    assert violations(shapes.Thing, "a") == [("size", "expected an integer, got a string 'a'")]
    assert violations(shapes.thing, "a") == [("x", "expected an integer, got a string 'a'")]
    many = violations(shapes.takes_int, **{f"k{i}": i for i in range(1000)})
    assert len(many) == 100


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"3",
        b"[]",
        b"[1,2]",
        b"[[],{},0]",
        b"[{},[]]",
        b"[[NaN],{}]",
        b"[[Infinity],{}]",
        b"[[-Infinity],{}]",
        b"[[1e999],{}]",
        b"\xff",
        b"[[" + b"9" * 5000 + b"],{}]" if sys.version_info >= (3, 11) else b"[",
    ],
)
def test_json_arguments_that_are_no_pair_of_json(data: bytes) -> None:
    with pytest.raises(CallFailure) as caught:
        encodings.decode_arguments("json", data, shapes.untyped)
    assert caught.value.kind == "ArgumentsDecodeError"


def test_depth_of_an_argument_is_at_most_200() -> None:
    deep = "[" * 200 + "]" * 200
    args, _ = encodings.decode_arguments("json", f"[[{deep}],{{}}]".encode(), shapes.untyped)
    assert json.dumps(args[0]) == deep
    with pytest.raises(CallFailure, match="200"):
        encodings.decode_arguments("json", f"[[[{deep}]],{{}}]".encode(), shapes.untyped)
    with pytest.raises(CallFailure):
        encodings.decode_arguments("json", b"[" * 100_000 + b"]" * 100_000, shapes.untyped)


def test_numbers_arrive_exactly() -> None:
    text = b"[[[9007199254740993, 1180591620717411303424, 1, 1.0, -0.0, 1e22, 0.1]],{}]"
    args, _ = encodings.decode_arguments("json", text, shapes.untyped)
    assert args[0] == [9007199254740993, 2**70, 1, 1.0, -0.0, 1e22, 0.1]
    assert [type(n) for n in args[0]] == [int, int, int, float, float, float, float]
    assert math.copysign(1, args[0][4]) == -1


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        name: str
        sizes: list[int] = []

    assert converted(Model, {"name": "n", "sizes": [1]}) == Model(name="n", sizes=[1])
    assert [p for p, _ in converted(Model, {"sizes": ["a"]})] == ["x.name", "x.sizes[0]"]
    assert converted(Model, 3)[0][0] == "x"


def test_through_the_worker(shared: WorkerProcess) -> None:
    frame = shared.end_of(
        shared.start(
            "shapes::order", encoding="json", kwargs={"item": {"name": "n"}, "color": "blue", "when": "2020-01-02T00:00:00"}
        )
    )
    assert decode(frame) == {
        "item": {"name": "n", "price": 1.0, "tags": [], "child": None, "secret": 0},
        "color": "blue",
        "when": "2020-01-02T00:00:00",
    }
    error = shared.fail("shapes::order", encoding="msgpack", kwargs={"item": {"name": 1}, "colour": 1})
    assert error["type"] == "ArgumentsInvalid"
    assert error["violations"] == [{"path": "colour", "message": "unexpected argument"}]
    assert error["traceback"] is None
    assert shared.call("shapes::takes_float", 1, encoding="json") == "int"
    assert shared.call("shapes::takes_float", 1.0, encoding="json") == "float"
    # Pickles carry Python values, so nothing is converted or checked.
    assert shared.call("shapes::takes_int", "text") == "str"
    assert shared.fail("shapes::takes_int")["type"] == "TypeError"

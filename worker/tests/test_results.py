"""Results as JSON and msgpack: exact, or refused with the place that cannot be sent."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _agentix_worker import codec, plain
from _agentix_worker.errors import CallFailure
from harness import WorkerProcess

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    max_leaves=20,
)


@given(json_values)
def test_json_values_come_back_exactly(value: Any) -> None:
    back = json.loads(plain.encode(value, "json"))
    assert back == value
    assert repr(back) == repr(value)  # 1 and 1.0, -0.0


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


class Mixed(str, enum.Enum):
    A = "a"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Item:
    name: str
    parts: dict[str, Any]


class Text(str):
    pass


class Number(float):
    pass


UTC = datetime.timezone.utc
BOTH = [
    ((1, (2,)), [1, [2]]),
    ({3}, [3]),
    (frozenset(["a"]), ["a"]),
    (Point(1, 2), [1, 2]),
    (Item("n", {"at": {Color.RED}}), {"name": "n", "parts": {"at": ["red"]}}),
    (Color.RED, "red"),
    (Level.HIGH, 2),
    (Mixed.A, "a"),
    (Text("t"), "t"),
    (Number(1.5), 1.5),
    (decimal.Decimal("1.10"), "1.10"),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (pathlib.PurePosixPath("/a"), "/a"),
    (datetime.datetime(2020, 1, 2, 3, 4, 5, 6, UTC), "2020-01-02T03:04:05.000006+00:00"),
    (datetime.date(2020, 1, 2), "2020-01-02"),
    (datetime.time(3, 4), "03:04:00"),
    ({1: "a", Color.RED: "b", uuid.UUID(int=5): 1}, {"1": "a", "red": "b", "00000000-0000-0000-0000-000000000005": 1}),
]


@pytest.mark.parametrize(("value", "expected"), BOTH)
def test_values_with_a_plain_form(value: Any, expected: Any) -> None:
    assert json.loads(plain.encode(value, "json")) == expected
    assert codec.unpack(plain.encode(value, "msgpack")) == expected


@pytest.mark.parametrize("data", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes(data: Any) -> None:
    assert json.loads(plain.encode([data], "json")) == ["AP8="]
    assert codec.unpack(plain.encode([data], "msgpack")) == [b"\x00\xff"]


BAD = [
    (object(), "json", "the result is of type object, which has no JSON form"),
    ({"a": [1, object()]}, "json", "at value.a[1] is of type object"),
    ([1j], "json", "value[0] is of type complex"),
    ({"a": float("nan")}, "json", "value.a is nan"),
    ([float("-inf")], "json", "value[0] is -inf"),
    ({None: 1}, "json", "key of type NoneType"),
    ({1.5: 1}, "msgpack", "key of type float"),
    ({(1,): 1}, "json", "key of type tuple"),
    ({1: 1, "1": 2}, "json", "value.1 has a second key"),
    (["\ud800"], "json", "value[0] is a string with a lone surrogate"),
    ({"\ud800": 1}, "msgpack", "surrogate"),
    ([2**64], "msgpack", "value[0] is an integer that does not fit in 64 bits"),
    ([lambda: 1], "msgpack", "function, which has no msgpack form"),
    ([Item], "json", "of type type"),
]


@pytest.mark.parametrize(("value", "encoding", "text"), BAD)
def test_values_without_one_are_refused_by_place(value: Any, encoding: str, text: str) -> None:
    with pytest.raises(CallFailure) as caught:
        plain.encode(value, encoding)
    assert caught.value.kind == "ResultEncodeError"
    assert text in caught.value.message


def nest(n: int, make: Any) -> Any:
    value: Any = 1
    for _ in range(n):
        value = make(value)
    return value


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("make", [lambda v: [v], lambda v: {"k": v}, lambda v: (v,), lambda v: Item("n", {"k": v})])
def test_depth_is_at_most_200(encoding: str, make: Any) -> None:
    per_step = 2 if isinstance(make(1), Item) else 1
    plain.encode(nest(200 // per_step, make), encoding)
    with pytest.raises(CallFailure, match="nested deeper than 200 levels"):
        plain.encode(nest(200 // per_step + 1, make), encoding)


def test_cycles_and_shared_values_end() -> None:
    cycle: Any = []
    cycle.append(cycle)
    with pytest.raises(CallFailure, match="nested deeper"):
        plain.encode(cycle, "json")
    shared = [1]
    assert json.loads(plain.encode([shared] * 3, "json")) == [[1], [1], [1]]


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        when: datetime.date
        data: bytes

    value = Model(when=datetime.date(2020, 1, 2), data=b"\x00")
    assert json.loads(plain.encode({"m": value}, "json")) == {"m": {"when": "2020-01-02", "data": "AA=="}}


def test_through_the_worker(shared: WorkerProcess) -> None:
    numbers = shared.call("shapes::numbers", encoding="json")
    assert repr(numbers) == repr([9007199254740993, 2**70, 1, 1.0, -0.0, 1e22, 0.1, 5e-324, -(2**63)])
    assert json.dumps(shared.call("shapes::nested", 200, encoding="json")) == "[" * 200 + "1" + "]" * 200
    assert shared.fail("shapes::nested", 201, encoding="json")["type"] == "ResultEncodeError"
    assert shared.fail("shapes::cyclic", encoding="json")["type"] == "ResultEncodeError"
    assert shared.fail("app::generator", encoding="json")["type"] == "ResultEncodeError"

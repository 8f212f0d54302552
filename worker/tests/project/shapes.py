"""Annotated functions for the tests of binding and results."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import pathlib
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Item:
    name: str
    price: float = 1.0
    tags: list[str] = dataclasses.field(default_factory=list)
    child: Optional[Item] = None
    secret: int = dataclasses.field(default=0, init=False)

    def __post_init__(self):
        if self.name == "forbidden":
            raise ValueError("that name is forbidden")


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    depth: int
    when: datetime.date


class Needed(Options):
    name: str


UserId = NewType("UserId", int)
T = TypeVar("T")
B = TypeVar("B", bound=int)


def kind(value):
    return f"{type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")


def takes_int(x: int):
    return kind(x)


def takes_float(x: float):
    return kind(x)


def takes_many(a: int, b: str = "b", *rest: float, key: bool = False, **more: bytes):
    return [a, b, list(rest), key, {k: v.decode() for k, v in more.items()}]


def positional_only(a: int, b: int = 2, /, c: int = 3):
    return [a, b, c]


def default_none(x: int = None):  # noqa: RUF013
    return x


def unresolvable(x: NoSuchType, y: int):  # noqa: F821
    return [x, y]


def order(item: Item, color: Color = Color.RED, when: Optional[datetime.datetime] = None):
    return {"item": item, "color": color, "when": when}


def untyped(x):
    return x


class Thing:
    def __init__(self, size: int):
        self.size = size

    def __call__(self, x: int):
        return x


thing = Thing(1)
ANNOTATIONS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "list[int]": list[int],
    "Sequence[int]": Sequence[int],
    "typing.List[int]": typing.List[int],  # noqa: UP006
    "tuple[int, str]": tuple[int, str],
    "tuple[int, ...]": tuple[int, ...],
    "set[int]": set[int],
    "frozenset[str]": frozenset[str],
    "deque[int]": collections.deque[int],
    "dict[str, int]": dict[str, int],
    "dict[int, str]": dict[int, str],
    "Mapping[Color, Any]": Mapping[Color, Any],
    "Optional[int]": Optional[int],
    "Union[int, str]": Union[int, str],
    "Union[Item, Point]": Union[Item, Point],
    "Union[bytes, str]": Union[bytes, str],
    "Literal": Literal["a", 1, True],
    "Color": Color,
    "Level": Level,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "Decimal": decimal.Decimal,
    "UUID": uuid.UUID,
    "Path": pathlib.Path,
    "Item": Item,
    "list[Item]": list[Item],
    "Point": Point,
    "Needed": Needed,
    "UserId": UserId,
    "T": T,
    "B": B,
    "Any": Any,
    "None": None,
    "Thing": Thing,
    "bool": bool,
    "str": str,
    "int": int,
    "float": float,
}


def cyclic():
    value: list = []
    value.append(value)
    return value


def nested(n: int):
    value: Any = 1
    for _ in range(n):
        value = [value]
    return value


def numbers():
    return [9007199254740993, 2**70, 1, 1.0, -0.0, 1e22, 0.1, 5e-324, -(2**63)]

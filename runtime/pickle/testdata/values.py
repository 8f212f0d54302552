"""One table of values: their pickles, and what a worker makes of the same values.

Run as `python3 values.py WORKER_SRC`; prints one JSON line per value and protocol. `inert`
is the agreed form of instances of a user's classes, of which a pickle tells only the name;
without it, a worker's own JSON and msgpack (null where it refuses) are what counts.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import http
import ipaddress
import json
import pathlib
import pickle
import re
import sys
import types
import uuid
from typing import Any, NamedTuple

sys.path.insert(0, sys.argv[1])

from _agentix_worker import plain  # noqa: E402
from _agentix_worker.errors import CallFailure  # noqa: E402

shop = types.ModuleType("shop")
sys.modules["shop"] = shop


def in_shop(cls: Any) -> Any:
    """Let cls be found as shop.<name>."""
    cls.__module__ = "shop"
    setattr(shop, cls.__qualname__, cls)
    return cls


@dataclasses.dataclass
class Order:
    id: int
    lines: list[Any]


class Plain:
    def __init__(self) -> None:
        self.a = 1


class Slots:
    __slots__ = ("x", "y")

    def __init__(self) -> None:
        self.x = 1
        self.y = "é"


class Point(NamedTuple):
    x: int
    y: int


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Stack(list):  # type: ignore[type-arg]
    pass


class Table(dict):  # type: ignore[type-arg]
    pass


class Text(str):
    pass


class Failed(Exception):
    pass


class WithKeywords:
    def __getnewargs_ex__(self) -> Any:
        return (1,), {"k": 2}

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls)


for each in (Order, Plain, Slots, Point, Color, Level, Stack, Table, Text, Failed, WithKeywords):
    in_shop(each)


class Zone(dt.tzinfo):
    def utcoffset(self, when: Any) -> Any:
        return dt.timedelta(hours=1)


in_shop(Zone)

table_with_items = Table(a=1)
stack = Stack([1, 2])
stack.note = "n"  # type: ignore[attr-defined]
shared = ["shared"]
ordered = collections.OrderedDict(b=1, a=2)
ordered.note = "not in the JSON"  # type: ignore[attr-defined]
deep: Any = 1
for _ in range(200):
    deep = [deep]
loop: Any = []
loop.append(loop)
loop_dict: Any = {}
loop_dict["self"] = [loop_dict]
utc = dt.timezone.utc
agentix_result = types.ModuleType("agentix.bash")


@dataclasses.dataclass
class BashResult:
    exit_code: int
    stdout: str
    stderr: str


BashResult.__module__ = "agentix.bash"
agentix_result.BashResult = BashResult  # type: ignore[attr-defined]
sys.modules["agentix.bash"] = agentix_result

SAME: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "ints": [0, 1, -1, 127, 128, 255, 256, 65535, 65536, -128, -129, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1],
    "long ints": [2**32, 2**63 - 1, -(2**63), 10**18, -(10**18)],
    "unsigned int": 2**64 - 1,
    "just over": 2**63,
    "big ints": [2**64, -(2**63) - 1, 10**30, -(10**30), 2**2040, -(2**2039), 2**4000],
    "int of 4300 digits": 10**4299,
    "int of 4301 digits": 10**4300,
    "negative int of 4301 digits": -(10**4300),
    "floats": [0.0, -0.0, 1.0, 1.5, -2.25, 1e22, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, 0.1],
    "nan": float("nan"),
    "inf": [float("inf")],
    "minus inf": {"a": float("-inf")},
    "strings": ["", "a", "é", "\x00", "\x1f\x7f", '"\\/\b\f\n\r\t', "日本", "\U0001f600", "\u2028", "x" * 300],
    "long string": "é" * 70000,
    "line feeds in protocol 0": "a\\u0041\\\nb\\",
    "lone surrogate": "a\ud800",
    "lone surrogate in key": {"\ud800": 1},
    "bytes": [b"", b"a", b"\x00\xff", b"x" * 300],
    "long bytes": b"\xff" * 70000,
    "bytearray": bytearray(b"\x00\xff"),
    "empty bytearray": bytearray(),
    "list": [1, [2, [3]], []],
    "many": list(range(2500)),
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "dict": {"b": 1, "a": {"c": []}},
    "many keys": {f"key {i}": i for i in range(2500)},
    "int keys": {1: "a", -5: "b", 10**30: "c"},
    "colliding keys": {1: "a", "1": "b"},
    "float key": {1.5: 1},
    "none key": {None: 1},
    "bool key": {True: 1},
    "tuple key": {(1, 2): 1},
    "bytes key": {b"k": 1},
    "uuid key": {uuid.UUID(int=1): 1},
    "decimal key": {decimal.Decimal("1.5"): 1},
    "date key": {dt.date(2024, 2, 29): 1},
    "path key": {pathlib.PurePosixPath("a/b"): 1},
    "set": {1},
    "set of strings": {"a", "b", "c", "d"},
    "frozenset": frozenset({"a", 2, None}),
    "empty sets": [set(), frozenset()],
    "ordered dict": ordered,
    "default dict": collections.defaultdict(list, a=[1]),
    "default dict without factory": collections.defaultdict(None, a=1),
    "counter": collections.Counter("abca"),
    "deque": collections.deque([1, 2]),
    "bounded deque": collections.deque([1, 2], 5),
    "date": dt.date(1, 1, 1),
    "last date": dt.date(9999, 12, 31),
    "datetime": dt.datetime(2024, 2, 29, 23, 59, 58),
    "datetime with microseconds": dt.datetime(2024, 12, 1, 0, 0, 0, 7),
    "folded datetime": dt.datetime(2024, 10, 27, 2, 30, fold=1),
    "utc": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=utc),
    "offset": dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
    "offset of seconds": dt.datetime(2024, 1, 2, tzinfo=dt.timezone(dt.timedelta(seconds=3601), "odd")),
    "offset of microseconds": dt.datetime(2024, 1, 2, tzinfo=dt.timezone(dt.timedelta(seconds=-1, microseconds=5))),
    "time": dt.time(1, 2, 3),
    "time with all": dt.time(23, 59, 59, 999999, utc, fold=1),
    "timedelta": dt.timedelta(days=1),
    "timezone": utc,
    "decimals": [decimal.Decimal(t) for t in ("0", "-0", "1.50", "1E+5", "-1E-10", "NaN", "sNaN12", "Infinity", "-Infinity", "1" * 60)],
    "fraction": fractions.Fraction(1, 3),
    "uuid": [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID("12345678-1234-5678-1234-567812345678"), uuid.UUID(int=2**63)],
    "safe uuid": uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe),
    "paths": [pathlib.PurePosixPath(t) for t in ("", ".", "/", "//", "///", "a//b/./c", "../x", "/a/../b", "//a", "é")],
    "path of parts": pathlib.PurePosixPath("a", "/b", "c"),
    "path": pathlib.Path("/tmp/x"),
    "complex": 1 + 2j,
    "range": range(3),
    "slice": slice(1, 2),
    "ellipsis": ...,
    "not implemented": NotImplemented,
    "exception": ValueError("x", 1),
    "exception with a cause": KeyError("x"),
    "os error": FileNotFoundError(2, "no"),
    "class": dict,
    "user class": Order,
    "function": len,
    "method": [1].append,
    "object": object(),
    "iterator": iter([1]),
    "namespace": types.SimpleNamespace(a=1),
    "regex": re.compile("a"),
    "ip": ipaddress.ip_address("::1"),
    "http status": http.HTTPStatus.NOT_FOUND,
    "status key": {http.HTTPStatus.OK: 1},
    "shared": [shared, shared, {"a": shared}],
    "shared string": ["hello there"] * 3,
    "depth 200": deep,
    "depth 201": [deep],
    "depth 201 in dict": {"a": deep},
    "list that contains itself": loop,
    "dict that contains itself": loop_dict,
    "more than a mebibyte": [{"key": "é" * 500, "bytes": b"\xff" * 500, "n": i} for i in range(1000)],
    "two long strings": ["x" * 2000000, "y" * 2000000],
    "70000 members": {"list": list(range(70000)), "dict": {str(i): None for i in range(70000)}},
    "bash result": BashResult(0, "o", ""),
}

LARGE = ("more than a mebibyte", "two long strings", "70000 members")

INERT: dict[str, tuple[Any, Any]] = {
    "dataclass": (Order(7, [1.0, b"x"]), {"$class": "shop.Order", "state": {"id": 7, "lines": [1.0, "eA=="]}}),
    "plain object": (Plain(), {"$class": "shop.Plain", "state": {"a": 1}}),
    "slots": (Slots(), {"$class": "shop.Slots", "state": [None, {"x": 1, "y": "é"}]}),
    "named tuple": (Point(1, 2), {"$class": "shop.Point", "args": [1, 2], "state": None}),
    "enum": (Color.RED, {"$class": "shop.Color", "args": ["red"], "state": None}),
    "int enum": ([Level.HIGH], [{"$class": "shop.Level", "args": [3], "state": None}]),
    "list class": (stack, {"$class": "shop.Stack", "state": {"note": "n"}, "items": [1, 2]}),
    "dict class": (table_with_items, {"$class": "shop.Table", "state": None, "pairs": [["a", 1]]}),
    "str class": (Text("t"), {"$class": "shop.Text", "args": ["t"], "state": None}),
    "user exception": (Failed("no", 1), {"$class": "shop.Failed", "args": ["no", 1], "state": None}),
    "keywords": (WithKeywords(), {"$class": "shop.WithKeywords", "args": [1], "kwargs": {"k": 2}, "state": None}),
    "zone of the user": (
        dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=Zone()),
        {"$class": "datetime.datetime", "args": ["2024-01-02T03:04:05", {"$class": "shop.Zone", "state": None}], "state": None},
    ),
}


def worker(value: Any, encoding: str) -> Any:
    """Return the bytes of a worker's result, None if it refuses."""
    try:
        return base64.b64encode(plain.encode(value, encoding)).decode()
    except (CallFailure, ValueError):  # ValueError: an integer key of too many digits
        return None


def main() -> None:
    rows: list[tuple[str, Any, Any]] = [(name, value, None) for name, value in SAME.items()]
    rows += [(name, value, form) for name, (value, form) in INERT.items()]
    for name, value, form in rows:
        expected = None if form is None else json.dumps(form, ensure_ascii=False, separators=(",", ":"))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            if form is not None and protocol < (4 if name == "keywords" else 2):
                continue  # other records for the same instances
            if name in LARGE and protocol != 4:
                continue
            try:
                data = pickle.dumps(value, protocol)
            except (pickle.PicklingError, ValueError, TypeError) as e:
                print(json.dumps({"name": name, "protocol": protocol, "unpicklable": str(e)}))
                continue
            line = {"name": name, "protocol": protocol, "pickle": base64.b64encode(data).decode(), "inert": expected}
            if form is None:
                line["json"], line["msgpack"] = worker(value, "json"), worker(value, "msgpack")
            print(json.dumps(line))


main()

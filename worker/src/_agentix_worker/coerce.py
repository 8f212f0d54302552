"""Makes any value packable for telemetry: string keys, bounded, never an error."""

from __future__ import annotations

from typing import Any

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
MAX_LEVELS = 32
"""Deeper values are told by their repr."""
MAX_ITEMS = 10000
"""Items of one record; the rest is left out."""
MAX_TEXT = 65536
"""Characters of one string inside a record; cut."""
MAX_TEXT_IN_ALL = 1048576
"""Characters of all strings of one record; the rest is cut."""


def text(value: str, limit: int = MAX_TEXT) -> str:
    """Return value as valid Unicode of at most limit characters."""
    if len(value) > limit:
        value = f"{value[:limit]}... [{len(value) - limit} characters cut]"
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode()
    return str(value)


def described(value: Any) -> str:
    """Return the bounded repr of a value of any class."""
    try:
        made = repr(value)
    except BaseException:
        made = f"<{type(value).__name__}>"
    return text(made, 4096)


class _Budget:
    __slots__ = ("items", "readable", "room")

    def __init__(self, readable: bool) -> None:
        self.items = MAX_ITEMS
        self.room = MAX_TEXT_IN_ALL
        self.readable = readable

    def spent(self) -> bool:
        return self.items <= 0 or self.room <= 0

    def text(self, value: str, limit: int = MAX_TEXT) -> str:
        made = text(value, min(limit, max(self.room, 0)))
        self.room -= len(made)
        return made


def packable(value: Any, *, readable: bool = False) -> Any:
    """Return value with everything msgpack cannot carry replaced by its repr text.

    With `readable`, dates, enums, paths and sets get a friendlier form than their repr.
    """
    return _packable(value, _Budget(readable), 0)


def attributes(values: Any) -> dict[str, Any]:
    """Return the attributes of a span or event as a packable map."""
    made = packable(dict(values), readable=True)
    return made if isinstance(made, dict) else {}


def _packable(value: Any, budget: _Budget, depth: int) -> Any:
    budget.items -= 1
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is str:
        return budget.text(value)
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else described(value)
    if kind is bytes or kind is bytearray:
        data = bytes(value[: max(min(MAX_TEXT * 4, budget.room), 0)])
        budget.room -= len(data)
        return data
    if isinstance(value, dict):
        return described(value) if depth >= MAX_LEVELS else _mapping(value, budget, depth)
    if isinstance(value, (list, tuple)) or (budget.readable and isinstance(value, (set, frozenset))):
        return described(value) if depth >= MAX_LEVELS else _sequence(value, budget, depth)
    return _other(value, budget, depth)


def _mapping(value: dict[Any, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    try:
        for key, item in list(value.items()):
            if budget.spent():
                out["..."] = f"{len(value) - len(out)} more"
                break
            out[text(key if type(key) is str else _key(key), 1024)] = _packable(item, budget, depth + 1)
    except BaseException:  # a dict class with a will of its own
        out["..."] = "not readable"
    return out


def _key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else described(key)


def _sequence(value: Any, budget: _Budget, depth: int) -> list[Any]:
    out: list[Any] = []
    try:
        for item in list(value):
            if budget.spent():
                out.append("...")
                break
            out.append(_packable(item, budget, depth + 1))
    except BaseException:
        out.append("...")
    return out


def _other(value: Any, budget: _Budget, depth: int) -> Any:
    try:
        if isinstance(value, str):
            return budget.text(str.__str__(value))
        if isinstance(value, float):
            return float.__float__(value)
        if isinstance(value, int):
            return _packable(int.__int__(value), budget, depth)
        if budget.readable:
            from _agentix_worker.plain import simple

            made = simple(value)
            if made is not NotImplemented and depth < MAX_LEVELS:
                return _packable(made, budget, depth + 1)
    except BaseException:
        pass
    return budget.text(described(value))

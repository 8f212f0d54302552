"""Results as JSON text or msgpack: any value to plain data, or an error that names its place.

Numbers keep their kind and every digit. JSON: dataclass and pydantic model become an
object, tuple and set an array, bytes base64 text, dates ISO 8601, Decimal, UUID and Path a
string, an Enum its value. msgpack: the same, but bytes stay binary.
"""

from __future__ import annotations

import binascii
import sys
from typing import Any, Optional

from _agentix_worker import codec
from _agentix_worker.errors import CallFailure
from _agentix_worker.limits import MAX_DEPTH

_LEAVES = {str, int, float, bool, type(None)}
_CONTAINERS = {list, dict, tuple}
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


def encode(value: Any, encoding: str) -> bytes:
    """Return value as JSON text (UTF-8) or msgpack; CallFailure ResultEncodeError otherwise."""
    binary = encoding == "msgpack"
    if _is_plain(value, binary):
        try:
            return _dump(value, binary)
        except (ValueError, RecursionError):
            pass  # the walk below finds out where
    made = _Walk(binary).plain(value, None, 0)
    try:
        return _dump(made, binary)
    except (ValueError, RecursionError) as e:
        raise CallFailure("ResultEncodeError", f"result cannot be sent as {encoding}: {e}") from e


def _dump(value: Any, binary: bool) -> bytes:
    if binary:
        return codec.pack(value)
    import json

    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _is_plain(value: Any, binary: bool) -> bool:
    """Tell quickly whether all of value is exact built-in types, not too deep."""
    leaves = _LEAVES | {bytes} if binary else _LEAVES
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        kinds = set(map(type, level))
        containers = kinds & _CONTAINERS
        if kinds - containers - leaves:
            return False
        if not containers:
            return True
        found = {id(v): v for v in level if type(v) in _CONTAINERS}
        level = []
        for v in found.values():
            if type(v) is dict:
                if not all(type(k) is str for k in v):
                    return False
                level.extend(v.values())
            else:
                level.extend(v)
    return False


Path = Optional[tuple[Any, Any]]  # (parent path, key or index), None at the top


def path_text(path: Path) -> str:
    """Write a path as `value.items[2].name`."""
    parts: list[str] = []
    while path is not None:
        path, key = path
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "value" + "".join(reversed(parts))


class _Walk:
    def __init__(self, binary: bool) -> None:
        self.binary = binary

    def fail(self, path: Path, text: str) -> CallFailure:
        where = "the result" if path is None else f"the result at {path_text(path)[:1000]}"
        return CallFailure("ResultEncodeError", f"{where} {text}")

    def plain(self, value: Any, path: Path, depth: int) -> Any:
        kind = type(value)
        if kind in (bool, type(None)):
            return value
        if isinstance(value, (str, int, float)):
            return self.leaf(value, path)
        if depth >= MAX_DEPTH and isinstance(value, (dict, list, tuple, set, frozenset)):
            raise self.fail(path, f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            return self.mapping(value, path, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.plain(v, (path, i), depth + 1) for i, v in enumerate(value)]
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self.binary_leaf(bytes(value))
        return self.other(value, path, depth)

    def binary_leaf(self, data: bytes) -> Any:
        if self.binary:
            return data
        return binascii.b2a_base64(data, newline=False).decode()

    def leaf(self, value: Any, path: Path) -> Any:
        enum = sys.modules.get("enum")
        if enum is not None and isinstance(value, enum.Enum):
            value = value.value
        if isinstance(value, str):
            return self.text(str.__str__(value), path)
        if isinstance(value, float):
            number = float.__float__(value)
            if not self.binary and number - number != 0:
                raise self.fail(path, f"is {number!r}, which JSON cannot carry")
            return number
        integer = int.__int__(value)
        if self.binary and not _INT_MIN <= integer <= _INT_MAX:
            raise self.fail(path, "is an integer that does not fit in 64 bits, which msgpack cannot carry")
        return integer

    def text(self, value: str, path: Path) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.fail(path, "is a string with a lone surrogate, which is not Unicode text") from None
        return value

    def mapping(self, value: dict[Any, Any], path: Path, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, item in value.items():
            name = key if type(key) is str else self.key(key, path)
            if name in out:
                raise self.fail((path, name), "has a second key of the same text")
            out[self.text(name, (path, "key"))] = self.plain(item, (path, name), depth + 1)
        return out

    def key(self, key: Any, path: Path) -> str:
        if not isinstance(key, (bool, float, type(None))):
            made = key if isinstance(key, (dict, list, tuple, set, frozenset, bytes)) else self.plain(key, path, 0)
            if isinstance(made, (str, int)) and not isinstance(made, bool):
                return str(made)
        raise self.fail(path, f"has a key of type {_name(type(key))}, which cannot be a string")

    def other(self, value: Any, path: Path, depth: int) -> Any:
        made = simple(value)
        if made is not NotImplemented:
            return self.plain(made, path, depth)
        fields = _object_fields(value)
        if fields is None:
            raise self.fail(path, f"is of type {_name(type(value))}, which has no {self.format} form")
        if depth >= MAX_DEPTH:
            raise self.fail(path, f"is nested deeper than {MAX_DEPTH} levels")
        return self.mapping(fields, path, depth)

    @property
    def format(self) -> str:
        return "msgpack" if self.binary else "JSON"


# A value of one of these classes exists only when its module is loaded, so none is imported.
_TEXTUAL = (("uuid", "UUID"), ("decimal", "Decimal"), ("pathlib", "PurePath"))
_DATES = ("datetime", "date", "time")


def simple(value: Any) -> Any:
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return value.value
    for module_name, class_name in _TEXTUAL:
        module = sys.modules.get(module_name)
        if module is not None and isinstance(value, getattr(module, class_name)):
            return str(value)
    datetime = sys.modules.get("datetime")
    if datetime is not None and isinstance(value, tuple(getattr(datetime, n) for n in _DATES)):
        return str(value.isoformat())  # type: ignore[attr-defined]
    return NotImplemented


def _object_fields(value: Any) -> Optional[dict[str, Any]]:
    """Return the fields of a dataclass instance or a pydantic model, None for anything else."""
    if isinstance(value, type):
        return None
    names = getattr(type(value), "__dataclass_fields__", None)
    if isinstance(names, dict):
        import dataclasses

        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if dump is not None and hasattr(type(value), "model_fields"):
        return dict(dump())
    if hasattr(type(value), "__fields__") and hasattr(value, "dict"):  # pydantic 1
        return dict(value.dict())
    return None


def _name(kind: type) -> str:
    module = getattr(kind, "__module__", "")
    name = str(getattr(kind, "__qualname__", kind))
    return name if module in ("builtins", "") else f"{module}.{name}"

"""Converters for single values: numbers, text, bytes, dates, enums and the like."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Callable, Optional

if TYPE_CHECKING:
    from _agentix_worker.convert import Converter, Errors, Path


def _exact(kinds: tuple[type, ...], what: str) -> Converter:
    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if type(value) not in kinds:
            errors.expected(path, what, value)
        return value

    return convert


def _base64(text: str) -> bytes:
    if not _BASE64.issuperset(text):
        raise ValueError("a character that is not base64")
    return binascii.a2b_base64(text)


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


def _bytes(make: Callable[[bytes], Any]) -> Converter:
    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if type(value) is bytes:
            return make(value)
        if type(value) is str and not errors.binary:
            try:
                return make(_base64(value))
            except (binascii.Error, ValueError):
                errors.add(path, "expected bytes as base64 text")
                return value
        errors.expected(path, "bytes" if errors.binary else "bytes as base64 text", value)
        return value

    return convert


def _parsed(kind: type, parse: Callable[[str], Any], what: str) -> Converter:
    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if type(value) is kind:  # a msgpack timestamp is a datetime already
            return value
        if type(value) is str:
            try:
                return parse(value)
            except (ValueError, ArithmeticError):
                pass
        errors.expected(path, what, value)
        return value

    return convert


def _iso(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        # Pythons before 3.11 do not read the Z.
        return parse(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)

    return read


def _decimal(make: Callable[[Any], Any]) -> Converter:
    def convert(value: Any, path: Path, errors: Errors) -> Any:
        try:
            if type(value) in (str, int):
                return make(value)
            if type(value) is float:
                return make(repr(value))
        except (ValueError, ArithmeticError):
            pass
        errors.expected(path, "a decimal number", value)
        return value

    return convert


_BUILTIN: dict[Any, Converter] = {
    type(None): _exact((type(None),), "null"),
    bool: _exact((bool,), "a boolean"),
    int: _exact((int,), "an integer"),
    float: _exact((float, int), "a number"),
    str: _exact((str,), "a string"),
    bytes: _bytes(bytes),
    bytearray: _bytes(bytearray),
}


def scalar_converter(kind: Any) -> Optional[Converter]:
    """Return the converter of a class of single values, None for any other annotation.

    Classes of other modules go by name, so that none is imported before user code does.
    """
    if not isinstance(kind, type):
        return None
    known = _BUILTIN.get(kind)
    if known is not None:
        return known
    made: Any = kind
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name == "datetime.datetime":
        return _parsed(kind, _iso(made.fromisoformat), "an ISO 8601 date and time")
    if name == "datetime.date":
        return _parsed(kind, made.fromisoformat, "an ISO 8601 date")
    if name == "datetime.time":
        return _parsed(kind, _iso(made.fromisoformat), "an ISO 8601 time")
    if name == "decimal.Decimal":
        return _decimal(made)
    return _parsed(kind, made, "a UUID") if name == "uuid.UUID" else None


def path_converter(kind: type) -> Converter:
    """Return the converter of a pathlib class."""
    return _parsed(kind, _path_maker(kind), "a path")


def _path_maker(kind: type) -> Callable[[str], Any]:
    def make(text: str) -> Any:
        if "\0" in text:
            raise ValueError("NUL in a path")
        return kind(text)

    return make


def enum_converter(kind: type) -> Converter:
    """Return the converter of an Enum class: members go by their value."""

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        members = list(kind)  # type: ignore[call-overload]
        for member in members:
            if type(member.value) is type(value) and member.value == value:
                return member
        try:
            return kind(value)  # a flag combination, or a class with _missing_
        except Exception:
            options = ", ".join(repr(m.value) for m in members[:20])
            errors.expected(path, f"one of {options}", value)
            return value

    return convert

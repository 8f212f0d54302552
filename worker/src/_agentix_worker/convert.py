"""Turns plain JSON or msgpack values into what an annotation asks for.

Only what is lossless and plainly meant: an int is no bool, 1.0 is no int, 1 for a float
stays 1. An annotation that is not understood leaves its value alone.
"""

from __future__ import annotations

import collections
import collections.abc as abc
import sys
import threading
import types
import typing
from typing import Any, Callable, Optional

from _agentix_worker.convert_objects import dataclass_converter, named_tuple_converter, pydantic_converter, typed_dict_converter
from _agentix_worker.convert_scalars import enum_converter, path_converter, scalar_converter

Path = Optional[tuple[Any, Any]]
Converter = Callable[[Any, Path, "Errors"], Any]

_UNION_TYPES = (typing.Union, getattr(types, "UnionType", typing.Union))
_WRAPPERS = ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar")
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection, abc.Iterator)
_SETS = {set: set, frozenset: frozenset, abc.Set: set, abc.MutableSet: set}
_DICTS = {
    dict: dict,
    abc.Mapping: dict,
    abc.MutableMapping: dict,
    collections.OrderedDict: collections.OrderedDict,
}


class Errors:
    """Violations found so far in one call's arguments."""

    __slots__ = ("binary", "found")

    def __init__(self, *, binary: bool) -> None:
        self.binary = binary
        """Whether the encoding has bytes of its own."""
        self.found: list[tuple[str, str]] = []

    def add(self, path: Path, message: str) -> None:
        """Note one violation."""
        self.found.append((path_text(path), message))

    def expected(self, path: Path, what: str, value: Any) -> None:
        """Note that value is not what the annotation asks for."""
        self.add(path, f"expected {what}, got {describe(value)}")


def path_text(path: Path) -> str:
    """Write a path as `config.items[2].name`."""
    parts: list[str] = []
    while path is not None:
        path, key = path
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(parts)).lstrip(".")


def describe(value: Any) -> str:
    """Name a decoded value by its kind, short values with their text."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {dict: "an object", list: "an array", bytes: "bytes", int: "an integer", float: "a number", str: "a string"}
    name = names.get(type(value), type(value).__name__)
    if isinstance(value, (int, float, str)):
        text = repr(value) if not isinstance(value, int) or abs(value) < 1 << 64 else "..."
        return f"{name} {text if len(text) <= 40 else text[:37] + '...'}"
    return name


def hints(target: Any) -> dict[str, Any]:
    """Return the resolved annotations of a function or class; unresolvable ones are left out."""
    try:
        return typing.get_type_hints(target)
    except Exception:
        pass
    found: dict[str, Any] = {}
    module = sys.modules.get(getattr(target, "__module__", ""), None)
    scope = {**vars(typing), **getattr(target, "__globals__", getattr(module, "__dict__", {}))}
    for name, annotation in getattr(target, "__annotations__", {}).items():
        try:
            found[name] = eval(annotation, scope) if isinstance(annotation, str) else annotation  # noqa: S307
        except Exception:
            continue
    return found


def anything(value: Any, path: Path, errors: Errors) -> Any:
    """Leave value as it came."""
    return value


_cache: dict[Any, Converter] = {}
_lock = threading.RLock()


def converter(annotation: Any) -> Converter:
    """Return the converter of an annotation."""
    with _lock:
        try:
            known = _cache.get(annotation)
        except TypeError:  # not hashable
            return _build(annotation)
        if known is not None:
            return known
        made: list[Converter] = [anything]

        def itself(value: Any, path: Path, errors: Errors) -> Any:  # a class that refers to itself
            return made[0](value, path, errors)

        _cache[annotation] = itself
        try:
            made[0] = _build(annotation)
        except Exception:  # an annotation of a kind we have not met
            pass
        if len(_cache) > 4096:
            _cache.clear()
        _cache[annotation] = made[0]
        return made[0]


def _build(annotation: Any) -> Converter:
    if annotation is Any or annotation is object:
        return anything
    if annotation is None:
        annotation = type(None)
    scalar = scalar_converter(annotation)
    if scalar is not None:
        return scalar
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if hasattr(annotation, "__metadata__"):  # Annotated
        return converter(annotation.__origin__)
    if getattr(origin, "_name", "") in _WRAPPERS:
        return converter(args[0])
    if origin in _UNION_TYPES:
        return _union(args)
    if origin is typing.Literal:
        return _literal(args)
    if isinstance(annotation, typing.TypeVar):
        return converter(annotation.__bound__) if annotation.__bound__ is not None else anything
    supertype = getattr(annotation, "__supertype__", None)  # NewType
    if supertype is not None:
        return converter(supertype)
    container = _container(origin or annotation, args)
    if container is not None:
        return container
    target = origin or annotation
    return _class(target) if isinstance(target, type) else anything


def _container(kind: Any, args: tuple[Any, ...]) -> Optional[Converter]:
    if kind is tuple:
        return _tuple(args)
    if kind in _LISTS:
        return _many(list, args, "an array")
    if kind is collections.deque:
        return _many(collections.deque, args, "an array")
    if kind in _SETS:
        return _many(_SETS[kind], args, "an array")
    if kind in _DICTS:
        return _mapping(_DICTS[kind], args)
    return None


def _class(kind: type) -> Converter:
    enum, pathlib = sys.modules.get("enum"), sys.modules.get("pathlib")
    if enum is not None and issubclass(kind, enum.Enum):
        return enum_converter(kind)
    if pathlib is not None and issubclass(kind, pathlib.PurePath):
        return path_converter(kind)
    if isinstance(getattr(kind, "__dataclass_fields__", None), dict):
        return dataclass_converter(kind)
    if hasattr(kind, "model_validate") or hasattr(kind, "parse_obj"):
        return pydantic_converter(kind)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return named_tuple_converter(kind)
    if issubclass(kind, dict) and hasattr(kind, "__total__"):
        return typed_dict_converter(kind)

    def instance(value: Any, path: Path, errors: Errors) -> Any:
        try:
            if isinstance(value, kind):
                return value
        except TypeError:  # a protocol that cannot be checked
            return value
        errors.expected(path, f"{kind.__module__}.{kind.__qualname__}", value)
        return value

    return instance


def _many(make: Callable[[Any], Any], args: tuple[Any, ...], what: str) -> Converter:
    item = converter(args[0]) if args else anything

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if not isinstance(value, list):
            errors.expected(path, what, value)
            return value
        items = value if item is anything else [item(v, (path, i), errors) for i, v in enumerate(value)]
        try:
            return make(items) if make is not list else items
        except TypeError as e:
            errors.add(path, str(e))
            return value

    return convert


def _tuple(args: tuple[Any, ...]) -> Converter:
    if not args or (len(args) == 2 and args[1] is Ellipsis):
        return _many(tuple, args[:1], "an array")
    items = [converter(a) for a in args if a != ()]

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if not isinstance(value, list) or len(value) != len(items):
            errors.expected(path, f"an array of {len(items)}", value)
            return value
        return tuple(c(v, (path, i), errors) for i, (c, v) in enumerate(zip(items, value)))

    return convert


def _mapping(make: Callable[[Any], Any], args: tuple[Any, ...]) -> Converter:
    key = _key(args[0]) if args else anything
    item = converter(args[1]) if args else anything

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        if not isinstance(value, dict):
            errors.expected(path, "an object", value)
            return value
        made = {key(k, (path, k), errors): item(v, (path, k), errors) for k, v in value.items()}
        return make(made) if make is not dict else made

    return convert


def _key(annotation: Any) -> Converter:
    """Keys are strings on the wire, so an int key is read from its digits."""
    if annotation is not int:
        return converter(annotation)

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        try:
            made = int(value)
        except (TypeError, ValueError):
            made = None
        if made is None or str(made) != value:
            errors.add(path, "expected an integer as the key")
            return value
        return made

    return convert


def _union(args: tuple[Any, ...]) -> Converter:
    exact = {a: converter(a) for a in args if isinstance(a, type)}
    options = [(a, converter(a)) for a in args]
    what = " or ".join(_title(a) for a in args)

    def convert(value: Any, path: Path, errors: Errors) -> Any:
        first = exact.get(type(value))
        tries = [first] if first is not None else []
        tries += [c for _, c in options if c is not first]
        kept: Optional[list[tuple[str, str]]] = None
        for option in tries:
            trial = Errors(binary=errors.binary)
            made = option(value, path, trial)
            if not trial.found:
                return made
            if isinstance(value, (dict, list)) and any(p != path_text(path) for p, _ in trial.found):
                kept = kept or trial.found  # the option whose shape fits best tells more
        if kept:
            errors.found.extend(kept)
        else:
            errors.expected(path, what, value)
        return value

    return convert


def _title(annotation: Any) -> str:
    if annotation is type(None):
        return "null"
    return str(getattr(annotation, "__name__", annotation))


def _literal(args: tuple[Any, ...]) -> Converter:
    def convert(value: Any, path: Path, errors: Errors) -> Any:
        for option in args:
            plain = option.value if hasattr(option, "value") and hasattr(option, "name") else option
            if type(plain) is type(value) and plain == value:
                return option
        errors.expected(path, "one of " + ", ".join(map(repr, args)), value)
        return value

    return convert

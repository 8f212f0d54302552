"""What a result from a sandbox may be made of.

`admit` maps an exact (module, name) of a pickle to an object of this process, or refuses
it; `construct` is the only way in which such an object is called. Both treat the pickle
as hostile: nothing is imported for a refused name, and no constructor runs on arguments
that let a few bytes ask for much memory or time.
"""

from __future__ import annotations

import builtins
import collections
import collections.abc
import copyreg
import datetime
import decimal
import fractions
import importlib
import pathlib
import re
import uuid
from typing import Any, Callable

from . import _admitted_numpy
from ._exceptions import RestrictedUnpickleError

Charge = Callable[[int], None]
"""Takes that many bytes from the budget of a load; raises when it is used up."""

WAYS_OUT = (
    "trust the type with agentix.allow_type(cls), "
    "or set AGENTIX_PICKLE_TRUST=1 to trust everything that the sandbox returns"
)

_MAX_DIGITS = 4300  # as Python's own limit of int from text
_MAX_FRACTION_BITS = 16384

_PATHS = (
    "PurePath", "PurePosixPath", "PureWindowsPath", "Path", "PosixPath", "WindowsPath",
)  # fmt: skip
_VALUE_TYPES: dict[tuple[str, str], type] = {
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    ("fractions", "Fraction"): fractions.Fraction,
    ("uuid", "UUID"): uuid.UUID,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "Counter"): collections.Counter,
    ("collections", "deque"): collections.deque,
    **{
        (module, name): getattr(pathlib, name)
        for module in ("pathlib", "pathlib._local")
        for name in _PATHS
    },
}
_RESULT_CLASSES: frozenset[tuple[str, str]] = frozenset(
    {
        ("agentix.bridge.proxy", "TunnelHandle"),
        ("agentix.bash", "BashResult"),
        ("agentix.files", "UploadResult"),
        ("agentix.agents.claude_code.agent", "ClaudeCodeResult"),
        ("agentix.agents.qwen_code", "Result"),
        ("agentix.plugins.datasets.swe.env", "PrepareEnvResult"),
    }
)
_HELPERS: dict[tuple[str, str], Any] = {
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("copyreg", "__newobj__"): copyreg.__newobj__,  # type: ignore[attr-defined]
    ("copyreg", "__newobj_ex__"): copyreg.__newobj_ex__,  # type: ignore[attr-defined]
}
_BUILTINS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        complex, range, slice, bytearray, frozenset, set, list, dict, tuple, bytes, str, int, float,
        bool,
    )
}  # fmt: skip
_EXCEPTIONS: dict[str, type] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}

_allowed: dict[tuple[str, str], type] = {}


def allow_type(cls: type) -> None:
    """Trust `cls` in results of sandboxes: its exact module and qualified name.

    The sandbox can then make instances of it with any arguments and any state.
    Raises TypeError if `cls` is not a class.
    """
    if not isinstance(cls, type):
        raise TypeError(f"allow_type takes a class, not {cls!r}")
    _allowed[cls.__module__, cls.__qualname__] = cls


def admit(module: str, name: str) -> Any:
    """Return the object that a pickle calls `module`.`name`.

    Raises RestrictedUnpickleError, without importing anything, if it is not admitted.
    """
    key = (module, name)
    if key in _allowed:
        return _allowed[key]
    if key in _VALUE_TYPES:
        return _VALUE_TYPES[key]
    if key in _HELPERS:
        return _HELPERS[key]
    if module == "builtins":
        found = _BUILTINS.get(name) or _EXCEPTIONS.get(name)
        if found is None:
            raise RestrictedUnpickleError(
                f"refusing builtins.{quote(name)}: it is no plain value or exception; {WAYS_OUT}"
            )
        return found
    if key in _admitted_numpy.NAMES:
        return _admitted_numpy.admit(key)
    if key in _RESULT_CLASSES:
        found = getattr(importlib.import_module(module), name, None)
        if isinstance(found, type):
            return found
    raise RestrictedUnpickleError(
        f"refusing to reconstruct {quote(module)}.{quote(name)}: "
        f"it is not on the list of admitted types; {WAYS_OUT}"
    )


def trusted(cls: type) -> bool:
    """Tell whether instances of `cls` may be given any state."""
    key = (cls.__module__, cls.__qualname__)
    return _allowed.get(key) is cls or key in _RESULT_CLASSES


def quote(text: str) -> str:
    """Return hostile `text` short and without control characters."""
    shown = text if len(text) <= 200 else text[:200] + "…"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in shown)


def refuse(function: Any, why: str) -> RestrictedUnpickleError:
    """Return the error for a call of `function` that is not admitted."""
    module = getattr(function, "__module__", "?")
    name = getattr(function, "__qualname__", type(function).__name__)
    return RestrictedUnpickleError(f"refusing to reconstruct {module}.{name}: {why}; {WAYS_OUT}")


def construct(function: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    """Return what `function(*args)` makes, if both are admitted and harmless."""
    guard = _guards.get(function) if isinstance(function, collections.abc.Hashable) else None
    if guard is not None:
        return guard(function, args, charge)
    if function is _HELPERS["copyreg", "__newobj__"] and args:
        return make(args[0], args[1:], {}, charge)
    if function is _HELPERS["copyreg", "__newobj_ex__"] and len(args) == 3:
        return make(args[0], args[1], args[2], charge)
    if function is _HELPERS["copyreg", "_reconstructor"] and len(args) == 3:
        return _reconstruct(args[0], args[1], args[2], charge)
    if _admitted_numpy.is_ours(function):
        return _admitted_numpy.construct(function, args)
    if isinstance(function, type) and (trusted(function) or is_exception(function)):
        return function(*args)
    raise refuse(function, "it may not be called")


def make(cls: Any, args: Any, kwargs: Any, charge: Charge) -> Any:
    """Return what `cls.__new__(cls, *args, **kwargs)` makes, if that is harmless."""
    if not isinstance(cls, type) or not isinstance(args, tuple) or not isinstance(kwargs, dict):
        raise refuse(cls, "it is not a class with arguments")
    if trusted(cls) or is_exception(cls):
        return cls.__new__(cls, *args, **kwargs)
    if cls is uuid.UUID and not args and not kwargs:
        return uuid.UUID.__new__(uuid.UUID)
    if kwargs:
        raise refuse(cls, "it takes no keyword arguments")
    return construct(cls, args, charge)


def is_exception(cls: type) -> bool:
    """Tell whether `cls` is one of Python's own exception classes."""
    return _EXCEPTIONS.get(cls.__name__) is cls


def _reconstruct(cls: Any, base: Any, state: Any, charge: Charge) -> Any:
    if not isinstance(cls, type) or not trusted(cls):
        raise refuse(cls, "it may not be made by copyreg._reconstructor")
    if base not in _BUILTINS.values() or not issubclass(cls, base) or not isinstance(state, base):
        raise refuse(cls, "its base does not fit")
    charge(_length(state) * 8)
    made = base.__new__(cls, state)
    base.__init__(made, *(() if base.__init__ is object.__init__ else (state,)))
    return made


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 8


Guard = Callable[[Any, tuple[Any, ...], Charge], Any]


def _of_types(*allowed: type) -> Guard:
    """Return a guard for constructors that are harmless on arguments of these types."""

    def guard(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
        for arg in args:
            if type(arg) not in allowed:
                raise refuse(cls, f"an argument of type {type(arg).__name__} is not admitted")
            charge(_length(arg))
        return cls(*args)

    return guard


def _copy_of(*allowed: type) -> Guard:
    """Return a guard for constructors that copy nothing, or one argument of these types."""

    def guard(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
        if len(args) > 1 or any(type(arg) not in allowed for arg in args):
            raise refuse(cls, "only a copy of a plain container is admitted")
        for arg in args:
            charge(len(arg) * 64)
        return cls(*args)

    return guard


def _number(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    for arg in args:
        if type(arg) not in (int, float, bool, str) or _digits(arg) > _MAX_DIGITS:
            raise refuse(cls, "only a number, or a short text of one, is admitted")
        charge(_digits(arg))
    return cls(*args)


def _digits(arg: Any) -> int:
    if isinstance(arg, str):
        return len(arg)
    return arg.bit_length() // 4 if isinstance(arg, int) else 8


def _text(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    if not args:
        return cls()
    if type(args[0]) not in (str, bytes) or any(type(arg) is not str for arg in args[1:]):
        raise refuse(cls, "only text or bytes are admitted")
    if len(args) > 1 and args[1].lower() not in ("latin-1", "latin1", "ascii", "utf-8", "utf8"):
        raise refuse(cls, "this text encoding is not admitted")
    charge(len(args[0]) * 4)
    return cls(*args)


def _bytes(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    if len(args) == 1 and type(args[0]) in (list, tuple):
        charge(len(args[0]))
        return cls(args[0])
    if args and type(args[0]) is bytearray and len(args) == 1:
        charge(len(args[0]))
        return cls(args[0])
    return _text(cls, args, charge)


def _decimal(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    if len(args) != 1 or type(args[0]) is not str or len(args[0]) > 100_000:
        raise refuse(cls, "only one text of at most 100000 characters is admitted")
    charge(len(args[0]) * 4)
    return cls(args[0])


_FRACTION = re.compile(r"-?[0-9]{1,4300}(/[0-9]{1,4300})?")


def _fraction(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    if len(args) == 1 and type(args[0]) is str and _FRACTION.fullmatch(args[0]):
        charge(len(args[0]) * len(args[0]) // 256 + 64)
        return cls(args[0])
    if len(args) in (1, 2) and all(type(arg) is int for arg in args):
        bits = max(arg.bit_length() for arg in args)
        if bits <= _MAX_FRACTION_BITS:
            charge(bits * bits // 4096 + 64)
            return cls(*args)
    raise refuse(cls, f"only integers of at most {_MAX_FRACTION_BITS} bits are admitted")


def _defaultdict(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    if len(args) > 1 or (args and args[0] is not None and not isinstance(args[0], type)):
        raise refuse(cls, "only a class as its factory is admitted")
    charge(232)
    return cls(*args)


def _deque(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    if len(args) > 2 or (args and type(args[0]) not in (list, tuple)):
        raise refuse(cls, "only a list or tuple is admitted")
    if len(args) == 2 and args[1] is not None and type(args[1]) is not int:
        raise refuse(cls, "its length must be an integer")
    charge(760 + (len(args[0]) * 8 if args else 0))
    return cls(*args)


def _slice(cls: Any, args: tuple[Any, ...], charge: Charge) -> Any:
    charge(64)
    return cls(*args)


_PLAIN = _of_types(int, float, bool, str, bytes, datetime.timedelta, datetime.timezone, type(None))
_guards: dict[Any, Guard] = {
    datetime.date: _PLAIN,
    datetime.time: _PLAIN,
    datetime.datetime: _PLAIN,
    datetime.timedelta: _of_types(int, float),
    datetime.timezone: _PLAIN,
    decimal.Decimal: _decimal,
    fractions.Fraction: _fraction,
    collections.OrderedDict: _copy_of(list, dict),
    collections.defaultdict: _defaultdict,
    collections.Counter: _copy_of(dict),
    collections.deque: _deque,
    **{getattr(pathlib, name): _of_types(str) for name in _PATHS},
    complex: _number,
    range: _number,
    slice: _slice,
    bytearray: _bytes,
    bytes: _bytes,
    str: _text,
    frozenset: _copy_of(list, tuple, set, frozenset),
    set: _copy_of(list, tuple, set, frozenset),
    list: _copy_of(list, tuple, set, frozenset),
    tuple: _copy_of(list, tuple, set, frozenset),
    dict: _copy_of(dict, list),
    int: _number,
    float: _number,
    bool: _of_types(int, float, bool, str, type(None)),
}

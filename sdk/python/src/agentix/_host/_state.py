"""Gives an object from a pickle its state, if that is harmless."""

from __future__ import annotations

import sys
import uuid
from typing import Any

from . import _admitted_numpy
from ._admitted import is_exception, refuse, trusted


def set_state(target: Any, state: Any) -> None:
    """Set the state of `target` as a pickle asks; raise RestrictedUnpickleError otherwise."""
    if _admitted_numpy.set_state(target, state):
        return
    kind = type(target)
    if isinstance(target, type):
        raise refuse(target, "a class may not be given a state")
    if kind is uuid.UUID:
        _set_uuid(target, state)
    elif is_exception(kind):
        _set_exception(target, state)
    elif trusted(kind):
        _set_trusted(target, state)
    else:
        raise refuse(kind, "it may not be given a state")


def _set_uuid(target: Any, state: Any) -> None:
    if type(state) is not dict or not set(state) <= {"int", "is_safe"}:
        raise refuse(uuid.UUID, "its state does not fit")
    number = state.get("int")
    if type(number) is not int or not 0 <= number < 1 << 128:
        raise refuse(uuid.UUID, "its number does not fit")
    target.__setstate__(state)


def _set_exception(target: BaseException, state: Any) -> None:
    if state is None:
        return
    if type(state) is not dict:
        raise refuse(type(target), "its state does not fit")
    for key, value in state.items():
        if type(key) is not str or (key.startswith("__") and key != "__notes__"):
            raise refuse(type(target), "its state names a special attribute")
        setattr(target, key, value)


def _set_trusted(target: Any, state: Any) -> None:
    """Set the state of an instance of a trusted class as the pickle module does."""
    setter = getattr(target, "__setstate__", None)
    if setter is not None:
        setter(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for part in (state, slots):
        if part is not None and (
            type(part) is not dict
            or any(type(key) is not str or _special(key) for key in part)
        ):  # fmt: skip
            raise refuse(type(target), "its state does not fit")
    if state:
        target.__dict__.update({sys.intern(key): value for key, value in state.items()})
    for key, value in (slots or {}).items():
        setattr(target, key, value)


def _special(key: str) -> bool:
    return key.startswith("__") and key.endswith("__") and not key.startswith("__pydantic")

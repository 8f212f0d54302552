"""numpy arrays and dtypes in results, checked before numpy sees them.

numpy is imported only when a result names it, and only if it is installed.
"""

from __future__ import annotations

import importlib
import math
import re
from typing import Any

from ._exceptions import RestrictedUnpickleError

_MAX_DIMENSIONS = 64
_DTYPE = re.compile(r"[<>|=]?([biufcSUVmMO][0-9]{0,9}|\?)")
_STRUCT_FLAGS = (0, 16, 144)  # numpy's USE_GETITEM and ALIGNED_STRUCT; never HASOBJECT


class _Reconstruct:
    """Stands for numpy's own helper of that name, which is never called."""


_RECONSTRUCT = _Reconstruct()
NAMES: frozenset[tuple[str, str]] = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "_reconstruct"),
    }
)


def _numpy() -> Any:
    return importlib.import_module("numpy")


def admit(key: tuple[str, str]) -> Any:
    """Return the object for one of NAMES."""
    return _RECONSTRUCT if key[1] == "_reconstruct" else getattr(_numpy(), key[1])


def is_ours(function: Any) -> bool:
    """Tell whether `construct` knows `function`."""
    if isinstance(function, _Reconstruct):
        return True
    return getattr(function, "__module__", "") == "numpy" and function is _numpy().dtype


def construct(function: Any, args: tuple[Any, ...]) -> Any:
    """Return an empty array that waits for its state, or a dtype."""
    if isinstance(function, _Reconstruct):
        if len(args) != 3 or args[0] is not _numpy().ndarray or args[1:] != ((0,), b"b"):
            raise _refuse("ndarray", "its arguments do not fit")
        return _numpy().ndarray((0,), dtype="i1")
    if not args or type(args[0]) is not str or not _DTYPE.fullmatch(args[0]):
        raise _refuse("dtype", "only a simple type name is admitted")
    if any(type(arg) is not bool for arg in args[1:]) or len(args) > 3:
        raise _refuse("dtype", "its arguments do not fit")
    # A copy, always: numpy's own instances are shared and a state would change them.
    return _numpy().dtype(args[0], args[1] if len(args) > 1 else False, True)


def set_state(target: Any, state: Any) -> bool:
    """Set the state of an array or dtype; return False if `target` is neither."""
    if type(target).__module__.partition(".")[0] != "numpy":
        return False
    if type(target) is _numpy().ndarray:
        _check_array(state)
    elif isinstance(target, _numpy().dtype):
        _check_dtype(target, state)
    else:
        return False
    target.__setstate__(state)
    return True


def _check_array(state: Any) -> None:
    if not isinstance(state, tuple) or len(state) != 5:
        raise _refuse("ndarray", "its state does not fit")
    version, shape, dtype, fortran, raw = state
    if type(version) is not int or type(fortran) is not bool or type(shape) is not tuple:
        raise _refuse("ndarray", "its state does not fit")
    if not isinstance(dtype, _numpy().dtype) or len(shape) > _MAX_DIMENSIONS:
        raise _refuse("ndarray", "its shape or dtype does not fit")
    if any(type(size) is not int or size < 0 for size in shape):
        raise _refuse("ndarray", "its shape does not fit")
    count = math.prod(shape)
    if dtype.hasobject:
        if dtype != _numpy().dtype("O") or type(raw) is not list or len(raw) != count:
            raise _refuse("ndarray", "its objects do not fit its shape")
    elif dtype.itemsize == 0 and count > 0:
        raise _refuse("ndarray", "its elements have no size")
    elif type(raw) is not bytes or len(raw) != count * dtype.itemsize:
        raise _refuse("ndarray", "its data does not fit its shape")


def _check_dtype(dtype: Any, state: Any) -> None:
    if not isinstance(state, tuple) or len(state) not in (8, 9):
        raise _refuse("dtype", "its state does not fit")
    version, order, sub, names, fields, size, alignment, flags = state[:8]
    if type(version) is not int or version not in (3, 4) or order not in ("<", ">", "|", "="):
        raise _refuse("dtype", "its version or byte order does not fit")
    if sub is not None:
        raise _refuse("dtype", "subarrays are not admitted")
    if type(size) is not int or type(alignment) is not int or type(flags) is not int:
        raise _refuse("dtype", "its sizes do not fit")
    if size not in (-1, dtype.itemsize) or alignment not in (-1, 1, 2, 4, 8, 16):
        raise _refuse("dtype", "its sizes do not fit")
    if len(state) == 9:
        _check_unit(dtype, state[8])
    structured = names is not None or fields is not None
    if structured:
        _check_fields(dtype, names, fields)
    if flags not in (_STRUCT_FLAGS if structured else (dtype.flags,)):
        raise _refuse("dtype", "its flags do not fit")


def _check_unit(dtype: Any, metadata: Any) -> None:
    """Check what datetime64 and timedelta64 say about their unit."""
    if dtype.kind not in "mM" or type(metadata) is not tuple or len(metadata) != 2:
        raise _refuse("dtype", "its metadata does not fit")
    extra, unit = metadata
    if extra not in (None, {}) or type(unit) is not tuple or len(unit) != 4:
        raise _refuse("dtype", "its unit does not fit")
    if unit[0] not in (b"Y", b"M", b"W", b"D", b"h", b"m", b"s", b"ms", b"us", b"ns", b"ps", b"fs",
                       b"as", b"generic"):  # fmt: skip
        raise _refuse("dtype", "its unit does not fit")
    if any(type(part) is not int or not 1 <= part < 1 << 31 for part in unit[1:]):
        raise _refuse("dtype", "its unit does not fit")


def _check_fields(dtype: Any, names: Any, fields: Any) -> None:
    """Check that the fields of a structured type lie within it."""
    if dtype.kind != "V" or type(names) is not tuple or type(fields) is not dict:
        raise _refuse("dtype", "its fields do not fit")
    if len(set(names)) != len(names) or set(names) != set(fields) or len(names) > 1000:
        raise _refuse("dtype", "its field names do not fit")
    typed: dict[str, Any] = fields
    for name, entry in typed.items():
        if type(name) is not str or type(entry) is not tuple or len(entry) != 2:
            raise _refuse("dtype", "a field does not fit")
        kind, offset = entry
        if not isinstance(kind, _numpy().dtype) or kind.hasobject or type(offset) is not int:
            raise _refuse("dtype", "a field does not fit")
        if not 0 <= offset <= dtype.itemsize - kind.itemsize:
            raise _refuse("dtype", "a field lies outside of it")


def _refuse(name: str, why: str) -> RestrictedUnpickleError:
    return RestrictedUnpickleError(
        f"refusing to reconstruct numpy.{name}: {why}; "
        "set AGENTIX_PICKLE_TRUST=1 to trust everything that the sandbox returns, "
        "or return another type (agentix.allow_type is for types of your own)"
    )

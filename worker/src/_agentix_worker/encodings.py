"""Arguments in, results out, in the three encodings of a call.

Pickles are decoded without restriction: the host that sends arguments is trusted by the
sandbox, never the other way round.
"""

from __future__ import annotations

import math
from typing import Any, Callable

from _agentix_worker import codec
from _agentix_worker.errors import CallFailure
from _agentix_worker.limits import MAX_DEPTH, MAX_VALUE_BYTES

PICKLE_PROTOCOL = 4  # what a restricted host can read; see the protocol notes

Arguments = tuple[Any, dict[str, Any]]


def decode_arguments(encoding: str, data: bytes, fn: Callable[..., Any]) -> Arguments:
    """Return (args, kwargs) for fn.

    Raises CallFailure: ArgumentsDecodeError for bytes that are not a pair in that
    encoding, ArgumentsInvalid (with violations) for values that fn does not take.
    """
    if encoding == "pickle":
        return _pickled_arguments(data)
    pair = _json_pair(data) if encoding == "json" else _msgpack_pair(encoding, data)
    if not (
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], list)
        and isinstance(pair[1], dict)
        and all(type(k) is str for k in pair[1])
    ):
        raise CallFailure("ArgumentsDecodeError", f"{encoding} arguments are not a pair [args, kwargs]")
    # A level takes at least a byte, so short data is never too deep.
    if len(data) > MAX_DEPTH and codec.nesting(pair, MAX_DEPTH + 2) > MAX_DEPTH + 2:
        raise CallFailure("ArgumentsDecodeError", f"an argument is nested deeper than {MAX_DEPTH} levels")
    from _agentix_worker import binding  # needed for these encodings only

    return binding.bind(fn, pair[0], pair[1], encoding)


def _pickled_arguments(data: bytes) -> Arguments:
    import pickle

    try:
        pair = pickle.loads(data)
        args, kwargs = pair
        return tuple(args), dict(kwargs)
    except BaseException as e:
        raise CallFailure("ArgumentsDecodeError", f"arguments do not unpickle into a pair: {_named(e)}") from e


def _json_pair(data: bytes) -> Any:
    import json

    try:
        return json.loads(data, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as e:
        raise CallFailure("ArgumentsDecodeError", f"arguments are not JSON: {e}") from e


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number {text[:40]} is out of range")
    return value


def _msgpack_pair(encoding: str, data: bytes) -> Any:
    if encoding != "msgpack":
        raise CallFailure("ArgumentsDecodeError", f"unknown argument encoding {encoding!r}")
    try:
        return codec.unpack(data)
    except codec.CodecError as e:
        raise CallFailure("ArgumentsDecodeError", f"arguments are not msgpack: {e}") from e


def encode_result(encoding: str, value: Any) -> bytes:
    """Return the bytes of a result.

    Raises CallFailure: ResultEncodeError for a value that the encoding cannot carry,
    FrameTooLarge (with limit and size) for one over the limit.
    """
    if encoding == "pickle":
        data = _pickled(value)
    elif encoding in ("json", "msgpack"):
        from _agentix_worker import plain

        data = plain.encode(value, encoding)
    else:
        raise CallFailure("ResultEncodeError", f"unknown result encoding {encoding!r}")
    if len(data) > MAX_VALUE_BYTES:
        text = f"result of {len(data)} bytes is over the limit of {MAX_VALUE_BYTES} bytes"
        raise CallFailure("FrameTooLarge", text, limit=MAX_VALUE_BYTES, size=len(data))
    return data


def _pickled(value: Any) -> bytes:
    if value is None:
        return b"\x80\x04N."
    import pickle

    try:
        return pickle.dumps(value, PICKLE_PROTOCOL)
    except BaseException as e:
        kind = type(value).__name__
        raise CallFailure("ResultEncodeError", f"result of type {kind} cannot be pickled: {_named(e)}") from e


def _named(exc: BaseException) -> str:
    try:
        return f"{type(exc).__name__}: {exc}"
    except BaseException:
        return type(exc).__name__

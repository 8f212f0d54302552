"""Error maps of the wire, made from exceptions of any class."""

from __future__ import annotations

import os
import traceback
from types import TracebackType
from typing import Any, Optional

from _agentix_worker.limits import MAX_ERROR_TEXT_BYTES

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class CallFailure(Exception):
    """A failure of the call that is not an exception of the user's function.

    `kind` is the error type on the wire, `extra` are further fields of the error map.
    """

    def __init__(self, kind: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.extra = extra


def error_map(kind: str, message: str, trace: Optional[str] = None, **extra: Any) -> dict[str, Any]:
    """Return an error map with its texts valid and bounded."""
    return {
        "type": bounded(kind, 256),
        "message": bounded(message),
        "traceback": None if trace is None else bounded(trace, keep_end=True),
        "cancelled": False,
        "returncode": None,
        **extra,
    }


def from_exception(exc: BaseException) -> dict[str, Any]:
    """Return the error map of an exception, with the worker's own frames left out."""
    if isinstance(exc, CallFailure):
        return error_map(exc.kind, exc.message, **exc.extra)
    try:
        message = str(exc)
    except BaseException as e:
        message = f"<the exception's text is not available: {type(e).__name__}>"
    return error_map(str(type(exc).__name__), message, format_traceback(exc))


def format_traceback(exc: BaseException) -> str:
    """Format an exception with its causes, beginning at the first frame of user code."""
    try:
        tb = user_frames(exc.__traceback__)
        return "".join(traceback.format_exception(type(exc), exc, tb))
    except BaseException as e:  # hostile __str__, __cause__ loops, ...
        return f"<the traceback is not available: {type(e).__name__}>"


def user_frames(tb: Optional[TracebackType]) -> Optional[TracebackType]:
    """Skip the worker's own frames at the start of a traceback."""
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_HERE):
        tb = tb.tb_next
    return tb


def bounded(text: str, limit: int = MAX_ERROR_TEXT_BYTES, *, keep_end: bool = False) -> str:
    """Return text as valid Unicode of at most limit bytes; the cut says how much is missing."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    room = max(0, limit - 64)
    note = f"... [{len(data) - room} bytes cut] ..."
    if keep_end:
        half = room // 2
        head, tail = data[:half], data[len(data) - half :]
        return head.decode("utf-8", "ignore") + note + tail.decode("utf-8", "ignore")
    return data[:room].decode("utf-8", "ignore") + note

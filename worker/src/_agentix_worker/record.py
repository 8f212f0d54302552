"""A log record as the packed map of the wire.

This is the hot path of logging: what is the same for each record of one line of code is
packed once.
"""

from __future__ import annotations

import logging
from typing import Any, Optional

from _agentix_worker import codec
from _agentix_worker.coerce import packable, text
from _agentix_worker.errors import bounded

_PLAIN = frozenset(vars(logging.makeLogRecord({})))
_STANDARD = _PLAIN | {"message", "asctime", "agentix_context", "taskName"}
_MAX_SITES = 1024
_sites: dict[Any, bytes] = {}
_NOTHING = b"\xa8exc_text\xc0\xaastack_info\xc0\xa6extras\xc0"


def record_bytes(record: logging.LogRecord, context: Optional[str]) -> bytes:
    """Return the record packed; the order of its keys is ours."""
    key = (record.name, record.levelno, record.pathname, record.lineno, record.funcName, record.levelname, context)
    try:
        site = _sites.get(key)
    except TypeError:  # a record made by hand
        site = _site(record, context)
    if site is None:
        site = _site(record, context)
        if len(_sites) >= _MAX_SITES:
            _sites.clear()
        _sites[key] = site
    told = codec.pack_str(bounded(message(record)))
    made = b"".join((site, told, b"\xa7created", codec.pack_float(record.created)))
    if len(vars(record)) == len(_PLAIN) and not (record.exc_info or record.exc_text or record.stack_info):
        return made + _NOTHING
    return made + _rest(record)


def _site(record: logging.LogRecord, context: Optional[str]) -> bytes:
    fields = {
        "name": text(str(record.name), 1024),
        "level": text(str(record.levelname), 64),
        "levelno": record.levelno if type(record.levelno) is int else 0,
        "pathname": text(str(record.pathname), 4096),
        "lineno": record.lineno if type(record.lineno) is int else 0,
        "funcName": text(str(record.funcName), 1024),
        "module": text(str(record.module), 1024),
        "agentix_context": context,
    }
    return b"\x8d" + codec.pack(fields)[1:] + b"\xa7message"


def _rest(record: logging.LogRecord) -> bytes:
    extras = {k: v for k, v in vars(record).items() if k not in _STANDARD and k[:1] != "_"}
    trace = exc_text(record)
    fields = {
        "exc_text": None if trace is None else bounded(trace, keep_end=True),
        "stack_info": None if not record.stack_info else bounded(str(record.stack_info), keep_end=True),
        "extras": packable(extras) if extras else None,
    }
    return codec.pack(fields)[1:]


def message(record: logging.LogRecord) -> str:
    """Return the formatted message; arguments that do not fit do not lose the record."""
    try:
        return record.getMessage()
    except Exception as e:
        return f"{record.msg!s} (arguments {record.args!r} do not fit: {type(e).__name__}: {e})"


_formatter = logging.Formatter()


def exc_text(record: logging.LogRecord) -> Optional[str]:
    """Return the record's formatted exception."""
    if record.exc_text:
        return str(record.exc_text)
    info = record.exc_info
    if info and isinstance(info, tuple) and info[0] is not None:
        return _formatter.formatException(info)
    return None

"""The bridge from stdlib logging to the wire: each record leaves at once, once."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Callable, Optional

from _agentix_worker import ambient
from _agentix_worker.coerce import packable, text
from _agentix_worker.errors import bounded

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "agentix_context", "taskName"}
_NOT_FORWARDED = ("agentix.sio", "agentix.utils.log")

Send = Callable[[dict[str, Any], Optional[str]], None]


def context_name(environ: dict[str, str]) -> Optional[str]:
    """Return `agentix_context` of this process, from AGENTIX_LOG_CONTEXT."""
    template = environ.get("AGENTIX_LOG_CONTEXT")
    if not template:
        return None
    host = os.uname().nodename
    values = {"uname": host, "hostname": host, "pid": str(os.getpid()), "id": environ.get("AGENTIX_WORKER_ID", "")}
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    return text(template, 1024)


def _level(environ: dict[str, str]) -> int:
    wanted = environ.get("AGENTIX_LOG_LEVEL", "INFO").strip().upper()
    number = int(wanted) if wanted.isdigit() else logging.getLevelName(wanted)
    return number if isinstance(number, int) else logging.INFO


class Forwarder(logging.Handler):
    """The root handler that sends every record with the call id of its context."""

    def __init__(self, send: Send, context: Optional[str]) -> None:
        super().__init__(logging.NOTSET)
        self._send = send
        self._context = context
        self._pid = os.getpid()

    def createLock(self) -> None:  # noqa: N802
        """Have no lock: the frame writer has its own."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Send the record; never raises."""
        if record.name.startswith(_NOT_FORWARDED):
            return True
        try:
            if os.getpid() != self._pid:
                self._in_fork(record)
            else:
                self._send(self.shape(record), ambient.call_id.get())
        except Exception:
            self.handleError(record)
        return True

    def _in_fork(self, record: logging.LogRecord) -> None:
        """A forked child has no frame pipe; its records go to its stderr."""
        sys.stderr.write(f"{record.levelname} {record.name}: {_message(record)}\n")
        trace = _exc_text(record)
        if trace:
            sys.stderr.write(trace + "\n")

    def shape(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the record as the map of the wire."""
        extras = {k: v for k, v in vars(record).items() if k not in _STANDARD and k[:1] != "_"}
        trace = _exc_text(record)
        return {
            "name": text(str(record.name), 1024),
            "level": text(str(record.levelname), 64),
            "levelno": record.levelno if type(record.levelno) is int else 0,
            "message": bounded(_message(record)),
            "created": float(record.created),
            "pathname": text(str(record.pathname), 4096),
            "lineno": record.lineno if type(record.lineno) is int else 0,
            "funcName": text(str(record.funcName), 1024),
            "module": text(str(record.module), 1024),
            "exc_text": None if trace is None else bounded(trace, keep_end=True),
            "stack_info": None if not record.stack_info else bounded(str(record.stack_info), keep_end=True),
            "agentix_context": self._context,
            "extras": packable(extras) if extras else None,
        }


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as e:  # arguments that do not fit the format: the record is still told
        return f"{record.msg!s} (arguments {record.args!r} do not fit: {type(e).__name__}: {e})"


_formatter = logging.Formatter()


def _exc_text(record: logging.LogRecord) -> Optional[str]:
    if record.exc_text:
        return str(record.exc_text)
    info = record.exc_info
    if info and isinstance(info, tuple) and info[0] is not None:
        return _formatter.formatException(info)
    return None


class Bridge:
    """Installs a Forwarder on the root logger and keeps console handlers from saying it twice."""

    def __init__(self, send: Send, environ: dict[str, str]) -> None:
        self._forwarder = Forwarder(send, context_name(environ))
        self._level = _level(environ)

    def install(self) -> None:
        """Become the root handler; basicConfig(force=True) and dictConfig do not remove it."""
        root = logging.getLogger()
        root.addHandler(self._forwarder)
        if root.level == logging.NOTSET or root.level > self._level:
            root.setLevel(self._level)
        remove = root.removeHandler

        def remove_others(hdlr: logging.Handler) -> None:
            if hdlr is not self._forwarder:
                remove(hdlr)

        root.removeHandler = remove_others  # type: ignore[method-assign]
        emit: Any = logging.StreamHandler.emit

        def emit_unless_forwarded(handler: logging.StreamHandler[Any], record: logging.LogRecord) -> None:
            if handler.stream in (sys.stdout, sys.stderr) and self._forwards(record):
                return
            emit(handler, record)

        logging.StreamHandler.emit = emit_unless_forwarded  # type: ignore[method-assign,assignment]

    def _forwards(self, record: logging.LogRecord) -> bool:
        """Tell whether the record reaches the root handler, and so the host, by itself."""
        if record.name.startswith(_NOT_FORWARDED):
            return False
        if self._forwarder._pid != os.getpid():
            return True  # it is written to stderr by the forwarder
        logger: Optional[logging.Logger] = logging.getLogger(record.name)
        while logger is not None:
            if logger.parent is None:
                return True
            if not logger.propagate:
                return False
            logger = logger.parent
        return False

"""The bridge from stdlib logging to the wire: each record leaves at once, once."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Callable, Optional

from _agentix_worker import ambient
from _agentix_worker.coerce import text
from _agentix_worker.record import exc_text, message, record_bytes

_NOT_FORWARDED = ("agentix.sio", "agentix.utils.log")

Send = Callable[[bytes, Optional[str]], None]
"""Takes a packed record and the id of its call."""


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
        if record.name.startswith(_NOT_FORWARDED) or (self.filters and not self.filter(record)):
            return True
        try:
            if os.getpid() != self._pid:
                self._in_fork(record)
            else:
                self._send(record_bytes(record, self._context), ambient.call_id.get())
        except Exception:
            self.handleError(record)
        return True

    def _in_fork(self, record: logging.LogRecord) -> None:
        """A forked child has no frame pipe; its records go to its stderr."""
        sys.stderr.write(f"{record.levelname} {record.name}: {message(record)}\n")
        trace = exc_text(record)
        if trace:
            sys.stderr.write(trace + "\n")


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

"""The running worker: its loop, its reader, its outlets."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import threading
import time
from typing import Any, Callable, Iterable, Optional, Union

from _agentix_worker import ambient, codec
from _agentix_worker.calls import Invoker
from _agentix_worker.framing import Body, FrameDecoder, FrameError
from _agentix_worker.native import NativeOutlet
from _agentix_worker.pipe import FrameWriter
from _agentix_worker.plugins import Plugins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _agentix_worker.foreign import ForeignOutlet

_LATER = (
    "_agentix_worker.binding",
    "_agentix_worker.plain",
    "_agentix_worker.propagation",
    "dataclasses",
    "inspect",
    "json",
    "pickle",
)
_READ_BYTES = 1 << 18
_STOP_SECONDS = 2.0  # for cancelled calls to end
_EXIT_SECONDS = 3.0  # for atexit handlers and threads of user code
_log = logging.getLogger("agentix.sio.worker")


class Worker:
    """Serves one frame pipe."""

    def __init__(self, read_fd: int, writer: FrameWriter, *, native: bool) -> None:
        self._read_fd = read_fd
        self._writer = writer
        self._decoder = FrameDecoder()
        self._stopping = False
        self._open = False
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._native = native
        self._outlet: Union[NativeOutlet, ForeignOutlet] = _outlet(writer, native)
        self._plugins = Plugins(self._loop, writer)
        self._calls = Invoker(
            self._loop, writer, self._outlet.before_terminal, self._outlet.on_failure, tell_stopped=native
        )
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "call": self._calls.start,
            "cancel": self._cancel,
            "ping": lambda _: writer.send({"type": "pong"}),
            "shutdown": lambda _: self._stop(),
            "sio_inbound": self._inbound,
        }

    def open(self, preload: Optional[Iterable[str]] = None) -> None:
        """Take over output and records, then import modules ahead of the first call.

        With a preload the worker is to wait for its first call: it also imports what a start
        in a hurry leaves for later.
        """
        self._open = True
        # A Ctrl-C on the runtime's terminal is the runtime's affair; children get the default.
        signal.signal(signal.SIGINT, lambda *_: None)
        os.set_blocking(self._read_fd, False)
        self._outlet.install()
        ambient.sink = _Sink(self._outlet, self._plugins)
        os.register_at_fork(after_in_child=self._after_fork)
        for module in () if preload is None else (*_LATER, *preload):
            importlib.import_module(module)

    def run(self) -> int:
        """Serve until shutdown or the end of the pipe; return the exit status."""
        if not self._open:
            self.open()
        self._loop.add_reader(self._read_fd, self._readable)
        self._writer.send(self._outlet.ready())
        while not self._stopping:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # A task of user code; the call that awaits it gets the exception.
                continue
            except BaseException:  # a signal handler of user code raised inside the loop
                logging.getLogger("agentix.worker").exception("the event loop was interrupted; it goes on")
        self._finish()
        return 0

    def _readable(self) -> None:
        try:
            bodies = self._read()
        except BlockingIOError:
            return
        except (OSError, EOFError, FrameError):  # after a bad length nothing can be trusted
            self._stop()
            return
        for body in bodies:
            self._frame(body)

    def _read(self) -> list[Body]:
        space = self._decoder.space()
        if space is not None:
            n = os.readv(self._read_fd, [space])
            body = self._decoder.filled(n) if n else None
            bodies = [] if body is None else [body]
        else:
            data = os.read(self._read_fd, _READ_BYTES)
            n = len(data)
            bodies = self._decoder.feed(data)
        if not n:
            raise EOFError
        return bodies

    def _frame(self, body: Body) -> None:
        try:
            frame = codec.unpack(body) if body else {}
            handler = self._handlers[frame["type"]]
        except Exception:
            _log.warning("ignored a frame that is not understood")
            return
        handler(frame)

    def _cancel(self, frame: dict[str, Any]) -> None:
        call_id = frame.get("call_id")
        if isinstance(call_id, str):
            self._calls.cancel(call_id)

    def _inbound(self, frame: dict[str, Any]) -> None:
        namespace, event, data = frame.get("namespace"), frame.get("event"), frame.get("data")
        if isinstance(namespace, str) and isinstance(event, str) and not self._outlet.control(namespace, event, data):
            self._plugins.inbound(namespace, event, data)

    def _stop(self) -> None:
        self._stopping = True
        self._loop.remove_reader(self._read_fd)
        self._loop.stop()

    def _finish(self) -> None:
        """End the calls without terminal frames, write out what was printed, allow a short goodbye."""
        tasks = self._calls.close()
        if tasks:
            try:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_STOP_SECONDS))
            except BaseException:  # user code that raises SystemExit on its way out
                pass
        self._outlet.close()
        threading.Thread(target=_exit_late, daemon=True).start()

    def _after_fork(self) -> None:
        """A forked child keeps nothing of the frame pipe, so the worker's death is seen."""
        self._writer.abandon()
        try:
            # Not just closed: their numbers must not become files of user code.
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            for fd in (self._read_fd, self._writer.fd):
                os.dup2(null, fd, inheritable=False)
            os.close(null)
        except OSError:  # no descriptor to be had
            os.closerange(self._read_fd, self._read_fd + 1)
            os.closerange(self._writer.fd, self._writer.fd + 1)
        self._outlet.after_fork()
        ambient.sink = ambient.Sink()


def _exit_late() -> None:
    time.sleep(_EXIT_SECONDS)
    os._exit(0)


def _outlet(writer: FrameWriter, native: bool) -> Union[NativeOutlet, ForeignOutlet]:
    if native:
        return NativeOutlet(writer)
    from _agentix_worker.foreign import ForeignOutlet

    return ForeignOutlet(writer)


class _Sink(ambient.Sink):
    def __init__(self, outlet: Union[NativeOutlet, ForeignOutlet], plugins: Plugins) -> None:
        self.span = outlet.span  # type: ignore[method-assign]
        self.open_namespace = plugins.open  # type: ignore[method-assign]
        self.emit = plugins.emit  # type: ignore[method-assign]

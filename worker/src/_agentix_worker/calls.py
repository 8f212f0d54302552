"""Runs calls: exactly one terminal frame for each, whatever the function does.

Coroutine functions run on the loop, everything else on a thread of its own. Modules are
imported on the main thread, as their authors expect.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from typing import Any, Callable, Optional

from _agentix_worker import ambient, codec, encodings
from _agentix_worker.errors import CallFailure, error_map, from_exception
from _agentix_worker.framing import FrameError
from _agentix_worker.pipe import FrameWriter
from _agentix_worker.resolve import is_coroutine_function, resolve
from _agentix_worker.threads import Threads

_INLINE_BYTES = 65536  # larger arguments and results are handled off the loop


class Call:
    """One call in flight."""

    __slots__ = (
        "arguments",
        "deadline",
        "done",
        "encoding",
        "id",
        "key",
        "live",
        "result_encoding",
        "stopped",
        "task",
        "tell_encoding",
    )

    def __init__(self, frame: dict[str, Any]) -> None:
        call_id = frame.get("call_id")
        self.id: str = call_id if isinstance(call_id, str) else ""
        self.key: Any = self.id or object()
        self.arguments: bytes = b""
        self.encoding = str(frame.get("encoding") or "pickle")
        self.result_encoding = str(frame.get("result_encoding") or self.encoding)
        self.tell_encoding: bool = "encoding" in frame or "result_encoding" in frame
        self.done = False
        self.live = False  # its code is on a thread or in a task, or on its way there
        self.stopped = False  # it ended as cancelled or out of time while its code was live
        self.task: Optional[asyncio.Task[None]] = None
        self.deadline: Optional[asyncio.TimerHandle] = None


class Invoker:
    """The calls of this worker. `start` and `cancel` are called on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: FrameWriter,
        before_terminal: Callable[[str], None],
        on_failure: Callable[[str, BaseException], None],
        *,
        tell_stopped: bool = False,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._before_terminal = before_terminal
        self._on_failure = on_failure
        self._tell_stopped = tell_stopped
        self._threads = Threads()
        self._lock = threading.Lock()
        self._calls: dict[Any, Call] = {}
        self._pid = os.getpid()

    def start(self, frame: dict[str, Any]) -> None:
        """Begin the call of a `call` frame. A second call with a running id is ignored."""
        call = Call(frame)
        with self._lock:
            if call.key in self._calls:
                return
            self._calls[call.key] = call
        context = contextvars.copy_context()
        try:
            reference = _text(frame, "callable")
            call.arguments = _binary(frame, "arguments")
            timeout = frame.get("timeout_ms")
            if isinstance(timeout, int) and timeout > 0:
                call.deadline = self._loop.call_later(timeout / 1000, self._expire, call, timeout)
            context.run(_enter, call.id, frame)
            fn = context.run(resolve, reference)
            if is_coroutine_function(fn) and len(call.arguments) <= _INLINE_BYTES:
                args, kwargs = context.run(encodings.decode_arguments, call.encoding, call.arguments, fn)
                call.live = True
                self._start_task(context, call, fn, args, kwargs)
            else:
                call.live = True
                self._threads.submit(lambda: context.run(self._on_thread, call, fn))
        except BaseException as e:  # whatever an import or a decoder raises
            call.live = False
            context.run(self._fail, call, e)

    def cancel(self, call_id: str) -> None:
        """End a running call as Cancelled at once; an unknown id is ignored."""
        call = self._calls.get(call_id)
        if call is not None:
            self._stop(call, {**error_map("Cancelled", "remote call cancelled"), "cancelled": True})

    def close(self) -> list[asyncio.Task[None]]:
        """Send no terminal frame any more; cancel and return the tasks that are still running."""
        with self._lock:
            calls = list(self._calls.values())
            self._calls.clear()
            for call in calls:
                call.done = True
        tasks = [c.task for c in calls if c.task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    # --- execution ---------------------------------------------------------------

    def _start_task(self, context: contextvars.Context, call: Call, fn: Any, args: Any, kwargs: Any) -> None:
        call.arguments = b""
        if call.done:  # cancelled while it was on its way here
            self._left(call)
            return
        # The task copies the context that is current, in every Python from 3.9 on.
        call.task = context.run(self._loop.create_task, self._as_task(call, fn, args, kwargs))

    async def _as_task(self, call: Call, fn: Any, args: Any, kwargs: Any) -> None:
        try:
            await self._await(call, fn(*args, **kwargs))
        except BaseException as e:
            self._raised(call, e)

    async def _await(self, call: Call, awaitable: Any) -> None:
        try:
            value = await awaitable
        except BaseException as e:
            self._raised(call, e)
            return
        self._returned(call, value, on_loop=True)

    def _on_thread(self, call: Call, fn: Any) -> None:
        if call.done:  # cancelled before a thread was free
            self._left(call)
            return
        try:
            args, kwargs = encodings.decode_arguments(call.encoding, call.arguments, fn)
            call.arguments = b""
            if is_coroutine_function(fn):
                # A copy: this thread is still inside the context, and none is entered twice.
                context = contextvars.copy_context()
                self._loop.call_soon_threadsafe(self._start_task, context, call, fn, args, kwargs)
                return
            value = fn(*args, **kwargs)
            del args, kwargs
            if hasattr(type(value), "__await__") or _is_generator_coroutine(value):
                self._loop.call_soon_threadsafe(self._start_awaiting, contextvars.copy_context(), call, value)
                return
        except BaseException as e:
            self._raised(call, e)
        else:
            self._returned(call, value, on_loop=False)
        self._left(call)

    def _start_awaiting(self, context: contextvars.Context, call: Call, value: Any) -> None:
        call.task = context.run(self._loop.create_task, self._await(call, value))
        if call.done:  # cancelled while it was on its way here
            call.task.add_done_callback(lambda _: self._left(call))
            call.task.cancel()

    # --- terminal frames ---------------------------------------------------------

    def _raised(self, call: Call, exc: BaseException) -> None:
        if os.getpid() != self._pid:
            _leave_fork(exc)
        if call.done:
            return  # cancelled; or a function that ended after its deadline
        self._fail(call, exc)

    def _fail(self, call: Call, exc: BaseException) -> None:
        if not isinstance(exc, CallFailure):
            self._on_failure(call.id, exc)
        self._end(call, from_exception(exc))

    def _returned(self, call: Call, value: Any, *, on_loop: bool) -> None:
        if os.getpid() != self._pid:
            _leave_fork(None)
        if call.done:
            return
        try:
            data = encodings.encode_result(call.result_encoding, value)
        except CallFailure as e:
            self._fail(call, e)
            return
        except BaseException as e:  # the value's own code, e.g. a property that raises
            text = f"result of type {type(value).__name__} cannot be sent: {type(e).__name__}: {e}"
            self._fail(call, CallFailure("ResultEncodeError", text))
            return
        if on_loop and len(data) > _INLINE_BYTES:
            context = contextvars.copy_context()
            try:
                self._threads.submit(lambda: context.run(self._send_result, call, data))
                return
            except RuntimeError:  # no thread to be had
                pass
        self._send_result(call, data)

    def _send_result(self, call: Call, data: bytes) -> None:
        self._before_terminal(call.id)
        if not self._claim(call):
            return
        head = b"\xa4type\xa6result\xa7call_id" + codec.pack_str(call.id) + b"\xa5value"
        head += codec.pack_bin_header(len(data))
        tail = b"\xa8encoding" + codec.pack_str(call.result_encoding) if call.tell_encoding else b""
        try:
            self._writer.send_body((b"\x84" if tail else b"\x83") + head, data, tail)
        except FrameError as e:  # a call id of kilobytes
            self._writer.send({"type": "error", "call_id": call.id, "error": error_map("FrameTooLarge", str(e))})

    def _end(self, call: Call, error: dict[str, Any]) -> None:
        self._before_terminal(call.id)
        if self._claim(call):
            self._writer.send({"type": "error", "call_id": call.id, "error": error})

    def _stop(self, call: Call, error: dict[str, Any]) -> None:
        """End a call whose code may go on; on the loop. What it does later is told by `stopped`."""
        self._before_terminal(call.id)
        task = call.task
        if not self._claim(call, stop=True):
            return
        frame: dict[str, Any] = {"type": "error", "call_id": call.id, "error": error}
        if call.stopped and self._tell_stopped:
            frame["running"] = True
        self._writer.send(frame)
        if task is not None:
            task.add_done_callback(lambda _: self._left(call))
            task.cancel()

    def _left(self, call: Call) -> None:
        """Note that the code of a call has ended; on any thread."""
        with self._lock:
            call.live = False
            told = not call.stopped or not self._tell_stopped
        if not told:
            # Behind the error frame, which leaves the loop's thread.
            self._loop.call_soon_threadsafe(self._send_stopped, call.id)

    def _send_stopped(self, call_id: str) -> None:
        self._before_terminal(call_id)
        self._writer.send({"type": "stopped", "call_id": call_id})

    def _claim(self, call: Call, *, stop: bool = False) -> bool:
        """Take the right to send the call's one terminal frame."""
        with self._lock:
            if call.done:
                return False
            call.done = True
            call.stopped = stop and call.live
            self._calls.pop(call.key, None)
        if call.deadline is not None:
            # Timers belong to the loop; a late one finds the call done.
            self._loop.call_soon_threadsafe(call.deadline.cancel)
        return True

    def _expire(self, call: Call, timeout: int) -> None:
        self._stop(call, error_map("DeadlineExceeded", f"the call ran longer than its timeout of {timeout} ms"))


def _enter(call_id: str, frame: dict[str, Any]) -> None:
    """Set what surrounds the call in the current context."""
    ambient.call_id.set(call_id)
    blob = frame.get("context")
    if blob or frame.get("baggage") or frame.get("traceparent"):
        from _agentix_worker import propagation

        propagation.enter(blob, frame.get("baggage"), frame.get("traceparent"))


def _text(frame: dict[str, Any], name: str) -> str:
    value = frame.get(name)
    if not isinstance(value, str):
        raise CallFailure("BadRequest", f"missing or invalid {name}")
    return value


def _binary(frame: dict[str, Any], name: str) -> bytes:
    value = frame.get(name)
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise CallFailure("BadRequest", f"missing or invalid {name}")
    return value


def _is_generator_coroutine(value: Any) -> bool:
    code = getattr(value, "gi_code", None)  # types.coroutine
    return code is not None and bool(code.co_flags & 0x100)


def _leave_fork(exc: Optional[BaseException]) -> None:
    """End a forked child that came back from the user's function, as a script would end."""
    import sys
    import traceback

    code: Any = 0
    if isinstance(exc, SystemExit):
        code = exc.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    elif exc is not None:
        traceback.print_exception(type(exc), exc, exc.__traceback__)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            code = code or 1
    os._exit((code or 0) & 0xFF)

"""Plugin namespaces: events between code in a sandbox and a handler on the host."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import queue
import threading
import uuid
from typing import Any, Awaitable, Callable, Generator, Optional

from _agentix_worker import ambient
from _agentix_worker.plugins import RESERVED

_log = logging.getLogger("agentix.namespace")
REQUEST_SECONDS = 300.0
"""How long a request waits for its answer."""
MAX_WARNED = 1000
"""Event names without a handler that are warned about, one time each."""

Handler = Callable[[Any], Any]


class RemoteSioError(Exception):
    """The host answered a request with an error."""

    def __init__(self, kind: str, message: str, status_code: Optional[int] = None) -> None:
        super().__init__(f"{kind}: {message}")
        self.type = kind
        self.message = message
        self.status_code = status_code


class _Done:
    """What can be awaited and never waits."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


_DONE = _Done()


class Namespace:
    """A namespace of events. Subclass it with `on_<event>` methods, or add handlers by `on`.

    Handlers may be sync or async; their results are ignored, their exceptions logged. Async
    ones run on the worker's loop, sync ones one after the other on a thread of the namespace.
    """

    namespace: str = ""
    """The path, beginning with "/"; a class attribute or the constructor's argument."""

    def __init__(self, namespace: Optional[str] = None) -> None:
        path = namespace if namespace is not None else type(self).namespace
        if not isinstance(path, str) or not path.startswith("/"):
            raise ValueError(f"namespace {path!r} does not begin with '/'")
        if path in RESERVED:
            raise ValueError(f"namespace {path} is reserved")
        self.namespace = path
        self._lock = threading.Lock()
        self._opened = False
        self._handlers: dict[str, list[Handler]] = {}
        self._pending: dict[str, concurrent.futures.Future[Any]] = {}
        self._warned: set[str] = set()
        self._queue: Optional[queue.SimpleQueue[tuple[Handler, str, Any]]] = None
        self._tasks: set[asyncio.Task[None]] = set()

    def on(self, event: str, handler: Handler) -> None:
        """Add a handler of an event of any name."""
        with self._lock:
            self._handlers.setdefault(event, []).append(handler)

    def open(self) -> None:
        """Announce the namespace to the host; emit and request do it by themselves.

        Raises ValueError when the path is registered by another object, RuntimeError
        outside a sandbox.
        """
        with self._lock:
            if not self._opened:
                ambient.sink.open_namespace(self.namespace, self._on_event)
                self._opened = True

    def emit(self, event: str, data: Any = None) -> Awaitable[None]:
        """Send an event; ValueError when data cannot be sent or is over the limit.

        It is sent when this returns, from any thread; the result may be awaited or not.
        """
        self.open()
        ambient.sink.emit(self.namespace, event, data)
        return _DONE

    async def request(self, event: str, data: Any = None, *, timeout: float = REQUEST_SECONDS) -> Any:
        """Send an event and wait for the host's answer.

        Raises RemoteSioError when the host answers with an error, TimeoutError without one.
        """
        request_id, answer = self._ask(event, data)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no answer to {event} on {self.namespace} within {timeout:g} s") from None
        finally:
            self._pending.pop(request_id, None)

    def request_sync(self, event: str, data: Any = None, *, timeout: float = REQUEST_SECONDS) -> Any:
        """Do the same from a synchronous function."""
        request_id, answer = self._ask(event, data)
        try:
            return answer.result(timeout)
        except concurrent.futures.TimeoutError:
            raise TimeoutError(f"no answer to {event} on {self.namespace} within {timeout:g} s") from None
        finally:
            self._pending.pop(request_id, None)

    def _ask(self, event: str, data: Any) -> tuple[str, concurrent.futures.Future[Any]]:
        request_id = uuid.uuid4().hex
        answer: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._pending[request_id] = answer
        try:
            self.emit(event, {"request_id": request_id, "data": data})
        except BaseException:
            self._pending.pop(request_id, None)
            raise
        return request_id, answer

    # --- inbound, on the loop's thread -------------------------------------------

    def _on_event(self, event: str, data: Any) -> None:
        if self._answered(event, data):
            return
        method = getattr(self, "on_" + event, None)
        handlers = [*self._handlers.get(event, ()), *([method] if callable(method) else [])]
        if not handlers and event not in self._warned and len(self._warned) < MAX_WARNED:
            self._warned.add(event)
            _log.warning("no handler for event %r on namespace %s", event, self.namespace)
        for handler in handlers:
            if asyncio.iscoroutinefunction(handler):
                task = asyncio.get_running_loop().create_task(self._awaited(handler, event, data))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._serial().put((handler, event, data))

    def _answered(self, event: str, data: Any) -> bool:
        name, _, kind = event.rpartition(":")
        if not name or kind not in ("result", "error") or not isinstance(data, dict):
            return False
        request_id = data.get("request_id")
        answer = self._pending.pop(request_id, None) if isinstance(request_id, str) else None
        if answer is None:
            # The answer to a request that is given up; unless someone handles such events.
            return isinstance(request_id, str) and event not in self._handlers
        if answer.set_running_or_notify_cancel():
            if kind == "result":
                answer.set_result(data.get("value"))
            else:
                answer.set_exception(_remote_error(data.get("error")))
        return True

    def _serial(self) -> queue.SimpleQueue[tuple[Handler, str, Any]]:
        if self._queue is None:
            self._queue = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(self._queue,), name=f"agentix{self.namespace}", daemon=True).start()
        return self._queue

    def _work(self, jobs: queue.SimpleQueue[tuple[Handler, str, Any]]) -> None:
        while True:
            handler, event, data = jobs.get()
            try:
                result = handler(data)
                if asyncio.iscoroutine(result):
                    asyncio.run(result)
            except BaseException:
                _log.exception("handler of event %r on namespace %s failed", event, self.namespace)

    async def _awaited(self, handler: Handler, event: str, data: Any) -> None:
        try:
            await handler(data)
        except asyncio.CancelledError:
            raise
        except BaseException:
            _log.exception("handler of event %r on namespace %s failed", event, self.namespace)


def _remote_error(error: Any) -> RemoteSioError:
    if not isinstance(error, dict):
        return RemoteSioError("MalformedError", "the host sent an error without a description")
    status = error.get("status_code")
    return RemoteSioError(
        str(error.get("type", "Unknown")), str(error.get("message", "")), status if isinstance(status, int) else None
    )


def register_namespace(namespace: Namespace) -> Namespace:
    """Announce a namespace to the host and return it."""
    namespace.open()
    return namespace

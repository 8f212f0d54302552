"""A worker of the public protocol, written from its description alone: wire §9 to §12.

It speaks frames on fd 0 and 1 and imports from the directory it is given. Usage: worker.py PROJECT
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import logging
import os
import pickle
import queue
import secrets
import struct
import sys
import threading
import time
import traceback
from typing import Any, Optional

import msgpack

call_id_of: contextvars.ContextVar[Optional[str]] = contextvars.ContextVar("call_id_of", default=None)


class Pipe:
    """The framed pipe: a thread writes, so that frames never wait for the loop."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        self._queue: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def send(self, **frame: Any) -> None:
        """Queue a frame."""
        body = msgpack.packb(frame, use_bin_type=True)
        self._queue.put(struct.pack("<I", len(body)) + body)

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            view = memoryview(data)
            while view:
                view = view[os.write(self._out, view) :]

    def close(self) -> None:
        """Write out what is queued."""
        self._queue.put(None)
        self._thread.join(2)

    def frames(self) -> Any:
        """Yield frames until the pipe ends."""
        with os.fdopen(self._in, "rb", buffering=1 << 20) as f:
            while len(head := f.read(4)) == 4:
                (n,) = struct.unpack("<I", head)
                body = f.read(n)
                yield msgpack.unpackb(body, strict_map_key=True) if n else {}


class Stream:
    """A reliable stream."""

    def __init__(self, pipe: Pipe, namespace: str) -> None:
        self.pipe, self.namespace = pipe, namespace
        self.sid = secrets.token_hex(4)
        self.seq = 0
        self.kept: list[tuple[str, dict[str, Any]]] = []
        self.lock = threading.Lock()
        self.opened = False

    def emit(self, event: str, data: dict[str, Any]) -> None:
        with self.lock:
            if not self.opened:
                self.opened = True
                self.pipe.send(type="sio_open", namespace=self.namespace)
            self.seq += 1
            envelope = {"_sid": self.sid, "_seq": self.seq, "data": data}
            self.kept.append((event, envelope))
            self.pipe.send(type="sio_emit", namespace=self.namespace, event=event, data=envelope)

    def inbound(self, event: str, data: dict[str, Any]) -> None:
        with self.lock:
            if event == "_ack":
                self.kept = [k for k in self.kept if k[1]["_seq"] > data["seq"]]
            elif event == "_resume":
                for name, envelope in self.kept:
                    if envelope["_seq"] > data["since_seq"]:
                        self.pipe.send(type="sio_emit", namespace=self.namespace, event=name, data=envelope)


class Handler(logging.Handler):
    """Sends log records."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream = stream

    def emit(self, r: logging.LogRecord) -> None:
        text = "".join(traceback.format_exception(*r.exc_info)) if r.exc_info else None
        self.stream.emit("record", record(r.name, r.levelname, r.levelno, r.getMessage(), r.module, text, None))


def record(name: str, level: str, number: int, message: str, module: str, exc: Optional[str], extras: Any) -> dict[str, Any]:
    """Return the map of a log record."""
    return {
        "name": name, "level": level, "levelno": number, "message": message, "created": time.time(), "pathname": "", "lineno": 0,
        "funcName": "", "module": module, "exc_text": exc, "stack_info": None, "agentix_context": "reference", "extras": extras,
    }  # fmt: skip


def capture(fd: int, name: str, stream: Stream) -> None:
    """Turn what is written to fd into records."""
    read, write = os.pipe()
    os.dup2(write, fd)
    os.close(write)

    def run() -> None:
        with os.fdopen(read, "r", errors="replace", newline="\n") as f:
            for line in f:
                extras = {"agentix_stream": name, "worker_id": os.environ.get("AGENTIX_WORKER_ID", "")}
                stream.emit("record", record(f"agentix.sandbox.{name}", "INFO", 20, line.rstrip("\r\n"), "stdio", None, extras))

    threading.Thread(target=run, daemon=True).start()


class Worker:
    """Runs calls."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.loop = asyncio.new_event_loop()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.streams = {ns: Stream(pipe, ns) for ns in ("/log", "/trace")}

    def start(self, frame: dict[str, Any]) -> None:
        """Start a call, on the loop."""
        call_id = frame["call_id"]
        self.tasks[call_id] = self.loop.create_task(self.run(call_id, frame))

    def cancel(self, call_id: str) -> None:
        task = self.tasks.pop(call_id, None)
        if task is not None:
            task.cancel()
            self.error(call_id, "Cancelled", "remote call cancelled", None, True)

    def error(self, call_id: str, kind: str, message: str, trace: Optional[str], cancelled: bool = False) -> None:
        error = {"type": kind, "message": message, "traceback": trace, "cancelled": cancelled, "returncode": None}
        self.pipe.send(type="error", call_id=call_id, error=error)

    async def run(self, call_id: str, frame: dict[str, Any]) -> None:
        call_id_of.set(call_id)
        try:
            module, _, name = frame["callable"].partition("::")
            if not name:
                raise ValueError("no ::")
            function: Any = importlib.import_module(module)
            for part in name.split("."):
                function = getattr(function, part)
            args, kwargs = pickle.loads(frame["arguments"])
            if inspect.iscoroutinefunction(function):
                value = await function(*args, **kwargs)
            else:
                context = contextvars.copy_context()
                value = await self.loop.run_in_executor(None, lambda: context.run(function, *args, **kwargs))
            blob = pickle.dumps(value, protocol=4)
        except Exception as e:
            if self.tasks.pop(call_id, None) is not None:
                logging.getLogger("agentix.runtime.server.worker.invoker").exception("call failed")
                self.error(call_id, type(e).__name__, str(e), traceback.format_exc())
            return
        if self.tasks.pop(call_id, None) is not None:
            self.pipe.send(type="result", call_id=call_id, value=blob)

    def serve(self) -> None:
        """Read frames until the end."""
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.pipe.send(type="sio_open", namespace="/trace")
        self.pipe.send(type="ready")
        for frame in self.pipe.frames():
            kind = frame.get("type")
            if kind == "call":
                self.loop.call_soon_threadsafe(self.start, frame)
            elif kind == "cancel":
                self.loop.call_soon_threadsafe(self.cancel, frame["call_id"])
            elif kind == "sio_inbound" and frame["namespace"] in self.streams:
                self.streams[frame["namespace"]].inbound(frame["event"], frame["data"])
            elif kind == "shutdown":
                break
        self.pipe.close()
        os._exit(0)


def spans(n: int) -> int:
    """Tell of spans; other workers have a package for it."""
    for i in range(n):
        data = {"trace_id": "trace_unbound", "call_id": call_id_of.get(), "span_id": f"span_{i:024x}", "parent_id": None, "name": "step",
                "attrs": {"i": i}, "started_at": "2026-01-01T00:00:00.000000Z"}  # fmt: skip
        worker.streams["/trace"].emit("span_start", data)
        end = {"ended_at": "2026-01-01T00:00:01.000000Z", "status": "ok", "status_description": None}
        worker.streams["/trace"].emit("span_end", {**data, **end})
    return n


if __name__ == "__main__":
    sys.modules["reference_worker"] = sys.modules["__main__"]
    sys.path.insert(0, sys.argv[1])
    worker = Worker(Pipe())
    capture(1, "stdout", worker.streams["/log"])
    capture(2, "stderr", worker.streams["/log"])
    logging.basicConfig(level=logging.INFO, handlers=[Handler(worker.streams["/log"])])
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    worker.serve()

"""Starts a real worker and speaks frames with it, as the runtime does."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import pickle
import queue
import subprocess
import sys
import threading
import time
from typing import Any, Iterator, Optional

from _agentix_worker import codec
from _agentix_worker.framing import FrameDecoder, frame_header

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent / "src"
BOOTSTRAP = (HERE.parent / "bootstrap.py").read_text()
PYTHON = os.environ.get("AGENTIX_TEST_PYTHON", sys.executable)
TIMEOUT = 20.0

Frame = dict[str, Any]


class Reader(threading.Thread):
    """Reads a descriptor to its end, as fast as it comes."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self.fd = fd
        self.chunks: list[bytes] = []
        self.start()

    def run(self) -> None:
        while True:
            data = os.read(self.fd, 1 << 16)
            if not data:
                os.close(self.fd)
                return
            self.chunks.append(data)

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    def until(self, text: bytes) -> bytes:
        wait_for(lambda: text in self.data, f"{text!r} in the output")
        return self.data


class FrameReader(threading.Thread):
    """Decodes the worker's frames into a queue; None at the end."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self.fd = fd
        self.frames: queue.Queue[Optional[Frame]] = queue.Queue()
        self.start()

    def run(self) -> None:
        decoder = FrameDecoder()
        while True:
            data = os.read(self.fd, 1 << 16)
            if not data:
                self.frames.put(None)
                os.close(self.fd)
                return
            for body in decoder.feed(data):
                self.frames.put(codec.unpack(body))


def wait_for(condition: Any, what: str) -> None:
    """Poll a condition until it holds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"timed out waiting for {what}")
        time.sleep(0.002)


class WorkerProcess:
    """A worker under test, in native or foreign mode."""

    def __init__(
        self, *, native: bool = True, project: Optional[pathlib.Path] = None, env: Optional[dict[str, str]] = None
    ) -> None:
        self.native = native
        to_worker, from_runtime = os.pipe()
        to_runtime, from_worker = os.pipe()
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTIX_", "PYTHON"))}
        environ["AGENTIX_WORKER_IMPORT_ROOT"] = str(ROOT)
        environ["AGENTIX_WORKER_PROJECT"] = str(project or HERE / "project")
        environ.update(env or {})
        options: dict[str, Any] = {}
        if native:
            environ["AGENTIX_WORKER_FDS"] = f"{to_worker},{from_worker}"
            options = {
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "pass_fds": (to_worker, from_worker),
            }
        else:
            options = {"stdin": to_worker, "stdout": from_worker, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([PYTHON, "-c", BOOTSTRAP], env=environ, **options)
        os.close(to_worker)
        os.close(from_worker)
        self.stdin = from_runtime
        self.reader = FrameReader(to_runtime)
        self.seen: list[Frame] = []
        assert self.process.stderr is not None
        self.stderr = Reader(os.dup(self.process.stderr.fileno()))
        self.process.stderr.close()
        if native:
            assert self.process.stdout is not None
            self.stdout = Reader(os.dup(self.process.stdout.fileno()))
            self.process.stdout.close()
        self.ids = itertools.count(1)
        self.hello: Frame = {}

    def send(self, frame: Frame) -> None:
        body = codec.pack(frame)
        view = memoryview(frame_header(len(body)) + body)
        while view:
            view = view[os.write(self.stdin, view) :]

    def next(self) -> Frame:
        frame = self.reader.frames.get(timeout=TIMEOUT)
        if frame is None:
            raise EOFError(f"the worker ended; stderr: {self.stderr.data.decode(errors='replace')}")
        self.seen.append(frame)
        return frame

    def until(self, match: Any) -> Frame:
        while True:
            frame = self.next()
            if match(frame):
                return frame

    def rest(self) -> list[Frame]:
        """Read the frames to the end of the pipe."""
        found = []
        while True:
            frame = self.reader.frames.get(timeout=TIMEOUT)
            if frame is None:
                return found
            self.seen.append(frame)
            found.append(frame)

    def wait_ready(self) -> Frame:
        self.hello = self.until(lambda f: f["type"] in ("ready", "boot_error"))
        assert self.hello["type"] == "ready", self.hello
        return self.hello

    def start(self, callable_: str, *args: Any, encoding: str = "pickle", call_id: str = "", **extra: Any) -> str:
        """Send a call; keyword arguments of the function are in kwargs=."""
        call_id = call_id or f"call-{next(self.ids)}"
        kwargs = extra.pop("kwargs", {})
        if encoding == "pickle":
            data = pickle.dumps((args, kwargs))
        elif encoding == "json":
            data = json.dumps([list(args), kwargs]).encode()
        else:
            data = codec.pack([list(args), kwargs])
        frame = {
            "type": "call",
            "call_id": call_id,
            "callable": callable_,
            "arguments": extra.pop("arguments", data),
            "context": None,
            **extra,
        }
        if encoding != "pickle":
            frame["encoding"] = encoding
        self.send(frame)
        return call_id

    def end_of(self, call_id: str) -> Frame:
        for frame in self.seen:
            if frame["type"] in ("result", "error") and frame["call_id"] == call_id:
                return frame
        return self.until(lambda f: f["type"] in ("result", "error") and f["call_id"] == call_id)

    def call(self, callable_: str, *args: Any, **extra: Any) -> Any:
        """Call and return the decoded value; AssertionError with the error map otherwise."""
        frame = self.end_of(self.start(callable_, *args, **extra))
        assert frame["type"] == "result", frame
        return decode(frame)

    def fail(self, callable_: str, *args: Any, **extra: Any) -> Any:
        """Call and return the error map."""
        frame = self.end_of(self.start(callable_, *args, **extra))
        assert frame["type"] == "error", frame
        return frame["error"]

    def close(self) -> int:
        with contextlib.suppress(OSError):
            os.close(self.stdin)
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def decode(frame: Frame) -> Any:
    encoding = frame.get("encoding", "pickle")
    if encoding == "json":
        return json.loads(frame["value"])
    return codec.unpack(frame["value"]) if encoding == "msgpack" else pickle.loads(frame["value"])


@contextlib.contextmanager
def worker(**options: Any) -> Iterator[WorkerProcess]:
    """A started and ready worker that is ended afterwards."""
    process = WorkerProcess(**options)
    try:
        process.wait_ready()
        yield process
    finally:
        process.close()


def split_output(data: bytes, marker: bytes) -> list[tuple[Optional[str], bytes]]:
    """Attribute output as the runtime does: (call id or None, bytes), neighbours joined."""
    found: list[tuple[Optional[str], bytes]] = []

    def add(call_id: Optional[str], piece: bytes) -> None:
        if piece and found and found[-1][0] == call_id:
            found[-1] = (call_id, found[-1][1] + piece)
        elif piece:
            found.append((call_id, piece))

    while data:
        plain, mark, rest = data.partition(marker)
        add(None, plain)
        if not mark:
            break
        n = rest[0]
        size = int.from_bytes(rest[1 + n : 3 + n], "little")
        add(rest[1 : 1 + n].decode(), rest[3 + n : 3 + n + size])
        data = rest[3 + n + size :]
    return found

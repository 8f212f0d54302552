"""Functions that the end-to-end tests call."""

import asyncio
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from agentix import context
from agentix.trace import span, trace

log = logging.getLogger("app")
log.setLevel(logging.DEBUG)


def run(input: str) -> dict[str, str]:
    return {"output": input.upper()}


def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": list(args), "kwargs": kwargs}


def same(value: Any) -> Any:
    return value


def kind(value: Any) -> str:
    return f"{type(value).__name__}:{value!r}"


def add(a: int, b: int) -> int:
    return a + b


def power(base: int, exponent: int) -> int:
    return base**exponent


def computed(name: str) -> Any:
    """Numbers that the function makes itself."""
    return {
        "2**53+1": 2**53 + 1,
        "2**70": 2**70,
        "-2**70": -(2**70),
        "int one": int("1"),
        "float one": float("1"),
        "minus zero": -0.0,
        "1e22": 10.0**22,
        "tenth": 1 / 10,
        "tiny": 5e-324,
        "huge": 1.7976931348623157e308,
    }[name]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else None
    return depth


class Unhappy(Exception):
    pass


def fail(message: str) -> None:
    raise Unhappy(message)


def unencodable() -> Any:
    return object()


def text(size: int) -> str:
    return "x" * size


def exit_with(code: int) -> None:
    print("the last line", flush=False)
    sys.stdout.flush()
    os._exit(code)


def kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def runtime_pid() -> int:
    return os.getppid()


def directory(name: str) -> pathlib.Path:
    """A place that all functions in one sandbox share."""
    where = pathlib.Path(tempfile.gettempdir(), name)
    where.mkdir(exist_ok=True)
    return where


def mark(name: str, file: str) -> None:
    (directory(name) / file).write_text("")


def marked(name: str, file: str) -> bool:
    return (directory(name) / file).exists()


async def hang(name: str) -> None:
    """Waits to be cancelled and leaves files that tell what it saw."""
    where = directory(name)
    (where / "started").write_text("")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        (where / "cancelled").write_text("")
        raise


async def wait_for(name: str) -> str:
    """Goes on once there is a file named `go`."""
    where = directory(name)
    (where / "started").write_text("")
    while not (where / "go").exists():
        await asyncio.sleep(0.01)
    return "went on"


def surroundings() -> dict[str, Any]:
    return {"call_id": context.call_id(), "traceparent": context.traceparent(), "baggage": context.baggage()}


def environment(name: str) -> Any:
    return os.environ.get(name)


def noisy(number: int) -> int:
    """Writes by every way that there is, in a known order within each."""
    with trace("work", number=number), span("step", big=2**63, exact=1.0):
        for n in range(number):
            log.info("record %d", n, extra={"n": n, "big": 2**63})
            print(f"printed {n}")
        print("to stderr", file=sys.stderr)
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    return number


def size(value: Any) -> int:
    return len(value)


def pid() -> int:
    """Return the process id of this worker."""
    return os.getpid()


def nap(seconds: float) -> int:
    """Sleep without the interpreter; return the process id."""
    time.sleep(seconds)
    return os.getpid()


def spin() -> None:
    """Compute for ever."""
    while True:
        pass


SLEEP = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1000)"


def goes_on(name: str, hidden: bool = False) -> None:
    """Start a child in a session of its own and an orphan without environment, note them all; never return.

    A hidden orphan has no open file of ours either.
    """
    where = directory(name)
    subprocess.Popen([sys.executable, "-S", "-c", SLEEP, str(where / "child")], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if hidden:
                os.closerange(0, 256)
                for _ in range(3):
                    os.open(os.devnull, os.O_RDWR)
            os.execve(sys.executable, [sys.executable, "-S", "-c", SLEEP, str(where / "orphan")], {})
        os._exit(0)
    (where / "self").write_text(str(os.getpid()))
    while True:
        time.sleep(60)


def pids(name: str) -> list[int]:
    """Return the processes that goes_on noted so far."""
    notes = [directory(name) / file for file in ("self", "child", "orphan")]
    return [int(text) for text in (note.read_text() if note.exists() else "" for note in notes) if text]


def alive(numbers: list[int]) -> list[int]:
    """Return those processes that are there and not just waiting to be collected."""

    def runs(pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
        except OSError:
            return False

    return [pid for pid in numbers if runs(pid)]


def litters(name: str) -> int:
    """Do as goes_on, but return."""
    import threading

    threading.Thread(target=goes_on, args=(name, True), daemon=True).start()
    while len(pids(name)) < 3:
        time.sleep(0.01)
    print("littered")
    return os.getpid()

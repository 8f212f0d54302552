"""Functions that the SDK's tests call in a sandbox."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from typing import Any


@dataclasses.dataclass
class Answer:
    text: str
    numbers: list[int]


def run(input: str) -> dict[str, str]:
    return {"output": input.upper()}


async def run_async(a: int, *, b: int = 2) -> int:
    await asyncio.sleep(0)
    return a + b


def echo(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def answer() -> Answer:
    return Answer("ok", [1, 2])


def boom(message: str) -> None:
    raise ValueError(message)


def leave(code: int) -> None:
    sys.stdout.write("the last line\n")
    sys.stdout.flush()
    os._exit(code)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def wait_for_cancel(path: str, started: str) -> None:
    pathlib.Path(started).write_text("started")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        pathlib.Path(path).write_text("cancelled")
        raise


def talk(count: int) -> None:
    log = logging.getLogger("sdk.app")
    for number in range(count):
        log.info("record %d of %s", number, "100%s", extra={"number": number, "message_": "kept"})
        print(f"line {number} %s")
    print("to stderr", file=sys.stderr)
    sys.stdout.write("no end of line")
    subprocess.run(["echo", "from a child"], check=True)
    try:
        raise KeyError("inner")
    except KeyError:
        log.exception("failed \x1b[31m")


class Hostile:
    def __reduce__(self) -> Any:
        return (os.system, ("true",))


def hostile() -> Hostile:
    return Hostile()


def large(size: int) -> bytes:
    return b"x" * size


def size_of(data: bytes) -> int:
    return len(data)


def environment(name: str) -> str | None:
    return os.environ.get(name)


def baggage() -> dict[str, Any]:
    from agentix import context

    return context.baggage()


def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


def protocol_of(data: bytes) -> Any:
    return pickle.loads(data)

"""Functions that the tests of the dispatcher call in a real runtime."""

import asyncio
import os
import sys
import time


def run(input: str) -> dict:
    return {"output": input.upper()}


def exact() -> list:
    nested: list = []
    for _ in range(198):
        nested = [nested]
    return [9007199254740992 + 1, 2**70, 1, 1.0, -1 * 0.0, 1e22, nested]


def typed(n: int) -> int:
    return n


def fail() -> None:
    raise ValueError("no such thing")


async def until_cancelled(path: str) -> None:
    with open(path + ".began", "w"):
        pass
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        with open(path, "w") as f:
            f.write("cancelled")
        raise


def long(n: int) -> str:
    return "x" * n


def leave(line: str) -> None:
    print(line)
    os._exit(3)


def die(line: str) -> None:
    print(line)
    sys.stdout.flush()
    os.kill(os.getpid(), 9)


def unencodable() -> object:
    return object()


def tick(path: str, lines: int) -> int:
    """Notes that it ran, prints numbered lines, and returns how many it printed."""
    with open(path, "ab", buffering=0) as f:
        f.write(b"ran\n")
    for n in range(lines):
        print(f"{path} {n}")
        if n % 50 == 0:
            time.sleep(0.002)
    return lines

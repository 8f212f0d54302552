"""Functions that the tests call in runtimes of both kinds."""

import asyncio
import datetime
import decimal
import logging
import os
import pathlib
import sys
import time


def echo(*args, **kwargs):
    return [list(args), kwargs]


def kinds():
    return {
        "int": 2**70,
        "float": 1.5,
        "bytes": b"\x00\xff",
        "tuple": (1, "two"),
        "set": {7},
        "when": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
        "money": decimal.Decimal("1.10"),
        "path": pathlib.PurePosixPath("/a/b"),
        "none": None,
    }


def fail(text):
    raise ValueError(text)


def opaque():
    return object()


def blob(size):
    return "x" * size


def note(path, name):
    """Notes that it ran, prints a line and logs one."""
    with open(path, "ab", buffering=0) as f:
        f.write(f"{name}\n".encode())
    sys.stdout.write(f"out {name}\n")
    logging.getLogger("app.note").warning("log %s", name)
    return name


def later(path, seconds):
    with open(path, "ab", buffering=0) as f:
        f.write(b"ran\n")
    time.sleep(seconds)
    return "done"


async def until_cancelled(path):
    with open(path + ".began", "w"):
        pass
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        with open(path, "w") as f:
            f.write("cancelled")
        raise


def talk(lines):
    for n in range(lines):
        print(f"line {n}")
        print(f"err {n}", file=sys.stderr)
        logging.getLogger("app.talk").info("record %d", n, extra={"n": n})
    sys.stdout.flush()
    return lines


def traced(name):
    from agentix.utils.trace import span

    with span(name):
        pass
    return name


def baggage(key):
    try:
        from agentix.utils.context import get_baggage as get
    except ImportError:  # the neighbour's name of it
        from agentix.utils.context import get
    return get(key)


def die(code):
    print("last words", flush=True)
    time.sleep(0.2)
    os._exit(code)


def burst(path, records):
    """Waits for a file, then logs many records."""
    while not os.path.exists(path):
        time.sleep(0.01)
    for n in range(records):
        logging.getLogger("app.burst").info("%d", n)
    return records


def numbered(n: int, seconds: float) -> int:
    """Logs n numbers, spread over some time."""
    logger = logging.getLogger("app.numbered")
    began = time.monotonic()
    for k in range(n):
        logger.warning("%d", k)
        ahead = began + seconds * k / n - time.monotonic()
        if ahead > 0.01:
            time.sleep(ahead)
    return n

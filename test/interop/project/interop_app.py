"""What the interop tests call in a sandbox."""

import asyncio
import datetime
import decimal
import logging
import os
import sys
import time
import uuid

log = logging.getLogger("interop.app")


def echo(value):
    return value


async def aecho(value):
    await asyncio.sleep(0)
    return value


def size(data):
    return len(data)


def fill(n, byte=b"x"):
    return byte * n


def nap(seconds):
    time.sleep(seconds)
    return seconds


async def anap(seconds):
    await asyncio.sleep(seconds)
    return seconds


def count(path, name):
    """Note an execution: one line, appended in one write."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, (name + "\n").encode())
    finally:
        os.close(fd)
    return name


def count_and_tell(path, name):
    """Note an execution and tell of it on /log (two ways) and /trace."""
    from agentix import trace

    count(path, name)
    with trace.span("counted", ran=name):
        log.info("record %s", name)
    print("line", name)
    return name


def slow_count(path, name, seconds):
    count(path, name)
    time.sleep(seconds)
    return name


def wait_for(path):
    log.info("waits")
    while not os.path.exists(path):
        time.sleep(0.005)
    return "seen"


async def forever(path):
    log.info("waits")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        with open(path, "w") as f:
            f.write("cancelled")
        raise


def fail(text):
    raise ValueError(text)


def own_cancel():
    raise asyncio.CancelledError("by the function itself")


def leave(code):
    sys.exit(code)


def die(code):
    print("last words")
    os._exit(code)


def kill_self(number):
    os.kill(os.getpid(), number)
    time.sleep(60)


def records(n, size=0):
    for i in range(n):
        log.info("%d%s", i, "." * size)
    return n


def lines(n):
    write = sys.stdout.write
    for i in range(n):
        write(f"{i:07d} {'.' * 91}\n")
    sys.stdout.flush()
    return n


def lines_while(start, done, n):
    """Say that it began, then log n records, then say that it is done."""
    open(start, "w").close()
    for i in range(n):
        log.info("%d", i)
    open(done, "w").close()
    return n


def spans(n):
    from agentix import trace

    with trace.trace("interop", kind="test"):
        for i in range(n):
            with trace.span("step", i=i):
                pass
    return n


def odd_span():
    """Values that msgpack does not know, and keys that are no strings."""
    from agentix import trace

    with trace.span("odd", set={1}, when=datetime.datetime(2026, 1, 2), big=1 << 80, map={1: 2}):
        pass
    return "told"


def values():
    return {
        "none": None, "bytes": b"\x00\xff", "big": 1 << 70, "float": 1.5, "text": "é",
        "tuple": (1, 2), "set": {3}, "when": datetime.datetime(2026, 1, 2, 3, 4, 5),
        "decimal": decimal.Decimal("1.10"), "uuid": uuid.UUID(int=7), "error": ValueError("x"),
    }  # fmt: skip


def baggage():
    from agentix import context

    return context.baggage()


def generator():
    yield 1


def fork_and_die():
    """A child keeps whatever it inherits; the worker is killed."""
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(os.getpid(), 9)


def environment(name):
    return os.environ.get(name)


_plugin = None


def open_plugin(path):
    """Open a namespace that answers `ping`, and keeps what else comes."""
    global _plugin
    from agentix import Namespace, register_namespace

    class Plugin(Namespace):
        def __init__(self):
            super().__init__(path)
            self.got = []

        def on_ping(self, data):
            self.got.append(data)
            self.emit("pong", data)

    _plugin = register_namespace(Plugin())
    _plugin.on("/v1/odd:name", lambda data: _plugin.emit("/v1/odd:name:seen", data))
    return path


def plugin_got():
    return _plugin.got


def plugin_emit(event, data):
    _plugin.emit(event, data)


async def plugin_request(event, data, timeout=10):
    return await _plugin.request(event, data, timeout=timeout)


async def plugin_request_error(event, data):
    from agentix import RemoteSioError

    try:
        await _plugin.request(event, data, timeout=10)
    except RemoteSioError as e:
        return [e.type, e.message, e.status_code]
    return None


def read_proc(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as f:
        return f.read()

"""Namespaces, traces and context as user code writes them."""

import asyncio
import logging
import threading

import agentix
from agentix import Namespace, RemoteSioError, context, span
from agentix.trace import trace
from agentix.utils.trace import current_span

SEEN = []
DONE = threading.Event()


class Events(Namespace):
    namespace = "/plug"

    def on_ping(self, data):
        SEEN.append(("ping", data, threading.current_thread() is threading.main_thread()))

    async def on_aping(self, data):
        SEEN.append(("aping", data, threading.current_thread() is threading.main_thread()))

    def on_bad(self, data):
        raise ValueError("bad handler")

    def on_stop(self, data):
        DONE.set()


events = Events()


def open_events():
    events.on("/v1/odd:name", lambda data: SEEN.append(("odd", data)))
    events.open()


def seen():
    DONE.wait(10)
    DONE.clear()
    result, SEEN[:] = list(SEEN), []
    return result


def emit(event, data):
    events.emit(event, data)


async def aemit(event, data):
    return await events.emit(event, data)


async def ask(event, data, timeout=10):
    try:
        return await events.request(event, data, timeout=timeout)
    except RemoteSioError as e:
        return [e.type, e.message, e.status_code]


def ask_sync(event, data, timeout=10):
    try:
        return events.request_sync(event, data, timeout=timeout)
    except RemoteSioError as e:
        return [e.type, e.message, e.status_code]


def second():
    Namespace("/plug").open()


def reserved(path):
    Namespace(path)


def spans():
    with trace("outer", seed=7):
        with span("first", n=1, odd={1, 2}, big=2**80) as s:
            s.set_attribute("reward", 0.5)
            s.add_event("checkpoint", path="/x")
            with span("second"):
                pass
        try:
            with span("third"):
                raise ValueError("boo")
        except ValueError:
            pass


@span("decorated", kind="sync")
def decorated():
    return current_span().name


@span("adecorated")
async def adecorated():
    async with span("inner") as s:
        s.set_status("ok", "fine")
        s.set_error("told by hand", code=3)
    return current_span().name


def unbound():
    with span("alone"):
        pass


def with_module_call():
    with agentix.trace("by module"):
        pass
    return [agentix.trace.span is span, agentix.context is context]


async def concurrent_spans():
    async def one(name):
        with span(name):
            await asyncio.sleep(0.01)
            with span(name + "-child"):
                await asyncio.sleep(0)

    with trace("t"):
        await asyncio.gather(one("a"), one("b"))


def many_spans(n):
    for i in range(n):
        with span("s", i=i):
            pass


def many_logs(n):
    log = logging.getLogger("many")
    for i in range(n):
        log.info("record %d", i)


def many_lines(n):
    for i in range(n):
        print("line", i)

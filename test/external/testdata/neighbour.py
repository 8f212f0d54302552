"""A runtime of the public protocol, written from its description alone, on python-socketio.

It runs the functions of a project in its own process: it stands for the wire of a
neighbour's runtime, not for the worker behind it. Usage: neighbour.py PROJECT PORT.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import importlib
import inspect
import io
import logging
import os
import pickle
import secrets
import sys
import time
import traceback
import types

import msgpack
import socketio
from aiohttp import web

PROJECT, PORT = sys.argv[1], int(sys.argv[2])
sys.path.insert(0, PROJECT)
RING = 10000

sio = socketio.AsyncServer(async_mode="aiohttp", cors_allowed_origins="*", namespaces="*", ping_interval=25, ping_timeout=300, max_http_buffer_size=268435456)
app = web.Application(client_max_size=268435456)
sio.attach(app)

running = {}  # call_id → task
retained = {}  # call_id → (event, payload)
call_id_var = contextvars.ContextVar("call_id", default=None)
baggage_var = contextvars.ContextVar("baggage", default={})
pool = concurrent.futures.ThreadPoolExecutor(16)


class Stream:
    """A reliable stream: a ring of unacked envelopes."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.sid = secrets.token_hex(4)
        self.seq = 0
        self.ring = []

    def emit(self, event, data):
        """Runs on the loop."""
        self.seq += 1
        envelope = {"_sid": self.sid, "_seq": self.seq, "data": data}
        self.ring.append((event, envelope))
        del self.ring[:-RING]
        return send(event, envelope, self.namespace)

    async def resume(self, since, to):
        for event, envelope in [e for e in self.ring if e[1]["_seq"] > since]:
            await send(event, envelope, self.namespace, to)

    def ack(self, seq):
        self.ring = [e for e in self.ring if e[1]["_seq"] > seq]


streams = {"/log": Stream("/log"), "/trace": Stream("/trace")}
queue = asyncio.Queue()  # of what threads emit


def send(event, payload, namespace, to=None):
    return sio.emit(event, msgpack.packb(payload), namespace=namespace, to=to)


def produce(loop, namespace, event, data):
    loop.call_soon_threadsafe(queue.put_nowait, (namespace, event, data))


async def pump():
    while True:
        namespace, event, data = await queue.get()
        await streams[namespace].emit(event, data)


def record(name, level, levelno, message, extras=None, created=None):
    return {
        "name": name, "level": level, "levelno": levelno, "message": message, "created": created or time.time(),
        "pathname": "", "funcName": "", "module": "stdio", "lineno": 0, "exc_text": None, "stack_info": None,
        "agentix_context": None, "extras": extras,
    }


class Capture(io.TextIOBase):
    def __init__(self, loop, stream):
        self.loop, self.stream, self.tail = loop, stream, ""

    def write(self, text):
        *lines, self.tail = (self.tail + text).split("\n")
        for line in lines:
            extras = {"agentix_stream": self.stream, "worker_id": "w"}
            produce(self.loop, "/log", "record", record(f"agentix.sandbox.{self.stream}", "INFO", 20, line, extras))
        return len(text)


STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Forward(logging.Handler):
    def __init__(self, loop):
        super().__init__()
        self.loop = loop

    def emit(self, r):
        if r.name.split(".")[0] in ("aiohttp", "socketio", "engineio", "asyncio"):
            return
        extras = {k: v for k, v in r.__dict__.items() if k not in STANDARD and not k.startswith("_")}
        produce(self.loop, "/log", "record", record(r.name, r.levelname, r.levelno, r.getMessage(), extras or None, r.created))


class Died(BaseException):
    pass


def fake_modules(loop):
    """What functions of the project import from the sandbox's library."""
    trace, context = types.ModuleType("agentix.utils.trace"), types.ModuleType("agentix.utils.context")

    class span:
        def __init__(self, name):
            self.data = {
                "trace_id": "trace_unbound", "call_id": call_id_var.get(), "span_id": "span_" + secrets.token_hex(12), "parent_id": None,
                "name": name, "attrs": None, "started_at": "2026-01-01T00:00:00.000000Z",
            }

        def __enter__(self):
            produce(loop, "/trace", "span_start", self.data)

        def __exit__(self, *_):
            end = {"ended_at": "2026-01-01T00:00:01.000000Z", "status": "ok", "status_description": None}
            produce(loop, "/trace", "span_end", {**self.data, **end})

    class Plain:  # Trace and Span, as far as a context holds them
        pass

    trace.span, trace.Trace, trace.Span = span, type("Trace", (Plain,), {}), type("Span", (Plain,), {})
    context.get = lambda key: baggage_var.get().get(key)
    for name in ("agentix", "agentix.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["agentix.utils.trace"], sys.modules["agentix.utils.context"] = trace, context


def error(kind, message, tb=None, cancelled=False, returncode=None):
    return {"type": kind, "message": message, "traceback": tb, "cancelled": cancelled, "returncode": returncode}


async def execute(call_id, call):
    try:
        module, _, name = call["callable"].partition("::")
        fn = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        args, kwargs = pickle.loads(call["arguments"])
        call_id_var.set(call_id)
        context = pickle.loads(call["context"]) if call.get("context") else {}
        baggage_var.set(context.get("agentix_context_baggage", {}))
        if inspect.iscoroutinefunction(fn):
            value = await fn(*args, **kwargs)
        else:
            inner = contextvars.copy_context()
            value = await asyncio.get_running_loop().run_in_executor(pool, lambda: inner.run(fn, *args, **kwargs))
        try:
            if type(value) is object:
                raise TypeError("cannot pickle")
            outcome = "call:result", {"call_id": call_id, "value": pickle.dumps(value, 4)}
        except Exception as e:
            outcome = "call:error", {"call_id": call_id, "error": error("ResultEncodeError", str(e))}
    except Died as e:
        outcome = "call:error", {"call_id": call_id, "error": error("WorkerDied", f"runtime worker exited: exit code {e}", returncode=e.args[0])}
    except Exception as e:
        outcome = "call:error", {"call_id": call_id, "error": error(type(e).__name__, str(e), traceback.format_exc())}
    await asyncio.sleep(0.01)  # what the function printed is on its way
    while not queue.empty():
        await asyncio.sleep(0.001)
    if running.pop(call_id, None):
        retained[call_id] = outcome
        await send(*outcome, namespace="/rpc")


class RPC(socketio.AsyncNamespace):
    async def on_call(self, sid, data):
        call = msgpack.unpackb(data)
        call_id = call.get("call_id")
        if not isinstance(call_id, str):
            await send("call:error", {"call_id": "", "error": {"type": "BadRequest", "message": "missing call_id"}}, "/rpc", sid)
        elif call_id not in running and call_id not in retained:
            running[call_id] = asyncio.ensure_future(execute(call_id, call))

    async def on_cancel(self, sid, data):
        call_id = msgpack.unpackb(data)["call_id"]
        retained.pop(call_id, None)
        if task := running.pop(call_id, None):
            task.cancel()
            failure = error("Cancelled", "remote call cancelled", cancelled=True)
            await send("call:error", {"call_id": call_id, "error": failure}, "/rpc", sid)

    async def on_ack(self, sid, data):
        retained.pop(msgpack.unpackb(data)["call_id"], None)

    async def on_resume(self, sid, data):
        for call_id in msgpack.unpackb(data)["call_ids"]:
            if call_id in retained:
                await send(*retained[call_id], namespace="/rpc", to=sid)
            elif call_id not in running:
                failure = error("ResultUnavailable", "no such call")
                await send("call:error", {"call_id": call_id, "error": failure}, "/rpc", sid)


class Forwarder(socketio.AsyncNamespace):
    async def trigger_event(self, event, *args):
        if event == "_resume":
            await streams[self.namespace].resume(msgpack.unpackb(args[1])["since_seq"], args[0])
        elif event == "_ack":
            streams[self.namespace].ack(msgpack.unpackb(args[1])["seq"])
        return None


async def health(_):
    return web.json_response({"status": "ok", "version": "0.2.7"})


async def begin(_):
    loop = asyncio.get_running_loop()
    asyncio.ensure_future(pump())
    fake_modules(loop)
    sys.stdout, sys.stderr = Capture(loop, "stdout"), Capture(loop, "stderr")
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(Forward(loop))

    def leave(code):
        raise Died(code)

    os._exit = leave


app.router.add_get("/health", health)
app.on_startup.append(begin)
sio.register_namespace(RPC("/rpc"))
sio.register_namespace(Forwarder("/log"))
sio.register_namespace(Forwarder("/trace"))
web.run_app(app, host="127.0.0.1", port=PORT, print=None, access_log=None)

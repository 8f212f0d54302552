"""The neighbour's own client, which must be installed, at a runtime. Usage: host.py URL PROJECT SCENARIO [ARGUMENT…]

Prints what it saw as one line of JSON.
"""

import asyncio
import json
import logging
import sys
import time

URL, PROJECT, SCENARIO, *ARGUMENTS = sys.argv[1:]
sys.path[0] = PROJECT

import contextlib

import agentix
import interop_app as app
from agentix.runtime.client import RuntimeClient
from agentix.utils import trace


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, record):
        self.seen.append([record.name, record.levelname, record.getMessage()])


class Spans(trace.Processor):
    def __init__(self):
        self.seen = []

    def on_trace_start(self, t): self.seen.append(["trace_start", t.name])  # fmt: skip

    def on_trace_end(self, t): self.seen.append(["trace_end", ""])  # fmt: skip

    def on_span_start(self, s): self.seen.append(["span_start", s.name, s.attrs])  # fmt: skip

    def on_span_end(self, s): self.seen.append(["span_end", s.name, s.attrs])  # fmt: skip

    def shutdown(self): pass  # fmt: skip

    def force_flush(self): pass  # fmt: skip


records, spans = Records(), Spans()
for name in ("interop.app", "agentix.sandbox.stdout", "agentix.runtime"):
    logging.getLogger(name).setLevel(logging.INFO)
    logging.getLogger(name).addHandler(records)
    logging.getLogger(name).propagate = False
trace.add_processor(spans)


async def until(condition, what, timeout=30):
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"timed out waiting for {what}")
        await asyncio.sleep(0.01)


async def failure(call):
    try:
        return ["value", repr(await call)]
    except Exception as e:
        error = getattr(e, "error", None)
        return [type(e).__name__, getattr(error, "type", None), getattr(e, "returncode", None)]


async def calls(client):
    seen = {"version": (await client.health()).version}
    seen["values"] = [await client.remote(app.echo, v) for v in (None, 1, 1.5, "é", [1, {"a": None}])]
    seen["async"] = await client.remote(app.aecho, 7)
    seen["bytes"] = len(await client.remote(app.fill, 3 << 20))
    seen["up"] = await client.remote(app.size, b"x" * (3 << 20))
    seen["fail"] = await failure(client.remote(app.fail, "no"))
    seen["own_cancel"] = await failure(asyncio.wait_for(client.remote(app.own_cancel), 10))
    seen["leave"] = await failure(asyncio.wait_for(client.remote(app.leave, 3), 10))
    seen["die"] = await failure(client.remote(app.die, 7))
    seen["after"] = await client.remote(app.echo, "alive")
    seen["slow"] = await client.remote(app.nap, 1.5)  # longer than the fast path waits
    seen["failed"] = type(await client.try_remote(app.fail, "no")).__name__
    return seen


async def streams(client):
    n = int(ARGUMENTS[0])
    await client.remote(app.records, n)
    await client.remote(app.lines, n)
    await client.remote(app.spans, n)
    await until(lambda: len(records.seen) >= 2 * n and len(spans.seen) >= 2 * n + 2, "all of them", 60)
    return {"records": records.seen, "spans": spans.seen}


async def cancel(client):
    path = ARGUMENTS[0]
    task = asyncio.create_task(client.remote(app.forever, path))
    await until(lambda: any(r[2] == "waits" for r in records.seen), "the function")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return {"after": await client.remote(app.echo, 1)}


async def deadline(client):
    limited = RuntimeClient(URL, call_deadline=0.5)
    seen = await failure(limited.remote(app.forever, ARGUMENTS[0]))
    await asyncio.sleep(0.5)  # it closes without sending what it has queued, the cancel among it
    await limited.close()
    return {"seen": seen}


async def plugin(client):
    class Abridge(agentix.AsyncClientNamespace):
        @agentix.request_handler("ask")
        async def on_ask(self, data):
            if data == "fail":
                raise ValueError("no")
            return {"asked": data, "body": b"ok"}

        @agentix.request_handler("/v1/messages")
        async def on_messages(self, data):
            return data

    client.register_namespace(Abridge("/abridge"))
    await client.remote(app.open_plugin, "/abridge")
    value = await client.remote(app.plugin_request, "ask", {"q": [1, None]})
    error = await client.remote(app.plugin_request_error, "ask", "fail")
    return {"value": [value["asked"], value["body"].decode()], "error": error[:2]}


async def storm(client):
    path, n, at_once = ARGUMENTS[0], int(ARGUMENTS[1]), 16
    outcomes = {}
    todo = iter(range(n))
    print(json.dumps("began"), flush=True)

    async def work():
        for i in todo:
            outcomes[i] = await failure(asyncio.wait_for(client.remote(app.count_and_tell, path, f"c{i}"), 60))

    await asyncio.gather(*(work() for _ in range(at_once)))
    print(json.dumps("done"), flush=True)
    await asyncio.sleep(3)
    return {"outcomes": list(outcomes.values()), "records": records.seen, "spans": spans.seen}


async def main():
    options = {"reconnection_delay": 0.05, "reconnection_delay_max": 0.2}
    client = RuntimeClient(URL, **options)
    try:
        seen = await globals()[SCENARIO](client)
    finally:
        await client.close()
    print(json.dumps(seen), flush=True)


asyncio.run(main())

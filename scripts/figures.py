"""Measures a running daemon: create to first result, a warm call, the same through the SDK.

Usage: figures.py PROJECT [IMAGE], with AGENTIX_ADDRESS set to unix:///path; PROJECT is
examples/demo/project. `make figures` runs it against a daemon of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import agentix
import grpc
from agentix.v1 import remote_service_pb2 as remote
from agentix.v1 import remote_service_pb2_grpc as remote_services
from agentix.v1 import sandbox_service_pb2 as sandboxes
from agentix.v1 import sandbox_service_pb2_grpc as sandbox_services

PROJECT = sys.argv[1]
IMAGE = "".join(sys.argv[2:])
sys.path.insert(0, PROJECT)

ECHO = "import os\nwhile data := os.read(0, 65536): os.write(1, data)\n"


def show(name: str, seconds: list[float]) -> None:
    """Print median and 99th percentile."""
    last = statistics.quantiles(seconds, n=100)[98] if len(seconds) > 1 else seconds[0]
    median = statistics.median(seconds)
    print(f"{name:44} n={len(seconds):5}  p50 {median * 1e3:9.3f} ms  p99 {last * 1e3:9.3f} ms")


def timed(count: int, step: Callable[[], object]) -> list[float]:
    """Return how long each of `count` steps took."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return took


def floor() -> None:
    """Measure a bare parent and a Python child on pipes: two wake-ups."""
    command = [sys.executable, "-I", "-S", "-c", ECHO]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    write, read = child.stdin.fileno(), child.stdout.fileno()

    def step() -> None:
        os.write(write, b"x" * 200)
        assert len(os.read(read, 65536)) == 200

    timed(100, step)
    show("floor: parent and Python child on pipes", timed(2000, step))
    child.stdin.close()
    child.wait()


def bare(channel: grpc.Channel) -> None:
    """Measure by the bare stub."""
    calls = remote_services.RemoteServiceStub(channel)
    boxes = sandbox_services.SandboxServiceStub(channel)
    names: list[str] = []

    def call(name: str) -> remote.RemoteResponse:
        return calls.Remote(
            remote.RemoteRequest(sandbox=name, callable="app::run", kwargs='{"input": "hello"}')
        )

    def create() -> None:
        request = sandboxes.CreateSandboxRequest()
        request.sandbox.project, request.sandbox.image = PROJECT, IMAGE
        names.append(boxes.CreateSandbox(request).name)
        assert call(names[-1]).value == '{"output":"HELLO"}'

    show("create to first result", timed(10, create))
    timed(100, lambda: call(names[0]))
    show("warm call, gRPC over the Unix socket", timed(2000, lambda: call(names[0])))
    delete = iter(names)
    show(
        "delete",
        timed(
            len(names),
            lambda: boxes.DeleteSandbox(sandboxes.DeleteSandboxRequest(name=next(delete))),
        ),
    )


async def sdk() -> None:
    """Measure by the SDK."""
    from app import run

    config = agentix.SandboxConfig(project=PROJECT, image=IMAGE)
    async with agentix.AgentixProvider() as provider, provider.session(config) as sandbox:
        took = []
        for _ in range(1100):
            began = time.perf_counter()
            await sandbox.remote(run, input="hello")
            took.append(time.perf_counter() - began)
    show("warm call, Python SDK", took[100:])


logging.disable()
floor()
with grpc.insecure_channel(os.environ["AGENTIX_ADDRESS"].replace("unix://", "unix:")) as opened:
    bare(opened)
asyncio.run(sdk())

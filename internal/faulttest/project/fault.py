"""Functions that the fault tests call. Each tells in a file that it ran, before all else."""

import asyncio
import hashlib
import hmac
import logging
import os
import sys
import time
from typing import Any

from agentix import context

log = logging.getLogger("fault")
log.setLevel(logging.INFO)

_DIR = os.environ.get("FAULT_DIR", "/tmp")
_POLL = float(os.environ.get("FAULT_POLL", "0.003"))  # seconds; many sandboxes look less often
_runs = os.open(os.path.join(_DIR, "runs"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_gates: dict[str, "asyncio.Event"] = {}
_pollers: set[Any] = set()


def _tell(kind: str, call_id: str, n: int) -> None:
    os.write(_runs, f"{kind} {call_id} {n} {time.monotonic_ns()} {os.getpid()}\n".encode())


def _line(call_id: str, k: int) -> None:
    print(f"{call_id} {k}")
    log.info("%s %d", call_id, k)


def _begin(call_id: str, n: int) -> None:
    _tell("S", call_id, n)
    if context.call_id() != call_id:
        raise RuntimeError(f"call {call_id} runs as {context.call_id()}")
    for k in (1, 2):
        _line(call_id, k)
    _tell("P", call_id, n)


def _end(call_id: str, n: int) -> dict[str, str]:
    _line(call_id, 3)
    _tell("E", call_id, n)
    proof = hmac.new(b"fault tests", f"{call_id} {n}".encode(), hashlib.sha256).hexdigest()
    return {"call": call_id, "proof": proof}


def _is_open(gate: str) -> bool:
    return not gate or os.path.exists(os.path.join(_DIR, gate))


async def _poll(gate: str, event: asyncio.Event) -> None:
    while not _is_open(gate):
        await asyncio.sleep(_POLL)
    event.set()
    del _gates[gate]


async def work(call_id: str, n: int, gate: str = "") -> dict[str, str]:
    """Waits for the file that is named as gate."""
    _begin(call_id, n)
    if not _is_open(gate):
        if gate not in _gates:
            _gates[gate] = asyncio.Event()
            poller = asyncio.get_running_loop().create_task(_poll(gate, _gates[gate]))
            _pollers.add(poller)
            poller.add_done_callback(_pollers.discard)
        await _gates[gate].wait()
    return _end(call_id, n)


def work_on_thread(call_id: str, n: int, gate: str = "") -> dict[str, str]:
    """The same as a plain function."""
    _begin(call_id, n)
    while not _is_open(gate):
        time.sleep(_POLL)
    return _end(call_id, n)


def count(call_id: str, n: int, gate: str = "") -> dict[str, str]:
    """Prints n numbered lines."""
    _tell("S", call_id, n)
    for k in range(1, n + 1):
        sys.stdout.write(f"{call_id} {k}\n")
        if k % 100 == 0:
            time.sleep(0.03)
    _tell("E", call_id, n)
    proof = hmac.new(b"fault tests", f"{call_id} {n}".encode(), hashlib.sha256).hexdigest()
    return {"call": call_id, "proof": proof}


def pid() -> int:
    return os.getpid()

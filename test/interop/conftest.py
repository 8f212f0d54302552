"""Fixtures of the interop tests, and the table of cases and peers."""

from __future__ import annotations

import asyncio
import collections
import os
import pathlib
import subprocess
from typing import Any, AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from peers.host import Host
from peers.jshost import JSHost
from peers.pyhost import PyHost
from peers.raw import RawHost
from peers.runtime import Runtime

HOSTS = [PyHost.name, JSHost.name]
UPSTREAM = os.environ.get("UPSTREAM_PYTHON", "")
FULL = os.environ.get("AGENTIX_INTEROP_FULL", "") == "1"

StartRuntime = Callable[..., Awaitable[Runtime]]
MakeHost = Callable[..., Host]


@pytest_asyncio.fixture
async def runtime(tmp_path: pathlib.Path) -> AsyncIterator[Runtime]:
    """A runtime of ours with our worker, without a token."""
    running = await Runtime.start(tmp_path)
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def start(tmp_path: pathlib.Path) -> AsyncIterator[StartRuntime]:
    """Start further runtimes, by options."""
    started: list[Runtime] = []

    async def go(**options: Any) -> Runtime:
        started.append(await Runtime.start(tmp_path, **options))
        return started[-1]

    yield go
    await asyncio.gather(*(r.stop() for r in started))


@pytest.fixture(params=HOSTS)
def peer(request: pytest.FixtureRequest) -> str:
    """Name the library of the host."""
    return str(request.param)


@pytest_asyncio.fixture
async def make(peer: str, tmp_path: pathlib.Path) -> AsyncIterator[MakeHost]:
    """Make hosts of the peer's library; all are closed in the end."""
    made: list[Host] = []

    def one(**options: Any) -> Host:
        made.append(PyHost(**options) if peer == PyHost.name else JSHost(tmp_path))
        return made[-1]

    yield one
    await asyncio.gather(*(h.close() for h in made))


@pytest_asyncio.fixture
async def host(make: MakeHost, runtime: Runtime) -> Host:
    """A host that joined what upstream's host joins, and resumed its streams."""
    h = make()
    await h.connect(runtime.url)
    await h.resume_streams()
    return h


@pytest_asyncio.fixture
async def raw(runtime: Runtime) -> AsyncIterator[RawHost]:
    """A host that writes and reads packets as text, on a websocket."""
    h = RawHost(runtime.url)
    await h.open()
    yield h
    await h.close()


def pytest_configure() -> None:
    """Refuse an interpreter that has not what UPSTREAM_PYTHON is to name."""
    if UPSTREAM and subprocess.run([UPSTREAM, "-c", "import agentix.utils.trace"], capture_output=True).returncode:
        raise pytest.UsageError(f"UPSTREAM_PYTHON={UPSTREAM} has no agentixx 0.2.7 or newer; older ones speak another wire")


# The neighbour's own client has rows only where it is installed.
collect_ignore = [] if UPSTREAM else ["test_upstream.py"]


# --- the table ------------------------------------------------------------------------------

_counts: dict[str, dict[str, collections.Counter[str]]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Note how each case went with each peer."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        _note(item, report)
    return report


def _note(item: pytest.Item, report: pytest.TestReport) -> None:
    params = getattr(getattr(item, "callspec", None), "params", {})
    case = getattr(item, "originalname", item.name).removeprefix("test_")
    column = str(params.get("peer", "packets"))
    if "edge" in params:
        case += f" [{params['edge']}]"
    if case.startswith("upstream_host_"):
        case, column = case.removeprefix("upstream_host_") + " [our runtime]", "upstream"
    _counts.setdefault(case, {}).setdefault(column, collections.Counter())[report.outcome] += 1


def _cell(outcomes: collections.Counter[str]) -> str:
    good, all_ = outcomes["passed"], outcomes.total()
    if good < all_:
        return f"FAILED {all_ - good} of {all_}"
    return "ok" if all_ == 1 else f"ok {all_}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table where it is asked for."""
    if os.environ.get("AGENTIX_INTEROP_TABLE") != "1" or not _counts:
        return
    columns = ["packets", *HOSTS, *(["upstream"] if UPSTREAM else [])]
    width = max(map(len, _counts))
    terminalreporter.write_sep("=", "cases x hosts; a number counts variants of a case")
    terminalreporter.write_line(" | ".join(["case".ljust(width), *(c.ljust(16) for c in columns)]))
    for case, row in _counts.items():
        cells = [_cell(row[c]) if c in row else "" for c in columns]
        terminalreporter.write_line(" | ".join([case.ljust(width), *(c.ljust(16) for c in cells)]))

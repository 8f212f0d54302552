"""Fixtures of the interop tests, and the table of cases and peers."""

from __future__ import annotations

import asyncio
import collections
import os
import pathlib
import re
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


# --- the table ------------------------------------------------------------------------------

_rows: dict[str, dict[str, str]] = collections.defaultdict(dict)
_PEER = re.compile(r"\[([^\]]*)\]$")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Note how each case went with each peer."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        _note(item, report)
    return report


def _note(item: pytest.Item, report: pytest.TestReport) -> None:
    names = [*HOSTS, "upstream"]
    params = getattr(getattr(item, "callspec", None), "params", {})
    column = str(params.get("peer", ""))
    if column not in names:
        column = "upstream" if "upstream" in item.nodeid else "wire"
    case = item.nodeid.split("::")[-1]
    for name in names:
        case = case.replace(f"[{name}]", "").replace(f"-{name}]", "]").replace(f"[{name}-", "[")
    if _rows[case].get(column) != "FAIL":
        _rows[case][column] = {"passed": "ok", "failed": "FAIL", "skipped": "-"}[report.outcome]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table where it is asked for."""
    if os.environ.get("AGENTIX_INTEROP_TABLE") != "1" or not _rows:
        return
    columns = ["wire", *HOSTS, *(["upstream"] if UPSTREAM else [])]
    width = max(map(len, _rows))
    terminalreporter.write_sep("=", "cases x peers")
    terminalreporter.write_line("  ".join(["case".ljust(width), *columns]))
    for case, row in _rows.items():
        cells = [row.get(c, "").ljust(len(c)) for c in columns]
        terminalreporter.write_line("  ".join([case.ljust(width), *cells]))

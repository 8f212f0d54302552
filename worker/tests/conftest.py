"""Fixtures: a worker shared by the tests of a module, and a private one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from harness import WorkerProcess, worker

settings.register_profile("agentix", deadline=None)  # the machine may be busy
settings.load_profile("agentix")


@pytest.fixture(scope="module")
def shared() -> Iterator[WorkerProcess]:
    """A worker in native mode that the tests of a module share; they must not kill it."""
    with worker() as process:
        yield process


@pytest.fixture
def fresh() -> Iterator[WorkerProcess]:
    """A worker in native mode for one test."""
    with worker() as process:
        yield process


@pytest.fixture
def foreign() -> Iterator[WorkerProcess]:
    """A worker under a neighbour's server."""
    with worker(native=False) as process:
        yield process

"""Fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentix._host import _admitted


@pytest.fixture
def allowed() -> Iterator[None]:
    """Take back what a test allows."""
    before = dict(_admitted._allowed)
    yield
    _admitted._allowed.clear()
    _admitted._allowed.update(before)

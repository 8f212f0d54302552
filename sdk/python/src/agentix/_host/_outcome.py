"""Outcomes of `Sandbox.try_remote`."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from ._exceptions import CallTimeout, RemoteCallError, RuntimeUnreachable

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Ok(Generic[T]):
    """The function returned."""

    value: T
    """What it returned."""
    ok = True


@dataclasses.dataclass(frozen=True)
class Failed:
    """The call ended without a result."""

    error: RemoteCallError | CallTimeout | RuntimeUnreachable
    """Why."""
    ok = False

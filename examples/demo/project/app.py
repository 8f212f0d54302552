"""Functions that the demo calls in a sandbox. Nothing here knows of sandboxes."""

from __future__ import annotations

import logging

log = logging.getLogger("app")


def run(input: str) -> dict[str, str]:
    """Return the input in capitals."""
    log.info("got %r", input)
    return {"output": input.upper()}


def powers(base: int, exponents: list[int]) -> list[int]:
    """Return exact integers of any size."""
    return [base**exponent for exponent in exponents]


def settle(total: str, people: int) -> float:
    """Fail in a helper, for a traceback with more than one frame."""
    return _share(float(total), people)


def _share(total: float, people: int) -> float:
    return total / people

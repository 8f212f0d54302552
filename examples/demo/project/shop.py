"""The code under test of the demo."""

from __future__ import annotations


def price(amounts: list[int], discount: int = 0) -> int:
    """Return the sum of amounts less a discount in percent, rounded down."""
    if not 0 <= discount <= 100:
        raise ValueError(f"discount is a percentage, not {discount}")
    return sum(amounts) * (100 - discount) // 100

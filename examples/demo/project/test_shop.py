"""A unit-test file as any other; one of its tests fails on purpose."""

from __future__ import annotations

import logging
import subprocess
import sys
import unittest

from shop import price

log = logging.getLogger("shop.tests")


class PriceTest(unittest.TestCase):
    """Tests of shop.price."""

    def test_sum(self) -> None:
        """Amounts add up; the log record is streamed while the tests run."""
        log.info("adding up")
        self.assertEqual(price([100, 250]), 350)

    def test_discount(self) -> None:
        """A discount is taken off; what a child process writes is streamed, too."""
        child = [sys.executable, "-c", "print('a child process says hello')"]
        subprocess.run(child, check=True)
        self.assertEqual(price([200], discount=50), 100)

    def test_refuses_nonsense(self) -> None:
        """A discount over 100 is refused."""
        with self.assertRaises(ValueError):
            price([1], discount=101)

    def test_rounding(self) -> None:
        """Fails on purpose: the price is rounded down."""
        self.assertEqual(price([5], discount=50), 3)

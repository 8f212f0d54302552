"""Runs a real unit-test file in the sandbox."""

from __future__ import annotations

import logging
import sys
import unittest
from typing import Any

from agentix.trace import span, trace

log = logging.getLogger("checks")


class _Spans(unittest.TextTestResult):
    """Makes a span of each test."""

    def startTest(self, test: unittest.TestCase) -> None:
        """Open the span of a test."""
        self._scope = span(test.id())
        self._span = self._scope.__enter__()
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        """Close the span of a test."""
        super().stopTest(test)
        self._scope.__exit__(None, None, None)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Tell the failure in the span, too."""
        super().addFailure(test, err)
        self._span.set_error(err[1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Tell the error in the span, too."""
        super().addError(test, err)
        self._span.set_error(err[1])


def run(module: str) -> dict[str, int]:
    """Run the tests of a module and return how many passed and failed."""
    log.info("running %s", module)
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    with trace("unit tests", module=module):
        runner = unittest.TextTestRunner(sys.stdout, resultclass=_Spans, verbosity=2)
        result = runner.run(suite)
    failed = len(result.failures) + len(result.errors)
    log.info("%d of %d failed", failed, result.testsRun)
    return {"passed": result.testsRun - failed, "failed": failed}

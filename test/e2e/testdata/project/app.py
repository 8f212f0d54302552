"""Functions that the end-to-end tests call."""

import asyncio
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

log = logging.getLogger("app")


def run(input: str) -> dict[str, str]:
    return {"output": input.upper()}


def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": list(args), "kwargs": kwargs}


def same(value: Any) -> Any:
    return value


def kind(value: Any) -> str:
    return f"{type(value).__name__}:{value!r}"

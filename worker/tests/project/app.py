"""Functions that the tests call in the worker."""

import asyncio
import logging
import threading
import time

log = logging.getLogger("my.app")


def run(input):
    return {"output": input.upper()}


async def arun(input):
    await asyncio.sleep(0)
    return {"output": input.upper()}


def echo(value):
    return value


def nap(seconds):
    time.sleep(seconds)
    return threading.current_thread().name


async def anap(seconds):
    await asyncio.sleep(seconds)
    return seconds


async def cancellable(path):
    try:
        log.info("started")
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        with open(path, "w") as f:
            f.write("cancelled")
        raise


def fail(text):
    raise ValueError(text)

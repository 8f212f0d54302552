"""Servers and workers of either side, put together."""

from __future__ import annotations

import asyncio
import os
import pathlib
import shlex
import stat
import sys
import time
from typing import Optional

import aiohttp

from peers.runtime import HERE, PROJECT, ROOT, Runtime, free_port

UPSTREAM = os.environ.get("UPSTREAM_PYTHON", "")
OUR_WORKER = ROOT / "worker"
EDGES = {
    "our runtime, reference worker": ("ours", "reference"),
    "reference server, our worker": ("reference", "ours"),
    "reference server, reference worker": ("reference", "reference"),
}
if UPSTREAM:
    EDGES |= {
        "our runtime, upstream worker": ("ours", "upstream"),
        "upstream server, our worker": ("upstream", "ours"),
        "upstream server, upstream worker": ("upstream", "upstream"),
    }


def script(directory: pathlib.Path, name: str, text: str) -> str:
    """Write an executable shell script."""
    path = directory / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(stat.S_IRWXU)
    return str(path)


def worker_command(directory: pathlib.Path, worker: str) -> str:
    """Return an executable that runs a worker, whatever arguments it is given."""
    project = shlex.quote(str(PROJECT))
    if worker == "ours":
        return script(
            directory, "our-worker",
            f"AGENTIX_WORKER_IMPORT_ROOT={OUR_WORKER}/src AGENTIX_WORKER_PROJECT={project} "
            f"exec {sys.executable} -c \"$(cat {OUR_WORKER}/bootstrap.py)\"",
        )  # fmt: skip
    if worker == "upstream":
        return script(directory, "upstream-worker", f"exec {UPSTREAM} {HERE}/upstream/worker.py {project}")
    return script(directory, "reference-worker", f"exec {sys.executable} {HERE}/reference/worker.py {project}")


class Edge:
    """A server with a worker behind it."""

    def __init__(self, name: str) -> None:
        self.server, self.worker = EDGES[name]
        self.url = ""
        self._runtime: Optional[Runtime] = None
        self._process: Optional[asyncio.subprocess.Process] = None

    @property
    def has_package(self) -> bool:
        """Tell whether the worker offers a package `agentix` to its functions."""
        return self.worker != "reference"

    async def start(self, directory: pathlib.Path) -> None:
        """Start it and wait for /health."""
        command = worker_command(directory, self.worker)
        if self.server == "ours":
            self._runtime = await Runtime.start(directory, worker_command=command)
            self.url = self._runtime.url
            return
        port = free_port()
        if self.server == "upstream":
            arguments = [UPSTREAM, str(HERE / "upstream" / "server.py"), str(port), command]
        else:
            arguments = [sys.executable, str(HERE / "reference" / "server.py"), str(port), command]
        with (directory / "server.log").open("wb") as log:
            env = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTIX_", "PYTHON"))}
            self._process = await asyncio.create_subprocess_exec(
                *arguments, stdout=log, stderr=log, env={**env, "AGENTIX_LOG_DIR": ""}, cwd=directory
            )
        self.url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 30
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(self.url + "/health") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass
                if time.monotonic() > deadline or self._process.returncode is not None:
                    raise RuntimeError((directory / "server.log").read_text()[-2000:])
                await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End it."""
        if self._runtime is not None:
            await self._runtime.stop()
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 15)
            except asyncio.TimeoutError:
                self._process.kill()
                await self._process.wait()

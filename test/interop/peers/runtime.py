"""Starts our runtime as a provider would, on a loopback port of its own."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import socket
import sys
import time
from typing import Any, Optional, Sequence

import aiohttp

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
BINARY = pathlib.Path(os.environ.get("AGENTIX_RUNTIME", ROOT / "bin" / "agentix-runtime"))
PROJECT = HERE / "project"


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Runtime:
    """One running runtime."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, log: pathlib.Path) -> None:
        self.process = process
        self.port = port
        self.log = log
        self.auth: Optional[tuple[str, str]] = None

    @property
    def url(self) -> str:
        """The address that hosts use."""
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    async def start(
        cls,
        directory: pathlib.Path,
        *,
        project: Optional[pathlib.Path] = PROJECT,
        worker_command: str = "",
        flags: Sequence[str] = (),
        first_line: Optional[dict[str, Any]] = None,
        env: Optional[dict[str, str]] = None,
        port: int = 0,
    ) -> Runtime:
        """Start a runtime and wait until GET /health answers 200, as providers do."""
        port = port or free_port()
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTIX_", "PYTHON"))}
        environ |= {"AGENTIX_BIND_HOST": "127.0.0.1", "AGENTIX_BIND_PORT": str(port), **(env or {})}
        command = [str(BINARY), *flags]
        if worker_command:
            command += ["--worker-command", worker_command]
        else:
            command += ["--python", sys.executable, *(["--project", str(project)] if project else [])]
        if first_line is not None:
            command.append("--token-stdin")
        log = directory / f"runtime-{port}.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *command, env=environ, stdin=asyncio.subprocess.PIPE, stdout=out, stderr=out, cwd=directory
            )
        assert process.stdin is not None
        if first_line is not None:
            process.stdin.write(json.dumps(first_line).encode() + b"\n")
            await process.stdin.drain()
        process.stdin.close()
        runtime = cls(process, port, log)
        try:
            await runtime._healthy()
        except BaseException:
            await runtime.stop()
            raise
        return runtime

    async def _healthy(self) -> None:
        deadline = time.monotonic() + 20
        async with aiohttp.ClientSession() as session:
            while True:
                if self.process.returncode is not None:
                    raise RuntimeError(f"the runtime ended: {self.log.read_text()[-2000:]}")
                try:
                    async with session.get(self.url + "/health") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass
                if time.monotonic() > deadline:
                    raise TimeoutError("the runtime does not answer")
                await asyncio.sleep(0.01)

    async def health(self) -> dict[str, Any]:
        """Return what GET /health tells."""
        async with aiohttp.ClientSession() as session, session.get(self.url + "/health") as answer:
            return dict(await answer.json())

    async def worker_ready(self) -> None:
        """Wait for a worker."""
        await until_async(lambda: self._ready(), "a worker")

    async def _ready(self) -> bool:
        return bool((await self.health())["ready"])

    def rss(self) -> int:
        """Return the resident memory of the runtime alone, in bytes."""
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def signal(self, number: int) -> None:
        """Send the runtime a signal."""
        self.process.send_signal(number)

    async def stop(self) -> int:
        """Stop the runtime in order; its exit status."""
        if self.process.returncode is None:
            self.signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(self.process.wait(), 15)
            except asyncio.TimeoutError:
                self.process.kill()
        return await self.process.wait()


async def until(condition: Any, what: str, timeout: float = 20.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}")
        await asyncio.sleep(0.005)


async def until_async(condition: Any, what: str, timeout: float = 20.0) -> None:
    """Wait for a condition that has to be awaited."""
    deadline = time.monotonic() + timeout
    while not await condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}")
        await asyncio.sleep(0.01)

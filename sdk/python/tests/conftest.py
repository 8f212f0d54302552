"""Fixtures of the SDK's tests: a real daemon with the process provider."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

from agentix._host import _admitted

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_PROJECT = pathlib.Path(__file__).resolve().parent / "project"
sys.path.insert(0, str(_PROJECT))


@pytest.fixture
def allowed() -> Iterator[None]:
    """Take back what a test allows."""
    before = dict(_admitted._allowed)
    yield
    _admitted._allowed.clear()
    _admitted._allowed.update(before)


class Daemon:
    """A running agentixd."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Start it in `directory` and wait until it can be reached."""
        self.directory = directory
        self.project = directory / "project"
        shutil.copytree(_PROJECT, self.project, dirs_exist_ok=True)
        self.address = f"unix://{directory}/state/agentixd.sock"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.tcp = f"127.0.0.1:{probe.getsockname()[1]}"
        self.start()

    def start(self) -> None:
        """Start the process."""
        binary = _ROOT / "bin" / "agentixd"
        assert binary.exists(), "bin/agentixd is missing: run make build"
        command = [
            str(binary),
            f"--state-dir={self.directory}/state",
            f"--http={self.tcp}",
            "--provider=process",
            "--insecure-process-as-root",
            f"--allow-host-path={self.directory}",
            f"--runtime={_ROOT}/bin/agentix-runtime",
        ]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not self._reachable():
            assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.02)

    def _reachable(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(f"{self.directory}/state/agentixd.sock")
            except OSError:
                return False
            return True

    @property
    def token(self) -> str:
        """The token for TCP."""
        return (self.directory / "state" / "token").read_text().strip()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """A daemon for all tests; it must end without an error and leave no process."""
    with tempfile.TemporaryDirectory(prefix="agx") as directory:
        running = Daemon(pathlib.Path(directory))
        yield running
        code = running.stop()
        assert code == 0, (running.directory / "log").read_text()
        left = [
            entry for entry in os.listdir("/proc") if entry.isdigit() and _uses(entry, directory)
        ]
        assert left == [], f"processes were left: {left}"


def _uses(pid: str, directory: str) -> bool:
    try:
        return directory.encode() in pathlib.Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture(autouse=True)
def no_ambient_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the environment of the person who runs the tests out of them."""
    for name in ("AGENTIX_ADDRESS", "AGENTIX_TOKEN", "AGENTIX_PICKLE_TRUST"):
        monkeypatch.delenv(name, raising=False)

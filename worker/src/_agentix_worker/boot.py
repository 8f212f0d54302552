"""Starts the worker: descriptors first, then the rest, and tells a failure as boot_error."""

from __future__ import annotations

import os
import sys
from typing import Optional

FDS = "AGENTIX_WORKER_FDS"
PROJECT = "AGENTIX_WORKER_PROJECT"
PRELOAD = "AGENTIX_PRELOAD"  # modules to import before the worker is ready, by commas; also none


def main() -> None:
    """Serve until the end, then exit the process."""
    native = os.environ.pop(FDS, None)
    try:
        fds = native_descriptors(native) if native else foreign_descriptors()
    except (OSError, ValueError) as e:
        sys.exit(f"the worker's descriptors are not usable: {e}")
    project = os.environ.pop(PROJECT, None)
    try:
        from _agentix_worker.pipe import FrameWriter
        from _agentix_worker.worker import Worker

        writer = FrameWriter(fds[1])
        worker = Worker(fds[0], writer, native=bool(native))
        add_project(project)
        ahead = os.environ.pop(PRELOAD, None)
        if ahead is not None:
            worker.open(filter(None, ahead.split(",")))
    except BaseException as e:
        _boot_error(fds[1], e)
        raise
    sys.exit(worker.run())


def native_descriptors(text: str) -> tuple[int, int]:
    """Return the inherited frame descriptors, kept from children."""
    read, write = (int(part) for part in text.split(","))
    for fd in (read, write):
        os.fstat(fd)
        os.set_inheritable(fd, False)
    return read, write


def foreign_descriptors() -> tuple[int, int]:
    """Take fd 0 and 1 for frames and leave /dev/null and fd 2 in their places."""
    read, write = os.dup(0), os.dup(1)  # dup gives close-on-exec descriptors
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return read, write


def add_project(directory: Optional[str]) -> None:
    """Put the project first on the path; the standard modules of the worker are loaded already."""
    if not directory:
        return
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"project directory {directory} does not exist")
    sys.path[:] = [directory, *(p for p in sys.path if p != directory)]


def _boot_error(fd: int, exc: BaseException) -> None:
    from _agentix_worker import codec, errors
    from _agentix_worker.framing import frame_header

    body = codec.pack({"type": "boot_error", "error": errors.from_exception(exc)})
    os.write(fd, frame_header(len(body)) + body)

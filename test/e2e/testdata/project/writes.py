"""Functions that write in odd ways."""

import logging
import os
import shutil
import subprocess
import sys


def printf(text: str) -> int:
    """Writes a text as `printf` does, by a process of its own; an image may have no shell."""
    command = ["printf", text] if shutil.which("printf") else [sys.executable, "-c", "import os, sys; os.write(1, sys.argv[1].encode().decode('unicode_escape').encode())", text]
    return subprocess.run(command, check=False).returncode


def pieces(parts: list[list[int]]) -> int:
    """Writes each part, of bytes, by itself."""
    sys.stdout.flush()
    for part in parts:
        os.write(1, bytes(part))
    return len(parts)


def long_line(size: int) -> int:
    sys.stdout.write("x" * size + "\n")
    return size


def flood(lines: int, size: int) -> int:
    """Prints numbered lines of a size."""
    for n in range(lines):
        print(f"{n:08d}".ljust(size - 1, "."))
    return lines


def raw_flood(total: int) -> int:
    """Writes bytes that are no text to file descriptor 1."""
    chunk = bytes(range(256)) * 4096
    left = total
    while left > 0:
        left -= os.write(1, chunk[:left])
    return total


def records(number: int) -> int:
    """Logs numbered records."""
    log = logging.getLogger("bench")
    for n in range(number):
        log.warning("record number %d", n)
    return number


def lines(number: int) -> int:
    """Prints numbered lines of 100 bytes."""
    for n in range(number):
        print(f"{n:099d}")
    return number

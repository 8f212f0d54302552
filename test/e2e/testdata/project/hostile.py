"""What hostile or unlucky code does."""

import errno
import os
import pathlib
import socket
import subprocess
import sys
import time


def fork_bomb() -> int:
    """Start processes until that is refused; tell how many there were."""
    children = []
    try:
        while True:
            pid = os.fork()
            if pid == 0:
                time.sleep(600)
                os._exit(0)
            children.append(pid)
    except OSError as e:
        assert e.errno == errno.EAGAIN
    for pid in children:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return len(children)


def hog() -> None:
    """Take memory until somebody dies."""
    held = []
    while True:
        held.append(bytearray(os.urandom(4096)) * 256)


def fill(path: str) -> int:
    """Write to a file until that fails; tell how much went in."""
    total = 0
    with open(path, "wb", buffering=0) as f:
        try:
            while total < 1 << 31:
                total += f.write(b"x" * 65536)
        except OSError as e:
            assert e.errno in (errno.ENOSPC, errno.EDQUOT), e
    return total


def flood(size: int) -> None:
    line = "y" * 1023 + "\n"
    for _ in range(size // len(line)):
        sys.stdout.write(line)


def replace_socket(target: str) -> str:
    path = "/.agentix/socket/rpc.sock"
    os.unlink(path)
    os.symlink(target, path)
    return os.readlink(path)


def orphans(n: int) -> int:
    """Leave n grandchildren without parents, in sessions of their own; each ends by itself."""
    for _ in range(n):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(0.2)
            os._exit(0)
    for _ in range(n):
        os.wait()
    return n


def exit_codes(n: int) -> list[int]:
    """The exit codes of n children; nobody steals them."""
    children = [subprocess.Popen([sys.executable, "-S", "-c", f"import os; os._exit({i})"]) for i in range(n)]
    return [c.wait() - i for i, c in enumerate(children)]


def zombies() -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    count += f.read().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                pass
    return count


def survivors(n: int, marker: str) -> int:
    """Double-forked children in sessions of their own that want to live on."""
    for _ in range(n):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 64)
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", marker])
            os._exit(0)
        os.wait()
    return n


def read(path: str) -> str:
    return pathlib.Path(path).read_text()


def connect(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=2):
            return "ok"
    except OSError as e:
        return str(e)

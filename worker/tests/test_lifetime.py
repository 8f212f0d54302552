"""How a worker begins and ends, and what its children keep of it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time

import pytest

from harness import BOOTSTRAP, PYTHON, WorkerProcess, decode, wait_for, worker


def test_ready_says_who_it_is(shared: WorkerProcess) -> None:
    hello = dict(shared.hello)
    assert len(hello.pop("output_marker")) == 16
    assert hello.pop("pid") == shared.process.pid
    assert hello.pop("python").startswith("3.")
    assert hello == {
        "type": "ready",
        "worker": "agentix",
        "protocol": 1,
        "capabilities": ["encoding", "deadline", "baggage", "native-worker", "stopped"],
    }


def test_the_path_and_the_environment_of_user_code(shared: WorkerProcess) -> None:
    found = shared.call("app::path_and_env")
    here = pathlib.Path(__file__).parent
    assert found["path"][:2] == [str(here / "project"), str(here.parent / "src")]
    assert found["env"] == {}
    assert "" not in found["path"] and found["cwd"] not in found["path"][2:]


def test_modules_of_the_project_do_not_break_the_worker(tmp_path: pathlib.Path) -> None:
    for name in ("logging", "asyncio", "selectors", "queue", "codec", "types"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('shadow')\n")
    (tmp_path / "fine.py").write_text("def f():\n    return 1\n")
    with worker(project=tmp_path) as process:
        assert process.call("fine::f") == 1
        assert process.call("fine::f", encoding="json") == 1


def test_start_is_lean(shared: WorkerProcess) -> None:
    with worker() as process:
        names = process.call("app::module_names")
    for heavy in ("json", "uuid", "decimal", "dataclasses", "typing"):
        assert heavy not in names or heavy in ("typing",), f"{heavy} is imported at start"


@pytest.mark.parametrize("native", [True, False])
def test_shutdown_and_end_of_pipe_end_it_with_status_0(native: bool, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "goodbye"
    with worker(native=native) as process:
        process.call("app::write_at_exit", str(path))
        process.send({"type": "shutdown"})
        assert process.rest() == []
        assert process.process.wait(10) == 0
        assert path.exists(), "atexit handlers run"
    with worker(native=native) as process:
        assert process.close() == 0


def test_shutdown_cancels_calls_without_terminal_frames(fresh: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cleaned"
    begin = time.monotonic()
    fresh.start("app::stubborn", str(path))
    fresh.start("app::nap", 30)
    fresh.until(lambda f: f["type"] == "log")
    fresh.send({"type": "shutdown"})
    assert [f["type"] for f in fresh.rest()] == ["log"]  # "cleaned up"
    assert fresh.process.wait(10) == 0
    assert path.exists()
    assert time.monotonic() - begin < 8


def test_a_frame_over_the_limit_ends_it(fresh: WorkerProcess) -> None:
    os.write(fresh.stdin, b"\xff\xff\xff\xff")
    assert fresh.process.wait(10) == 0


def test_an_undecodable_frame_is_ignored(fresh: WorkerProcess) -> None:
    os.write(fresh.stdin, b"\x01\0\0\0\xc1" + b"\0\0\0\0" + b"\x03\0\0\0\x81\x01\x02")
    assert fresh.call("app::echo", 1) == 1


def test_interrupt_is_not_for_the_worker(fresh: WorkerProcess) -> None:
    fresh.process.send_signal(2)
    assert fresh.call("app::echo", 1) == 1


def test_a_missing_project_is_a_boot_error(tmp_path: pathlib.Path) -> None:
    process = WorkerProcess(project=tmp_path / "nothing")
    frame = process.next()
    assert frame["type"] == "boot_error"
    assert frame["error"]["type"] == "NotADirectoryError"
    assert str(tmp_path / "nothing") in frame["error"]["message"]
    assert process.rest() == []
    assert process.close() == 1


def test_a_broken_site_of_the_worker_is_a_boot_error(tmp_path: pathlib.Path) -> None:
    # A codec that cannot be imported stands for any damage to the installation.
    (tmp_path / "pipe.py").write_text("")
    root = tmp_path / "root"
    source = pathlib.Path(__file__).parent.parent / "src" / "_agentix_worker"
    (root / "_agentix_worker").mkdir(parents=True)
    for file in source.glob("*.py"):
        (root / "_agentix_worker" / file.name).write_text(file.read_text())
    (root / "_agentix_worker" / "threads.py").write_text("import nothing_like_this\n")
    process = WorkerProcess(env={"AGENTIX_WORKER_IMPORT_ROOT": str(root)})
    frame = process.next()
    assert (frame["type"], frame["error"]["type"]) == ("boot_error", "ModuleNotFoundError")
    assert process.close() == 1


def test_an_old_python_is_a_boot_error() -> None:
    old = BOOTSTRAP.replace("sys.version_info < (3, 9)", "sys.version_info < (99, 9)")
    result = subprocess.run([PYTHON, "-c", old], capture_output=True, check=False)
    assert result.returncode == 3
    assert b"boot_error" in result.stdout
    assert b"needs Python 3.9 or newer" in result.stdout
    assert int.from_bytes(result.stdout[:4], "little") == len(result.stdout) - 4


def test_unusable_descriptors_are_told_on_stderr() -> None:
    env = {**os.environ, "AGENTIX_WORKER_IMPORT_ROOT": str(pathlib.Path(__file__).parent.parent / "src")}
    for fds in ("700,701", "x"):
        result = subprocess.run(
            [PYTHON, "-c", BOOTSTRAP], env={**env, "AGENTIX_WORKER_FDS": fds}, capture_output=True, check=False
        )
        assert result.returncode == 1
        assert b"descriptors are not usable" in result.stderr


@pytest.mark.parametrize("fn", ["app::fork", "app::afork"])
@pytest.mark.parametrize(("mode", "status"), [("value", 0), ("raise", 1), ("exit", 5)])
def test_a_forked_child_ends_as_a_script_would(shared: WorkerProcess, fn: str, mode: str, status: int) -> None:
    assert shared.call(fn, mode) == status
    assert shared.call("app::pid") == shared.process.pid


def test_a_forked_child_does_not_hold_the_frame_pipe(fresh: WorkerProcess) -> None:
    pid = fresh.call("app::fork_and_linger", 5)
    begin = time.monotonic()
    os.kill(pid, 9)
    assert fresh.rest() == []
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works(shared: WorkerProcess, method: str) -> None:
    assert shared.call("app::multiprocess", 3, method) == [3, 2, 1]


def test_asyncio_subprocesses_work(shared: WorkerProcess) -> None:
    assert shared.call("app::async_subprocess") == [b"out\n", 3]


def test_a_crash_in_c_code_tells_where(fresh: WorkerProcess) -> None:
    fresh.start("app::segfault")
    assert fresh.rest() == []
    assert fresh.process.wait(10) == -11
    fresh.stderr.until(b"Segmentation fault")
    fresh.stderr.until(b"in segfault")


def test_closed_descriptors_end_the_worker_and_no_more(fresh: WorkerProcess) -> None:
    fresh.start("app::close_descriptors")
    assert fresh.rest() == []
    fresh.process.kill()


def test_signals_that_raise_do_not_break_frames(fresh: WorkerProcess) -> None:
    assert fresh.call("app::raise_in_the_loop") == "survived"
    assert fresh.call("app::alarm_while_logging", 20000) > 0
    assert fresh.call("app::echo", 1) == 1
    sent = [f["record"]["message"] for f in fresh.seen if f["type"] == "log" and f["record"]["name"] == "my.app"]
    # A handler may raise inside the formatting, too.
    numbers = [int(text) for text in sent if text.isdigit()]
    assert all("TimeoutError: alarm" in text for text in sent if not text.isdigit())
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 15000


def test_calls_wait_for_a_thread_when_the_system_refuses_more(fresh: WorkerProcess) -> None:
    fresh.call("app::threads_refused", 1)
    ids = [fresh.start("app::nap", 0.05) for _ in range(10)]
    assert len({decode(fresh.end_of(i)) for i in ids}) <= 2


@pytest.mark.parametrize("native", [True, False])
def test_executed_children_inherit_only_the_standard_descriptors(native: bool) -> None:
    with worker(native=native) as process:
        fds = json.loads(process.call("app::exec_child_fds"))
        assert [fd for fd in fds if fd > 3] == []  # 3 is the listing itself


def test_a_hundred_workers_leave_nothing(tmp_path: pathlib.Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with worker() as process:
            process.call("app::echo", 1)
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before, "descriptors to be closed")

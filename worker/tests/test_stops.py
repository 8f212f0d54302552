"""Calls that are cancelled or out of time while their code goes on, and pings."""

from __future__ import annotations

import pathlib

import pytest

from harness import Frame, WorkerProcess, wait_for, worker


def stopped(process: WorkerProcess, call_id: str) -> Frame:
    """The frame that tells the end of a stopped call's code."""
    return process.until(lambda f: f["type"] == "stopped" and f["call_id"] == call_id)


def test_the_end_of_a_stopped_function_is_told(shared: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "go"
    call_id = shared.start("app::wait_for_file", str(path))
    shared.until(lambda f: f["type"] == "log" and f.get("call_id") == call_id)
    shared.send({"type": "cancel", "call_id": call_id})
    assert shared.end_of(call_id)["running"] is True
    assert shared.call("app::nap", 0).startswith("agentix-call")
    assert not [f for f in shared.seen if f["type"] == "stopped" and f["call_id"] == call_id]
    path.touch()
    assert stopped(shared, call_id) == {"type": "stopped", "call_id": call_id}


@pytest.mark.parametrize("function", ["app::cancellable", "app::stubborn"])
def test_the_end_of_a_stopped_task_is_told_when_it_has_cleaned_up(
    shared: WorkerProcess, tmp_path: pathlib.Path, function: str
) -> None:
    path = tmp_path / "cleaned"
    call_id = shared.start(function, str(path))
    shared.until(lambda f: f["type"] == "log" and f.get("call_id") == call_id)
    shared.send({"type": "cancel", "call_id": call_id})
    assert shared.end_of(call_id)["running"] is True
    stopped(shared, call_id)
    assert path.exists()


def test_a_deadline_tells_the_same(shared: WorkerProcess) -> None:
    call_id = shared.start("app::nap", 0.2, timeout_ms=20)
    frame = shared.end_of(call_id)
    assert (frame["error"]["type"], frame["running"]) == ("DeadlineExceeded", True)
    stopped(shared, call_id)
    assert "running" not in shared.end_of(shared.start("app::fail", "no"))


def test_a_task_that_never_began_is_told_too(shared: WorkerProcess) -> None:
    # Both frames in one write: the cancel comes before the task's first step.
    for _ in range(20):
        call_id = shared.start("app::anap", 60)
        shared.send({"type": "cancel", "call_id": call_id})
        assert shared.end_of(call_id)["error"]["cancelled"]
        stopped(shared, call_id)


def test_a_neighbours_server_is_told_nothing_of_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "go"
    with worker(native=False) as process:
        assert "stopped" not in process.hello["capabilities"]
        call_id = process.start("app::wait_for_file", str(path))
        process.send({"type": "cancel", "call_id": call_id})
        assert "running" not in process.end_of(call_id)
        path.touch()
        wait_for((tmp_path / "go.done").exists, "the end of the function")
        process.call("app::nap", 0)
        assert not [f for f in process.seen if f["type"] == "stopped"]


def test_pings_are_answered_while_functions_run(shared: WorkerProcess) -> None:
    call_id = shared.start("app::nap", 0.2)
    shared.send({"type": "ping"})
    shared.until(lambda f: f["type"] == "pong")
    assert not [f for f in shared.seen if f.get("call_id") == call_id]
    shared.end_of(call_id)

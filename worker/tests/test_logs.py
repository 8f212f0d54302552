"""Log records and spans leave at once, once, in order, with the id of their call."""

from __future__ import annotations

import time
from typing import Any

from harness import Frame, WorkerProcess, split_output, wait_for, worker


def logs(frames: list[Frame]) -> list[Frame]:
    return [f for f in frames if f["type"] == "log"]


def messages(frames: list[Frame]) -> list[Any]:
    return [f["record"]["message"] for f in logs(frames)]


def test_a_record_has_the_shape_of_the_wire(fresh: WorkerProcess) -> None:
    before = time.time()
    call_id = fresh.start("app::log_one", "number %d", 3)
    fresh.end_of(call_id)
    (frame,) = logs(fresh.seen)
    record = frame["record"]
    assert frame["call_id"] == call_id
    assert before <= record.pop("created") <= time.time()
    assert record.pop("pathname").endswith("app.py")
    assert record.pop("lineno") > 0
    assert record == {
        "name": "my.app",
        "level": "INFO",
        "levelno": 20,
        "message": "number 3",
        "funcName": "log_one",
        "module": "app",
        "exc_text": None,
        "stack_info": None,
        "agentix_context": None,
        "extras": None,
    }


def test_kinds_of_records(fresh: WorkerProcess) -> None:
    fresh.call("app::log_kinds")
    extra, failed, bad = (f["record"] for f in logs(fresh.seen))
    assert extra["level"] == "WARNING"
    assert extra["extras"]["user"] == "ada"
    assert extra["extras"]["odd"] == {"1": "{2, 3}"}
    assert extra["extras"]["when"].startswith("<object object")
    assert set(extra["extras"]) == {"user", "odd", "when"}
    assert failed["exc_text"].rstrip().endswith("ValueError: boo")
    assert "log_kinds" in failed["stack_info"]
    assert bad["message"].startswith("bad %d")
    assert "format" in bad["message"]


def test_records_precede_the_result_and_arrive_while_the_function_runs(fresh: WorkerProcess, tmp_path: Any) -> None:
    path = tmp_path / "go"
    call_id = fresh.start("app::wait_for_file", str(path))  # a sync function on a thread
    frame = fresh.next()
    assert (frame["type"], frame["record"]["message"]) == ("log", "started")
    path.touch()
    assert fresh.next()["call_id"] == call_id


def test_ten_thousand_records_from_threads_are_all_there_in_order(fresh: WorkerProcess) -> None:
    call_id = fresh.start("app::log_many", 1250, 8)
    fresh.end_of(call_id)
    found: dict[str, list[str]] = {}
    for frame in logs(fresh.seen):
        assert frame["call_id"] == call_id
        found.setdefault(frame["record"]["name"], []).append(frame["record"]["message"])
    assert found == {f"t{n}": [str(i) for i in range(1250)] for n in range(8)}
    assert fresh.seen[-1]["type"] == "result"


def test_console_handlers_do_not_say_it_twice_and_ours_stays(fresh: WorkerProcess) -> None:
    fresh.call("app::log_after_reconfiguration")
    assert messages(fresh.seen) == ["after basicConfig", "after dictConfig"]
    fresh.stderr.until(b"only on stderr")
    assert b"after" not in fresh.stderr.data


def test_level_and_context_come_from_the_environment() -> None:
    env = {"AGENTIX_LOG_LEVEL": "WARNING", "AGENTIX_LOG_CONTEXT": "box-{id}", "AGENTIX_WORKER_ID": "00ff00ff"}
    with worker(env=env) as process:
        process.call("app::log_one", "not forwarded")
        process.call("app::log_kinds")
        assert messages(process.seen)[0] == "with extra"
        assert logs(process.seen)[0]["record"]["agentix_context"] == "box-00ff00ff"


def test_bad_text_and_huge_records_are_made_sendable(fresh: WorkerProcess) -> None:
    fresh.call("app::log_surrogate")
    (record,) = (f["record"] for f in logs(fresh.seen))
    assert record["message"] == "bad \\ud800 text"
    assert record["extras"] == {"k\\ud800": "v\\ud800"}
    fresh.call("app::log_huge")
    text, many = (f["record"] for f in logs(fresh.seen)[-2:])
    assert len(text["message"]) <= 1048576
    assert 1_000_000 < sum(map(len, text["extras"]["text"])) < 1_200_000
    assert 9000 < len(many["extras"]["many"]) <= 10001


def test_a_record_before_exit_or_kill_arrives(fresh: WorkerProcess) -> None:
    for how in ("exit", "kill"):
        with worker() as process:
            process.start("app::log_and_die", f"last words before {how}", how)
            assert messages(process.rest()) == [f"last words before {how}"]


def test_fork_children_log_to_stderr_and_leave_the_pipe_alone(fresh: WorkerProcess) -> None:
    assert fresh.call("app::fork", "value") == 0
    assert logs(fresh.seen) == []
    fresh.stderr.until(b"WARNING my.app: logged in the child\n")
    wait_for(lambda: b"printed in the child\n" in fresh.stdout.data, "the child's output")
    parts = split_output(fresh.stdout.data, fresh.hello["output_marker"])
    assert parts == [("call-1", b"printed in the child\n")]

"""The worker under a neighbour's server: frames on fd 0/1, streams and capture of its own."""

from __future__ import annotations

import pickle
from typing import Any

from _agentix_worker import codec, pipe, stream
from harness import Frame, WorkerProcess, wait_for, worker


def records(frames: list[Frame], namespace: str = "/log") -> list[Any]:
    return [f["data"] for f in frames if f["type"] == "sio_emit" and f["namespace"] == namespace]


def drain(process: WorkerProcess) -> None:
    process.call("app::echo", 0)


def test_first_frames(foreign: WorkerProcess) -> None:
    assert [f["type"] for f in foreign.seen] == ["sio_open", "ready"]
    assert foreign.seen[0]["namespace"] == "/trace"
    assert foreign.hello["capabilities"] == ["encoding", "deadline", "baggage"]
    assert "output_marker" not in foreign.hello


def test_golden_call(foreign: WorkerProcess) -> None:
    arguments = bytes.fromhex("8004951700000000000000297d948c05696e707574948c0568656c6c6f947386942e")
    foreign.send({"type": "call", "call_id": "c", "callable": "app::run", "arguments": arguments, "context": None})
    assert foreign.next() == {"type": "result", "call_id": "c", "value": pickle.dumps({"output": "HELLO"}, 4)}


def test_printed_lines_are_records_before_the_result(foreign: WorkerProcess) -> None:
    foreign.call("app::print_lines", "n", 3)
    kinds = [f["type"] for f in foreign.seen[2:]]
    assert kinds == ["sio_open", "sio_emit", "sio_emit", "sio_emit", "result"]
    first = records(foreign.seen)[0]
    assert first["_seq"] == 1 and len(first["_sid"]) == 8
    data = first["data"]
    assert data.pop("created") > 0
    assert data == {
        "name": "agentix.sandbox.stdout",
        "level": "INFO",
        "levelno": 20,
        "message": "n 0",
        "pathname": "",
        "lineno": 0,
        "funcName": "",
        "module": "stdio",
        "exc_text": None,
        "stack_info": None,
        "agentix_context": None,
        "extras": {"agentix_stream": "stdout", "worker_id": ""},
    }


def test_all_that_is_written_is_captured_and_nothing_reaches_the_pipe(foreign: WorkerProcess) -> None:
    foreign.call("app::print_raw", "by buffer\n")
    foreign.call("app::print_partial", "held")
    foreign.call("builtins::print", "", "x" * 70_000, "\r")
    foreign.call("app::log_one", "a record")
    found = [(r["data"]["name"], r["data"]["message"]) for r in records(foreign.seen)]
    out = "agentix.sandbox.stdout"
    # An unfinished line waits for its end; one over the limit is cut.
    assert ("my.app", "a record") in found
    assert {m for n, m in found if n == out} >= {"by buffer", "raw fd", "child", "by fileno"}
    long = [m for n, m in found if n == out and m.startswith("held")]
    assert len(long[0]) == 65536 and long[0].startswith("held xxx")
    assert [r["_seq"] for r in records(foreign.seen)] == list(range(1, len(found) + 1))
    foreign.send({"type": "shutdown"})
    rest = [(r["data"]["name"], r["data"]["message"]) for r in records(foreign.rest())]
    assert ("agentix.sandbox.stderr", "err held") in rest


def test_resume_and_ack(foreign: WorkerProcess) -> None:
    foreign.call("app::print_lines", "n", 5)
    sent = records(foreign.seen)

    def inbound(event: str, data: Any) -> list[Any]:
        foreign.seen.clear()
        foreign.send({"type": "sio_inbound", "namespace": "/log", "event": event, "data": data})
        drain(foreign)
        return records(foreign.seen)

    assert inbound("_resume", {"since_seq": 0}) == sent
    assert inbound("_resume", {"since_seq": 3}) == sent[3:]
    assert inbound("_resume", {"since_seq": 99}) == sent, "a cursor of an earlier stream counts as 0"
    assert inbound("_ack", {"seq": 99}) == []
    assert inbound("_resume", {"since_seq": 0}) == sent, "an ack of an earlier stream frees nothing"
    assert inbound("_ack", {"seq": 2}) == []
    assert inbound("_resume", {"since_seq": 0}) == sent[2:]
    assert inbound("_resume", {"since_seq": 0, "_sid": "another"}) == sent[2:]
    assert inbound("_resume", {}) == inbound("_ack", None) == inbound("other", 3) == inbound("_ack", {"seq": True}) == []


def test_a_failure_is_logged_too(foreign: WorkerProcess) -> None:
    foreign.fail("app::fail", "boo")
    (record,) = (r["data"] for r in records(foreign.seen))
    assert (record["name"], record["level"]) == ("agentix.runtime.server.worker.invoker", "ERROR")
    assert "ValueError: boo" in record["exc_text"]
    assert "_agentix_worker" not in record["exc_text"]


def test_spans_travel_on_trace(foreign: WorkerProcess) -> None:
    call_id = foreign.start("plug::unbound")
    foreign.end_of(call_id)
    start, end = records(foreign.seen, "/trace")
    assert (start["_seq"], end["_seq"]) == (1, 2)
    assert start["data"]["call_id"] == call_id
    assert start["data"]["trace_id"] == "trace_unbound"


def test_forked_children_are_captured_and_leave_the_pipe_alone(foreign: WorkerProcess) -> None:
    assert foreign.call("app::fork", "raise") == 1
    drain(foreign)
    wait_for(lambda: drain(foreign) or len(records(foreign.seen)) >= 4, "the child's output")
    found = [r["data"]["message"] for r in records(foreign.seen)]
    assert "printed in the child" in found
    assert "WARNING my.app: logged in the child" in found
    wait_for(lambda: drain(foreign) or "ValueError: in the child" in str(records(foreign.seen)), "its traceback")


class Recorder(pipe.FrameWriter):
    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def send_body(self, *parts: bytes) -> None:
        self.bodies.append(b"".join(parts))


def test_the_ring_drops_the_oldest_by_count_and_by_bytes() -> None:
    recorder = Recorder()
    line = stream.ReliableStream(recorder, "/log", ring=10)
    for i in range(15):
        line.emit("record", {"n": i})
    assert line.dropped == 5
    assert len(recorder.bodies) == 16  # sio_open and every event once
    recorder.bodies.clear()
    line.control("_resume", {"since_seq": 0})
    assert [codec.unpack(b)["data"]["_seq"] for b in recorder.bodies] == list(range(6, 16))
    big = stream.ReliableStream(recorder, "/log")
    for _ in range(5):
        big.emit("record", {"data": b"x" * 10_000_000})
    assert big.dropped == 2


def test_a_gap_counts_what_the_host_has_not() -> None:
    told: list[tuple[int, int]] = []
    line = stream.ReliableStream(Recorder(), "/trace", ring=10, gap=lambda n, last: told.append((n, last)))
    for i in range(15):
        line.emit("span_end", {"n": i})
    for since in (0, 3, 5, 9):
        line.control("_resume", {"since_seq": since})
    assert told == [(5, 5), (2, 5)]
    line.control("_ack", {"seq": 4})
    line.control("_resume", {"since_seq": 0})
    assert told.pop() == (1, 5)
    line.control("_ack", {"seq": 15})
    line.control("_resume", {"since_seq": 0})
    for i in range(12):
        line.emit("span_end", {"n": i})
    line.control("_resume", {"since_seq": 15})
    assert told[2:] == [(2, 17)]


def test_buffer_sizes_come_from_the_environment() -> None:
    with worker(native=False, env={"AGENTIX_LOG_BUFFER": "2", "AGENTIX_TRACE_BUFFER": "x"}) as process:
        process.call("app::print_lines", "n", 5)
        process.seen.clear()
        process.send({"type": "sio_inbound", "namespace": "/log", "event": "_resume", "data": {"since_seq": 0}})
        drain(process)
        gap, *kept = records(process.seen)
        assert [r["data"]["message"] for r in kept] == ["n 3", "n 4"]
        assert (gap["_seq"], gap["data"]["extras"]) == (3, {"agentix_source": "/log", "agentix_dropped": 3})

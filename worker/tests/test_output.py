"""What is printed: nothing lost, each call's lines marked as its own, nothing else marked."""

from __future__ import annotations

import pathlib

import pytest

from _agentix_worker.limits import MAX_TAGGED_BYTES
from harness import WorkerProcess, split_output, wait_for, worker


def parts(process: WorkerProcess, until: bytes) -> list[tuple[object, bytes]]:
    def split() -> list[tuple[object, bytes]]:
        return list(split_output(process.stdout.data, process.hello["output_marker"]))

    wait_for(lambda: until in b"".join(data for _, data in split()), f"{until!r} in the output")
    return split()


def test_a_printed_line_is_marked_with_its_call(fresh: WorkerProcess) -> None:
    fresh.call("builtins::print", "first", call_id="a")
    fresh.call("builtins::print", "second", call_id="b")
    assert parts(fresh, b"second\n") == [("a", b"first\n"), ("b", b"second\n")]
    assert len(fresh.hello["output_marker"]) == 16


def test_each_line_is_one_write_of_at_most_4096_bytes(fresh: WorkerProcess) -> None:
    assert MAX_TAGGED_BYTES == 4096  # PIPE_BUF: atomic
    text = "x" * 10_000
    fresh.call("builtins::print", text, call_id="a")
    assert parts(fresh, b"x\n") == [("a", text.encode() + b"\n")]
    marker = fresh.hello["output_marker"]
    pieces = fresh.stdout.data.split(marker)[1:]
    assert [len(p) + 16 for p in pieces[:-1]] == [4096] * (len(pieces) - 1)


def test_calls_that_print_together_keep_their_own_lines(fresh: WorkerProcess) -> None:
    ids = [fresh.start("app::print_lines", f"n{i}", 500) for i in range(8)]
    for call_id in ids:
        fresh.end_of(call_id)
    found: dict[object, bytes] = {}
    for call_id, data in split_output(fresh.stdout.until(b""), fresh.hello["output_marker"]):
        found[call_id] = found.get(call_id, b"") + data
    expected = {c: "".join(f"n{i} {k}\n" for k in range(500)).encode() for i, c in enumerate(ids)}
    wait_for(lambda: len(fresh.stdout.data) >= sum(map(len, expected.values())), "the output")
    assert found.keys() == expected.keys()
    found.clear()
    for call_id, data in split_output(fresh.stdout.data, fresh.hello["output_marker"]):
        found[call_id] = found.get(call_id, b"") + data
    assert found == expected


def test_unfinished_lines_of_two_calls_do_not_mix(fresh: WorkerProcess) -> None:
    a, b = fresh.start("app::print_steps", "/a"), fresh.start("app::print_steps", "/b")
    fresh.end_of(a)
    fresh.end_of(b)
    fresh.stdout.until(b"b2-end\n")
    fresh.stdout.until(b"a2-end\n")
    found = dict(split_output(fresh.stdout.data, fresh.hello["output_marker"]))
    assert found == {a: b"a0-a1-a2-end\n", b: b"b0-b1-b2-end\n"}


def test_an_unfinished_line_is_written_before_the_result(fresh: WorkerProcess) -> None:
    fresh.call("app::print_partial", "no newline", call_id="a")
    # The result is here, so the output is in the pipe already.
    assert parts(fresh, b"no newline") == [("a", b"no newline")]
    marked = split_output(fresh.stderr.until(b"no newline"), fresh.hello["output_marker"])
    assert marked == [("a", b"err no newline")]


def test_raw_writes_and_children_are_not_marked(fresh: WorkerProcess) -> None:
    fresh.call("app::print_raw", "by buffer\n", call_id="a")
    assert parts(fresh, b"fileno\n") == [("a", b"by buffer\n"), (None, b"raw fd\nchild\nby fileno\n")]


def test_a_redirected_descriptor_gets_no_marks(fresh: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "out"
    fresh.call("app::print_redirected", str(path), call_id="a")
    assert path.read_bytes() == b"into the file\n"
    assert parts(fresh, b"again\n") == [("a", b"back again\n")]


def test_output_outside_a_call_is_plain(tmp_path: pathlib.Path) -> None:
    (tmp_path / "speaker.py").write_text(
        "import threading\ndef later():\n    threading.Timer(0.01, print, ['from a timer']).start()\n"
    )
    with worker(project=tmp_path) as process:
        process.call("speaker::later", call_id="a")
        assert parts(process, b"timer\n") == [(None, b"from a timer\n")]


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_the_last_line_before_the_end_arrives_every_time(how: str) -> None:
    for i in range(20):
        with worker() as process:
            process.start("app::print_and_die", f"line {i}", how, call_id="a")
            assert process.rest() == []
            assert parts(process, b"\n") == [("a", f"line {i}\n".encode())]
            assert process.process.wait(10) == (1 if how == "exit" else -9)


def test_a_non_blocking_pipe_loses_nothing(fresh: WorkerProcess) -> None:
    size = 1_000_000
    fresh.call("app::print_nonblocking", size, call_id="a")
    assert parts(fresh, b"x\n") == [("a", b"x" * size + b"\n")]


def test_the_streams_look_as_programs_expect(shared: WorkerProcess) -> None:
    assert shared.call("app::stream_facts") == [True, 1, False, "utf-8", True, ""]


def test_a_long_call_id_is_left_out_rather_than_cut(fresh: WorkerProcess) -> None:
    fresh.call("builtins::print", "hello", call_id="i" * 300)
    assert parts(fresh, b"hello\n") == [(None, b"hello\n")]

"""One terminal frame for each call, whatever happens in it."""

from __future__ import annotations

import pathlib
import pickle
import time
from typing import Any

import pytest

from harness import WorkerProcess, decode, wait_for

EXCEPTIONS = [
    "Odd",
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "CancelledError",
    "StopIteration",
    "StopAsyncIteration",
    "MemoryError",
    "RecursionError",
    "Unprintable",
]


@pytest.mark.parametrize("encoding", ["pickle", "json", "msgpack"])
@pytest.mark.parametrize("fn", ["app::run", "app::arun"])
def test_sync_and_async_functions_in_each_encoding(shared: WorkerProcess, fn: str, encoding: str) -> None:
    frame = shared.end_of(shared.start(fn, encoding=encoding, kwargs={"input": "hello"}))
    assert decode(frame) == {"output": "HELLO"}
    assert frame.get("encoding") == (None if encoding == "pickle" else encoding)


def test_a_call_of_the_public_protocol_gets_its_golden_answer(shared: WorkerProcess) -> None:
    arguments = bytes.fromhex("8004951700000000000000297d948c05696e707574948c0568656c6c6f947386942e")
    call_id = shared.start("app::run", arguments=arguments)
    frame = shared.end_of(call_id)
    assert set(frame) == {"type", "call_id", "value"}
    assert pickle.loads(frame["value"]) == {"output": "HELLO"}


def test_the_result_encoding_may_differ_from_the_arguments(shared: WorkerProcess) -> None:
    frame = shared.end_of(shared.start("app::run", encoding="json", result_encoding="msgpack", kwargs={"input": "a"}))
    assert (frame["encoding"], decode(frame)) == ("msgpack", {"output": "A"})
    frame = shared.end_of(shared.start("app::run", "a", result_encoding="json"))
    assert (frame["encoding"], decode(frame)) == ("json", {"output": "A"})


@pytest.mark.parametrize(
    ("fn", "args", "value"),
    [
        ("app::returns_awaitable", (0,), 0),
        ("app::old_coroutine", (), "old"),
        ("app::an_object", (1,), [1]),
        ("app::an_object.method", (1,), (1,)),
        ("app::CallableObject.static", (1,), {1}),
        ("app::part", (), {"output": "PARTIAL"}),
        ("app::apart", (), 0),
        ("app::a_lambda", (1,), 2),
        ("builtins::len", ([1, 2],), 2),
        ("builtins::complex", (1, 2), 1 + 2j),
        ("os.path::basename", ("/a/b",), "b"),
        ("app::thread_name", (), False),
        ("app::on_main_thread", (), True),
    ],
)
def test_what_can_be_called(shared: WorkerProcess, fn: str, args: tuple[Any, ...], value: Any) -> None:
    assert shared.call(fn, *args) == value


@pytest.mark.parametrize(
    ("fn", "kind", "text"),
    [
        ("app.run", "ValueError", "module::qualname"),
        ("::run", "ValueError", "module::qualname"),
        ("app::", "ValueError", "module::qualname"),
        ("no_such_module::run", "ModuleNotFoundError", "no_such_module"),
        ("app::nothing", "AttributeError", "nothing"),
        ("app::not_callable", "TypeError", "not callable"),
        ("broken::run", "ZeroDivisionError", "division"),
        ("exits::run", "SystemExit", "bye"),
        ("__main__::run", "AttributeError", "run"),
    ],
)
def test_references_that_do_not_resolve(shared: WorkerProcess, fn: str, kind: str, text: str) -> None:
    error = shared.fail(fn)
    assert (error["type"], error["cancelled"], error["returncode"]) == (kind, False, None)
    assert text in error["message"]
    assert kind in error["traceback"]
    assert "_agentix_worker" not in error["traceback"]


@pytest.mark.parametrize("fn", ["app::raise_", "app::araise"])
@pytest.mark.parametrize("name", EXCEPTIONS)
def test_every_class_of_exception_gives_one_error_and_the_worker_lives(shared: WorkerProcess, fn: str, name: str) -> None:
    pid = shared.call("app::pid")
    call_id = shared.start(fn, name)
    error = shared.end_of(call_id)["error"]
    # Python itself turns StopIteration out of a coroutine into a RuntimeError.
    expected = "RuntimeError" if fn == "app::araise" and name.startswith("Stop") and name == "StopIteration" else name
    assert error["type"] == expected
    assert not error["cancelled"]
    assert "app.py" in error["traceback"]
    assert shared.call("app::pid") == pid
    ends = [f for f in shared.seen if f.get("call_id") == call_id and f["type"] in ("result", "error")]
    assert len(ends) == 1


def test_exits_inside_tasks_and_a_stopped_loop_do_not_end_the_worker(shared: WorkerProcess) -> None:
    assert shared.fail("app::cancel_myself")["type"] == "CancelledError"
    assert shared.fail("app::exit_in_a_task")["type"] == "SystemExit"
    assert shared.call("app::stop_the_loop") == "went on"
    assert shared.call("app::pid") == shared.process.pid


def test_tracebacks_begin_in_user_code_and_keep_causes(shared: WorkerProcess) -> None:
    trace = shared.fail("app::chained")["traceback"]
    assert "_agentix_worker" not in trace
    assert trace.index("ValueError: first") < trace.index("direct cause") < trace.index("KeyError: 'second'")
    assert "RecursionError" in shared.fail("app::recurse")["traceback"]
    assert "not available" in shared.fail("app::raise_", "Unprintable")["message"]


def test_error_texts_are_cut_at_1048576_bytes(shared: WorkerProcess) -> None:
    assert len(shared.fail("app::long_text", 1048576)["message"]) == 1048576
    error = shared.fail("app::long_text", 1048577)
    assert len(error["message"]) <= 1048576
    assert "bytes cut" in error["message"]
    assert len(error["traceback"]) <= 1048576
    assert error["traceback"].startswith("Traceback")


def test_error_texts_with_lone_surrogates_are_made_valid(shared: WorkerProcess) -> None:
    assert shared.fail("app::fail", "bad \ud800")["message"] == "bad \\ud800"


@pytest.mark.parametrize("arguments", [b"", b"rubbish", pickle.dumps(3), pickle.dumps((1, 2, 3)), pickle.dumps((1, 2))])
def test_arguments_that_do_not_unpickle_into_a_pair(shared: WorkerProcess, arguments: bytes) -> None:
    error = shared.fail("app::run", arguments=arguments)
    assert error["type"] == "ArgumentsDecodeError"
    assert error["traceback"] is None


def test_malformed_calls_are_answered(shared: WorkerProcess) -> None:
    shared.send({"type": "call", "call_id": "m1", "callable": 3, "arguments": b""})
    assert shared.end_of("m1")["error"]["type"] == "BadRequest"
    shared.send({"type": "call", "call_id": "m2", "callable": "app::run"})
    assert shared.end_of("m2")["error"]["type"] == "BadRequest"
    assert shared.fail("app::echo", 1, encoding="yaml")["type"] == "ArgumentsDecodeError"
    assert shared.fail("app::echo", 1, result_encoding="yaml")["type"] == "ResultEncodeError"
    shared.send({"type": "call", "callable": "app::echo", "arguments": pickle.dumps(((1,), {}))})
    assert decode(shared.end_of("")) == 1  # without an id: answered with an empty one
    shared.send({"type": "nonsense"})
    shared.send({"no": "type"})
    assert shared.call("app::echo", 1) == 1


@pytest.mark.parametrize("fn", ["app::generator", "app::async_generator", "threading::Lock"])
def test_values_that_cannot_be_pickled(shared: WorkerProcess, fn: str) -> None:
    error = shared.fail(fn)
    assert error["type"] == "ResultEncodeError"
    assert error["traceback"] is None


def test_a_hundred_sleeping_functions_sleep_together(shared: WorkerProcess) -> None:
    begin = time.monotonic()
    ids = [shared.start("app::nap", 1) for _ in range(100)]
    names = {decode(shared.end_of(i)) for i in ids}
    assert time.monotonic() - begin < 3
    assert len(names) == 100
    again = {shared.call("app::nap", 0) for _ in range(10)}
    assert again <= names, "idle threads are used again"


def test_async_calls_run_together(shared: WorkerProcess) -> None:
    begin = time.monotonic()
    ids = [shared.start("app::anap", 0.5) for _ in range(50)]
    assert {decode(shared.end_of(i)) for i in ids} == {0.5}
    assert time.monotonic() - begin < 3


def test_cancel_of_an_async_call(shared: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "seen"
    call_id = shared.start("app::cancellable", str(path))
    shared.until(lambda f: f["type"] == "log" and f.get("call_id") == call_id)
    shared.send({"type": "cancel", "call_id": call_id})
    error = shared.end_of(call_id)["error"]
    assert error == {
        "type": "Cancelled",
        "message": "remote call cancelled",
        "traceback": None,
        "cancelled": True,
        "returncode": None,
    }
    wait_for(path.exists, "the function to see its cancellation")
    wait_for(lambda: path.read_text() == "cancelled", "the file's text")


def test_cancel_of_a_function_that_goes_on_is_answered_once(shared: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cleaned"
    call_id = shared.start("app::stubborn", str(path))
    shared.until(lambda f: f["type"] == "log" and f.get("call_id") == call_id)
    shared.send({"type": "cancel", "call_id": call_id})
    assert shared.end_of(call_id)["error"]["cancelled"]
    wait_for(path.exists, "the end of the function")
    assert_one_end(shared, call_id)


def test_cancel_of_a_sync_call_is_answered_at_once(shared: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "go"
    call_id = shared.start("app::wait_for_file", str(path))
    shared.until(lambda f: f["type"] == "log" and f.get("call_id") == call_id)
    shared.send({"type": "cancel", "call_id": call_id})
    assert shared.end_of(call_id)["error"]["cancelled"]
    path.touch()
    wait_for((tmp_path / "go.done").exists, "the end of the function")
    assert_one_end(shared, call_id)
    shared.send({"type": "cancel", "call_id": call_id})  # unknown by now
    shared.send({"type": "cancel", "call_id": 3})
    shared.send({"type": "cancel"})
    assert_one_end(shared, call_id)


def test_deadline(shared: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "seen"
    begin = time.monotonic()
    error = shared.fail("app::cancellable", str(path), timeout_ms=50)
    assert 0.05 <= time.monotonic() - begin < 2
    assert (error["type"], error["cancelled"]) == ("DeadlineExceeded", False)
    assert "50 ms" in error["message"]
    wait_for(path.exists, "the function to see its cancellation")
    assert shared.fail("app::nap", 0.3, timeout_ms=50)["type"] == "DeadlineExceeded"
    assert shared.call("app::anap", 0, timeout_ms=60000) == 0


def test_a_second_call_with_a_running_id_is_ignored(shared: WorkerProcess, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "go"
    shared.start("app::wait_for_file", str(path), call_id="twice")
    shared.start("app::echo", 1, call_id="twice")
    assert shared.call("app::echo", 2) == 2
    path.touch()
    assert decode(shared.end_of("twice")) is None
    assert_one_end(shared, "twice")


def test_large_values_pass_and_those_over_the_limit_are_refused(fresh: WorkerProcess) -> None:
    value = b"x" * 20_000_000
    assert fresh.call("app::echo", value) == value
    assert len(fresh.call("app::abig", 5_000_000)) == 5_000_000
    for fn in ("app::big", "app::abig"):
        error = fresh.fail(fn, 268431360)
        assert (error["type"], error["limit"]) == ("FrameTooLarge", 268431360)
        assert error["size"] > 268431360
        fresh.seen.clear()
    assert len(fresh.call("app::big", 268431360 - 100)) == 268431260


def test_context(shared: WorkerProcess) -> None:
    blob = bytes.fromhex(
        "80049531000000000000007d948c176167656e7469785f636f6e746578745f62616767616765947d948c0674656e616e74948c0461636d659473732e"
    )
    call_id = shared.start("app::surroundings", context=blob)
    assert decode(shared.end_of(call_id)) == {"baggage": {"tenant": "acme"}, "traceparent": None, "call_id": call_id}
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    found = shared.call("app::surroundings", context=blob, baggage={"user": "ada"}, traceparent=parent)
    assert found["baggage"] == {"tenant": "acme", "user": "ada"}
    assert found["traceparent"] == parent
    assert shared.call("app::surroundings")["baggage"] == {}
    assert shared.call("app::surroundings", context=pickle.dumps([1]))["baggage"] == {}
    assert shared.call("app::surroundings", context=pickle.dumps({"unknown": 1}))["baggage"] == {}
    assert shared.fail("app::surroundings", context=b"rubbish")["type"] == "UnpicklingError"


def test_the_call_id_is_known_in_the_function_and_what_it_starts(shared: WorkerProcess) -> None:
    call_id = shared.start("app::call_id_inside")
    assert decode(shared.end_of(call_id)) == call_id
    call_id = shared.start("app::call_id_in_children")
    assert decode(shared.end_of(call_id)) == [call_id] * 3


def assert_one_end(process: WorkerProcess, call_id: str) -> None:
    process.call("app::echo", 0)
    ends = [f for f in process.seen if f.get("call_id") == call_id and f["type"] in ("result", "error")]
    assert len(ends) == 1, ends

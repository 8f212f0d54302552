"""The public package: namespaces, spans, context, references, environment."""

from __future__ import annotations

import functools
import os
import pathlib
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest

import agentix
from agentix import RemoteCallable, context
from agentix.utils import env
from agentix.utils.trace import Span, Trace
from harness import PYTHON, ROOT, Frame, WorkerProcess


def spans(frames: list[Frame]) -> list[tuple[str, Any]]:
    return [(f["event"], f["data"]) for f in frames if f["type"] == "span"]


def inbound(process: WorkerProcess, event: str, data: Any, namespace: str = "/plug") -> None:
    process.send({"type": "sio_inbound", "namespace": namespace, "event": event, "data": data})


# --- spans ---------------------------------------------------------------------------


def test_spans_have_the_shape_of_the_wire(fresh: WorkerProcess) -> None:
    call_id = fresh.start("plug::spans")
    fresh.end_of(call_id)
    found = spans(fresh.seen)
    assert [(e, d.get("name")) for e, d in found] == [
        ("trace_start", "outer"),
        ("span_start", "first"),
        ("span_start", "second"),
        ("span_end", "second"),
        ("span_end", "first"),
        ("span_start", "third"),
        ("span_end", "third"),
        ("trace_end", None),
    ]
    trace, first, second, second_end, first_end, _, third_end, trace_end = (d for _, d in found)
    assert re.fullmatch("trace_[0-9a-f]{32}", trace["trace_id"])
    assert re.fullmatch("span_[0-9a-f]{24}", first["span_id"])
    assert {d["call_id"] for _, d in found} == {call_id}
    assert {d["trace_id"] for _, d in found} == {trace["trace_id"]}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", d["started_at"]) for e, d in found if e != "trace_end")
    assert set(trace) == {"trace_id", "call_id", "name", "metadata", "started_at"}
    assert set(trace_end) == {"trace_id", "call_id", "ended_at"}
    assert trace["metadata"] == {"seed": 7}
    assert first["parent_id"] is None and second["parent_id"] == first["span_id"]
    assert first["attrs"] == {"n": 1, "odd": [1, 2], "big": str(2**80)}
    assert first_end["attrs"]["reward"] == 0.5
    assert first_end["events"][0]["name"] == "checkpoint"
    assert first_end["events"][0]["attributes"] == {"path": "/x"}
    assert (second_end["status"], second_end["status_description"], second_end["attrs"]) == ("ok", None, None)
    assert "error" not in second_end and "events" not in second_end
    assert (third_end["status"], third_end["status_description"]) == ("error", "boo")
    assert third_end["error"] == {"message": "boo", "data": {"type": "ValueError"}}


def test_decorators_and_async(fresh: WorkerProcess) -> None:
    assert fresh.call("plug::decorated") == "decorated"
    assert fresh.call("plug::adecorated") == "adecorated"
    inner = next(d for e, d in spans(fresh.seen) if e == "span_end" and d["name"] == "inner")
    assert inner["error"] == {"message": "told by hand", "data": {"code": 3}}
    assert fresh.call("plug::with_module_call") == [True, True]
    fresh.call("plug::concurrent_spans")
    ids = {d["name"]: d for e, d in spans(fresh.seen) if e == "span_start"}
    for name in "ab":
        assert ids[f"{name}-child"]["parent_id"] == ids[name]["span_id"]


def test_spans_join_the_callers_trace(fresh: WorkerProcess) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    fresh.call("plug::unbound", traceparent=parent)
    data = spans(fresh.seen)[0][1]
    assert (data["trace_id"], data["parent_id"]) == ("trace_0af7651916cd43dd8448eb211c80319c", "span_b7ad6b7169203331")
    fresh.seen.clear()
    outer = Trace("host trace")
    around = Span("host span")
    blob = pickle.dumps({"agentix_trace_current_trace": outer, "agentix_trace_current_span": around})
    fresh.call("plug::unbound", context=blob)
    data = spans(fresh.seen)[0][1]
    assert (data["trace_id"], data["parent_id"]) == (outer.trace_id, around.span_id)


def test_spans_outside_a_sandbox_go_nowhere() -> None:
    with agentix.trace("t"), agentix.span("s") as s:
        for _ in range(1001):
            s.add_event("e")
        with pytest.raises(ValueError, match="fine"):
            s.set_status("fine")
    assert s.ended_at is not None and s.attrs["dropped_events"] == 1


# --- namespaces ----------------------------------------------------------------------


def test_events_both_ways(fresh: WorkerProcess) -> None:
    inbound(fresh, "ping", 0)  # nobody is there yet: dropped
    fresh.call("plug::open_events")
    assert {"type": "sio_open", "namespace": "/plug"} in fresh.seen
    fresh.call("plug::emit", "hello", {"a": (1, b"x")})
    assert {"type": "sio_emit", "namespace": "/plug", "event": "hello", "data": {"a": [1, b"x"]}} in fresh.seen
    fresh.call("plug::aemit", "awaited", 1)  # as code for a neighbour's package does
    assert {"type": "sio_emit", "namespace": "/plug", "event": "awaited", "data": 1} in fresh.seen
    inbound(fresh, "aping", {"n": 1})
    inbound(fresh, "bad", None)
    inbound(fresh, "unheard", None)
    inbound(fresh, "unheard", None)
    inbound(fresh, "/v1/odd:name", 3)
    for n in range(3):
        inbound(fresh, "ping", n)
    inbound(fresh, "stop", None)
    inbound(fresh, "ping", 9, namespace="/other")
    found = fresh.call("plug::seen")
    assert ("aping", {"n": 1}, True) in found
    assert [f for f in found if f[0] != "aping"] == [("odd", 3), *(("ping", n, False) for n in range(3))]
    texts = [f["record"]["message"] for f in fresh.seen if f["type"] == "log"]
    assert texts.count("no handler for event 'unheard' on namespace /plug") == 1
    assert "handler of event 'bad' on namespace /plug failed" in texts


@pytest.mark.parametrize("fn", ["plug::ask", "plug::ask_sync"])
def test_requests(fresh: WorkerProcess, fn: str) -> None:
    def asked(*args: Any) -> tuple[str, str]:
        call_id = fresh.start(fn, *args)
        frame = fresh.until(lambda f: f["type"] == "sio_emit")
        assert frame["data"]["data"] == args[1]
        assert re.fullmatch("[0-9a-f]{32}", frame["data"]["request_id"])
        return call_id, frame["data"]["request_id"]

    call_id, request = asked("/v1/messages", {"q": 1})
    inbound(fresh, "/v1/messages:result", {"request_id": "another", "value": 0})
    inbound(fresh, "/v1/messages:result", {"request_id": request, "value": [1, b"2"]})
    assert pickle.loads(fresh.end_of(call_id)["value"]) == [1, b"2"]
    call_id, request = asked("get", None)
    inbound(fresh, "get:error", {"request_id": request, "error": {"type": "NotFound", "message": "no", "status_code": 404}})
    assert pickle.loads(fresh.end_of(call_id)["value"]) == ["NotFound", "no", 404]
    call_id, request = asked("get", None)
    inbound(fresh, "get:error", {"request_id": request})
    assert pickle.loads(fresh.end_of(call_id)["value"])[0] == "MalformedError"
    assert fresh.fail(fn, "get", None, 0.05)["type"] == "TimeoutError"


def test_what_a_namespace_refuses(fresh: WorkerProcess) -> None:
    fresh.call("plug::open_events")
    for path in ("/", "/rpc", "/log", "/trace", "plain", ""):
        assert fresh.fail("plug::reserved", path)["type"] == "ValueError"
    assert "registered already" in fresh.fail("plug::second")["message"]
    assert "its data is of type complex" in fresh.fail("plug::emit", "e", 1j)["message"]
    assert "key of type" in fresh.fail("plug::emit", "e", {None: 1})["message"]
    assert "16777216" in fresh.fail("plug::emit", "e", b"x" * 16777216)["message"]
    with pytest.raises(RuntimeError, match="inside a sandbox"):
        agentix.Namespace("/x").emit("e")


# --- context -------------------------------------------------------------------------


def test_context_travels() -> None:
    assert context.encode() is None
    assert context.call_id() is None and context.traceparent() is None
    with context.with_baggage(tenant="acme"):
        assert context.get_baggage("tenant") == "acme"
        golden = "80049531000000000000007d948c176167656e7469785f636f6e746578745f62616767616765947d948c0674656e616e74948c0461636d659473732e"
        assert (context.encode() or b"").hex() == golden
        with context.with_baggage(user="ada"):
            assert context.baggage() == {"tenant": "acme", "user": "ada"}
    assert context.baggage() == {}
    with pytest.raises(ValueError, match="registered already"):
        context.register("agentix_context_baggage", __import__("contextvars").ContextVar("other"))
    from agentix.utils import context as same

    assert same.with_baggage is context.with_baggage


# --- references ----------------------------------------------------------------------


class Instance:
    def __call__(self) -> None: ...

    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...


def test_admitted_references() -> None:
    assert RemoteCallable.validate(os.path.join) == "posixpath::join"
    assert RemoteCallable.validate(len) == "builtins::len"
    assert RemoteCallable.validate(Instance.static) == f"{__name__}::Instance.static"
    assert RemoteCallable.validate(Instance.method) == f"{__name__}::Instance.method"


def local() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (3, "not callable"),
        (Instance().method, "bound method"),
        (lambda: 1, "lambda"),
        (local(), "local"),
        (functools.partial(len), "callable instances"),
        (Instance(), "callable instances"),
        (Instance, "callable instances"),
        (functools.lru_cache(os.path.join), "partial"),
        ([].append, "no importable module path"),
    ],
)
def test_refused_references(target: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        RemoteCallable.validate(target)


SCRIPT = "import agentix\ndef f(): ...\nif __name__ == '__main__':\n    print(agentix.RemoteCallable.validate(f))\n"


def test_main_module(tmp_path: pathlib.Path) -> None:
    def run(*args: str, cwd: pathlib.Path = tmp_path, path: str = "") -> str:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), path]))}
        result = subprocess.run([PYTHON, *args], cwd=cwd, env=environ, capture_output=True, text=True, check=False)
        return result.stdout.strip() or result.stderr.strip().splitlines()[-1]

    package = tmp_path / "pkg"
    package.mkdir()
    for name in ("mod", "__main__", "__init__", "not-a-name"):
        (package / f"{name}.py").write_text(SCRIPT if name != "__init__" else "")
    assert run("-m", "pkg.mod") == "pkg.mod::f"
    assert run("-m", "pkg") == "pkg.__main__::f"
    assert run("pkg/mod.py") == "mod::f"
    assert "no importable module path" in run("pkg/not-a-name.py")
    assert "no importable module path" in run("-c", SCRIPT)


# --- environment and package ---------------------------------------------------------


def test_image_env(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    source = {
        "PATH": "/py/bin:/nix/runtime/bin:/usr/bin:/bin",
        "AGENTIX_ADDED_PATH": "/py/bin:/nix/runtime/bin",
        "CPATH": "/nix/include",
        "AGENTIX_ADDED_CPATH": "/nix/include",
        "AGENTIX_SAVED_PYTHONPATH": "/home/code",
        "AGENTIX_SAVED_HOME": "/not/used",
        "HOME": str(tmp_path),
    }
    assert env.get_env_without_agentix(source) == {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/home/code", "HOME": str(tmp_path)}
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in source.items():
        monkeypatch.setenv(name, value)
    assert env.image_env({"X": "1"})["X"] == "1"
    assert "BASH_ENV" not in env.image_env()
    (tmp_path / ".bashrc").touch()
    assert env.image_env()["BASH_ENV"] == str(tmp_path / ".bashrc")


def test_the_package_tells_what_it_has(tmp_path: pathlib.Path) -> None:
    assert {"RemoteCallable", "Namespace", "context", "trace"} <= set(dir(agentix))
    with pytest.raises(AttributeError, match="nothing_like_this"):
        agentix.nothing_like_this  # noqa: B018
    host = tmp_path / "agentix"
    host.mkdir()
    (host / "_host.py").write_text("__all__ = ['SandboxConfig']\nclass SandboxConfig: ...\n")
    code = "import agentix; print(agentix.SandboxConfig.__module__, 'SandboxConfig' in dir(agentix))"
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "agentix._host True"

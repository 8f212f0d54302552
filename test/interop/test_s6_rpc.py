"""wire §6 and §7: calls, their outcomes and their errors."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import time
from typing import Any

import aiohttp
import pytest

from conftest import MakeHost
from peers import wire
from peers.host import Host
from peers.raw import RawHost
from peers.runtime import Runtime, until

FIVE = {"type", "message", "traceback", "cancelled", "returncode"}


async def test_s6_1_call_and_result(host: Host) -> None:
    event = host.wait(wire.RPC, "call:result")
    assert await host.remote("interop_app::echo", {"k": [1, 2.5, None, "é", b"\x00\xff"]}) == {"k": [1, 2.5, None, "é", b"\x00\xff"]}
    (result,) = await event
    assert set(result.data) == {"call_id", "value"}


async def test_s6_1_golden_bytes(raw: RawHost) -> None:
    """§21: the value of a result, to the byte, and protocol 4 throughout (§2.3)."""
    await raw.join(wire.RPC)
    golden = [
        (None, "80044e2e"),
        (True, "8004882e"),
        (3, "80044b032e"),
        (256, "80049504000000000000004d00012e"),
        (-1, "80049506000000000000004affffffff2e"),
        (1.5, "8004950a00000000000000473ff80000000000002e"),
        ("é", "80049506000000000000008c02c3a9942e"),
        ([1, "a"], "8004950b000000000000005d94284b018c016194652e"),
    ]
    for i, (value, data) in enumerate(golden):
        await raw.emit(wire.RPC, "call", wire.call(f"c{i}", "interop_app::echo", value))
        results = await raw.wait(wire.RPC, "call:result", i + 1)
        assert [r["value"].hex() for r in results if r["call_id"] == f"c{i}"] == [data]


async def test_s2_3_any_protocol_of_arguments(host: Host) -> None:
    import pickle

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        call_id = f"p{protocol}"
        arguments = pickle.dumps(((["x", 1, None, 2.5, b"y"],), {}), protocol=protocol)
        await host.emit(wire.RPC, "call", wire.pack({"call_id": call_id, "callable": "interop_app::echo", "arguments": arguments}))
        assert wire.value_of((await host.outcome(call_id)).args[0]) == ["x", 1, None, 2.5, b"y"]


async def test_s2_3_values_of_every_kind(host: Host) -> None:
    import datetime
    import decimal
    import uuid

    value = await host.remote("interop_app::values")
    error = value.pop("error")
    assert isinstance(error, ValueError) and error.args == ("x",)
    assert value == {
        "none": None, "bytes": b"\x00\xff", "big": 1 << 70, "float": 1.5, "text": "é", "tuple": (1, 2), "set": {3},
        "when": datetime.datetime(2026, 1, 2, 3, 4, 5), "decimal": decimal.Decimal("1.10"), "uuid": uuid.UUID(int=7),
    }  # fmt: skip


async def test_s6_2_one_id_runs_once(tmp_path: pathlib.Path, host: Host) -> None:
    ran = tmp_path / "ran"
    body = wire.call("c1", "interop_app::slow_count", str(ran), "c1", 0.2)
    for _ in range(3):
        await host.emit(wire.RPC, "call", body)
    assert (await host.outcome("c1")).name == "call:result"
    await host.emit(wire.RPC, "call", body)  # retained: at worst its result comes again
    await host.remote("interop_app::echo", 1)
    await host.emit(wire.RPC, "ack", wire.pack({"call_id": "c1"}))
    await host.emit(wire.RPC, "call", body)  # finished and forgotten, but never run again
    await until(lambda: host.outcomes("c1")[-1].name == "call:error", "an answer to the late replay")
    assert host.outcomes("c1")[-1].data["error"]["type"] == "ResultUnavailable"
    assert ran.read_text().split() == ["c1"]


async def test_s6_2_resume(tmp_path: pathlib.Path, host: Host) -> None:
    """Retained: sent again. Running: its result comes. Unknown: told after its call had time to come."""
    await host.remote("interop_app::echo", 1, call_id="acked")
    await host.emit(wire.RPC, "call", wire.call("kept", "interop_app::echo", 2))
    await host.outcome("kept")
    go = tmp_path / "go"
    await host.emit(wire.RPC, "call", wire.call("running", "interop_app::wait_for", str(go)))
    await host.emit(wire.RPC, "resume", wire.pack({"call_ids": ["kept", "running", "unknown", "acked", 7, None]}))
    asked = time.monotonic()
    await until(lambda: len(host.outcomes("kept")) == 2, "the retained result")
    unknown = await host.outcome("unknown")
    assert 1.5 < unknown.at - asked < 6
    for call_id in ("unknown", "acked"):
        error = (await until_last(host, call_id, "call:error")).data["error"]
        assert set(error) >= FIVE and error["type"] == "ResultUnavailable"
    assert host.outcomes("running") == []
    go.touch()
    assert (await host.outcome("running")).name == "call:result"
    await host.emit(wire.RPC, "resume", wire.pack({"call_ids": "kept"}))
    await host.emit(wire.RPC, "resume", wire.pack({}))
    await host.remote("interop_app::echo", 1)
    assert len(host.outcomes("kept")) == 2


async def until_last(host: Host, call_id: str, name: str) -> Any:
    await until(lambda: bool(host.outcomes(call_id)) and host.outcomes(call_id)[-1].name == name, f"{name} of {call_id}")
    return host.outcomes(call_id)[-1]


async def test_s6_3_a_resume_that_comes_before_its_call(tmp_path: pathlib.Path, host: Host) -> None:
    """An upstream host resumes ids whose call it has not sent: the call runs and answers, once."""
    ran = tmp_path / "ran"
    await host.emit(wire.RPC, "resume", wire.pack({"call_ids": ["early"]}))
    await asyncio.sleep(0.3)
    await host.emit(wire.RPC, "call", wire.call("early", "interop_app::count", str(ran), "early"))
    assert (await host.outcome("early")).name == "call:result"
    await asyncio.sleep(2.2)
    await host.remote("interop_app::echo", 1)
    assert [e.name for e in host.outcomes("early")] == ["call:result"]
    assert ran.read_text().split() == ["early"]


async def test_s6_2_cancel_stops_the_function(tmp_path: pathlib.Path, host: Host) -> None:
    stopped = tmp_path / "stopped"
    await host.emit(wire.RPC, "call", wire.call("c1", "interop_app::forever", str(stopped)))
    await host.wait(wire.LOG, "record")
    began = time.monotonic()
    await host.emit(wire.RPC, "cancel", wire.pack({"call_id": "c1"}))
    outcome = await host.outcome("c1")
    assert outcome.at - began < 0.5
    assert outcome.data["error"] == {
        "type": "Cancelled", "message": "remote call cancelled", "traceback": None, "cancelled": True, "returncode": None
    }  # fmt: skip
    await until(stopped.exists, "the function's CancelledError")
    await host.remote("interop_app::echo", 1)
    assert len(host.outcomes("c1")) == 1


async def test_s6_2_cancel_of_a_sync_function_answers_at_once(tmp_path: pathlib.Path, host: Host) -> None:
    go = tmp_path / "go"
    await host.emit(wire.RPC, "call", wire.call("c1", "interop_app::wait_for", str(go)))
    await host.wait(wire.LOG, "record")
    await host.emit(wire.RPC, "cancel", wire.pack({"call_id": "c1"}))
    assert (await host.outcome("c1")).data["error"]["cancelled"] is True
    assert await host.remote("interop_app::echo", 1) == 1
    go.touch()
    await host.remote("interop_app::nap", 0.1)
    assert len(host.outcomes("c1")) == 1


async def test_s6_2_cancel_by_another_host_ends_the_owner_too(tmp_path: pathlib.Path, make: MakeHost, runtime: Runtime) -> None:
    """Upstream tells the canceller alone, and the owner waits for ever: ours tells both."""
    owner, other = make(), make()
    await owner.connect(runtime.url)
    await other.connect(runtime.url)
    await owner.emit(wire.RPC, "call", wire.call("c1", "interop_app::anap", 60))
    await owner.remote("interop_app::echo", 1)
    await other.emit(wire.RPC, "cancel", wire.pack({"call_id": "c1"}))
    for host in (owner, other):
        assert (await host.outcome("c1")).data["error"]["type"] == "Cancelled"


async def test_s6_2_a_cancel_that_overtakes_its_call(tmp_path: pathlib.Path, host: Host, runtime: Runtime) -> None:
    """POST /call and the cancel event use different connections: no orphan may run on."""
    ran = tmp_path / "ran"
    await host.emit(wire.RPC, "cancel", wire.pack({"call_id": "c1"}))
    await host.remote("interop_app::echo", 1)
    async with aiohttp.ClientSession(runtime.url) as http:
        body = wire.call("c1", "interop_app::count", str(ran), "c1")
        async with http.post("/call", data=body, headers={"Prefer": "wait=20"}) as answer:
            document = wire.unpack(await answer.read())
    assert (answer.status, document["ok"], document["error"]["type"]) == (200, False, "Cancelled")
    assert not ran.exists()


async def test_s6_2_cancel_of_nothing_says_nothing(host: Host) -> None:
    await host.remote("interop_app::echo", 1, call_id="done")
    for call_id in ("unknown", "done"):
        await host.emit(wire.RPC, "cancel", wire.pack({"call_id": call_id}))
    await host.remote("interop_app::echo", 1)
    assert host.of(wire.RPC, "call:error") == []


async def test_s6_2_a_disconnect_drops_nothing(tmp_path: pathlib.Path, make: MakeHost, runtime: Runtime) -> None:
    first = make()
    await first.connect(runtime.url)
    go = tmp_path / "go"
    await first.emit(wire.RPC, "call", wire.call("c1", "interop_app::wait_for", str(go)))
    await first.remote("interop_app::echo", 1)
    await first.close()
    go.touch()
    second = make()
    await second.connect(runtime.url)
    await second.emit(wire.RPC, "resume", wire.pack({"call_ids": ["c1"]}))
    assert (await second.outcome("c1")).name == "call:result"


@pytest.mark.parametrize("way", ["/rpc", "/call"])
async def test_s6_5_two_hosts_that_ack_everything(way: str, make: MakeHost, runtime: Runtime) -> None:
    """§6.3 point 4: each acks each result. The one that is away must still get its own."""
    owner, other = make(), make()
    await owner.connect(runtime.url)
    await other.connect(runtime.url)
    body = wire.call("c1", "interop_app::nap", 0.5)
    if way == "/rpc":
        await owner.emit(wire.RPC, "call", body)
    else:
        async with aiohttp.ClientSession(runtime.url) as http, http.post("/call", data=body, headers={"Prefer": "wait=0"}) as answer:
            assert answer.status == 202
    await owner.remote("interop_app::echo", 1)
    await owner.close()
    await other.outcome("c1")
    await other.emit(wire.RPC, "ack", wire.pack({"call_id": "c1"}))
    await other.remote("interop_app::echo", 1)
    back = make()
    await back.connect(runtime.url)
    await back.emit(wire.RPC, "resume", wire.pack({"call_ids": ["c1"]}))
    outcome = await back.outcome("c1")
    assert outcome.name == "call:result", outcome.data


@pytest.mark.parametrize(
    ("callable_", "args", "kind"),
    [
        ("interop_app::fail", ["no"], "ValueError"), ("interop_app::nothing", [], "AttributeError"),
        ("no_such_module::f", [], "ModuleNotFoundError"), ("interop_app", [], "ValueError"), ("interop_app::log", [], "TypeError"),
        ("interop_app::generator", [], "ResultEncodeError"), ("interop_app::own_cancel", [], None),
        ("interop_app::leave", [7], None), ("interop_app::echo", [1, 2, 3], "TypeError"), ("builtins::exit", [1], None),
    ],
)  # fmt: skip
async def test_s7_1_each_failure_is_one_terminal_event(callable_: str, args: list[Any], kind: str | None, host: Host) -> None:
    error = await host.failure(callable_, *args)
    assert set(error) >= FIVE
    assert isinstance(error["type"], str) and isinstance(error["message"], str)
    if kind is not None:
        assert error["type"] == kind
        assert error["cancelled"] is False
    assert await host.remote("interop_app::echo", 1) == 1
    assert len(host.of(wire.RPC, "call:error")) == 1


@pytest.mark.parametrize(
    ("callable_", "args", "code", "text"),
    [
        ("interop_app::die", [7], 7, "exit code 7"), ("interop_app::die", [0], 0, "exit code 0"),
        ("interop_app::kill_self", [signal.SIGTERM], -15, "killed by signal 15"),
        ("interop_app::kill_self", [signal.SIGKILL], -9, "killed by signal 9 (likely OOM-killed)"),
        ("interop_app::fork_and_die", [], -9, "killed by signal 9 (likely OOM-killed)"),
    ],
)  # fmt: skip
async def test_s7_1_worker_died(callable_: str, args: list[Any], code: int, text: str, host: Host) -> None:
    """All calls in flight end at once, the next one finds a new worker (§9.8)."""
    await host.emit(wire.RPC, "call", wire.call("bystander", "interop_app::anap", 60))
    first = await host.remote("interop_app::environment", "AGENTIX_WORKER_ID")
    error = await host.failure(callable_, *args, timeout=5)
    assert (error["type"], error["message"], error["returncode"]) == ("WorkerDied", "runtime worker exited: " + text, code)
    assert (error["cancelled"], error["traceback"]) == (False, None)
    assert (await host.outcome("bystander", timeout=5)).data["error"]["type"] == "WorkerDied"
    second = await host.remote("interop_app::environment", "AGENTIX_WORKER_ID")
    assert first and second and first != second
    if callable_.endswith("::die"):
        lines = [e.data["data"]["message"] for e in await host.wait(wire.LOG, "record")]
        assert "last words" in lines


async def test_s7_1_a_result_too_large(host: Host) -> None:
    error = await host.failure("interop_app::fill", wire.MAX_MESSAGE + 1, timeout=60)
    assert error["type"] == "FrameTooLarge"
    assert await host.remote("interop_app::echo", 1) == 1


async def test_s6_2_retained_results_are_bounded(host: Host) -> None:
    """§20: 4096 entries; the oldest goes first, and asking for it is answered."""
    for i in range(4200):
        await host.emit(wire.RPC, "call", wire.call(f"c{i}", "interop_app::aecho", i))
    await host.wait(wire.RPC, "call:result", count=4200, timeout=60)
    host.events.clear()
    await host.emit(wire.RPC, "resume", wire.pack({"call_ids": ["c0", "c4199"]}))
    assert (await host.outcome("c0")).data["error"]["type"] == "ResultUnavailable"
    assert (await host.outcome("c4199")).name == "call:result"


async def test_s13_context_baggage(raw: RawHost) -> None:
    await raw.join(wire.RPC)
    golden = bytes.fromhex(
        "80049531000000000000007d948c176167656e7469785f636f6e746578745f62616767616765947d948c0674656e616e74948c0461636d659473732e"
    )
    await raw.emit(wire.RPC, "call", wire.call("c1", "interop_app::baggage", context=golden))
    (result,) = await raw.wait(wire.RPC, "call:result")
    assert wire.value_of(wire.pack(result)) == {"tenant": "acme"}
    assert await raw.remote("interop_app::baggage") == {}


@pytest.mark.parametrize("context", [b"", wire.arguments(), bytes.fromhex("80044e2e")])
async def test_s13_a_context_that_is_no_dict_is_empty(context: bytes, raw: RawHost) -> None:
    await raw.join(wire.RPC)
    await raw.emit(wire.RPC, "call", wire.call("c1", "interop_app::baggage", context=context))
    (result,) = await raw.wait(wire.RPC, "call:result")
    assert wire.value_of(wire.pack(result)) == {}

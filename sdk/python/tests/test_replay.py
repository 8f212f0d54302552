"""Replay of events into logging, without a daemon."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from agentix.v1 import event_service_pb2 as events

from agentix._host import _limits
from agentix._host._replay import Replayer, printable


@pytest.fixture
def replayer(caplog: pytest.LogCaptureFixture) -> Replayer:
    caplog.set_level(logging.DEBUG)
    return Replayer("box")


def _log(**fields: Any) -> events.Event:
    record = events.LogRecord(**{"logger": "a", "level": "INFO", "level_number": 20, **fields})
    return events.Event(call_id="c", log=record)


def _output(data: bytes, stream: int = 1, call_id: str = "") -> events.Event:
    output = events.Output(stream=stream, data=data)  # type: ignore[arg-type]
    return events.Event(call_id=call_id, output=output)


def _texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_messages_are_never_formats(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    replayer.handle(_log(message="%s %d %(x)s {0}"))
    replayer.handle(_output(b"%s\n"))

    assert _texts(caplog) == ["%s %d %(x)s {0}", "%s"]


def test_extras_that_collide_are_dropped(
    replayer: Replayer, caplog: pytest.LogCaptureFixture
) -> None:
    replayer.handle(
        _log(
            message="x",
            extras='{"name": 1, "msg": 2, "message": 3, "agentix_call_id": 4, "k": [5]}',
        )
    )

    record = caplog.records[0]
    assert (record.name, record.msg, record.k) == ("a", "x", [5])  # type: ignore[attr-defined]
    assert record.agentix_call_id == "c"  # type: ignore[attr-defined]
    assert record.agentix_sandbox == "box"  # type: ignore[attr-defined]


@pytest.mark.parametrize("extras", ["{", "[1]", "[" * 100_000, '{"n": ' + "9" * 10_000 + "}"])
def test_extras_that_are_no_object(
    extras: str, replayer: Replayer, caplog: pytest.LogCaptureFixture
) -> None:
    replayer.handle(_log(message="x", extras=extras))

    assert _texts(caplog) == ["x"]


def test_control_characters_are_escaped(
    replayer: Replayer, caplog: pytest.LogCaptureFixture
) -> None:
    replayer.handle(
        _log(logger="a\x1b\n", message="\x1b[2J\x07\r\ttab\nline\x9b", stack_info="\x00")
    )
    replayer.handle(_output(b"\x1b[31m\xff\r\n"))

    assert caplog.records[0].name == "a\\x1b "
    assert caplog.records[0].stack_info == "\\x00"
    assert _texts(caplog) == ["\\x1b[2J\\x07\\x0d\ttab\nline\\x9b", "\\x1b[31m\\xff"]
    assert printable("plain é") == "plain é"


def test_lines_of_output(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    replayer.handle(_output(b"one\ntw"))
    replayer.handle(_output(b"other", stream=2))
    replayer.handle(_output(b"o\n\nend"))
    assert _texts(caplog) == ["one", "two", ""]

    replayer.flush()

    assert sorted(_texts(caplog)[3:]) == ["end", "other"]
    assert {record.name for record in caplog.records} == {
        "agentix.sandbox.stdout",
        "agentix.sandbox.stderr",
    }


def test_the_end_of_a_call_ends_its_line(
    replayer: Replayer, caplog: pytest.LogCaptureFixture
) -> None:
    replayer.handle(_output(b"mine", call_id="c1"))
    replayer.handle(_output(b"other's", call_id="c2"))
    ended = events.CallEvent(phase=events.CALL_PHASE_FINISHED)
    replayer.handle(events.Event(call_id="c1", call=ended))

    assert _texts(caplog) == ["mine"]


def test_long_lines_come_in_pieces(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    assert _limits.MAX_LINE_BYTES == 65536
    replayer.handle(_output(b"x" * 65537))
    assert [len(text) for text in _texts(caplog)] == [65536]

    replayer.handle(_output(b"y" * 70_000 + b"\nz\n"))

    assert [len(text) for text in _texts(caplog)] == [65536, 65536, 4465, 1]


def test_open_lines_are_bounded(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    assert _limits.MAX_OPEN_LINES == 1024
    for number in range(1025):
        replayer.handle(_output(b"x", call_id=str(number)))

    assert len(caplog.records) == 1024
    assert len(replayer._lines) == 1


def test_loggers_are_bounded(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    assert (_limits.MAX_LOGGERS, _limits.MAX_LOGGER_NAME) == (1000, 256)
    for number in range(1001):
        replayer.handle(_log(logger=f"flood.{number}", message="x"))
    replayer.handle(_log(logger="flood.0", message="known"))
    replayer.handle(_log(logger="y" * 300, message="long"))

    assert caplog.records[999].name == "flood.999"
    assert caplog.records[1000].name == "agentix.sandbox"
    assert caplog.records[1001].name == "flood.0"
    assert max(len(record.name) for record in caplog.records) <= 256


def test_root_and_nameless_loggers(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    replayer.handle(_log(logger="", message="x"))
    replayer.handle(_log(logger="root", message="y"))

    assert [record.name for record in caplog.records] == ["root", "root"]


def test_levels(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    replayer.handle(_log(message="x", level_number=-5))
    replayer.handle(_log(message="y", level_number=2_000_000_000))
    replayer.handle(_log(message="z", level_number=35))
    caplog.set_level(logging.CRITICAL)
    replayer.handle(_log(message="dropped"))
    replayer.handle(_output(b"dropped\n"))

    assert [record.levelno for record in caplog.records] == [20, 20, 35]


def test_gaps_are_told(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    replayer.handle(events.Event(gap=events.Gap(dropped=7)))

    assert _texts(caplog) == ["7 events of sandbox box were lost"]


def test_other_events_do_nothing(replayer: Replayer, caplog: pytest.LogCaptureFixture) -> None:
    replayer.handle(events.Event(span=events.SpanEvent(name="x")))
    replayer.handle(events.Event(call=events.CallEvent(phase=events.CALL_PHASE_ACCEPTED)))
    replayer.handle(_output(b"x\n", stream=0))
    replayer.handle(events.Event())

    assert caplog.records == []

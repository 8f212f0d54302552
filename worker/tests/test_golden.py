"""The golden bytes that Go and Python share, read from the runtime's test data."""

from __future__ import annotations

import ast
import dataclasses
import json
import pathlib
import sys
import types
from typing import Any

import pytest

from _agentix_worker import codec, encodings
from _agentix_worker.framing import FrameDecoder, frame_header

FILE = pathlib.Path(__file__).parents[2] / "runtime" / "wire" / "testdata" / "golden.json"
ENTRIES = json.loads(FILE.read_text())


def result_class(module: str, name: str, **fields: type) -> Any:
    """Make a result class of a package that is not here, importable under its own name."""
    made = dataclasses.make_dataclass(name, fields.items())
    made.__module__ = module
    sys.modules[module] = types.ModuleType(module)
    setattr(sys.modules[module], name, made)
    return made


BashResult = result_class("agentix.bash", "BashResult", exit_code=int, stdout=str, stderr=str)
UploadResult = result_class("agentix.files", "UploadResult", path=str, size=int)
OTHERS = {
    "2^31": 2**31,
    'context with baggage {"tenant":"acme"}': {"agentix_context_baggage": {"tenant": "acme"}},
    'BashResult(0,"o","")': BashResult(0, "o", ""),
    'UploadResult("/workspace/a",1)': UploadResult("/workspace/a", 1),
}


VALUES = {e["name"]: e["value"] for e in ENTRIES if "value" in e}


def plain(value: Any) -> Any:
    """Return a value of the file with its bytes as bytes."""
    if isinstance(value, dict):
        if value.keys() == {"$bytes"}:
            return bytes.fromhex(value["$bytes"])
        return {k: plain(v) for k, v in value.items()}
    return value


def entries(kind: str) -> Any:
    found = [(e["name"], bytes.fromhex(e["hex"])) for e in ENTRIES if e["kind"] == kind]
    assert found
    return pytest.mark.parametrize(("name", "data"), found)


@entries("pickle")
def test_pickles(name: str, data: bytes) -> None:
    if name.startswith("args "):
        args, kwargs = encodings.decode_arguments("pickle", data, len)
        assert (args, kwargs) == ast.literal_eval(name[5:])
        assert encodings.encode_result("pickle", (args, kwargs)) == data
        return
    try:
        value = OTHERS[name] if name in OTHERS else ast.literal_eval(name)
    except (ValueError, SyntaxError):
        pytest.fail(f"golden entry {name!r} needs a value here")
    assert encodings.encode_result("pickle", value) == data


@pytest.mark.parametrize("pack", [codec.pack_pure, codec.pack])
@entries("msgpack")
def test_msgpack(name: str, data: bytes, pack: Any) -> None:
    assert pack(codec.unpack_pure(data)) == data
    assert pack(codec.unpack(data)) == data
    if name.startswith("{"):
        assert codec.unpack(data) == ast.literal_eval(name)


@pytest.mark.parametrize("pack", [codec.pack_pure, codec.pack])
@entries("frame")
def test_frames(name: str, data: bytes, pack: Any) -> None:
    value = plain(VALUES.get(name, {"type": name}))
    (body,) = FrameDecoder().feed(data)
    assert codec.unpack_pure(body) == codec.unpack(body) == value
    assert frame_header(len(body)) + pack(value) == data

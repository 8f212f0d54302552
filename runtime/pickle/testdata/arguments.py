"""What CPython and a worker make of the arguments of calls.

Run as `python3 arguments.py WORKER_SRC`; reads one JSON line per case and answers each with
one: {"args", "kwargs"} (JSON texts) with the pickle of the pair; {"msgpack"} (base64) and
{"check"} (base64 of a pickle of that pair) with whether both are the same; {"context"}
(base64 of a pickle) with its text and what CPython writes for it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import sys
import types
from typing import Any, Optional

sys.path.insert(0, sys.argv[1])
sys.set_int_max_str_digits(0) if hasattr(sys, "set_int_max_str_digits") else None

from _agentix_worker import codec  # noqa: E402

trace = types.ModuleType("agentix.utils.trace")
sys.modules["agentix.utils.trace"] = trace


@dataclasses.dataclass
class Trace:
    trace_id: str
    name: str
    metadata: dict[str, Any]
    started_at: Optional[str]
    ended_at: Optional[str]


@dataclasses.dataclass
class Span:
    span_id: str
    trace_id: str
    parent_id: Optional[str]
    name: str
    attrs: dict[str, Any]
    started_at: Optional[str]
    ended_at: Optional[str]
    status: str
    status_description: Optional[str]
    error: Optional[dict[str, Any]]
    events: list[Any]


for each in (Trace, Span):
    each.__module__ = "agentix.utils.trace"
    setattr(trace, each.__name__, each)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    if "msgpack" in case:
        args, kwargs = codec.unpack_pure(base64.b64decode(case["msgpack"]))
        return {"same": repr((tuple(args), kwargs)) == repr(pickle.loads(base64.b64decode(case["check"])))}
    if "context" in case:
        value = pickle.loads(base64.b64decode(case["context"]))
        return {"repr": repr(value), "pickle": base64.b64encode(pickle.dumps(value, 4)).decode()}
    args, kwargs = json.loads(case["args"] or "[]"), json.loads(case["kwargs"] or "{}")
    return {"pickle": base64.b64encode(pickle.dumps((tuple(args), kwargs), 4)).decode()}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)

"""The documents of the public protocol, made with the msgpack package and pickle alone."""

from __future__ import annotations

import base64
import pickle
import uuid
from typing import Any, Optional

import msgpack

RPC, LOG, TRACE = "/rpc", "/log", "/trace"
MAX_MESSAGE = 268_435_456


def pack(value: Any) -> bytes:
    """Return value as one msgpack document."""
    return bytes(msgpack.packb(value, use_bin_type=True))


def unpack(data: bytes) -> Any:
    """Return the value of one msgpack document; keys are strings, as every peer demands."""
    return msgpack.unpackb(data, raw=False, strict_map_key=True)


def arguments(*args: Any, **kwargs: Any) -> bytes:
    """Return the arguments of a call as a host sends them."""
    return pickle.dumps((args, kwargs), protocol=4)


def new_id() -> str:
    """Return a call id as upstream's host makes them."""
    return uuid.uuid4().hex


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of HTTP Basic."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def call(call_id: str, callable_: str, *args: Any, context: Optional[bytes] = None, **kwargs: Any) -> bytes:
    """Return the payload of a `call` event or of POST /call."""
    fields: dict[str, Any] = {"call_id": call_id, "callable": callable_, "arguments": arguments(*args, **kwargs)}
    if context is not None:
        fields["context"] = context
    return pack(fields)


def value_of(payload: bytes) -> Any:
    """Return the value of a `call:result`."""
    return pickle.loads(unpack(payload)["value"])

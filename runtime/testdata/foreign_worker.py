"""A worker as a neighbour writes one: frames on fd 0 and 1, a bare `ready`, its own envelopes.

It knows a handful of functions, named by `callable`; argv[1] chooses how it boots.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
from typing import Any

SID = "%08x" % os.getpid()
seq = 0
acked = 0


def pack(v: Any) -> bytes:
    """Encode v as msgpack."""
    if v is None:
        return b"\xc0"
    if isinstance(v, bool):
        return b"\xc3" if v else b"\xc2"
    if isinstance(v, int):
        return bytes((v,)) if 0 <= v < 128 else struct.pack(">Bq", 0xD3, v)
    if isinstance(v, float):
        return struct.pack(">Bd", 0xCB, v)
    if isinstance(v, str):
        b = v.encode()
        return struct.pack(">BI", 0xDB, len(b)) + b
    if isinstance(v, bytes):
        return struct.pack(">BI", 0xC6, len(v)) + v
    if isinstance(v, (list, tuple)):
        return struct.pack(">BI", 0xDD, len(v)) + b"".join(map(pack, v))
    return struct.pack(">BI", 0xDF, len(v)) + b"".join(pack(k) + pack(x) for k, x in v.items())


def unpack(b: bytes, at: int = 0) -> tuple[Any, int]:
    """Decode the msgpack value at b[at:]; return it and where the next begins."""
    c = b[at]
    at += 1
    if c < 0x80:
        return c, at
    if c >= 0xE0:
        return c - 256, at
    if c in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[c], at
    fixed = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q", 0xCB: ">d", 0xCA: ">f"}
    if c in fixed:
        size = struct.calcsize(fixed[c])
        return struct.unpack(fixed[c], b[at : at + size])[0], at + size
    if c < 0x90:
        kind, n = "map", c & 15
    elif c < 0xA0:
        kind, n = "array", c & 15
    elif c < 0xC0:
        kind, n = "str", c & 31
    else:
        kind, size = {
            0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4),
            0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
        }[c]
        n = int.from_bytes(b[at : at + size], "big")
        at += size
    if kind in ("str", "bin"):
        raw = b[at : at + n]
        return (raw.decode() if kind == "str" else raw), at + n
    items = []
    for _ in range(n * (2 if kind == "map" else 1)):
        v, at = unpack(b, at)
        items.append(v)
    return (dict(zip(items[::2], items[1::2])) if kind == "map" else items), at


def send(**frame: Any) -> None:
    """Write one frame."""
    body = pack(frame)
    os.write(1, len(body).to_bytes(4, "little") + body)


def emit(namespace: str, event: str, data: dict[str, Any]) -> None:
    """Send one envelope of a reliable stream."""
    global seq
    seq += 1
    send(type="sio_emit", namespace=namespace, event=event, data={"_sid": SID, "_seq": seq, "data": data})


def line(text: str) -> None:
    """Send a captured line."""
    name = "agentix.sandbox.stdout"
    emit("/log", "record", {"name": name, "level": "INFO", "levelno": 20, "message": text, "created": time.time(),
                            "extras": {"agentix_stream": "stdout", "worker_id": "0"}})


def call(name: str, args: list[Any]) -> Any:
    """Run one of the functions there are."""
    if name == "t::echo":
        return args[0]
    if name == "t::speak":
        line("printed")
        emit("/log", "record", {"name": "app", "level": "WARNING", "levelno": 30, "message": "logged", "created": 1.5})
        emit("/trace", "span_start", {"trace_id": "t", "call_id": "c", "span_id": "s", "name": "n", "started_at": "x"})
        send(type="sio_emit", namespace="/trace", event="span_start", data={1: "an integer key"})
        return None
    if name == "t::forge":
        send(type="sio_emit", namespace="/rpc", event="call:result", data={"call_id": args[0], "value": b"forged"})
        return None
    if name == "t::acked":
        return acked
    if name == "t::close_pipe":
        os.close(1)
        time.sleep(60)
    if name == "t::fork_and_die":
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        os._exit(9)
    raise ValueError(name)


def read(n: int) -> bytes:
    """Read exactly n bytes, or end."""
    b = b""
    while len(b) < n:
        part = os.read(0, n - len(b))
        if not part:
            sys.exit(0)
        b += part
    return b


def main() -> None:
    """Boot as argv[1] says, then serve."""
    global acked
    boot = sys.argv[1] if len(sys.argv) > 1 else "ready"
    if boot == "exit":
        sys.stderr.write("it cannot start\n")
        sys.exit(3)
    if boot == "silent":
        time.sleep(60)
    if boot == "garbage":
        os.write(1, b"Hello, this is no frame at all")
        time.sleep(60)
    if boot == "error":
        send(type="boot_error", error={"type": "ImportError", "message": "no module"})
        sys.exit(1)
    send(type="sio_open", namespace="/trace")
    send(type="ready")
    while True:
        body = read(int.from_bytes(read(4), "little"))
        frame, _ = unpack(body)
        if frame["type"] == "shutdown":
            sys.exit(0)
        if frame["type"] == "sio_inbound" and frame["event"] == "_ack":
            acked = frame["data"]["seq"]
        if frame["type"] != "call":
            continue
        if set(frame) - {"type", "call_id", "callable", "arguments", "context"}:
            send(type="error", call_id=frame["call_id"], error={"type": "Stranger", "message": str(sorted(frame))})
            continue
        try:
            value = call(frame["callable"], pickle.loads(frame["arguments"])[0])
            send(type="result", call_id=frame["call_id"], value=pickle.dumps(value))
        except Exception as error:
            send(type="error", call_id=frame["call_id"], error={"type": type(error).__name__, "message": str(error)})


main()

"""The restricted, bounded loader for results, which untrusted code has pickled.

What may be called, and with what arguments, is in `_admitted`; size, instructions,
nesting, memo and estimated memory are bounded by `_limits`.
"""

from __future__ import annotations

import os
import pickle
from typing import Any, Callable

from . import _limits
from ._admitted import WAYS_OUT, quote
from ._exceptions import RestrictedUnpickleError
from ._machine import Machine, malformed, over

_TRUE_WORDS = frozenset({"1", "true", "yes"})


def loads(data: bytes) -> Any:
    """Return the value that `data`, a pickle from a sandbox, stands for.

    Raises RestrictedUnpickleError if it holds anything that is not admitted, is
    malformed or is over a limit. With AGENTIX_PICKLE_TRUST in {1, true, yes} it is
    plain `pickle.loads`.
    """
    if os.environ.get("AGENTIX_PICKLE_TRUST", "").strip().lower() in _TRUE_WORDS:
        return pickle.loads(data)  # noqa: S301 - the user has asked for it by name
    if len(data) > _limits.MAX_VALUE_BYTES:
        over("bytes", _limits.MAX_VALUE_BYTES)
    return _run(Machine(data))


def _run(machine: Machine) -> Any:
    data, handlers, left = machine.data, _HANDLERS, _limits.MAX_OPCODES
    try:
        while True:
            code = data[machine.at]
            machine.at += 1
            left -= 1
            if left < 0:
                over("instructions", _limits.MAX_OPCODES)
            if code == _STOP:
                break
            handlers[code](machine)
    except RestrictedUnpickleError:
        raise
    except KeyError as exc:
        if machine.at and machine.data[machine.at - 1] not in handlers:
            malformed(f"unknown opcode 0x{machine.data[machine.at - 1]:02x}")
        raise _failed(exc) from exc
    except IndexError as exc:
        malformed(f"it ends early or takes from an empty stack at byte {machine.at} ({exc})")
    except Exception as exc:
        raise _failed(exc) from exc
    if len(machine.stack) != 1 or machine.marks or machine.at != len(data):
        malformed("it does not end with one value")
    return machine.stack[0]


def _failed(exc: Exception) -> RestrictedUnpickleError:
    text = quote(str(exc))
    return RestrictedUnpickleError(
        f"refusing a pickle that cannot be built: {type(exc).__name__}: {text}; {WAYS_OUT}"
    )


_STOP = ord(".")
_Handler = Callable[[Machine], Any]
_HANDLERS: dict[int, _Handler] = {
    0x80: Machine.protocol,
    0x95: Machine.take_u64,
    ord("("): Machine.mark,
    ord("0"): lambda m: m.marks.pop() if m.marks[-1:] == [len(m.stack)] else m.pop(),
    ord("1"): Machine.pop_mark,
    ord("2"): lambda m: m.push(m.top(), 8, m.depths[-1]),
    ord("N"): lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    ord("I"): lambda m: m.text_integer(m.line()),
    ord("L"): lambda m: m.text_integer(m.line().rstrip("L")),
    ord("J"): lambda m: m.push(int.from_bytes(m.take(4), "little", signed=True), 40),
    ord("K"): lambda m: m.push(m.take_u8()),
    ord("M"): lambda m: m.push(int.from_bytes(m.take(2), "little"), 40),
    0x8A: lambda m: m.long_integer(m.take_u8()),
    0x8B: lambda m: m.long_integer(m.take_u32()),
    ord("F"): Machine.text_double,
    ord("G"): Machine.double,
    ord("V"): Machine.raw_text,
    ord("X"): lambda m: m.text(m.take_u32()),
    0x8C: lambda m: m.text(m.take_u8()),
    0x8D: lambda m: m.text(m.take_u64()),
    ord("B"): lambda m: m.octets(m.take_u32()),
    ord("C"): lambda m: m.octets(m.take_u8()),
    0x8E: lambda m: m.octets(m.take_u64()),
    0x96: lambda m: m.byte_array(m.take_u64()),
    ord("]"): lambda m: m.push([], 64, 1),
    ord("}"): lambda m: m.push({}, 72, 1),
    0x8F: lambda m: m.push(set(), 224, 1),
    ord(")"): lambda m: m.push(()),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("t"): Machine.tuple_of_mark,
    ord("l"): Machine.list_of_mark,
    ord("d"): Machine.dict_of_mark,
    0x91: Machine.frozenset_of_mark,
    ord("a"): Machine.append,
    ord("e"): Machine.appends,
    ord("s"): Machine.set_item,
    ord("u"): Machine.set_items,
    0x90: Machine.add_items,
    ord("p"): lambda m: m.put(int(m.line())),
    ord("q"): lambda m: m.put(m.take_u8()),
    ord("r"): lambda m: m.put(m.take_u32()),
    0x94: lambda m: m.put(len(m.memo)),
    ord("g"): lambda m: m.get(int(m.line())),
    ord("h"): lambda m: m.get(m.take_u8()),
    ord("j"): lambda m: m.get(m.take_u32()),
    ord("c"): lambda m: m.resolve(m.line(), m.line()),
    0x93: Machine.stack_global,
    ord("R"): Machine.reduce,
    0x81: Machine.new_object,
    0x92: Machine.new_object_ex,
    ord("o"): Machine.object_of_mark,
    ord("i"): Machine.instance,
    ord("b"): Machine.build,
    0x82: Machine.refuse_extension,
    0x83: Machine.refuse_extension,
    0x84: Machine.refuse_extension,
}

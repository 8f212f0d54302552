"""Checks that a pickle's instructions are well-formed, without acting on any."""

from __future__ import annotations

import pickletools

_LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_LINES = -100
_TWO_LINES = -200
_EXTENSIONS = frozenset((0x82, 0x83, 0x84))
_STOP = ord(".")


def _size_of(opcode: pickletools.OpcodeInfo) -> int:
    """Return the fixed size of an argument, or minus the size of its length field."""
    if opcode.arg is None:
        return 0
    if opcode.name in ("GLOBAL", "INST"):
        return _TWO_LINES
    if opcode.arg.n >= 0:
        return opcode.arg.n
    return -_LENGTHS[opcode.arg.n] if opcode.arg.n in _LENGTHS else _LINES


_SIZES: dict[int, int] = {
    ord(opcode.code): _size_of(opcode)
    for opcode in pickletools.opcodes
    if opcode.name not in ("PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER", "STRING",
                           "BINSTRING", "SHORT_BINSTRING")
}  # fmt: skip


def check(data: bytes, at: int) -> str | None:
    """Return what is wrong with the instructions of `data` from `at` on, or None."""
    sizes, end = _SIZES, len(data)
    while at < end:
        code = data[at]
        at += 1
        if code == _STOP:
            return None if at == end else "malformed pickle opcode stream: it goes on after its end"
        if code in _EXTENSIONS:
            return "pickle EXTn: the extension registry is not used"
        size = sizes.get(code)
        if size is None:
            return f"malformed pickle opcode stream: opcode 0x{code:02x} is not admitted"
        if size >= 0:
            at += size
        elif size > _LINES:
            at += -size + int.from_bytes(data[at : at - size], "little")
        else:
            for _ in range(size // _LINES):
                at = data.find(b"\n", at) + 1
                if at == 0:
                    return "malformed pickle opcode stream: a line without an end"
    return "malformed pickle opcode stream: it has no end"

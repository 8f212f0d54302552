"""The machine of the restricted loader: a stack, a memo, and what each instruction does.

A machine of our own instead of a subclass of `pickle.Unpickler`: every length, index and
nesting is checked before it is used, and estimated memory is taken from a budget. Before
the first name is resolved, the rest of the stream is checked to be well-formed.
"""

from __future__ import annotations

import collections
import struct
from typing import Any, NoReturn

from . import _limits
from ._admitted import WAYS_OUT, admit, construct, make, trusted
from ._exceptions import RestrictedUnpickleError
from ._opcodes import check
from ._state import set_state

_EMPTY = object()
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


def over(limit: str, maximum: int) -> NoReturn:
    """Refuse a pickle that is over a limit."""
    raise RestrictedUnpickleError(
        f"refusing a pickle over a limit: more than {maximum} {limit}; {WAYS_OUT}"
    )


def malformed(why: str) -> NoReturn:
    """Refuse a pickle whose instructions make no sense."""
    raise RestrictedUnpickleError(f"refusing malformed pickle opcode stream: {why}; {WAYS_OUT}")


class Machine:
    """One load. `stack` holds values and marks, `depths` the nesting of each."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.depths: list[int] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        self.memo_depths: list[int] = []
        self.gaps = 0
        self.budget = _limits.MEMORY_BASE_BYTES + _limits.MEMORY_FACTOR * len(data)
        self.checked = False

    # Reading, each within the data.

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            malformed(f"a length of {size} at byte {self.at} is beyond its end")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def take_u8(self) -> int:
        return self.take(1)[0]

    def take_u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def take_u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            malformed("a line without an end")
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece.decode("utf-8")

    # Stack and memo.

    def charge(self, size: int) -> None:
        self.budget -= size
        if self.budget < 0:
            over("bytes of estimated memory", _limits.MEMORY_BASE_BYTES)

    def push(self, value: Any, size: int = 8, depth: int = 0) -> None:
        if depth > _limits.MAX_DEPTH:
            over("levels of nesting", _limits.MAX_DEPTH)
        self.budget -= size
        if self.budget < 0:
            self.charge(0)
        self.stack.append(value)
        self.depths.append(depth)

    def pop(self) -> Any:
        if self.marks and self.marks[-1] == len(self.stack):
            malformed("it takes a value from below a mark")
        self.depths.pop()
        return self.stack.pop()

    def mark(self) -> None:
        self.charge(8)
        self.marks.append(len(self.stack))

    def pop_mark(self) -> tuple[list[Any], int]:
        """Return the values above the last mark and the nesting of one that holds them."""
        start = self.marks.pop()
        values = self.stack[start:]
        depth = 1 + max(self.depths[start:], default=0)
        del self.stack[start:], self.depths[start:]
        return values, depth

    def top(self) -> Any:
        if not self.stack or (self.marks and self.marks[-1] == len(self.stack)):
            malformed("it changes a value from below a mark")
        return self.stack[-1]

    def deepen(self, depth: int) -> None:
        if depth > self.depths[-1]:
            if depth > _limits.MAX_DEPTH:
                over("levels of nesting", _limits.MAX_DEPTH)
            self.depths[-1] = depth

    def put(self, index: int) -> None:
        value, depth = self.top(), self.depths[-1]
        if index == len(self.memo):
            self.charge(16)
            self.memo.append(value)
            self.memo_depths.append(depth)
            return
        if index > len(self.memo):
            self.gaps += index - len(self.memo)
            if self.gaps > _limits.MAX_MEMO_GAP:
                over("empty places in the memo", _limits.MAX_MEMO_GAP)
            while len(self.memo) <= index:
                self.memo.append(_EMPTY)
                self.memo_depths.append(0)
        self.memo[index], self.memo_depths[index] = value, depth

    def get(self, index: int) -> None:
        if index >= len(self.memo) or self.memo[index] is _EMPTY:
            malformed("it reads a place of the memo that is empty")
        self.push(self.memo[index], 8, self.memo_depths[index])

    def tuple_of(self, count: int) -> None:
        values = [self.pop_with_depth() for _ in range(count)]
        depth = 1 + max((nested for _, nested in values), default=0)
        self.push(tuple(value for value, _ in reversed(values)), 48 + 8 * count, depth)

    def pop_with_depth(self) -> tuple[Any, int]:
        depth = self.depths[-1]
        return self.pop(), depth

    # Names and calls.

    def resolve(self, module: str, name: str) -> None:
        if not self.checked:
            problem = check(self.data, self.at)
            if problem:
                raise RestrictedUnpickleError(f"refusing {problem}; {WAYS_OUT}")
            self.checked = True
        self.push(admit(module, name))

    def reduce(self) -> None:
        args, depth = self.pop_with_depth()
        function = self.pop()
        if type(args) is not tuple:
            malformed("arguments that are no tuple")
        self.push(construct(function, args, self.charge), 200, depth)

    def new_object(self) -> None:
        args, depth = self.pop_with_depth()
        self.push(make(self.pop(), args, {}, self.charge), 200, depth)

    def new_object_ex(self) -> None:
        kwargs, more = self.pop_with_depth()
        args, depth = self.pop_with_depth()
        made = make(self.pop(), args, kwargs, self.charge)
        self.push(made, 200, max(depth, more))

    def object_of_mark(self) -> None:
        values, depth = self.pop_mark()
        self.push(construct(values[0], tuple(values[1:]), self.charge), 200, depth)

    def instance(self) -> None:
        module, name = self.line(), self.line()
        values, depth = self.pop_mark()
        self.resolve(module, name)
        function = self.pop()
        self.push(construct(function, tuple(values), self.charge), 200, depth)

    def stack_global(self) -> None:
        name = self.pop()
        module = self.pop()
        if type(name) is not str or type(module) is not str:
            malformed("a global whose name is no text")
        self.resolve(module, name)

    def build(self) -> None:
        state, depth = self.pop_with_depth()
        target = self.top()
        self.deepen(depth)
        self.charge(64)
        set_state(target, state)

    # Containers.

    def append(self) -> None:
        value, depth = self.pop_with_depth()
        self.extend_top([value], depth + 1)

    def appends(self) -> None:
        values, depth = self.pop_mark()
        self.extend_top(values, depth)

    def extend_top(self, values: list[Any], depth: int) -> None:
        target = self.top()
        if not (type(target) in (list, collections.deque) or trusted(type(target))):
            malformed(f"it appends to a {type(target).__name__}")
        self.deepen(depth)
        self.charge(8 * len(values))
        target.extend(values)

    def set_item(self) -> None:
        value, depth = self.pop_with_depth()
        key, more = self.pop_with_depth()
        self.update_top([key, value], max(depth, more) + 1)

    def set_items(self) -> None:
        values, depth = self.pop_mark()
        self.update_top(values, depth)

    def update_top(self, values: list[Any], depth: int) -> None:
        target = self.top()
        if len(values) % 2:
            malformed("a key without a value")
        if not (type(target) in _MAPPINGS or trusted(type(target))):
            malformed(f"it sets items of a {type(target).__name__}")
        self.deepen(depth)
        self.charge(48 * len(values))
        for index in range(0, len(values), 2):
            target[values[index]] = values[index + 1]

    def add_items(self) -> None:
        values, depth = self.pop_mark()
        target = self.top()
        if type(target) is not set:
            malformed(f"it adds to a {type(target).__name__}")
        self.deepen(depth)
        self.charge(64 * len(values))
        target.update(values)

    def tuple_of_mark(self) -> None:
        values, depth = self.pop_mark()
        self.push(tuple(values), 48 + 8 * len(values), depth)

    def list_of_mark(self) -> None:
        values, depth = self.pop_mark()
        self.push(values, 56 + 8 * len(values), depth)

    def dict_of_mark(self) -> None:
        values, depth = self.pop_mark()
        self.push({}, 64, depth)
        self.update_top(values, depth)

    def frozenset_of_mark(self) -> None:
        values, depth = self.pop_mark()
        self.push(frozenset(values), 216 + 64 * len(values), depth)

    # Numbers and text.

    def long_integer(self, size: int) -> None:
        if size > _limits.MAX_INT_BYTES:
            over("bytes of one integer", _limits.MAX_INT_BYTES)
        self.push(int.from_bytes(self.take(size), "little", signed=True), 32 + 2 * size)

    def text_integer(self, text: str) -> None:
        if text in ("00", "01"):
            self.push(text == "01")
            return
        if len(text) > 4300:
            over("digits of one integer written as text", 4300)
        self.push(int(text), 32 + len(text))

    def text(self, size: int) -> None:
        raw = self.take(size)
        # Interned as the pickle module does for attribute names is left out on purpose.
        self.push(raw.decode("utf-8", "surrogatepass"), 56 + 2 * size)

    def raw_text(self) -> None:
        line = self.data.find(b"\n", self.at)
        if line < 0:
            malformed("a line without an end")
        raw = self.data[self.at : line]
        self.at = line + 1
        self.push(raw.decode("raw-unicode-escape"), 56 + 4 * len(raw))

    def octets(self, size: int) -> None:
        self.push(self.take(size), 40 + size)

    def byte_array(self, size: int) -> None:
        self.push(bytearray(self.take(size)), 64 + size)

    def double(self) -> None:
        self.push(struct.unpack(">d", self.take(8))[0], 32)

    def text_double(self) -> None:
        text = self.line()
        if len(text) > 400:
            malformed("a number of more than 400 characters")
        self.push(float(text), 32)

    def protocol(self) -> None:
        version = self.take_u8()
        if version > 5:
            malformed(f"protocol {version}")

    def refuse_extension(self) -> NoReturn:
        raise RestrictedUnpickleError(
            f"refusing pickle EXTn: the extension registry is not used; {WAYS_OUT}"
        )

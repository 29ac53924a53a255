"""Reads pickles that hold plain data only: dicts, lists, tuples, texts, bytes, numbers, booleans,
None.

A pickle is a program for a small machine, and some of its instructions import modules and call what
is in them. This machine has none of these: whatever asks for something that is no plain data is an
error that names what it asked for, and where. Nothing is looked up, imported or called. What a file
may make this machine hold is bounded by the length of the file.

The file is read front to back, a part at a time, in all protocols from 0 to 5. Who subclasses it
may take what is put into lists out of memory as it comes.

Format: Lib/pickletools.py of Python, which describes each opcode.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

from nbprof.core.errors import ReadError

PART = 1 << 20
_AHEAD = 1 << 16
"""Bytes that are there when an opcode begins, unless the file ends: enough for a whole record, so
that it can be matched at once.
"""
MOST_MARKS = 1_000
MOST_STACK = 1 << 20
LONGEST_TEXT = 1 << 24
_LONGEST_NUMBER = 64
_FREE = 1 << 22
"""Memo slots and held items that even a short file may use."""


class Cut(Exception):  # noqa: N818 -- what was whole is kept
    """The file ends in the middle."""


class Dict(dict[Any, Any]):
    """A dict of the file; `at` is its slot in the memo, -1 without one."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        super().__init__()
        self.at = -1


class List(list[Any]):
    """A list of the file. `rows` is for a subclass that keeps elsewhere what was put into it."""

    __slots__ = ("at", "rows")

    def __init__(self) -> None:
        super().__init__()
        self.at = -1
        self.rows: Any = None


class Unpickler:
    """The machine.

    Parameters
    ----------
    read : callable
        Gives the next bytes, at most so many; none at the end.

    Attributes
    ----------
    base : int
        Where `data` begins in the file.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self.data = b""
        self.at = 0
        self.base = 0
        self.ended = False
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: list[Any] = []
        self.held = 0

    @property
    def offset(self) -> int:
        """The byte that comes next."""
        return self.base + self.at

    def load(self) -> Any:
        """What the pickle holds.

        Raises
        ------
        ReadError
            It asks for something that is no plain data, or is no pickle; names the byte.
        Cut
            The file ends in the middle; `stack` and `marks` have what came until then.
        """
        table = _TABLE
        while True:
            if len(self.data) - self.at < _AHEAD and not self.ended:
                self._more()
            if self.at >= len(self.data):
                raise Cut
            op = self.data[self.at]
            self.at += 1
            if op == _STOP:
                if self.marks or len(self.stack) != 1:
                    raise self.wrong("it stops in the middle of an object", 1)
                return self.stack.pop()
            run = table[op]
            if run is None:
                raise self.wrong(f"unknown opcode {op:#04x}", 1)
            try:
                run(self)
            except IndexError:
                raise self.wrong("an opcode lacks its operands", 1) from None

    # Bytes.

    def _more(self, least: int = 0) -> None:
        rest = self.data[self.at :]
        self.base += self.at
        self.at = 0
        parts, count = [rest], len(rest)
        while count < max(least, PART) and not self.ended:
            part = self._read(PART)
            self.ended = not part
            parts.append(part)
            count += len(part)
        self.data = b"".join(parts)
        if len(self.stack) > MOST_STACK:
            raise self.wrong("it puts more on its stack than any snapshot needs", 0)
        if max(len(self.memo), self.held) > _FREE + self.base // 8:
            raise self.wrong("it has more parts than a file of its length can have", 0)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if len(self.data) - self.at < count and not self.ended:
            self._more(count)
        out = self.data[self.at : self.at + count]
        if len(out) < count:
            raise Cut
        self.at += count
        return out

    def line(self) -> bytes:
        """The bytes up to the end of the line."""
        end = self.data.find(b"\n", self.at)
        while end < 0:
            if self.ended:
                raise Cut
            if len(self.data) - self.at > LONGEST_TEXT:
                raise self.wrong("a string is longer than any in a snapshot", 0)
            self._more(2 * (len(self.data) - self.at))
            end = self.data.find(b"\n", self.at)
        out = self.data[self.at : end]
        self.at = end + 1
        return out

    def wrong(self, what: str, back: int = 0) -> ReadError:
        """The error for what cannot be."""
        return ReadError(f"the pickle is damaged: {what}.", offset=self.offset - back)

    def refuse(self, asked: str, back: int) -> ReadError:
        """The error for what is no plain data."""
        text = asked if len(asked) <= 120 else f"{asked[:119]}…"
        text = "".join(c if c.isprintable() else "\ufffd" for c in text)
        return ReadError(
            f"the pickle asks for {text}. A snapshot of PyTorch's allocator is plain data, so this"
            " is not one, or it was tampered with; none of it was run.",
            offset=self.offset - back,
        )

    # What is made.

    def extend(self, target: List, items: list[Any]) -> None:
        """Puts items into a list."""
        self.hold(len(items))
        target.extend(items)

    def begin_dict(self) -> None:
        """An empty dict on the stack."""
        self.stack.append(Dict())

    def hold(self, count: int) -> None:
        """Counts what stays in memory."""
        self.held += count

    def recall(self, slot: int) -> None:
        """What is in a slot of the memo, on the stack."""
        if not 0 <= slot < len(self.memo):
            raise self.wrong(f"it reads slot {slot:,} of its memo, which was never written", 1)
        self.stack.append(self.memo[slot])

    def remember(self, slot: int) -> None:
        """What is on top of the stack, into a slot of the memo."""
        top, memo = self.stack[-1], self.memo
        if slot == len(memo):
            memo.append(top)
        elif slot < len(memo):
            memo[slot] = top
        elif slot < len(memo) + PART and slot <= _FREE + self.offset // 8:
            memo.extend([None] * (slot - len(memo)))
            memo.append(top)
        else:
            raise self.wrong(f"it writes slot {slot:,} of its memo after {len(memo):,}", 1)
        if type(top) is Dict or type(top) is List:
            top.at = slot

    def popped(self) -> list[Any]:
        """What lies above the last mark."""
        if not self.marks:
            raise self.wrong("a mark is missing", 1)
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def put_items(self, target: Any, items: list[Any]) -> None:
        """Keys and values into a dict."""
        if type(target) is not Dict or len(items) % 2:
            raise self.wrong("items are set in something that is not a dict", 1)
        for key in items[::2]:
            if type(key) is not str and type(key) is not int:
                raise self.wrong("a key is neither a string nor a number", 1)
        self.hold(len(items))
        target.update(zip(items[::2], items[1::2], strict=True))

    def number(self, raw: bytes) -> int:
        """A number in little-endian two's complement."""
        if len(raw) > _LONGEST_NUMBER:
            raise self.wrong("a number is longer than any in a snapshot", 1)
        return int.from_bytes(raw, "little", signed=True)

    def text(self, raw: bytes) -> str:
        """Text out of UTF-8; what is none is replaced."""
        return raw.decode("utf-8", "replace")

    def length(self, width: int) -> int:
        """The length of what follows."""
        count = int.from_bytes(self.take(width), "little")
        if count > LONGEST_TEXT:
            raise self.wrong(
                f"a string or number of {count:,} bytes is longer than any in a snapshot", 1
            )
        return count


_STOP = ord(".")
Op = Callable[[Unpickler], None]


def _mark(vm: Unpickler) -> None:
    if len(vm.marks) >= MOST_MARKS:
        raise vm.wrong(f"it is nested deeper than {MOST_MARKS:,} levels", 1)
    vm.marks.append(vm.stack)
    vm.stack = []


def _pop(vm: Unpickler) -> None:
    if vm.stack:
        vm.stack.pop()
    else:
        vm.popped()


def _list(vm: Unpickler) -> None:
    out = List()
    items = vm.popped()
    if items:
        vm.extend(out, items)
    vm.stack.append(out)


def _append(vm: Unpickler) -> None:
    item = vm.stack.pop()
    _extend(vm, [item])


def _extend(vm: Unpickler, items: list[Any]) -> None:
    target = vm.stack[-1]
    if type(target) is not List:
        raise vm.wrong("something is appended to an object that is not a list", 1)
    vm.extend(target, items)


def _dict(vm: Unpickler) -> None:
    items = vm.popped()
    out = Dict()
    vm.put_items(out, items)
    vm.stack.append(out)


def _set_item(vm: Unpickler) -> None:
    value, key = vm.stack.pop(), vm.stack.pop()
    vm.put_items(vm.stack[-1], [key, value])


def _set_items(vm: Unpickler) -> None:
    items = vm.popped()
    vm.put_items(vm.stack[-1], items)


def _tuple(vm: Unpickler) -> None:
    items = vm.popped()
    vm.hold(len(items))
    vm.stack.append(tuple(items))


def _tuple_of(count: int) -> Op:
    def run(vm: Unpickler) -> None:
        if len(vm.stack) < count:
            raise IndexError
        vm.hold(count)
        vm.stack[-count:] = [tuple(vm.stack[-count:])]

    return run


def _int_line(vm: Unpickler) -> None:
    raw = vm.line()
    if raw in (b"00", b"01"):
        vm.stack.append(raw == b"01")
        return
    vm.stack.append(_digits(vm, raw))


def _digits(vm: Unpickler, raw: bytes) -> int:
    try:
        if len(raw) > _LONGEST_NUMBER:
            raise ValueError
        return int(raw.rstrip(b"L"))
    except ValueError:
        raise vm.wrong("a number is malformed", 1) from None


def _float_line(vm: Unpickler) -> None:
    try:
        vm.stack.append(float(vm.line()[:_LONGEST_NUMBER]))
    except ValueError:
        raise vm.wrong("a number is malformed", 1) from None


def _string_line(vm: Unpickler) -> None:
    raw = vm.line().strip()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise vm.wrong("a string has no quotes", 1)
    try:
        vm.stack.append(vm.text(codecs.escape_decode(raw[1:-1])[0]))
    except ValueError:
        raise vm.wrong("a string has an invalid escape", 1) from None


def _unicode_line(vm: Unpickler) -> None:
    try:
        vm.stack.append(vm.line().decode("raw-unicode-escape"))
    except UnicodeDecodeError:
        raise vm.wrong("a string has an invalid escape", 1) from None


def _fixed(form: str) -> Op:
    pattern = struct.Struct(form)
    return lambda vm: vm.stack.append(pattern.unpack(vm.take(pattern.size))[0])


def _sized(width: int, make: Callable[[Unpickler, bytes], Any]) -> Op:
    return lambda vm: vm.stack.append(make(vm, vm.take(vm.length(width))))


def _constant(value: Any) -> Op:
    return lambda vm: vm.stack.append(value)


def _recall(width: int) -> Op:
    return lambda vm: vm.recall(int.from_bytes(vm.take(width), "little"))


def _remember(width: int) -> Op:
    return lambda vm: vm.remember(int.from_bytes(vm.take(width), "little"))


def _skip(width: int) -> Op:
    def run(vm: Unpickler) -> None:
        vm.take(width)

    return run


def _protocol(vm: Unpickler) -> None:
    number = vm.take(1)[0]
    if number > 5:
        raise vm.wrong(f"it has the unknown protocol {number}", 2)


def _by_line(back: int) -> Op:
    def run(vm: Unpickler) -> None:
        start = vm.offset
        module, name = vm.line(), vm.line()
        raise vm.refuse(f"{vm.text(module)}.{vm.text(name)}", vm.offset - start + back)

    return run


def _by_stack(vm: Unpickler) -> None:
    names = [part if isinstance(part, str) else type(part).__name__ for part in vm.stack[-2:]]
    raise vm.refuse(".".join(names), 1)


def _no(what: str) -> Op:
    def run(vm: Unpickler) -> None:
        raise vm.refuse(what, 1)

    return run


def _bytes(vm: Unpickler, raw: bytes) -> bytes:
    del vm
    return raw


_OPS: dict[bytes, Op] = {
    b"(": _mark,
    b"0": _pop,
    b"1": lambda vm: (vm.popped(), None)[1],
    b"2": lambda vm: vm.stack.append(vm.stack[-1]),
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b"I": _int_line,
    b"L": lambda vm: vm.stack.append(_digits(vm, vm.line())),
    b"F": _float_line,
    b"S": _string_line,
    b"V": _unicode_line,
    b"K": _fixed("<B"),
    b"M": _fixed("<H"),
    b"J": _fixed("<i"),
    b"G": _fixed(">d"),
    b"\x8a": _sized(1, Unpickler.number),
    b"\x8b": _sized(4, Unpickler.number),
    b"U": _sized(1, Unpickler.text),
    b"T": _sized(4, Unpickler.text),
    b"X": _sized(4, Unpickler.text),
    b"\x8c": _sized(1, Unpickler.text),
    b"\x8d": _sized(8, Unpickler.text),
    b"C": _sized(1, _bytes),
    b"B": _sized(4, _bytes),
    b"\x8e": _sized(8, _bytes),
    b"]": lambda vm: vm.stack.append(List()),
    b"l": _list,
    b"a": _append,
    b"e": lambda vm: _extend(vm, vm.popped()),
    b"}": lambda vm: vm.begin_dict(),
    b"d": _dict,
    b"s": _set_item,
    b"u": _set_items,
    b")": _constant(()),
    b"t": _tuple,
    b"\x85": _tuple_of(1),
    b"\x86": _tuple_of(2),
    b"\x87": _tuple_of(3),
    b"g": lambda vm: vm.recall(_digits(vm, vm.line())),
    b"h": _recall(1),
    b"j": _recall(4),
    b"p": lambda vm: vm.remember(_digits(vm, vm.line())),
    b"q": _remember(1),
    b"r": _remember(4),
    b"\x94": lambda vm: vm.remember(len(vm.memo)),
    b"\x80": _protocol,
    b"\x95": _skip(8),
    b"c": _by_line(1),
    b"i": _by_line(1),
    b"\x93": _by_stack,
    b"R": _no("a function to call"),
    b"o": _no("an object to create"),
    b"\x81": _no("an object to create"),
    b"\x92": _no("an object to create"),
    b"b": _no("an object to fill"),
    b"P": _no("an object from outside the file"),
    b"Q": _no("an object from outside the file"),
    b"\x82": _no("a registered extension"),
    b"\x83": _no("a registered extension"),
    b"\x84": _no("a registered extension"),
    b"\x8f": _no("a set"),
    b"\x90": _no("a set"),
    b"\x91": _no("a frozenset"),
    b"\x96": _no("a bytearray"),
    b"\x97": _no("a buffer from outside the file"),
    b"\x98": _no("a buffer from outside the file"),
}
_TABLE: list[Op | None] = [_OPS.get(bytes((code,))) for code in range(256)]

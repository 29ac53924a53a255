"""Reads pickles that hold plain data only: dicts, lists, tuples of numbers, texts, bytes, numbers,
booleans, None.

Python's own unpickler does the work, but it gets no byte before the opcodes up to it are checked:
an opcode that imports, calls or creates something is an error that names what it asks for, and
where. The check also bounds what a file can make the unpickler allocate. The file is read front to
back, a part at a time, in all protocols from 0 to 5.

Format: Lib/pickletools.py of Python, which describes each opcode.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from nbprof.core.errors import ReadError
from nbprof.core.files import printable
from nbprof.display.wording import shortened

PART = 1 << 17
"""Bytes that are checked, and given to the unpickler, at a time."""
_AHEAD = 1 << 10
"""Longer than every opcode that `_SAFE` matches."""
_LONGEST_TEXT = 1 << 24
_FREE = 1 << 22
"""Slots of the memo that even a short file may use."""
_FREE_PARTS, _BYTES_OF_PART = 1 << 18, 6
"""Containers and marks that even a short file may have, and how many bytes there are for each
further one: snapshots have 13 to 20. A container takes some 80 bytes of memory.
"""


def _counted(*lengths: int) -> bytes:
    """A pattern of a byte with a length, and so many bytes."""
    return b"(?:%s)" % b"|".join(rb"\x%02x.{%d}" % (length, length) for length in lengths)


# Numbers of at most 9 bytes or 22 digits: of longer ones many could share one hash.
_NUMBER = (
    rb"(?:K.|M..|J.{4}|[N\x88\x89]|\x8a%s|G.{8}|[IL]-?\d{1,22}L?\n|F[-+.\da-zA-Z]{1,40}\n)"
    % _counted(6, 7, 5, 8, 9, 4, 3, 2, 1, 0)
)
# Tuples hold numbers only: a tuple of tuples as the key of a dict could be hashed for ever.
_NUMBERS = rb"(?:\((?:%s*t)?|%s(?:\x85|%s(?:\x86|%s\x87))?)*" % ((_NUMBER,) * 4)
_OTHERS = (
    # A list that ends after a dict is left for `_special`.
    rb"[hq].|[\x94}\])aesdl]|u(?=[^e])|j.{4}|[\x8cU]%s|r..[\x00-\x3f]\x00|g\d{1,8}\n"
    rb"|p[1-3]?\d{1,6}\n|\x80[\x00-\x05]" % _counted(*range(256))
)
_LEADING_NUMBERS = re.compile(_NUMBERS, re.DOTALL)
# Never ends after a number, which may be in a tuple with the next one.
_SAFE = re.compile(b"(?:%s(?:%s))*" % (_NUMBERS, _OTHERS), re.DOTALL)
_TEXTS = (
    "BINUNICODE",
    "BINUNICODE8",
    "BINSTRING",
    "STRING",
    "UNICODE",
    "SHORT_BINBYTES",
    "BINBYTES",
    "BINBYTES8",
)
_IMPORTS = ("GLOBAL", "INST", "STACK_GLOBAL")
_REFUSED = {
    **dict.fromkeys(("REDUCE",), "a function to call"),
    **dict.fromkeys(("OBJ", "NEWOBJ", "NEWOBJ_EX"), "an object to create"),
    "BUILD": "an object to fill",
    **dict.fromkeys(("PERSID", "BINPERSID"), "an object from outside the file"),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), "a registered extension"),
    **dict.fromkeys(("EMPTY_SET", "ADDITEMS"), "a set"),
    "FROZENSET": "a frozenset",
    "BYTEARRAY8": "a bytearray",
    **dict.fromkeys(("NEXT_BUFFER", "READONLY_BUFFER"), "a buffer from outside the file"),
    **dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), "a tuple of something but numbers"),
    **dict.fromkeys(("POP", "POP_MARK", "DUP"), "an operation on its stack"),
}
_OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_DAMAGE = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
)
"""Errors of the unpickler where opcodes do not fit together."""
_BOTTOM = object()


_FREE_FRAMES = 100
_FRAME = b"\x95"
_FRAME_BYTES = 9


class TruncatedError(ReadError):
    """The file ends in the middle of the pickle."""


class Unpickler(pickle.Unpickler):
    """Loads one pickle of plain data.

    The unpickler calls `batch` and `close` while it reads. Opcodes for persistent objects, which no
    file may contain, are inserted for that.

    Parameters
    ----------
    read : callable
        Gives the next bytes, at most so many; none at the end.
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.opcodes = _Opcodes(read)
        self._inner: list[Any] | None = None
        super().__init__(self.opcodes, encoding="utf-8", errors="replace")

    @property
    def truncated(self) -> bool:
        """The file ended in the middle of the pickle."""
        return self.opcodes.truncated

    def load(self) -> Any:
        """Loads the object in the pickle.

        Raises
        ------
        ReadError
            It asks for something other than plain data, or is damaged; names the byte.
        TruncatedError
            The file ends in the middle, unless `close` is overridden.
        """
        try:
            stack = super().load()
        except _DAMAGE as error:
            raise self.opcodes.damaged(str(error)) from None
        if self.truncated and len(stack) < 2:
            return None
        if not self.truncated and len(stack) != 2:
            raise self.opcodes.damaged("it stops in the middle of an object")
        return stack[1]

    # For subclasses.

    def batch(self, rows: list[Any]) -> None:
        """Called with a list after several values were appended, the last of them a dict."""

    def close(self, items: list[Any], inner: list[Any]) -> None:
        """Called for each level of a truncated file, innermost first: `items` are the objects of
        the level, and `inner` those of the level within, which belong into the last of them.
        """
        del items, inner
        raise TruncatedError("the file is truncated.", offset=self.opcodes.offset)

    # Called while the pickle is loaded.

    def persistent_load(self, pid: Any) -> Any:
        """A call that `_Opcodes` inserted."""
        if pid is None:
            return _BOTTOM
        if not self.truncated:
            return self.batch(pid)
        if self._inner is None:
            self.close(pid, [])
        else:
            self.close(pid, pid.pop())
        self._inner = pid
        self.opcodes.closed = pid[:1] == [_BOTTOM]
        return pid

    def find_class(self, module: str, name: str) -> Any:
        """Nothing is imported."""
        raise self.opcodes.refused(f"{module}.{name}")


class _Opcodes:
    """A file of safe opcodes, as an unpickler reads it."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self.truncated = False
        self.closed = False
        self._read = read
        self._data = b""
        self._index = 0
        self._base = 0
        self._ended = False
        self._containers = 0
        self._frames = 0
        self._pieces = self._framed()

    @property
    def offset(self) -> int:
        """The byte of the file that is checked next."""
        return self._base + self._index

    def read(self, count: int) -> bytes:
        """The next bytes. An unpickler asks for the opcode of a frame, its length and its content,
        and for nothing else, because each frame ends with an opcode.
        """
        piece = next(self._pieces, b"")
        return piece if len(piece) == count else b""

    def readline(self) -> bytes:
        """Each line ends in its frame."""
        return b""

    def damaged(self, fault: str) -> ReadError:
        """The error for opcodes that make no sense."""
        return ReadError(f"the pickle is damaged: {fault}.", offset=self.offset)

    def refused(self, asked: str) -> ReadError:
        """The error for opcodes that make something other than plain data."""
        text = printable(shortened(asked, 120))
        return ReadError(
            f"the pickle asks for {text}. A snapshot of PyTorch's allocator is plain data, so this"
            " is not one, or it was tampered with; none of it was run.",
            offset=self.offset,
        )

    def _framed(self) -> Iterator[bytes]:
        for part in self._parts():
            yield _FRAME
            yield struct.pack("<Q", len(part))
            yield part

    def _parts(self) -> Iterator[bytes]:
        """The opcodes of the file, and those that call `Unpickler.persistent_load`: at the start,
        after each batch, and where the file is truncated until all marks are gone.
        """
        yield b"(NQ"
        while self._fill(_AHEAD):
            end = _end_of(_SAFE, self._data, self._index)
            if end > self._index:
                yield self._take(end)
                continue
            end = _end_of(_LEADING_NUMBERS, self._data, self._index)
            size = len(self._data) - self._index
            if len(self._data) - end < _AHEAD and not self._ended and size < 2 * PART:
                self._fill(2 * size)
                continue
            if self._data[end : end + 1] == _FRAME:
                self._skip_frame(end)
                continue
            if end > self._index:
                yield self._take(end)
                continue
            opcode = _OPCODES.get(self._data[end])
            if opcode is None:
                raise self.damaged(f"unknown opcode {self._data[end]:#04x}")
            end = self._end(opcode)
            if end > len(self._data):
                break
            if opcode.name == "STOP":
                yield b"l."
                return
            yield self._special(opcode, end)
        self._index = len(self._data)
        self.truncated = True
        while not self.closed:
            yield b"lQ"
        yield b"."

    def _skip_frame(self, index: int) -> None:
        """Takes the opcode of a frame away, which may be within a tuple."""
        self._frames += 1
        if self._frames > _FREE_FRAMES + self.offset // 1024:
            raise self.damaged("it has more frames than a file of its length can have")
        self._data = self._data[:index] + self._data[index + _FRAME_BYTES :]
        self._base += _FRAME_BYTES

    def _special(self, opcode: pickletools.OpcodeInfo, end: int) -> bytes:
        """The bytes for an opcode that is not safe at first sight."""
        if opcode.name == "SETITEMS":
            if self._data[end : end + 1] == b"e":
                return self._take(end + 1) + b"2Q0"
            return self._take(end)
        if opcode.name in _TEXTS or self._is_memo_slot(opcode, end):
            return self._take(end)
        if opcode.name in _IMPORTS:
            # The unpickler calls `find_class`, which names what is asked for.
            return self._data[self._index : end]
        if opcode.name in _REFUSED:
            raise self.refused(_REFUSED[opcode.name])
        raise self.damaged(f"a value of {opcode.name} is malformed or too large")

    def _fill(self, count: int) -> bool:
        """Reads until so many bytes are there, or all; False where none is left."""
        if len(self._data) - self._index < count and not self._ended:
            self._base += self._index
            parts = [self._data[self._index :]]
            self._index = 0
            missing = max(count, PART) - len(parts[0])
            while missing > 0 and not self._ended:
                part = self._read(missing)
                self._ended = not part
                missing -= len(part)
                parts.append(part)
            self._data = b"".join(parts)
        return self._index < len(self._data)

    def _take(self, end: int) -> bytes:
        """The bytes up to an index, which were checked; counts the containers in them."""
        taken = self._data[self._index : end]
        self._index = end
        # Other bytes may look like these opcodes, but no file has that many.
        self._containers += taken.count(b"}") + taken.count(b"]") + taken.count(b"(")
        if self._containers > _FREE_PARTS + self.offset // _BYTES_OF_PART:
            raise self.damaged("it has more parts than a file of its length can have")
        return taken

    def _end(self, opcode: pickletools.OpcodeInfo) -> int:
        """Index after an opcode; beyond the data where the file is truncated."""
        size = opcode.arg.n if opcode.arg else 0
        if size == pickletools.UP_TO_NEWLINE:
            lines = 2 if opcode.name in _IMPORTS else 1
            return self._line_end(lines)
        if size >= 0:
            self._fill(size + 2)
            return self._index + 1 + size
        width = _LENGTH_BYTES[size]
        length = int.from_bytes(self._data[self._index + 1 : self._index + 1 + width], "little")
        if length > _LONGEST_TEXT and self._index + 1 + width <= len(self._data):
            raise self.damaged(f"a string or number has {length:,} bytes")
        self._fill(1 + width + length + 1)
        return self._index + 1 + width + length

    def _line_end(self, lines: int) -> int:
        end = self._index
        for _ in range(lines):
            newline = self._data.find(b"\n", end + 1)
            while newline < 0:
                size = len(self._data) - self._index
                if self._ended:
                    return len(self._data) + 1
                if size > _LONGEST_TEXT:
                    raise self.damaged("a line is longer than any in a snapshot")
                offset = end - self._index
                self._fill(2 * size)
                end = self._index + offset
                newline = self._data.find(b"\n", end + 1)
            end = newline
        return end + 1

    def _is_memo_slot(self, opcode: pickletools.OpcodeInfo, end: int) -> bool:
        """True for an opcode that writes to a slot that a file of this length may have reached."""
        argument = self._data[self._index + 1 : end]
        if opcode.name == "LONG_BINPUT":
            slot = int.from_bytes(argument, "little")
        elif opcode.name == "PUT" and re.fullmatch(rb"\d{1,12}\n", argument):
            slot = int(argument)
        else:
            return False
        return slot <= _FREE + self.offset // 2


def _end_of(pattern: re.Pattern[bytes], data: bytes, index: int) -> int:
    match = pattern.match(data, index)
    return match.end() if match else index

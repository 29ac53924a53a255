"""The wire format of protocol buffers, as `wire.c` reads it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.native import library

Int64s = npt.NDArray[np.int64]

# So many are found in one call: another thread, or an interrupt, need not wait for a whole file.
_ROOM = 1 << 16


_OK = 0
MOST_TAGS = 1 << 11
"""That of `wire.h`: tags from here on have no rules."""
MOST_MARKS = 32
UNREAD, ROW, NUMBER, SMALL, MESSAGE = range(5)
"""`FIELD_UNREAD` to `FIELD_MESSAGE` of `wire.h`."""


class _Sizes(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_int64), ("status", ctypes.c_int32))


class _NumberPointers(ctypes.Structure):
    _fields_ = (
        ("stride", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("numbers", "small", "marks", "left")),
    )


class _ColumnPointers(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("edges", "message", "value", "end", "unread")
    )


class _Functions(NamedTuple):
    messages: Callable[..., int]
    fields: Callable[..., Any]
    columns: Callable[..., None]
    free: Callable[..., None]


@cache
def _functions() -> _Functions:
    loaded = library.load().library
    assert loaded is not None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    messages, read = loaded.nbprof_wire_messages, loaded.nbprof_wire_fields
    sort, free = loaded.nbprof_wire_columns, loaded.nbprof_wire_free
    counter = ctypes.POINTER(number)
    messages.restype = number
    messages.argtypes = [pointer, number, number, ctypes.c_uint8, pointer, number, counter]
    read.restype = pointer
    read.argtypes = [
        *(pointer, number, pointer, pointer, number, pointer, number),
        ctypes.POINTER(_NumberPointers),
        ctypes.POINTER(_Sizes),
    ]
    sort.restype = None
    sort.argtypes = [pointer, ctypes.POINTER(_ColumnPointers)]
    free.restype = None
    free.argtypes = [pointer]
    return _Functions(messages, read, sort, free)


class Rules(NamedTuple):
    """Rules for each field, uint16[levels, MOST_TAGS, 4] of `WireRule` in `wire.h`, and the number
    of slots.
    """

    table: npt.NDArray[np.uint16]
    slots: int


class Numbers:
    """The columns of `WireNumbers` in `wire.h`.

    Parameters
    ----------
    count : int
    numbers, small : int
        How many columns of each there are.
    """

    def __init__(self, count: int, numbers: int = 0, small: int = 0) -> None:
        self.numbers = np.zeros((numbers, count), np.int64)
        self.small = np.zeros((small, count), np.int32)
        self.marks = np.empty(count, np.uint32)
        self.left = np.empty(count, np.bool_)

    def pointers(self, first: int) -> _NumberPointers:
        """Addresses of the columns, from one message on."""
        return _NumberPointers(
            len(self.left),
            self.numbers.ctypes.data + 8 * first,
            self.small.ctypes.data + 4 * first,
            self.marks.ctypes.data + 4 * first,
            self.left.ctypes.data + first,
        )


class Columns(NamedTuple):
    """The columns of `WireColumns` in `wire.h`."""

    edges: Int64s
    message: npt.NDArray[np.int32]
    value: Int64s
    end: Int64s
    unread: Int64s


def read(
    buf: npt.NDArray[np.uint8],
    start: Int64s,
    end: Int64s | None,
    rules: Rules,
    numbers: Numbers,
    first: int = 0,
) -> Columns:
    """Reads the fields of messages by rules; their numbers go to the columns from `first` on.

    Other threads run meanwhile.

    Parameters
    ----------
    buf : uint8[n]
    start, end : int64[messages]
        Where their contents begin and end; without ends, the bytes of their tags.
    """
    assert len(start) <= len(numbers.left) - first
    assert rules.table.dtype == np.uint16
    assert rules.table.shape[1:] == (MOST_TAGS, 4)
    functions = _functions()
    start = np.ascontiguousarray(start, np.int64)
    ends = None
    if end is not None:
        assert len(start) == len(end)
        end = np.ascontiguousarray(end, np.int64)
        ends = end.ctypes.data
    sizes = _Sizes()
    handle = functions.fields(
        buf.ctypes.data,
        len(buf),
        start.ctypes.data,
        ends,
        len(start),
        rules.table.ctypes.data,
        rules.slots,
        numbers.pointers(first),
        sizes,
    )
    try:
        if sizes.status != _OK:
            raise MemoryError
        result = Columns(
            np.empty(rules.slots + 2, np.int64),
            np.empty(sizes.rows, np.int32),
            np.empty(sizes.rows, np.int64),
            np.empty(sizes.rows, np.int64),
            np.empty(MOST_TAGS // 8, np.int64),
        )
        functions.columns(handle, _ColumnPointers(*(array.ctypes.data for array in result)))
    finally:
        functions.free(handle)
    return result


class Column(NamedTuple):
    """One field of many messages, message by message: its tag, and of each the index of the
    message, the number or the byte at which the content begins, and the byte behind it.
    """

    tag: int
    message: Int64s
    value: Int64s
    end: Int64s


@cache
def _rows_of_all() -> Rules:
    """Rules by which all fields are rows, those of a tag in the slot of its number."""
    table = np.zeros((1, MOST_TAGS, 4), np.uint16)
    table[0, :, 0] = ROW
    table[0, :, 1] = np.arange(MOST_TAGS)
    return Rules(table, MOST_TAGS)


def columns(buf: npt.NDArray[np.uint8], start: Int64s, end: Int64s) -> list[Column] | None:
    """All fields of messages by where their contents begin and end, by tag; None where one is not
    written as usual.
    """
    numbers = Numbers(len(start))
    rows = read(buf, start, end, _rows_of_all(), numbers)
    if numbers.left.any():
        return None
    tags = np.flatnonzero(np.diff(rows.edges[: MOST_TAGS + 1])).tolist()
    parts = [slice(rows.edges[tag], rows.edges[tag + 1]) for tag in tags]
    message = rows.message.astype(np.int64)
    return [
        Column(tag, message[part], rows.value[part], rows.end[part])
        for tag, part in zip(tags, parts, strict=True)
    ]


class Messages:
    """Collects the bytes at which the messages of one field begin.

    Parameters
    ----------
    buf : uint8[n]
        Not to be let go of meanwhile.
    tag : int
        That of the field.
    """

    def __init__(self, buf: npt.NDArray[np.uint8], tag: int) -> None:
        self._data = buf.ctypes.data
        self._tag = tag
        self._parts: list[Int64s] = []
        self._starts = np.empty(_ROOM, np.int64)
        self._room = self._starts.ctypes.data
        self._count = ctypes.c_int64(0)
        self._follow = _functions().messages

    def follow(self, pos: int, end: int) -> int:
        """Adds those that follow one another from a byte on, and returns the byte behind them:
        where another field is, or a message that is not written as usual.
        """
        while True:
            pos = self._follow(self._data, pos, end, self._tag, self._room, _ROOM, self._count)
            if self._count.value < _ROOM:
                return pos
            self._put_away()

    def add(self, pos: int) -> None:
        """Adds one by its byte."""
        self._starts[self._count.value] = pos
        self._count.value += 1
        if self._count.value == _ROOM:
            self._put_away()

    def taken(self) -> Int64s:
        """Those that were added since the last time."""
        self._put_away()
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _put_away(self) -> None:
        self._parts.append(self._starts[: self._count.value].copy())
        self._count.value = 0

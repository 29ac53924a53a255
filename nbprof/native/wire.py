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


_OK, _UNEVEN = 0, 1
_MOST_TAGS = 1 << 10
"""That of `wire.h`."""


class _Sizes(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_int64), ("status", ctypes.c_int32))


class _Pointers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("edges", "message", "value", "end"))


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
    read.argtypes = [pointer, number, pointer, pointer, number, ctypes.POINTER(_Sizes)]
    sort.restype = None
    sort.argtypes = [pointer, ctypes.POINTER(_Pointers)]
    free.restype = None
    free.argtypes = [pointer]
    return _Functions(messages, read, sort, free)


class Column(NamedTuple):
    """One field of many messages, message by message: its tag, and of each the index of the
    message, the number or the byte at which the content begins, and the byte behind it.
    """

    tag: int
    message: Int64s
    value: Int64s
    end: Int64s


def columns(buf: npt.NDArray[np.uint8], start: Int64s, end: Int64s) -> list[Column] | None:
    """All fields of messages by where their contents begin and end, by tag; None where one is not
    written as usual.
    """
    assert len(start) == len(end)
    functions = _functions()
    start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
    places = (start.ctypes.data, end.ctypes.data, len(start))
    sizes = _Sizes()
    handle = functions.fields(buf.ctypes.data, len(buf), *places, sizes)
    try:
        if sizes.status == _UNEVEN:
            return None
        if sizes.status != _OK:
            raise MemoryError
        edges = np.empty(_MOST_TAGS + 2, np.int64)
        message, value, stop = (np.empty(sizes.rows, np.int64) for _ in range(3))
        arrays = (edges, message, value, stop)
        functions.columns(handle, _Pointers(*(array.ctypes.data for array in arrays)))
    finally:
        functions.free(handle)
    tags = np.flatnonzero(np.diff(edges[: _MOST_TAGS + 1])).tolist()
    rows = [slice(edges[tag], edges[tag + 1]) for tag in tags]
    return [
        Column(tag, message[part], value[part], stop[part])
        for tag, part in zip(tags, rows, strict=True)
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
        """What was added since the last time."""
        self._put_away()
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _put_away(self) -> None:
        self._parts.append(self._starts[: self._count.value].copy())
        self._count.value = 0

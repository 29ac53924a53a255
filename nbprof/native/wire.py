"""Messages behind one another in protocol buffers, as `wire.c` follows them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.native import library

# So many are found in one call: another thread, or an interrupt, need not wait for a whole file.
_ROOM = 1 << 16


@cache
def _messages() -> Callable[..., int]:
    loaded = library.load().library
    assert loaded is not None
    function: Any = loaded.nbprof_wire_messages
    function.restype = ctypes.c_int64
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_uint8,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int64),
    ]
    return function  # type: ignore[no-any-return]


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
        self._parts: list[npt.NDArray[np.int64]] = []
        self._starts = np.empty(_ROOM, np.int64)
        self._room = self._starts.ctypes.data
        self._count = ctypes.c_int64(0)
        self._follow = _messages()

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

    def taken(self) -> npt.NDArray[np.int64]:
        """What was added since the last time."""
        self._put_away()
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _put_away(self) -> None:
        self._parts.append(self._starts[: self._count.value].copy())
        self._count.value = 0

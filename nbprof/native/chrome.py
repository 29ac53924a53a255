"""Columns of the events of a Chrome trace, as `chrome.c` reads them."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.native import library

_OK, _UNEVEN = 0, 1

HARD = 255
"""Kind of a value that is left to be read from its bytes."""

# No file can be made for one process' seeds in which the hashes of texts collide.
_SEEDS = (secrets.randbits(64), secrets.randbits(64))


class Uneven(Exception):  # noqa: N818 — never leaves the reader
    """Quotes or brackets don't pair up: the stretch has to be read in another way."""


class _Sizes(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("events", "texts", "keys", "rows", "hard", "end")),
        ("closed", ctypes.c_int32),
        ("status", ctypes.c_int32),
    )


@dataclass
class Columns:
    """What `ChromeColumns` in `chrome.h` says, in its order, and where the stretch ends."""

    span: npt.NDArray[np.int64]
    bad: npt.NDArray[np.bool_]
    phase: npt.NDArray[np.uint8]
    fields: npt.NDArray[np.int32]
    ns: npt.NDArray[np.int64]
    ps: npt.NDArray[np.int16]
    state: npt.NDArray[np.uint8]
    rounded: npt.NDArray[np.uint8]
    text: npt.NDArray[np.int64]
    key: npt.NDArray[np.int64]
    wide: npt.NDArray[np.bool_]
    edges: npt.NDArray[np.int64]
    event: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    value: npt.NDArray[np.int64]
    hard: npt.NDArray[np.int64]
    end: int
    closed: bool


_ARRAYS = [field.name for field in fields(Columns)][:-2]


class _Pointers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in _ARRAYS)


class _Functions(NamedTuple):
    scan: Callable[..., Any]
    columns: Callable[..., Any]
    free: Callable[..., Any]


@cache
def _functions() -> _Functions:
    loaded = library.load().library
    assert loaded is not None
    scan, columns = loaded.nbprof_chrome_scan, loaded.nbprof_chrome_columns
    free = loaded.nbprof_chrome_free
    scan.restype = ctypes.c_void_p
    scan.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int64,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.POINTER(_Sizes),
    ]
    columns.restype = None
    columns.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Pointers)]
    free.restype = None
    free.argtypes = [ctypes.c_void_p]
    return _Functions(scan, columns, free)


def scan(data: bytes) -> Columns:
    """The events of a stretch that begins in the list of events, outside of any event.

    Other threads run meanwhile.

    Raises
    ------
    Uneven
        It cannot be read to its end.
    """
    functions = _functions()
    sizes = _Sizes()
    handle = functions.scan(data, len(data), *_SEEDS, sizes)
    try:
        if sizes.status == _UNEVEN:
            raise Uneven
        if sizes.status != _OK:
            raise MemoryError
        columns = _room(sizes)
        pointers = [getattr(columns, name).ctypes.data for name in _ARRAYS]
        functions.columns(handle, _Pointers(*pointers))
    finally:
        functions.free(handle)
    return columns


def _room(sizes: _Sizes) -> Columns:
    """Arrays of the sizes that `chrome.h` states."""
    events, keys, rows = sizes.events, sizes.keys, sizes.rows
    return Columns(
        span=np.empty((events, 2), np.int64),
        bad=np.empty(events, np.bool_),
        phase=np.empty(events, np.uint8),
        fields=np.empty((4, events), np.int32),
        ns=np.empty((2, events), np.int64),
        ps=np.empty((2, events), np.int16),
        state=np.empty((2, events), np.uint8),
        rounded=np.empty(events, np.uint8),
        text=np.empty((sizes.texts, 3), np.int64),
        key=np.empty((keys, 2), np.int64),
        wide=np.empty(2 * keys, np.bool_),
        edges=np.empty(2 * keys + 2, np.int64),
        event=np.empty(rows, np.int32),
        kind=np.empty(rows, np.uint8),
        value=np.empty(rows, np.int64),
        hard=np.empty((sizes.hard, 4), np.int64),
        end=sizes.end,
        closed=bool(sizes.closed),
    )

"""Columns of the events of an XSpace, as `xspace.c` reads them."""

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

_OK = 0

MOST_EVENTS = 1 << 16
"""How many are read at once."""

# No file can be made for one process' seeds in which the hashes of texts collide.
_SEEDS = (secrets.randbits(64), secrets.randbits(64))


class _Sizes(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("stats", "groups", "texts", "left")),
        ("status", ctypes.c_int32),
    )


@dataclass
class Events:
    """What `XspaceEvents` in `xspace.h` says, in its order."""

    meta: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    duration: npt.NDArray[np.int64]
    left: npt.NDArray[np.bool_]


@dataclass
class Stats:
    """What `XspaceStats` in `xspace.h` says, in its order."""

    ident: npt.NDArray[np.int64]
    tag: npt.NDArray[np.int32]
    edges: npt.NDArray[np.int64]
    row: npt.NDArray[np.uint16]
    value: npt.NDArray[np.uint64]
    text: npt.NDArray[np.int64]


_EVENT_ARRAYS = [field.name for field in fields(Events)]
_STAT_ARRAYS = [field.name for field in fields(Stats)]


class _EventPointers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in _EVENT_ARRAYS)


class _StatPointers(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in _STAT_ARRAYS)


class _Functions(NamedTuple):
    events: Callable[..., Any]
    stats: Callable[..., Any]
    free: Callable[..., Any]


@cache
def _functions() -> _Functions:
    loaded = library.load().library
    assert loaded is not None
    events, stats = loaded.nbprof_xspace_events, loaded.nbprof_xspace_stats
    free = loaded.nbprof_xspace_free
    events.restype = ctypes.c_void_p
    events.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.POINTER(_EventPointers),
        ctypes.POINTER(_Sizes),
    ]
    stats.restype = None
    stats.argtypes = [ctypes.c_void_p, ctypes.POINTER(_StatPointers)]
    free.restype = None
    free.argtypes = [ctypes.c_void_p]
    return _Functions(events, stats, free)


def read(
    buf: npt.NDArray[np.uint8], size: int, starts: npt.NDArray[np.int64]
) -> tuple[Events, Stats]:
    """Up to `MOST_EVENTS` events by the bytes of their tags.

    Other threads run meanwhile.

    Parameters
    ----------
    buf : uint8[size or more]
    size : int
    starts : int64[events]
    """
    functions = _functions()
    count = len(starts)
    assert count <= MOST_EVENTS
    assert size <= len(buf)
    starts = np.ascontiguousarray(starts)
    meta, offset, duration = (np.empty(count, np.int64) for _ in range(3))
    events = Events(meta, offset, duration, np.empty(count, np.bool_))
    sizes = _Sizes()
    handle = functions.events(
        buf.ctypes.data,
        size,
        starts.ctypes.data,
        count,
        *_SEEDS,
        _EventPointers(*_addresses(events, _EVENT_ARRAYS)),
        sizes,
    )
    try:
        if sizes.status != _OK:
            raise MemoryError
        stats = _room(sizes)
        functions.stats(handle, _StatPointers(*_addresses(stats, _STAT_ARRAYS)))
    finally:
        functions.free(handle)
    return events, stats


def _room(sizes: _Sizes) -> Stats:
    """Arrays of the sizes that `xspace.h` states."""
    return Stats(
        ident=np.empty(sizes.groups, np.int64),
        tag=np.empty(sizes.groups, np.int32),
        edges=np.empty(sizes.groups + 2, np.int64),
        row=np.empty(sizes.stats, np.uint16),
        value=np.empty(sizes.stats, np.uint64),
        text=np.empty((sizes.texts, 2), np.int64),
    )


def _addresses(columns: Events | Stats, names: list[str]) -> list[int]:
    return [getattr(columns, name).ctypes.data for name in names]

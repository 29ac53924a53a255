"""Parents, depths and self times of nested events, and pairs of begins and ends, as `nesting.c`
finds them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.native import library

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]


class _Functions(NamedTuple):
    parents: Callable[..., None]
    depths: Callable[..., None]
    self_times: Callable[..., None]
    pairs: Callable[..., None]


@cache
def _functions() -> _Functions:
    loaded = library.load().library
    assert loaded is not None
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    parents, depths = loaded.nbprof_nesting_parents, loaded.nbprof_nesting_depths
    self_times, pairs = loaded.nbprof_nesting_self_times, loaded.nbprof_nesting_pairs
    for function in (parents, depths, self_times, pairs):
        function.restype = None
    parents.argtypes = [pointer, pointer, pointer, number, number, pointer]
    depths.argtypes = [pointer, number, pointer]
    self_times.argtypes = [pointer, pointer, number, pointer]
    pairs.argtypes = [pointer, pointer, pointer, number, pointer, number, pointer]
    return _Functions(parents, depths, self_times, pairs)


def parents(lane: Int32s, start: Int64s, duration: Int64s, slack: int) -> Int32s:
    """As `nesting.parents` of the core."""
    assert len(lane) == len(start) == len(duration)
    lane, start, duration = _as(lane, np.int32), _as(start, np.int64), _as(duration, np.int64)
    result = np.empty(len(start), np.int32)
    events = (_address(lane), _address(start), _address(duration), len(start))
    _functions().parents(*events, slack, _address(result))
    return result


def depths(parent: Int32s) -> npt.NDArray[np.uint16]:
    """As `nesting.depths` of the core."""
    parent = _as(parent, np.int32)
    result = np.empty(len(parent), np.uint16)
    _functions().depths(_address(parent), len(parent), _address(result))
    return result


def self_times(parent: Int32s, duration: Int64s) -> Int64s:
    """As `nesting.self_times` of the core."""
    assert len(parent) == len(duration)
    parent, duration = _as(parent, np.int32), _as(duration, np.int64)
    result = np.empty(len(parent), np.int64)
    _functions().self_times(_address(parent), _address(duration), len(parent), _address(result))
    return result


def pairs(track: Int32s, begins: npt.NDArray[np.bool_], places: Int64s) -> Int32s:
    """As `slices.pair` of Perfetto."""
    assert len(track) == len(begins) <= np.iinfo(np.int32).max
    assert int(places.min(initial=0)) >= 0
    assert int(places.max(initial=-1)) < len(track)
    assert int(track.min(initial=0)) >= 0
    track, places = _as(track, np.int32), _as(places, np.int64)
    begins = np.ascontiguousarray(begins)
    tracks = int(track.max(initial=-1)) + 1
    innermost, result = np.empty(tracks, np.int32), np.full(len(track), -1, np.int32)
    events = (_address(track), _address(begins), _address(places), len(places))
    _functions().pairs(*events, _address(innermost), tracks, _address(result))
    return result


def _as(values: npt.NDArray[Any], dtype: type) -> npt.NDArray[Any]:
    """Integers as the library takes them."""
    assert values.dtype.kind == "i"
    return np.ascontiguousarray(values, dtype)


def _address(values: npt.NDArray[Any]) -> int:
    return values.ctypes.data

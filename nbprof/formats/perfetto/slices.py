"""Slices from begins and ends on tracks: each end closes the last open begin of its track."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s
from nbprof.native import library
from nbprof.native import nesting as native


def pair(
    track: Int32s, time: Int64s, begins: npt.NDArray[np.bool_], ends: npt.NDArray[np.bool_]
) -> Int32s:
    """For each begin the place of its end, and for each end that of its begin; -1 for what has no
    other.

    Parameters
    ----------
    track : int32[n]
        From 0 on.
    time : int64[n]
        What happened at one time is in the order of the file.
    begins, ends : bool[n]
    """
    places = np.flatnonzero(begins | ends)
    moments = time[places]
    if (moments[1:] < moments[:-1]).any():
        places = places[np.argsort(moments, kind="stable")]
    if library.load().library is not None:
        return native.pairs(track, begins, places)
    return _by_stacks(track, begins, places)


def _by_stacks(track: Int32s, begins: npt.NDArray[np.bool_], places: Int64s) -> Int32s:
    """`pair` without the library."""
    result = np.full(len(track), -1, np.int32)
    stacks: dict[int, list[int]] = {}
    for event in places.tolist():
        stack = stacks.setdefault(int(track[event]), [])
        if begins[event]:
            stack.append(event)
        elif stack:
            begin = stack.pop()
            result[begin], result[event] = event, begin
    return result

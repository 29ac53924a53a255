"""Slices from begins and ends on tracks: each end closes the last open begin of its track."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.runs import run_starts
from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.build import stable_order


@dataclass
class Pairs:
    """Places of begins and of their ends, of begins without an end, and of ends without a begin."""

    begin: Int64s
    end: Int64s
    open: Int64s
    lost: Int64s


def pair(track: Int32s, time: Int64s, begins: npt.NDArray[np.bool_]) -> Pairs:
    """Begins and ends, of all tracks at once.

    Parameters
    ----------
    track : int32[n]
        From 0 on.
    time : int64[n]
        What happened at one time is in the order of the file.
    begins : bool[n]
        Whether each is a begin; all others are ends.
    """
    order = by_time(track, time)
    change = begins[order].astype(np.int8) * np.int8(2) - np.int8(1)
    track_sorted = track[order]
    first = run_starts(track_sorted)
    level = _levels(change, first)
    lost = np.zeros(0, np.int64)
    if len(level) and int(level.min()) < 0:
        # An end that goes below all before it on its track closes nothing. Each track has a range
        # of numbers below that of the one before.
        span = np.int64(len(track_sorted) + 2)
        number = np.cumsum(_marks(first, len(track_sorted)), dtype=np.int64) * span
        least = np.minimum.accumulate(np.minimum(level, 0) - number)
        before = np.append(0, least[:-1])
        before[first] = -number[first]
        closes_nothing = level - number < before
        lost = order[closes_nothing]
        order = order[~closes_nothing]
        change, track_sorted = change[~closes_nothing], track_sorted[~closes_nothing]
        first = run_starts(track_sorted)
        level = _levels(change, first)
    # On one level of a track begins and ends take turns.
    level += change < 0
    levels = int(level.max(initial=0)) + 1
    small = (int(track_sorted.max(initial=0)) + 1) * levels < 1 << 16
    dtype = np.uint16 if small else np.int64
    key = track_sorted.astype(dtype) * levels + level.astype(dtype)
    turn = np.argsort(key, kind="stable")
    events = order[turn]
    begin = begins[events]
    paired = np.zeros(len(events), np.bool_)
    paired[:-1] = begin[:-1] & ~begin[1:]
    # The last of a level has none after it.
    if small:
        paired[np.cumsum(np.bincount(key))[:-1] - 1] = False
    else:
        paired[:-1] &= key[turn[1:]] == key[turn[:-1]]
    rows = np.flatnonzero(paired)
    return Pairs(events[rows], events[rows + 1], events[begin & ~paired], lost)


def by_time(track: Int32s, time: Int64s) -> Int64s:
    """The order by track and time; what happened at one time stays in the order of the file."""
    if len(time) and (time[1:] < time[:-1]).any():
        in_time = np.argsort(time, kind="stable")
        return in_time[stable_order(track[in_time])]
    return stable_order(track)


def _marks(first: Int64s, count: int) -> npt.NDArray[np.bool_]:
    result = np.zeros(count, np.bool_)
    result[first] = True
    return result


def _levels(change: npt.NDArray[np.int8], first: Int64s) -> Int32s:
    """Number of slices of its track that are open after each begin or end."""
    total = np.cumsum(change, dtype=np.int32)
    before = total[first] - change[first]
    total -= np.repeat(before, np.diff(np.append(first, len(change))))
    return total

"""Nesting of the events of lanes: parent, depth and self time, for all lanes at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.runs import rows_by_value
from nbprof.native import library
from nbprof.native import nesting as native

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

_CHUNK = 1 << 16


def parents(lane: Int32s, start: Int64s, duration: Int64s, slack: int = 0) -> Int32s:
    """The innermost event of the same lane that includes each event (closed intervals), or -1.

    Events are sorted by (lane, start, -duration), so that is the nearest event before it that ends
    no earlier.

    Parameters
    ----------
    lane : int32[n]
    start, duration : int64[n]
    slack : int
        Time that an event may run past the one that includes it, at most half of its duration.
    """
    if library.load().library is not None:
        return native.parents(lane, start, duration, slack)
    return _parents(lane, start, duration, slack)


def _parents(lane: Int32s, start: Int64s, duration: Int64s, slack: int) -> Int32s:
    """`parents` without the library.

    Many events are walked at once: everything between an event and its candidate ends before the
    event does, and so does everything between a candidate that is too short and *its* candidate,
    which is the next one to try. Distances double in each round. The walk goes by chunks that a
    processor's cache holds; a candidate in an earlier chunk has its parent already.
    """
    count = len(start)
    candidate = np.arange(-1, count - 1, dtype=np.int32)
    if not count:
        return candidate
    end = start + duration
    # Time that each event's parent has to reach. The walk only requires it to be within the event.
    reach = end - np.minimum(slack, duration // 2) if slack else end
    first = np.append(0, np.flatnonzero(lane[1:] != lane[:-1]) + 1)
    for begin, stop in zip(first.tolist(), np.append(first[1:], count).tolist(), strict=True):
        # An event that ends later than all before it in its lane has no parent; without this, a
        # flat lane would take the most rounds.
        longest = np.maximum.accumulate(end[begin:stop])
        outer = begin + 1 + np.flatnonzero(reach[begin + 1 : stop] > longest[:-1])
        candidate[begin] = -1
        candidate[outer] = -1
    for begin in range(0, count, _CHUNK):
        open_ = begin + np.flatnonzero(candidate[begin : begin + _CHUNK] >= 0)
        while len(open_):
            tried = candidate[open_]
            short = end[tried] < reach[open_]
            open_ = open_[short]
            candidate[open_] = candidate[tried[short]]
    return candidate


def depths(parent: Int32s) -> npt.NDArray[np.uint16]:
    """Number of events around each event, at most 65,535."""
    # Chains of calls may have their outermost one last, which the library does not read.
    has_outer_first = bool((parent < np.arange(len(parent))).all())
    if has_outer_first and library.load().library is not None:
        return native.depths(parent)
    return _depths(parent)


def _depths(parent: Int32s) -> npt.NDArray[np.uint16]:
    depth = (parent >= 0).astype(np.int32)
    above = parent.copy()
    for first in range(0, len(parent), _CHUNK):
        open_ = first + np.flatnonzero(above[first : first + _CHUNK] >= 0)
        while len(open_):
            outer = above[open_]
            depth[open_] += depth[outer]
            above[open_] = above[outer]
            open_ = open_[above[open_] >= 0]
    return np.minimum(depth, 65535).astype(np.uint16)


def levels(parent: Int32s) -> list[Int64s]:
    """Events of each depth, outermost first: for passing values from parents to children or up."""
    return rows_by_value(depths(parent))


def totals(parent: npt.NDArray[np.integer], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each event's value, or row of values, plus those of all events in it."""
    total = values.copy()
    for level in reversed(levels(parent.astype(np.int32))[1:]):
        np.add.at(total, parent[level], total[level])
    return total


def inherit(parent: Int32s, values: npt.NDArray[Any]) -> None:
    """Replace negative values, in place, by that of the nearest event around with another value."""
    for level in levels(parent)[1:]:
        missing = level[values[level] < 0]
        values[missing] = values[parent[missing]]


def self_times(parent: Int32s, duration: Int64s) -> Int64s:
    """Each event's duration less that of the events directly in it, in the unit of `duration`."""
    if library.load().library is not None:
        return native.self_times(parent, duration)
    inner = np.zeros(len(duration), np.int64)
    has = np.flatnonzero(parent >= 0)
    np.add.at(inner, parent[has], duration[has])
    return duration - inner


def self_times_of(rows: Int64s, parent: Int32s, duration: Int64s) -> Int64s:
    """`self_times` of some events, ascending, without those of all others."""
    # The last element stands for "no parent".
    is_row = np.zeros(len(parent) + 1, np.bool_)
    is_row[rows] = True
    inner = np.zeros(len(rows), np.int64)
    for first in range(0, len(parent), _CHUNK):
        chunk = parent[first : first + _CHUNK]
        children = np.flatnonzero(is_row[chunk])
        np.add.at(inner, np.searchsorted(rows, chunk[children]), duration[first + children])
    return duration[rows] - inner

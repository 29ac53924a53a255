"""Self times of events of one thread that do not nest properly: whose time is it when two
overlap?
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.core import nesting
from nbprof.core.intervals import end_to_end, ends_before
from nbprof.core.trace import Int32s, Int64s

Flags = npt.NDArray[np.bool_]


def overlapping(lane: Int32s, start: Int64s, end: Int64s, parent: Int32s) -> Flags:
    """Which events began within another one of their lane and outlast it, if the event directly
    around them is around that one too.

    Parameters
    ----------
    lane, start, end, parent : int[n]
        Events sorted by (lane, start, -duration); `parent` is what `nesting.parents` gives.
    """
    # It then outlasts the sibling before it: all that lies between the two ends before that one
    # does.
    out = np.zeros(len(lane), np.bool_)
    siblings = np.lexsort((np.arange(len(lane)), parent, lane))
    same = (parent[siblings][1:] == parent[siblings][:-1]) & (
        lane[siblings][1:] == lane[siblings][:-1]
    )
    out[siblings[1:][same & (start[siblings][1:] < end[siblings][:-1])]] = True
    return out


def ends_with_its_parent(end: Int64s, parent: Int32s) -> Flags:
    """Which events end at the instant in which the event around them does."""
    out = np.zeros(len(end), np.bool_)
    inside = np.flatnonzero(parent >= 0)
    out[inside] = end[inside] == end[parent[inside]]
    return out


def stretches(lane: Int32s, start: Int64s, end: Int64s, odd: Flags) -> list[slice]:
    """Stretches of a lane, each with all events that touch one another, in which an odd one
    lies.
    """
    if not odd.any():
        return []
    # A stretch begins where everything before it on the thread has ended.
    heads = np.flatnonzero(start >= ends_before(end, lane))
    tangled = np.unique(np.searchsorted(heads, np.flatnonzero(odd), side="right") - 1)
    stops = np.append(heads[1:], len(lane))
    return [
        slice(a, b) for a, b in zip(heads[tangled].tolist(), stops[tangled].tolist(), strict=True)
    ]


def share_out(own: Int64s, lane: Int32s, start: Int64s, end: Int64s, overlaps: Flags) -> None:
    """Self times, in place, of events in stretches where some overlap partly: of each instant that
    of the event which began last.

    Parameters
    ----------
    own : int64[n]
        Self times of events that nest.
    lane, start, end : int[n]
        Events sorted by (lane, start, -duration).
    overlaps : bool[n]
        What `overlapping` gives.
    """
    found = stretches(lane, start, end, overlaps)
    if not found:
        return
    # The stretches are laid end to end, as one lane.
    rows = np.concatenate([np.arange(s.start, s.stop) for s in found])
    many = np.array([s.stop - s.start for s in found])
    first = np.cumsum(many) - many
    begin, stop = start[rows], end[rows]
    shift = np.repeat(end_to_end(begin[first], np.maximum.reduceat(stop, first)), many)
    begin, stop = begin + shift, stop + shift
    times = np.sort(np.concatenate([begin, stop]))
    times = times[np.append(True, times[1:] != times[:-1])]
    outer = nesting.parents(np.zeros(len(rows), np.int32), begin, stop - begin)
    # Of each piece between two times: the last event that had begun, or if it has ended, the
    # nearest before it that ends later.
    at = np.searchsorted(begin, times[:-1], side="right") - 1
    over = np.flatnonzero(stop[at] <= times[:-1])
    while len(over):
        at[over] = outer[at[over]]
        over = over[stop[at[over]] <= times[:-1][over]]
    mine = np.zeros(len(rows), np.int64)
    np.add.at(mine, at, np.diff(times))
    own[rows] = mine


def stacked(start: Int64s, end: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """One stretch of a thread by TensorFlow Profiler's rule: which ops count, and their self times.

    Begins and ends are walked in time order with a stack. An end takes away what lies on the stack
    above its own begin; an op whose begin is gone by the time it ends does not count.
    """
    kept = np.zeros(len(start), np.bool_)
    own = np.zeros(len(start), np.int64)
    times = np.empty(2 * len(start), np.int64)
    times[0::2], times[1::2] = start, end
    stack: list[list[int]] = []
    open_: set[int] = set()
    for at in np.argsort(times, kind="stable").tolist():
        which = at >> 1
        if not at & 1:
            stack.append([which, 0])
            open_.add(which)
            continue
        if which not in open_:
            continue
        while stack:
            top, inner = stack.pop()
            open_.discard(top)
            if top == which:
                length = int(times[at] - times[at - 1])
                if stack:
                    stack[-1][1] += length
                kept[which], own[which] = True, length - inner
                break
    return kept, own

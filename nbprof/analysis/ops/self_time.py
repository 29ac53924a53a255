"""Self times of events of one thread that do not nest properly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.core import nesting
from nbprof.core.intervals import end_to_end, ends_before
from nbprof.core.trace import Int32s, Int64s

Flags = npt.NDArray[np.bool_]


def overlapping(lane: Int32s, start: Int64s, end: Int64s, parent: Int32s) -> Flags:
    """Flags of the events that began within another one of their lane and outlast it, if both have
    the same parent.

    Parameters
    ----------
    lane, start, end, parent : int[n]
        Events sorted by (lane, start, -duration); `parent` is the result of `nesting.parents`.
    """
    # Such an event outlasts the sibling before it: all events between the two end before that one
    # does.
    flags = np.zeros(len(lane), np.bool_)
    siblings = np.lexsort((np.arange(len(lane)), parent, lane))
    same = (parent[siblings][1:] == parent[siblings][:-1]) & (
        lane[siblings][1:] == lane[siblings][:-1]
    )
    flags[siblings[1:][same & (start[siblings][1:] < end[siblings][:-1])]] = True
    return flags


def ends_with_its_parent(end: Int64s, parent: Int32s) -> Flags:
    """Flags of the events that end at the same instant as their parent."""
    flags = np.zeros(len(end), np.bool_)
    nested = np.flatnonzero(parent >= 0)
    flags[nested] = end[nested] == end[parent[nested]]
    return flags


def overlap_groups(lane: Int32s, start: Int64s, end: Int64s, odd: Flags) -> list[slice]:
    """Groups of events of a lane that overlap or touch one another, those with an odd event."""
    if not odd.any():
        return []
    # A group begins where everything before it on the thread has ended.
    heads = np.flatnonzero(start >= ends_before(end, lane))
    tangled = np.unique(np.searchsorted(heads, np.flatnonzero(odd), side="right") - 1)
    stops = np.append(heads[1:], len(lane))
    return [
        slice(a, b) for a, b in zip(heads[tangled].tolist(), stops[tangled].tolist(), strict=True)
    ]


def share_out(self_ps: Int64s, lane: Int32s, start: Int64s, end: Int64s, overlaps: Flags) -> None:
    """Corrects, in place, the self times of events in groups where some overlap partly: each
    instant counts for the event that began last.

    Parameters
    ----------
    self_ps : int64[n]
        Self times of events that nest.
    lane, start, end : int[n]
        Events sorted by (lane, start, -duration).
    overlaps : bool[n]
        The result of `overlapping`.
    """
    spans = overlap_groups(lane, start, end, overlaps)
    if not spans:
        return
    # The groups are laid end to end, as one lane.
    rows = np.concatenate([np.arange(s.start, s.stop) for s in spans])
    many = np.array([s.stop - s.start for s in spans])
    first = np.cumsum(many) - many
    begin, stop = start[rows], end[rows]
    shift = np.repeat(end_to_end(begin[first], np.maximum.reduceat(stop, first)), many)
    begin, stop = begin + shift, stop + shift
    times = np.sort(np.concatenate([begin, stop]))
    times = times[np.append(True, times[1:] != times[:-1])]
    outer = nesting.parents(np.zeros(len(rows), np.int32), begin, stop - begin)
    # Of each piece between two times: the last event that had begun, or if it has ended, the
    # nearest before it that ends later.
    segment = np.searchsorted(begin, times[:-1], side="right") - 1
    over = np.flatnonzero(stop[segment] <= times[:-1])
    while len(over):
        segment[over] = outer[segment[over]]
        over = over[stop[segment[over]] <= times[:-1][over]]
    shares = np.zeros(len(rows), np.int64)
    np.add.at(shares, segment, np.diff(times))
    self_ps[rows] = shares


def stacked(start: Int64s, end: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """Flags of the ops of one group that count by TensorFlow Profiler's rule, and their self times.

    Begins and ends are walked in time order with a stack. An end pops everything above its own
    begin; an op whose begin was popped before it ends does not count.
    """
    retained = np.zeros(len(start), np.bool_)
    self_ps = np.zeros(len(start), np.int64)
    times = np.empty(2 * len(start), np.int64)
    times[0::2], times[1::2] = start, end
    stack: list[list[int]] = []
    open_: set[int] = set()
    for edge in np.argsort(times, kind="stable").tolist():
        call = edge >> 1
        if not edge & 1:
            stack.append([call, 0])
            open_.add(call)
            continue
        if call not in open_:
            continue
        while stack:
            top, inner = stack.pop()
            open_.discard(top)
            if top == call:
                length = int(times[edge] - times[edge - 1])
                if stack:
                    stack[-1][1] += length
                retained[call], self_ps[call] = True, length - inner
                break
    return retained, self_ps

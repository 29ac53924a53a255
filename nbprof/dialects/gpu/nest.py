"""Events of a trace as a forest by time."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nbprof.core import nesting
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects.gpu.lanes import SLACK_PS


class Nest:
    """Some events of a trace as a forest by time on their lanes, to ask what is around something.

    Parameters
    ----------
    trace : Trace
    rows : int64[k]
        The events, ascending.
    """

    def __init__(self, trace: Trace, rows: Int64s) -> None:
        events = trace.events
        self.trace = trace
        self.rows = rows
        self.lane: Int32s = events.lane[rows]
        self.start: Int64s = events.start[rows]

    @cached_property
    def parent(self) -> Int32s:
        """int32[k]: position of the innermost event around each, -1."""
        return nesting.parents(
            self.lane, self.start, self.trace.events.duration[self.rows], SLACK_PS
        )

    @cached_property
    def end(self) -> Int64s:
        """int64[k]: ends, those that run past their parent by less than the slack cut to it."""
        end = self.trace.events.end[self.rows]
        child = np.flatnonzero(self.parent >= 0)
        while len(child):
            above = end[self.parent[child]]
            over = end[child] > above
            child, above = child[over], above[over]
            end[child] = above
            # A cut event may have children of its own: look again at all, which ends soon, as
            # almost none is cut.
            child = (
                np.flatnonzero((self.parent >= 0) & np.isin(self.parent, child))
                if len(child)
                else child
            )
        return end

    def around(self, rows: Int64s) -> Int64s:
        """Position of the innermost event around other events of the trace (itself, where it is one
        of these), -1 where there is none.
        """
        events = self.trace.events
        at = np.searchsorted(self.rows, rows, side="right") - 1
        reach = events.end[rows] - np.minimum(SLACK_PS, events.duration[rows] // 2)
        return self._climb(at, events.lane[rows], reach)

    def at(self, lane: Int32s, time: Int64s) -> Int64s:
        """Position of the innermost event around moments (int64 ps) on lanes, -1 where there is
        none.
        """
        out = np.full(len(time), -1, np.int64)
        for one in np.unique(lane).tolist():
            which = np.flatnonzero(lane == one)
            low, high = np.searchsorted(self.lane, np.array([one, one + 1], self.lane.dtype))
            out[which] = low + np.searchsorted(self.start[low:high], time[which], side="right") - 1
        return self._climb(out, lane, time)

    def _climb(self, at: Int64s, lane: Int32s, reach: Int64s) -> Int64s:
        """From the last event that began before, up to the first that reaches far enough."""
        at = (
            np.where((at >= 0) & (self.lane[at] == lane), at, -1)
            if len(self.rows)
            else np.full(len(at), -1, np.int64)
        )
        open_ = np.flatnonzero(at >= 0)
        end = self.trace.events.end[self.rows]
        while len(open_):
            open_ = open_[end[at[open_]] < reach[open_]]
            at[open_] = self.parent[at[open_]]
            open_ = open_[at[open_] >= 0]
        return at

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
        """int64[k]: ends, trimmed to the parent's if they pass it by less than the slack."""
        end = self.trace.events.end[self.rows]
        child = np.flatnonzero(self.parent >= 0)
        while len(child):
            above = end[self.parent[child]]
            over = end[child] > above
            child, above = child[over], above[over]
            end[child] = above
            # A trimmed event may have children itself: look again at all. Few events are trimmed.
            if len(child):
                child = np.flatnonzero((self.parent >= 0) & np.isin(self.parent, child))
        return end

    def around(self, rows: Int64s) -> Int64s:
        """Position of the innermost event around each event, or of itself; -1 for none."""
        events = self.trace.events
        candidate = np.searchsorted(self.rows, rows, side="right") - 1
        reach = events.end[rows] - np.minimum(SLACK_PS, events.duration[rows] // 2)
        return self._climb(candidate, events.lane[rows], reach)

    def around_times(self, lane: Int32s, time: Int64s) -> Int64s:
        """Position of the innermost event around times (int64 ps) on lanes, -1 for none."""
        candidate = np.full(len(time), -1, np.int64)
        for lane_index in np.unique(lane).tolist():
            in_lane = np.flatnonzero(lane == lane_index)
            low, high = np.searchsorted(
                self.lane, np.array([lane_index, lane_index + 1], self.lane.dtype)
            )
            candidate[in_lane] = (
                low + np.searchsorted(self.start[low:high], time[in_lane], side="right") - 1
            )
        return self._climb(candidate, lane, time)

    def _climb(self, position: Int64s, lane: Int32s, reach: Int64s) -> Int64s:
        """From the last event that began before, up to the first that reaches far enough."""
        if len(self.rows):
            position = np.where((position >= 0) & (self.lane[position] == lane), position, -1)
        else:
            position = np.full(len(position), -1, np.int64)
        open_ = np.flatnonzero(position >= 0)
        end = self.trace.events.end[self.rows]
        while len(open_):
            open_ = open_[end[position[open_]] < reach[open_]]
            position[open_] = self.parent[position[open_]]
            open_ = open_[position[open_] >= 0]
        return position

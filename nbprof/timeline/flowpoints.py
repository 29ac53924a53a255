"""Arrows of a Chrome trace, found from one of the slices that they join."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from nbprof.core.trace import Int64s, Trace

# How far behind a finish that names the next slice that slice may begin, ps; times of arrows and slices are rounded apart.
_NEAR_PS = 1_000_000


class FlowPoints:
    """The points of arrows, and the slices that they belong to.

    A point belongs to the innermost slice around it on its row; a finish that does not say "enclosing" to the next slice that begins. In a
    trace whose rows were split, a row is several lanes.
    """

    def __init__(self, trace: Trace) -> None:
        assert trace.flows is not None
        self.trace, self.events, self.flows = trace, trace.events, trace.flows
        rows = trace.lanes["row"].to_numpy(np.int64) if "row" in trace.lanes else np.arange(len(trace.lanes))
        self.row_of = rows
        self._categories: set[str] | None = None

    @cached_property
    def number(self) -> Int64s:
        """int64[points]: the number of the arrow of each, from 0 on. It is the id in the file, unless that is a text or there are several
        hosts, each of which numbers its arrows by itself.
        """
        ids = self.flows.id
        host = np.append(pd.factorize(self.trace.lanes["host"])[0], -1)[self.flows.lane].astype(np.int64)
        if not len(ids) or (ids.min() >= 0 and (host == host[0]).all()):
            return ids
        place = np.unique(ids, return_inverse=True)[1].ravel()
        return np.asarray(place * (int(host.max()) + 2) + host + 1, np.int64)

    def has(self, category: str) -> bool:
        """Whether there are arrows of a category."""
        if self._categories is None:
            self._categories = {self._name(c) for c in np.unique(self.flows.category).tolist()}
        return category in self._categories

    def _name(self, category: int) -> str:
        return self.trace.strings[category] if category >= 0 else ""

    def of(self, event: int, most: int) -> list[tuple[str, int, int]]:
        """Category, begin and end of the arrows of a slice, in the order of the file; at most so many."""
        events, flows = self.events, self.flows
        row = self.row_of[events.lane[event]]
        first, last = int(events.start[event]) - _NEAR_PS, int(events.start[event] + events.duration[event]) + _NEAR_PS
        near = np.flatnonzero((flows.lane == row) & (flows.time >= first) & (flows.time <= last))
        out: list[tuple[str, int, int]] = []
        for point in near[self.slices(near) == event].tolist():
            chain = np.flatnonzero((self.number == self.number[point]) & (flows.category == flows.category[point]))
            chain = self._part(chain, point)
            slices = self.slices(chain)
            at = int(np.flatnonzero(chain == point)[0])
            for a, b in ((at - 1, at), (at, at + 1)):
                if a >= 0 and b < len(chain) and slices[a] >= 0 and slices[b] >= 0 and flows.phase[chain[a]] != 2:
                    out.append((self._name(int(flows.category[point])), int(slices[a]), int(slices[b])))
            if len(out) >= most:
                break
        return list(dict.fromkeys(out))

    def _part(self, chain: Int64s, point: int) -> Int64s:
        """The points of one arrow in the order of time: an id may be used again once its arrow has ended."""
        flows = self.flows
        chain = chain[np.lexsort((flows.phase[chain], flows.time[chain]))]
        number = np.cumsum(flows.phase[chain] == 0)
        return np.asarray(chain[number == number[np.flatnonzero(chain == point)[0]]], np.int64)

    def slices(self, points: Int64s) -> Int64s:
        """int64[points]: the slice that each belongs to, -1 where there is none."""
        out = np.full(len(points), -1, np.int64)
        events, flows = self.events, self.flows
        reach = np.full(len(points), np.iinfo(np.int64).min)
        for row in np.unique(flows.lane[points]).tolist():
            mine = np.flatnonzero(flows.lane[points] == row)
            time = flows.time[points[mine]]
            following = (flows.phase[points[mine]] == 2) & ~flows.enclosing[points[mine]]
            for lane in np.flatnonzero(self.row_of == row).tolist():
                first, stop = np.searchsorted(events.lane, [lane, lane + 1])
                starts = events.start[first:stop]
                at = first + np.searchsorted(starts, time, side="right") - 1
                at = np.where(at >= first, at, -1)
                open_ = np.flatnonzero(at >= 0)
                while len(open_):
                    open_ = open_[events.start[at[open_]] + events.duration[at[open_]] < time[open_]]
                    at[open_] = events.parent[at[open_]]
                    open_ = open_[at[open_] >= 0]
                behind = first + np.searchsorted(starts, time, side="left")
                near = (behind < stop) & (events.start[np.minimum(behind, stop - 1)] <= time + _NEAR_PS) if stop > first else at >= 0
                at = np.where((following | (at < 0)) & near, behind, at)
                # Of the lanes of a row the one whose slice began last, which is the innermost.
                began = np.where(at >= 0, events.start[at], np.iinfo(np.int64).min)
                better = (at >= 0) & (began >= reach[mine])
                out[mine[better]], reach[mine[better]] = at[better], began[better]
        return out

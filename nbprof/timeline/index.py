"""Index of events by lane, level and time, found by bisection, without a second copy of them."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Events, Int64s
from nbprof.timeline.blocks import Blocks
from nbprof.timeline.coarse import LEAST, Coarse
from nbprof.timeline.colours import Fills
from nbprof.timeline.levels import Stack, stack
from nbprof.timeline.tracks import Tracks

Ids = npt.NDArray[np.integer]


class Rows:
    """The rows of one table of events, whose ids count from `base`."""

    def __init__(self, events: Events, base: int) -> None:
        self.events = events
        self.base = base
        self.stack: Stack = stack(events)
        self.index_of = {lane: k for k, lane in enumerate(self.stack.lanes.tolist())}
        self.coarse: dict[tuple[int, int], Coarse] = {}
        """Rows in wide bins by lane and level; see `coarsen`."""

    @cached_property
    def blocks(self) -> Blocks:
        """Sums and longest events of ranges of rows."""
        return Blocks(self.stack)

    def long_rows(self) -> list[tuple[int, int]]:
        """Lane and level of the rows with many events, which get wide bins."""
        sizes, stack = np.diff(self.stack.row), self.stack
        long = np.flatnonzero(sizes >= LEAST)
        index = np.searchsorted(stack.first_row, long, side="right") - 1
        levels = long - stack.first_row[index]
        return list(zip(stack.lanes[index].tolist(), levels.tolist(), strict=True))

    def coarsen(self, lane: int, level: int, origin: int) -> None:
        """Builds the wide bins of a row, for faster tiles."""
        coarse = Coarse.from_row(
            self.blocks,
            *self.range(lane, level),
            bool(self.stack.flat[self.index_of[lane]]),
            origin,
        )
        if coarse is not None:
            self.coarse[lane, level] = coarse

    def range(self, lane: int, level: int) -> tuple[int, int]:
        """First position of a row, and the one behind its last."""
        row = int(self.stack.first_row[self.index_of[lane]]) + level
        return int(self.stack.row[row]), int(self.stack.row[row + 1])

    def extent(self, start: int, stop: int, flat: bool) -> tuple[int, int]:
        """Start and end of a row, ps; integers that never wrap around."""
        first, last = (start, stop - 1) if flat else self.stack.order[[start, stop - 1]].tolist()
        end = int(self.events.start[last]) + int(self.events.duration[last])
        return int(self.events.start[first]), end


class HitRows:
    """Hits of a search by row, each looked up when it is first drawn."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._rows: dict[tuple[int, int], Ids] = {}

    def in_row(self, table: Rows, lane: int, level: int) -> Ids:
        """Ids of the hits of a row, ascending."""
        if (lane, level) not in self._rows:
            stack, k = table.stack, table.index_of[lane]
            low, high = np.searchsorted(
                self.ids, (stack.bounds[k : k + 2] + table.base).astype(self.ids.dtype)
            )
            ids = self.ids[low:high]
            self._rows[lane, level] = (
                ids if stack.flat[k] else ids[stack.level[ids - table.base] == level]
            )
        return self._rows[lane, level]


class Index:
    """The events of all rows of `tracks.events` and `tracks.extra`; a row is one level of one lane.

    Levels count from 0. Events of a row never overlap, and are numbered from 0 in the order of
    time. Times are int64 ps. Lanes without events, and levels beyond a lane's last, are empty.
    """

    def __init__(self, tracks: Tracks) -> None:
        self.tracks = tracks
        self.main = Rows(tracks.events, 0)
        self.extra = Rows(tracks.extra, len(tracks.events))
        self._hits: HitRows | None = None

    def hit_rows(self, hits: Ids | None) -> HitRows | None:
        """Hits by row; those of the last search are cached."""
        if hits is None or not len(hits):
            return None
        if self._hits is None or self._hits.ids is not hits:
            self._hits = HitRows(hits)
        return self._hits

    def table(self, lane: int) -> Rows | None:
        """The table that has the events of a lane."""
        for table in (self.main, self.extra):
            if lane in table.index_of:
                return table
        return None

    def table_and_row(self, event: int) -> tuple[Rows, int]:
        """The table with an event, and the row of the event.

        Raises
        ------
        IndexError
            The event does not exist.
        """
        table = self.main if event < self.extra.base else self.extra
        if not 0 <= event - table.base < len(table.events):
            raise IndexError(f"There is no event {event}.")
        return table, event - table.base

    def rows(self, lane: int) -> int:
        """Number of levels of a lane."""
        table = self.table(lane)
        if table is None:
            return 0
        k = table.index_of[lane]
        return int(table.stack.first_row[k + 1] - table.stack.first_row[k])

    def level(self, event: int) -> int:
        """The level that an event is drawn on."""
        table, index = self.table_and_row(event)
        return int(table.stack.level[index])

    def window(self, lane: int, level: int, from_ps: int, to_ps: int) -> tuple[int, int]:
        """Range of events of a row that start in from ≤ time < to or reach in from before: first,
        and one after the last.
        """
        table = self.table(lane)
        if table is None or not 0 <= level < self.rows(lane):
            return 0, 0
        offset, stop = table.range(lane, level)
        events, order = table.events, table.stack.order
        start = events.start
        flat = bool(table.stack.flat[table.index_of[lane]])

        def begins(position: int) -> int:
            return int(start[position if flat else order[position]])

        first = bisect_left(range(offset, stop), from_ps, key=begins)
        last = max(first, bisect_left(range(offset, stop), to_ps, first, key=begins))
        if first:
            before = offset + first - 1
            if not flat:
                before = int(order[before])
            first -= int(start[before]) + int(events.duration[before]) > from_ps
        return first, last

    def events(self, lane: int, level: int, first: int, last: int) -> Int64s:
        """Ids of the events of a row from the `first` to the one before the `last`."""
        table = self.table(lane)
        if table is None or not 0 <= level < self.rows(lane):
            return np.zeros(0, np.int64)
        start, stop = table.range(lane, level)
        start, stop = min(start + max(first, 0), stop), min(start + max(last, 0), stop)
        if table.stack.flat[table.index_of[lane]]:
            return np.arange(table.base + start, table.base + stop, dtype=np.int64)
        return table.stack.order[start:stop].astype(np.int64) + table.base

    @cached_property
    def fills(self) -> Fills:
        """Fills of names."""
        return Fills(self.tracks.names, self.tracks.category)

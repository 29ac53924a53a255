"""Density of the events that a saved timeline omits, by lane and level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Events, Int64s
from nbprof.timeline.density import Density, bytes_of
from nbprof.timeline.tracks import Tracks
from nbprof.tools.trace.parts import Rest

MOST_BYTES = 1 << 16
"""Bytes of all rows together."""
_FEWEST_BINS, _MOST_BINS = 8, 1024
_BLOCK = 1 << 19

Levels = npt.NDArray[np.uint16]


def rest(tracks: Tracks, retained: Sequence[Int64s], levels: Sequence[Levels], unit: int) -> Rest:
    """The share of time that omitted events take on each lane and level.

    The time from the first to the last omitted event is divided into equal parts, fewer where
    there are many rows. Of too many rows the outer levels are listed: their events cover those
    inside.

    Parameters
    ----------
    tracks : Tracks
    retained : sequence of int64[k]
        Events that are not left out, of `tracks.events` and of `tracks.extra`.
    levels : sequence of uint16[n]
        The level of every event of both.
    unit : int
        ps of a tick.
    """
    events = (tracks.events, tracks.extra)
    tables = [_Omitted(*table) for table in zip(events, retained, levels, strict=True)]
    size = max(len(table.depths) for table in tables)
    depths = np.zeros(size, np.int64)
    for table in tables:
        part = depths[: len(table.depths)]
        np.maximum(part, table.depths, out=part)
    base = np.cumsum(depths) - depths
    count, first, last = _count(tables, base, int(depths.sum()))
    if not count.any():
        return nothing()
    last = max(last, first + 1)
    lane = np.repeat(np.arange(size), depths)
    level = np.arange(len(count)) - base[lane]
    listed = _outermost(count, level)
    bins = int(np.clip(MOST_BYTES // len(listed), _FEWEST_BINS, _MOST_BINS))
    # Retained events, and those of inner levels, go to one row behind the others: removing them
    # from every column first would cost more.
    position = np.full(len(count), len(listed), np.int64)
    position[listed] = np.arange(len(listed))
    density = Density(len(listed) + 1, bins, first, last)
    # An instant takes no time, but must be visible, the one at the end too.
    least = max((last - first) // bins // 1000, 1)
    for table in tables:
        for rows, stays in table.blocks():
            row = position[base[table.events.lane[rows]] + table.level[rows]]
            row[stays] = len(listed)
            start = np.minimum(table.events.start[rows], last - least)
            end = table.events.start[rows] + table.events.duration[rows]
            density.add(row, start, np.maximum(end, start + least))
    return Rest(
        bins=bins,
        from_=(first - tracks.origin) / unit,
        to=(last - tracks.origin) / unit,
        lane=lane[listed].astype(np.uint32),
        depth=level[listed].astype(np.uint16),
        count=count[listed].astype(np.uint32),
        busy=bytes_of(density.shares()[:-1]),
    )


def _count(tables: list[_Omitted], base: Int64s, rows: int) -> tuple[Int64s, int, int]:
    """Omitted events by row, and the first start and the last end of any, ps."""
    count = np.zeros(rows, np.int64)
    first, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for table in tables:
        for part, stays in table.blocks():
            row = base[table.events.lane[part]] + table.level[part]
            count += np.bincount(row, minlength=rows)
            count -= np.bincount(row[stays], minlength=rows)
            start = table.events.start[part].copy()
            end = start + table.events.duration[part]
            start[stays], end[stays] = first, last
            first, last = int(start.min()), int(end.max())
    return count, first, last


class _Omitted:
    """The events of a table that are omitted, in blocks: a profile may have ten million."""

    def __init__(self, events: Events, retained: Int64s, level: Levels) -> None:
        self.events, self.level = events, level
        self._retained = retained
        self.depths = deepest(events, level)

    def blocks(self) -> Iterator[tuple[slice, Int64s]]:
        """Ranges with omitted events, and the positions of the retained ones in each."""
        for start in range(0, len(self.events), _BLOCK):
            stop = min(start + _BLOCK, len(self.events))
            first, last = np.searchsorted(self._retained, [start, stop])
            if last - first < stop - start:
                yield slice(start, stop), self._retained[first:last] - start


def deepest(events: Events, level: Levels) -> Int64s:
    """The number of levels of each lane, by lane id; 0 for a lane without events."""
    depths = np.zeros(int(events.lane[-1]) + 1 if len(events) else 0, np.int64)
    if len(events):
        first = np.searchsorted(events.lane, np.arange(len(depths)))
        used = np.flatnonzero(np.append(first[1:], len(events)) > first)
        depths[used] = np.maximum.reduceat(level, first[used]).astype(np.int64) + 1
    return depths


def _outermost(count: Int64s, level: Int64s) -> Int64s:
    """Rows with omitted events, ascending; of too many the outer levels."""
    used = np.flatnonzero(count)
    order = np.argsort(level[used], kind="stable")[: MOST_BYTES // _FEWEST_BINS]
    return np.sort(used[order])


def nothing() -> Rest:
    """The density of a timeline that omits nothing."""
    none = np.zeros(0, np.uint32)
    return Rest(
        bins=0,
        from_=0.0,
        to=0.0,
        lane=none,
        depth=none.astype(np.uint16),
        count=none,
        busy=none.astype(np.uint8),
    )

"""Sums by name over the slices of a time range, and their coverage of it.

Slices at the ends of the range count with the part inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s
from nbprof.timeline.slices import Part, Slices, ends_of

_CHUNK = 1 << 18
Floats = npt.NDArray[np.float64]


@dataclass
class Rows:
    """Events of a part in a time range.

    `rows` ascend. `clipped` int64[k] are those across the ends of the range, with their
    `clipped_duration` and `clipped_self_time` in it, ps; all others count fully.
    """

    part: Part
    rows: slice | Int64s
    clipped: Int64s
    clipped_duration: Int64s
    clipped_self_time: Int64s

    def __len__(self) -> int:
        if isinstance(self.rows, slice):
            return int(self.rows.stop - self.rows.start)
        return len(self.rows)

    def chunks(self) -> Iterator[tuple[slice | Int64s, Floats, Floats]]:
        """Chunks of the rows with the duration and the self time of each in the range, ps."""
        events = self.part.events
        for offset in range(0, len(self), _CHUNK):
            if isinstance(self.rows, slice):
                first = self.rows.start + offset
                part: slice | Int64s = slice(first, min(first + _CHUNK, self.rows.stop))
                in_chunk = (self.clipped >= first) & (self.clipped < first + _CHUNK)
                index = self.clipped[in_chunk] - first
            else:
                part = self.rows[offset : offset + _CHUNK]
                in_chunk = np.isin(self.clipped, part)
                index = np.searchsorted(part, self.clipped[in_chunk])
            duration = events.duration[part].astype(np.float64)
            self_time = events.self_time[part].astype(np.float64)
            duration[index] = self.clipped_duration[in_chunk]
            self_time[index] = self.clipped_self_time[in_chunk]
            yield part, duration, self_time


def in_lane(part: Part, lane: int, low: int, high: int) -> list[Rows]:
    """The slices of a lane in low…high, ps.

    A slice that only touches the range is not in it; one without length is, if it starts inside.
    The self time of a clipped one is its part inside less those of the slices directly in it.
    """
    events = part.events
    first, behind = part.starting(lane, low, high)
    before = part.reaching(lane, low)
    if first == behind and not len(before):
        return []
    beyond = part.reaching(lane, high)
    beyond = beyond[beyond >= first]
    clipped = np.concatenate([before, beyond])
    start = np.maximum(events.start[clipped], low)
    overlap = np.minimum(ends_of(events, clipped), high) - start
    self_time = overlap.copy()
    if len(clipped):
        _take_children(part, clipped, overlap, self_time, first, behind)
    k, sets = len(before), []
    if k:
        sets.append(Rows(part, before, before, overlap[:k], np.maximum(self_time[:k], 0)))
    sets.append(Rows(part, slice(first, behind), beyond, overlap[k:], np.maximum(self_time[k:], 0)))
    return sets


def covered(part: Part, lane: int, low: int, high: int) -> Intervals:
    """Time of low…high that the slices of a lane cover, ps; touching slices have no gap."""
    events = part.events
    first, behind = part.starting(lane, low, high)
    before = part.reaching(lane, low)
    rows = [before[events.parent[before] < 0]]
    for offset in range(first, behind, _CHUNK):
        rows.append(
            offset + np.flatnonzero(events.parent[offset : min(offset + _CHUNK, behind)] < 0)
        )
    starts = [np.maximum(events.start[outer], low) for outer in rows]
    ends = [np.minimum(ends_of(events, outer), high) for outer in rows]
    return Intervals.union(np.concatenate(starts), np.concatenate(ends))


def _take_children(
    part: Part, clipped: Int64s, overlap: Int64s, self_time: Int64s, first: int, behind: int
) -> None:
    """Subtracts from the self time of clipped slices (ascending rows) that of their children."""
    parent, before = part.events.parent, int(clipped[0]) - 1
    # Index among these of each row, from the first row on; -1 for other rows, as for all rows
    # before.
    row_of: npt.NDArray[np.int32] = np.full(behind - before, -1, np.int32)
    row_of[clipped - before] = np.arange(len(clipped))
    for offset in range(first, behind, _CHUNK):
        chunk = parent[offset : min(offset + _CHUNK, behind)]
        parent_row = row_of.take(chunk - np.int32(before), mode="clip")
        children = np.flatnonzero(parent_row >= 0)
        if len(children):
            np.subtract.at(self_time, parent_row[children], part.events.duration[offset + children])
    # Children that are clipped themselves were subtracted fully above, those from before the range
    # not at all.
    parent_row = row_of.take(parent[clipped] - np.int32(before), mode="clip")
    children = np.flatnonzero(parent_row >= 0)
    taken = np.where(clipped[children] >= first, part.events.duration[clipped[children]], 0)
    np.add.at(self_time, parent_row[children], taken - overlap[children])


@dataclass
class ByName:
    """Sums by name code, of the codes that occur; times in ps.

    `longest` is the duration of the longest event, `chunk` the chunk with it.
    """

    code: Int64s
    count: Int64s
    self_time: Floats
    total: Floats
    longest: Int64s
    chunk: Int64s

    @classmethod
    def joined(cls, parts: list[ByName]) -> ByName:
        """The sums of several sets of rows, one behind the other."""
        columns = zip(*map(_columns, parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def take(self, rows: Int64s) -> ByName:
        """Some of the names."""
        return ByName(*(column[rows] for column in _columns(self)))


def _columns(by_name: ByName) -> list[npt.NDArray[Any]]:
    return [getattr(by_name, column.name) for column in fields(by_name)]


class Sums:
    """Sums by name over sets of rows.

    Parameters
    ----------
    slices : Slices
    sets : list of Rows
    """

    def __init__(self, slices: Slices, sets: list[Rows]) -> None:
        self._slices, self._sets = slices, [rows for rows in sets if len(rows)]
        self.count = sum(map(len, self._sets))
        self._chunks: list[tuple[Part, slice | Int64s]] = []
        self.names = self._by_name()

    def _by_name(self) -> ByName:
        size = len(self._slices.tracks.names)
        # If few events of many names are in the interval, only their names get a position.
        codes = None
        if size > 4 * self.count:
            none = np.zeros(0, np.int64)
            names = [rows.part.events.name[rows.rows] for rows in self._sets]
            codes = np.unique(np.concatenate([none, *names]))
            size = len(codes)
        by_name = ByName(
            np.arange(size) if codes is None else codes,
            np.zeros(size, np.int64),
            np.zeros(size),
            np.zeros(size),
            np.full(size, -1),
            np.zeros(size, np.int64),
        )
        for rows in self._sets:
            for part, total, self_time in rows.chunks():
                events = rows.part.events
                name: npt.NDArray[np.integer[Any]] = events.name[part]
                if codes is not None:
                    name = np.searchsorted(codes, name)
                seen = by_name.longest.copy()
                np.maximum.at(by_name.longest, name, events.duration[part])
                by_name.chunk[by_name.longest > seen] = len(self._chunks)
                by_name.count += np.bincount(name, minlength=size)
                by_name.self_time += np.bincount(name, self_time, size)
                by_name.total += np.bincount(name, total, size)
                self._chunks.append((rows.part, part))
        return by_name.take(np.flatnonzero(by_name.count))

    def longest(self, index: int) -> int:
        """Id of the first longest event of a name; `index` is that of the name in `names`."""
        part, rows = self._chunks[int(self.names.chunk[index])]
        events = part.events
        code = events.name.dtype.type(self.names.code[index])
        named = np.flatnonzero(events.name[rows] == code)
        best = int(named[np.argmax(events.duration[rows][named])])
        row = rows.start + best if isinstance(rows, slice) else int(rows[best])
        return part.first + row

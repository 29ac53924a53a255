"""Intervals of time: their union, length, overlap and gaps.

Times are int64 in one unit, picoseconds nearly everywhere. An interval includes its start, but not
its end, so an interval whose end equals its start is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.runs import expand, rows_by_code, run_starts

Int64s = npt.NDArray[np.int64]

_EARLIEST, _LATEST = -np.iinfo(np.int64).max, np.iinfo(np.int64).max
_MOST_TIME = 2.0**62
_FEW_GROUPS = 256
"""So few groups are faster one by one than together."""


class Pieces(NamedTuple):
    """Parts of intervals.

    Attributes
    ----------
    row : int64[pieces]
        Index of the interval that each is a part of, ascending.
    start, end : int64[pieces]
    """

    row: Int64s
    start: Int64s
    end: Int64s


class Gaps(NamedTuple):
    """Times between intervals in which none of them runs.

    Attributes
    ----------
    start, end : int64[gaps]
    following : int64[gaps]
        Index of the interval that begins where each gap ends.
    """

    start: Int64s
    end: Int64s
    following: Int64s


class GroupIntervals(NamedTuple):
    """Intervals that do not overlap within their group, in ascending order of group and start.

    Attributes
    ----------
    group, start, end : int64[n]
    """

    group: Int64s
    start: Int64s
    end: Int64s

    def totals(self, groups: int) -> Int64s:
        """Length of the intervals of each group from 0 to `groups` - 1, int64[groups]."""
        total = np.zeros(groups, np.int64)
        np.add.at(total, self.group, self.end - self.start)
        return total


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals that do not overlap, in ascending order.

    Attributes
    ----------
    start, end : int64[n]
    """

    start: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def union(cls, start: Int64s, end: Int64s, *, merge_touching: bool = True) -> Intervals:
        """The times that at least one interval covers.

        Parameters
        ----------
        start, end : int64[n]
            In any order; empty intervals are ignored.
        merge_touching : bool
            Whether an interval that begins exactly where another one ends continues it. The total
            length is the same either way.
        """
        nonempty = end > start
        if not nonempty.all():
            start, end = start[nonempty], end[nonempty]
        if not len(start):
            return cls(start, end)
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        reach = np.maximum.accumulate(end)
        begins = start[1:] > reach[:-1] if merge_touching else start[1:] >= reach[:-1]
        first = np.append(0, np.flatnonzero(begins) + 1)
        return cls(start[first], reach[np.append(first[1:], len(start)) - 1])

    @classmethod
    def of_rows(cls, table: pd.DataFrame) -> Intervals:
        """The union of the rows of a table, from `start` to `end`; touching ones are merged."""
        return cls.union(*_bounds(table))

    @classmethod
    def union_of(cls, parts: Iterable[Intervals]) -> Intervals:
        """The times that at least one of several `Intervals` covers; touching ones are merged."""
        parts = list(parts)
        if len(parts) == 1:
            return parts[0]
        start = np.concatenate([EMPTY.start, *(part.start for part in parts)])
        return cls.union(start, np.concatenate([EMPTY.end, *(part.end for part in parts)]))

    @property
    def length(self) -> Int64s:
        """Length of each interval, int64[n]."""
        return self.end - self.start

    def total(self) -> int:
        """Length of all intervals together."""
        return int(self.length.sum())

    @cached_property
    def _total_before(self) -> Int64s:
        """Length of the first 0, 1, ... n intervals, int64[n + 1]."""
        return np.append(0, np.cumsum(self.length))

    def covered_until(self, time: Int64s) -> Int64s:
        """Length of the part of the intervals before each moment, int64[times]."""
        begun = np.searchsorted(self.start, time, side="right")
        # The last interval that has begun may go on beyond the moment.
        end = np.append(_EARLIEST, self.end)[begun]
        return self._total_before[begun] - np.where(end > time, end - time, 0)

    def covered_within(self, start: Int64s, end: Int64s) -> Int64s:
        """Length of the part of the intervals in each window, int64[windows]; windows may
        overlap.
        """
        return self.covered_until(end) - self.covered_until(start)

    def overlap(self, other: Intervals) -> int:
        """Length of the times that both cover."""
        return int(self.covered_within(other.start, other.end).sum())

    def intersection(self, other: Intervals) -> Intervals:
        """The times that both cover."""
        pieces = self.pieces_inside(other.start, other.end)
        return Intervals(pieces.start, pieces.end)

    def difference(self, other: Intervals) -> Intervals:
        """The times that these intervals cover and the others do not."""
        pieces = other.pieces_outside(self.start, self.end)
        return Intervals(pieces.start, pieces.end)

    def gaps(self, low: int | None = None, high: int | None = None) -> Intervals:
        """The times between the intervals that none of them covers.

        Parameters
        ----------
        low, high : int, optional
            Includes the time from `low` to the first interval, and from the last interval to
            `high`. All intervals lie between the two.
        """
        if not len(self) and (low is None or high is None):
            return self
        earliest = self.start[0] if low is None else low
        latest = self.end[-1] if high is None else high
        start, end = np.append(earliest, self.end), np.append(self.start, latest)
        gap = np.flatnonzero(end > start)
        return Intervals(start[gap], end[gap])

    def index_at(self, time: Int64s) -> Int64s:
        """Index of the interval that includes each moment, -1 for none, int64[times]."""
        index = np.searchsorted(self.start, time, side="right") - 1
        return np.where(time < np.append(self.end, _EARLIEST)[index], index, -1)

    def overlapping(self, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
        """Pairs of a window and an interval that overlap.

        An empty window pairs with the interval that it lies in, but not with one whose start or end
        it is at.

        Parameters
        ----------
        start, end : int64[windows]
            Windows, in any order.

        Returns
        -------
        window, interval : int64[pairs]
            Indexes, in ascending order of the window and then of the interval.
        """
        first = np.searchsorted(self.end, start, side="right")
        stop = np.maximum(np.searchsorted(self.start, end, side="left"), first)
        return expand(first, stop - first)

    def pieces_inside(self, start: Int64s, end: Int64s) -> Pieces:
        """The parts of some windows that the intervals cover; windows may overlap."""
        window, interval = self.overlapping(start, end)
        low = np.maximum(start[window], self.start[interval])
        return Pieces(window, low, np.minimum(end[window], self.end[interval]))

    def pieces_outside(self, start: Int64s, end: Int64s) -> Pieces:
        """The parts of some windows that no interval covers; windows may overlap."""
        return self.gaps(_EARLIEST, _LATEST).pieces_inside(start, end)

    def rows_inside(self, table: pd.DataFrame) -> pd.DataFrame:
        """The parts of the rows of a table, from `start` to `end`, that the intervals cover."""
        return _clipped(table, self.pieces_inside(*_bounds(table)))

    def rows_outside(self, table: pd.DataFrame) -> pd.DataFrame:
        """The parts of the rows of a table, from `start` to `end`, that no interval covers."""
        return _clipped(table, self.pieces_outside(*_bounds(table)))


def _bounds(table: pd.DataFrame) -> tuple[Int64s, Int64s]:
    return table["start"].to_numpy(np.int64), table["end"].to_numpy(np.int64)


def _clipped(table: pd.DataFrame, pieces: Pieces) -> pd.DataFrame:
    return table.iloc[pieces.row].assign(start=pieces.start, end=pieces.end)


EMPTY = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union_by_group(
    group: Int64s, start: Int64s, end: Int64s, *, merge_touching: bool = True
) -> GroupIntervals:
    """The times that at least one interval of each group covers.

    Parameters
    ----------
    group, start, end : int64[n]
        In any order; empty intervals are ignored. Groups are integers.
    merge_touching : bool
        See `Intervals.union`. Intervals of different groups are never merged.
    """
    rows = np.flatnonzero(end > start)
    rows = rows[np.lexsort((start[rows], group[rows]))]
    group, start, end = group[rows], start[rows], end[rows]
    if not len(rows):
        return GroupIntervals(group, start, end)
    reach = ends_before(end, group)
    first = np.flatnonzero(start > reach if merge_touching else start >= reach)
    return GroupIntervals(group[first], start[first], np.maximum.reduceat(end, first))


def index_by_group(
    bounds: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    group: Int64s,
    time: npt.NDArray[Any],
    time_group: Int64s,
) -> Int64s:
    """Index of the interval of its group that includes each moment, -1 for none, int64[times].

    Where several do, it is the one that began last; no interval before that one is looked at.

    Parameters
    ----------
    bounds : tuple of arrays of n
        Start and end of the intervals, in any order and in the unit of `time`.
    group : int64[n]
        Groups are integers from 0; intervals of group -1 include nothing.
    time, time_group : [times]
        Moments and their groups, -1 for moments in no interval.
    """
    start, end = bounds
    index = np.full(len(time), -1, np.int64)
    pairs = zip(rows_by_code(group + 1)[1:], rows_by_code(time_group + 1)[1:], strict=False)
    for intervals, rows in pairs:
        if not len(intervals) or not len(rows):
            continue
        ordered = intervals[np.argsort(start[intervals], kind="stable")]
        begun = np.searchsorted(start[ordered], time[rows], side="right") - 1
        included = (begun >= 0) & (time[rows] < end[ordered][begun])
        index[rows[included]] = ordered[begun[included]]
    return index


def ends_before(end: Int64s, group: npt.NDArray[np.integer] | None = None) -> Int64s:
    """The latest end among the intervals before each one, int64[n].

    Parameters
    ----------
    end : int64[n]
        Ends of intervals in the order of their starts.
    group : int[n], optional
        Only intervals of the same group are compared; the intervals of a group follow one another.

    Returns
    -------
    int64[n]
        The smallest int64 for the first interval (of each group), which is before every start.
    """
    first = run_starts(group) if group is not None else np.zeros(min(len(end), 1), np.int64)
    before = np.empty(len(end), np.int64)
    before[1:] = _latest_by_group(end, first)[:-1]
    before[first] = np.iinfo(np.int64).min
    return before


def _latest_by_group(end: Int64s, first: Int64s) -> Int64s:
    """Running maximum of the ends, which begins anew at some rows."""
    if len(first) <= _FEW_GROUPS:
        return _group_by_group(end, first)
    low, high = np.minimum.reduceat(end, first), np.maximum.reduceat(end, first)
    if float(high.sum(dtype=np.float64) - low.sum(dtype=np.float64)) > _MOST_TIME:
        return _group_by_group(end, first)
    # With the groups one after another on the axis, one running maximum serves all of them.
    shift = np.repeat(end_to_end(low, high), np.diff(np.append(first, len(end))))
    return np.maximum.accumulate(end + shift) - shift


def _group_by_group(end: Int64s, first: Int64s) -> Int64s:
    latest = np.empty(len(end), np.int64)
    for low, high in pairwise([*first.tolist(), len(end)]):
        np.maximum.accumulate(end[low:high], out=latest[low:high])
    return latest


def end_to_end(low: Int64s, high: Int64s) -> Int64s:
    """Offsets that place windows one after another on one axis, the first at 0, int64[windows]."""
    length = high - low
    offset: Int64s = np.cumsum(length) - length - low
    return offset


def extents(group: Int64s, groups: int, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """First start and last end of the intervals of each group, int64[groups] each.

    A group without intervals begins at the largest int64 and ends at the smallest.
    """
    first = np.full(groups, np.iinfo(np.int64).max)
    last = np.full(groups, np.iinfo(np.int64).min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last


def one_at_a_time(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Intervals without their parts that an earlier interval covers.

    Parameters
    ----------
    start, end : int64[n]
        In the order of their starts.

    Returns
    -------
    start, end : int64[n]
        Each begins at the earliest where all before it have ended; intervals of which nothing
        remains are empty.
    """
    start = np.maximum(start, ends_before(end))
    return start, np.maximum(end, start)


def gaps_between(start: Int64s, end: Int64s, group: npt.NDArray[np.integer] | None = None) -> Gaps:
    """The times between intervals in which none of them (of the same group) runs.

    Parameters
    ----------
    start, end : int64[n]
        In the order of their starts.
    group : int[n], optional
        As for `ends_before`.
    """
    reach = ends_before(end, group)
    following = np.flatnonzero((start > reach) & (reach > np.iinfo(np.int64).min))
    return Gaps(reach[following], start[following], following)


def least_covering(start: Int64s, end: Int64s, value: Int64s, slots: int) -> Int64s:
    """The least value of the intervals that cover each slot; -1 where none does.

    A sparse table, filled backwards: an interval is covered by two blocks of the largest power of
    two in it, and the blocks of each width are handed down to their halves, so the number of
    intervals around a slot doesn't matter.

    Parameters
    ----------
    start, end : arrays of int64
        The first slot of each interval, and the one after its last.
    value : array of int64
        Not negative.
    slots : int
        Number of slots.
    """
    covered = end > start
    start, end, value = start[covered], end[covered], value[covered]
    level = np.frexp(end - start)[1] - 1
    by_level = np.argsort(level, kind="stable")
    bounds = np.searchsorted(level[by_level], np.arange(max(level, default=-1) + 2))
    least = np.full(slots, np.iinfo(np.int64).max)
    for number in reversed(range(len(bounds) - 1)):
        width, rows = 1 << number, by_level[bounds[number] : bounds[number + 1]]
        np.minimum.at(least, start[rows], value[rows])
        np.minimum.at(least, end[rows] - width, value[rows])
        half = width // 2
        if half:
            least[half:] = np.minimum(least[half:], least[:-half])
    return np.where(least == np.iinfo(np.int64).max, -1, least)

"""Levels of the events of a lane: events of one level never overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.intervals import ends_before
from nbprof.core.runs import expand
from nbprof.core.trace import Events, Int32s, Int64s

MOST_LEVEL = 65_535
_MANY = 64
_OPEN = 1 << 30
_NEVER = -(1 << 63)

Levels = npt.NDArray[np.uint16]


@dataclass
class Stack:
    """Events by row, one level of one lane, in which both starts and ends ascend.

    A position counts the events of all rows one behind the other: lanes in their order, levels from
    the top, events in the order of time. The events of a lane and their positions are the same
    range of numbers.

    Attributes
    ----------
    events : Events
    lanes : int64[l]
        Numbers of the lanes that have events, ascending.
    bounds : int64[l + 1]
        First event, and so first position, of each lane.
    first_row : int64[l + 1]
        First row of each lane.
    row : int64[rows + 1]
        First position of each row.
    flat : bool[l]
        Lanes of one row, where positions are event numbers.
    level : uint16[events]
        `Events.depth` itself where no events overlap partly. Events more than 65,535 deep share
        the last level.
    order : int32[events]
        Event by position; never written, and so no memory, for flat lanes.
    moved : int
        Events that overlap others of their lane partly, and are drawn lower for that.
    moved_lanes : int
        Lanes with such events.
    """

    events: Events
    lanes: Int64s
    bounds: Int64s
    first_row: Int64s
    row: Int64s
    flat: npt.NDArray[np.bool_]
    level: Levels
    order: Int32s
    moved: int
    moved_lanes: int


def stack(events: Events) -> Stack:
    """Arranges the events of a table in levels and rows.

    The level of an event is the number of events around it on its lane. Where events overlap only
    partly, each goes, in the order of their starts, to the first free level below the event around
    it.
    """
    count = len(events)
    level: Levels = events.depth
    changes = np.flatnonzero(events.lane[1:] != events.lane[:-1]) + 1
    bounds = np.concatenate([[0], changes, [count]]) if count else np.zeros(1, np.int64)
    order = np.empty(count, np.int32)
    rows: list[Int64s] = []
    deepest = np.maximum.reduceat(level, bounds[:-1]) if count else level
    moved = moved_lanes = 0
    for k, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        sizes = _order(level, order, start, stop, int(deepest[k]))
        crowded = _clusters(events, order, slice(start, stop), sizes)
        if len(crowded):
            if level is events.depth:
                level = level.copy()
            moved += _restack(events, level, slice(start, stop), crowded)
            moved_lanes += 1
            sizes = _order(level, order, start, stop, int(level[start:stop].max()))
        rows.append(sizes)
    heights = np.array([len(sizes) for sizes in rows], np.int64)
    return Stack(
        events,
        events.lane[bounds[:-1]].astype(np.int64),
        bounds,
        np.append(0, np.cumsum(heights)),
        np.append(0, np.cumsum(np.concatenate(rows))) if rows else np.zeros(1, np.int64),
        heights == 1,
        level,
        order,
        moved,
        moved_lanes,
    )


def _order(level: Levels, order: Int32s, start: int, stop: int, deepest: int) -> Int64s:
    """Writes the events of a lane in the order of its rows, unless there is but one; gives the size
    of each row.
    """
    if not deepest:
        return np.array([stop - start], np.int64)
    part = level[start:stop]
    # A stable sort of small integers takes one pass a byte.
    np.add(
        np.argsort(part.astype(np.uint8) if deepest < 256 else part, kind="stable"),
        start,
        out=order[start:stop],
        casting="unsafe",
    )
    # Every level down to the deepest is used: an event is one level below the one around it.
    return np.bincount(part, minlength=deepest + 1)


def _clusters(events: Events, order: Int32s, lane: slice, sizes: Int64s) -> Int64s:
    """int64[k, 2]: ranges of a lane with events that overlap only partly, disjoint and ascending.

    Where two events overlap partly, so do those of one level around them, or they themselves: it is
    enough to look within rows. A cluster is a run of overlapping events of one level and all events
    inside them, which are those up to the next one that is not deeper.
    """
    levels = []
    position = lane.start
    for depth, size in enumerate(sizes.tolist()):
        row = slice(position, position + size)
        position += size
        ids = order[row] if len(sizes) > 1 else None
        rows = row if ids is None else ids
        start = events.start[rows]
        end = start + events.duration[rows]
        if depth == MOST_LEVEL or not (end[:-1] > start[1:]).any():
            continue
        if ids is None:
            ids = np.arange(row.start, row.stop, dtype=np.int32)
        first = np.flatnonzero(start >= ends_before(end))
        behind = np.append(first[1:], size)
        several = behind - first > 1
        no_deeper = np.flatnonzero(events.depth[lane] <= depth)
        no_deeper = np.append(no_deeper, lane.stop - lane.start) + lane.start
        until = no_deeper[np.searchsorted(no_deeper, ids[behind[several] - 1], side="right")]
        levels.append(np.stack([ids[first[several]], until], axis=1))
    if not levels:
        return np.zeros((0, 2), np.int64)
    # Ranges are nested or disjoint; the outer ones stay.
    every = np.concatenate(levels)
    every = every[np.lexsort((-every[:, 1], every[:, 0]))]
    return every[every[:, 0] >= ends_before(every[:, 1])]


def _restack(events: Events, level: Levels, lane: slice, clusters: Int64s) -> int:
    """Sets the levels of the events of clusters of a lane; counts those that overlap partly.

    Level by level: an event stays on a level on which no earlier event runs, or goes to the next.
    Only events that overlap need a walk in order.
    """
    ids = expand(clusters[:, 0] - lane.start, clusters[:, 1] - clusters[:, 0])[1]
    start = events.start[lane][ids]
    end = start + events.duration[lane][ids]
    parent = events.parent[lane][ids].astype(np.int64)
    # Index in the lane of the event around each, the last index where there is none.
    above = np.where(parent >= 0, parent - lane.start, -1)
    level_of = np.append(level[lane].astype(np.int32), np.int32(-1))
    level_of[ids] = _OPEN
    open_ = np.arange(len(ids))
    depth = int(level_of[above].min()) + 1
    stop = depth + _MANY
    while len(open_) and depth < stop:
        here = open_[level_of[above[open_]] < depth]
        # Of two clusters, the other one may begin some levels further down.
        if len(here):
            level_of[ids[here[_turns(start[here], end[here])]]] = depth
        open_ = open_[level_of[ids[open_]] == _OPEN]
        depth += 1
    if len(open_):
        position = np.full(lane.stop - lane.start + 1, -1)
        position[ids[open_]] = np.arange(len(open_))
        parent = position[above[open_]]
        least = np.where(parent < 0, np.maximum(level_of[above[open_]] + 1 - depth, 0), 0)
        level_of[ids[open_]] = depth + _free_levels(start[open_], end[open_], parent, least)
    new = level_of[ids]
    level[lane][ids] = np.minimum(new, MOST_LEVEL)
    return int((new > level_of[above] + 1).sum())


def _turns(start: Int64s, end: Int64s) -> npt.NDArray[np.bool_]:
    """Mask of events, in the order of their starts, that take turns: the first, and each that
    starts when the last one is over.
    """
    latest = np.maximum.accumulate(end)
    late = np.append(False, start[1:] < latest[:-1])
    on_time = ~late
    if late.any():
        # The events of a run that overlap, with the first of each; between runs everything is over.
        rows = np.flatnonzero(late | np.append(late[1:], False))
        until = None
        for row, begin, finish, goes_on in zip(
            rows.tolist(),
            start[rows].tolist(),
            end[rows].tolist(),
            late[rows].tolist(),
            strict=True,
        ):
            if not goes_on or until is None or begin >= until:
                on_time[row] = True
                until = finish
    return on_time


def _free_levels(start: Int64s, end: Int64s, parent: Int64s, least: Int64s) -> Int64s:
    """First level on which nothing runs at the start of each event, in the order of their starts.

    An event is below its parent, where that is one of these events, else not above `least`.
    """
    levels: list[int] = []
    busy = _BusyLevels()
    for begin, finish, above, top in zip(
        start.tolist(), end.tolist(), parent.tolist(), least.tolist(), strict=True
    ):
        level = busy.free_from(levels[above] + 1 if above >= 0 else top, begin)
        busy.occupy(level, finish)
        levels.append(level)
    return np.array(levels)


class _BusyLevels:
    """The end of the last event of each level, as a list and as an array, which is faster to search
    where many levels are busy.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._ends_array = np.zeros(0, np.int64)

    def free_from(self, level: int, time: int) -> int:
        """The first level that is free at a time, from a level on."""
        if level >= len(self._ends):
            # Doubles the number of levels, so that adding one is cheap.
            self._add(level + 1 + len(self._ends))
        stop = min(len(self._ends), level + _MANY)
        while level < stop and self._ends[level] > time:
            level += 1
        if level < stop:
            return level
        # The level after the last is free.
        free = np.append(self._ends_array[level:] <= time, True)
        return level + int(free.argmax())

    def occupy(self, level: int, end: int) -> None:
        """Puts an event on a level."""
        if level == len(self._ends):
            self._add(1)
        self._ends[level] = self._ends_array[level] = end

    def _add(self, count: int) -> None:
        self._ends += [_NEVER] * count
        self._ends_array = np.append(self._ends_array, np.full(count, _NEVER))

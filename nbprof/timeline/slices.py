"""Slices of the timeline by the id of their event: position, name and neighbours."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Events, Int64s
from nbprof.timeline.colours import Fills
from nbprof.timeline.tracks import Lane, Tracks

Direction = Literal["previous", "next", "parent", "child", "previous_same", "next_same"]
Levels = npt.NDArray[np.unsignedinteger[Any]]

KINDS = ("", "steps", "device", "host", "counter")
"""Kinds of lanes by code; 0 is that of lanes that are not drawn."""
MOST_NAME = 2_000
"""Characters of a name that is listed; the details of a slice have all of it."""
_BLOCK = 1024
_FAR = np.iinfo(np.int64).max
_MOST_CACHED_NAMES = 8
_MOST_CACHED_IDS = 20_000_000


class Part:
    """The recorded or the derived events of the timeline, which have consecutive ids.

    Parameters
    ----------
    events : Events
    first : int
        Id of the first.
    lanes : int
        Lane ids run from 0 to this.
    level : callable
        Gives the level of each event as drawn, unsigned[events].
    """

    def __init__(self, events: Events, first: int, lanes: int, level: Callable[[], Levels]) -> None:
        self.events, self.first = events, first
        self._lanes, self._level = lanes, level

    @cached_property
    def level(self) -> Levels:
        """Level of each event as drawn."""
        return self._level()

    @cached_property
    def bounds(self) -> Int64s:
        """Start of each lane among the events, int64[lanes + 1]."""
        return np.searchsorted(
            self.events.lane, np.arange(self._lanes + 1, dtype=self.events.lane.dtype)
        )

    @cached_property
    def _reach(self) -> Int64s:
        """The latest end in each block of events, ps."""
        parts = [np.zeros(0, np.int64)]
        for offset in range(0, len(self.events), _BLOCK << 8):
            end = ends_of(self.events, slice(offset, offset + (_BLOCK << 8)))
            parts.append(np.maximum.reduceat(end, np.arange(0, len(end), _BLOCK)))
        return np.concatenate(parts)

    def ranges(self, lanes: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
        """The events of some lanes (bool[lanes]) as few ranges."""
        edges = np.flatnonzero(np.diff(lanes, prepend=False, append=False))
        for first, behind in zip(
            self.bounds[edges[::2]].tolist(), self.bounds[edges[1::2]].tolist(), strict=True
        ):
            if behind > first:
                yield first, behind

    def starting(self, lane: int, from_: int, to: int) -> tuple[int, int]:
        """The range of events of a lane that start in from…to (ps, `to` excluded)."""
        low, high = int(self.bounds[lane]), int(self.bounds[lane + 1])
        start = self.events.start[low:high]
        # The method: the function takes three times as long, and there may be thousands of lanes.
        first, stop = start.searchsorted(np.int64(from_)), start.searchsorted(np.int64(to))
        return low + int(first), low + int(stop)

    @cached_property
    def _several(self) -> npt.NDArray[np.bool_]:
        """Mask of blocks of events that hold more than one lane."""
        first = self.events.lane[::_BLOCK]
        behind = np.minimum(np.arange(1, len(first) + 1) * _BLOCK, len(self.events))
        several: npt.NDArray[np.bool_] = self.events.lane[behind - 1] != first
        return several

    def touching(self, from_: int, to: int) -> npt.NDArray[np.bool_]:
        """Lanes with events in from…to, ps: those of `starting` and `reaching`. bool[lanes]

        For all lanes at once, as there may be thousands of a few events each. A block of one lane
        is read only where its time is near.
        """
        result = np.zeros(self._lanes, np.bool_)
        lane, start = self.events.lane, self.events.start
        near = (self._reach >= from_) & (self._several | (start[::_BLOCK] < to))
        for block in np.flatnonzero(near).tolist():
            if result[lane[block * _BLOCK]] and not self._several[block]:
                continue
            rows = slice(block * _BLOCK, (block + 1) * _BLOCK)
            begin = start[rows]
            overlaps = (begin < to) & ((begin >= from_) | (ends_of(self.events, rows) > from_))
            result[lane[rows][overlaps]] = True
        return result

    def reaching(self, lane: int, time: int) -> Int64s:
        """Events of a lane that start before a time (ps) and end after it, in order.

        Only blocks with such an event are read, which are few also in front of millions of events.
        """
        low = int(self.bounds[lane])
        start = self.events.start[low : int(self.bounds[lane + 1])]
        high = low + int(start.searchsorted(np.int64(time)))
        if high <= low:
            return np.zeros(0, np.int64)
        first = low // _BLOCK
        blocks = first + np.flatnonzero(self._reach[first : (high - 1) // _BLOCK + 1] > time)
        ids = []
        for block in blocks.tolist():
            start_row = max(block * _BLOCK, low)
            rows = slice(start_row, min((block + 1) * _BLOCK, high))
            ids.append(start_row + np.flatnonzero(ends_of(self.events, rows) > time))
        if len(ids) == 1:
            return ids[0]
        return np.concatenate([np.zeros(0, np.int64), *ids])


def ends_of(events: Events, rows: slice | Int64s) -> Int64s:
    """Ends of some events, ps, at most the largest int64."""
    start = events.start[rows]
    end = start + events.duration[rows]
    result: Int64s = np.where((end < start) & (events.duration[rows] > 0), _FAR, end)
    return result


class Slices:
    """Slices of a timeline by event.

    Parameters
    ----------
    tracks : Tracks
    levels : callable, optional
        Returns the level of each event of `tracks.events` and of `tracks.extra`, as drawn; its
        depth when left out.
    """

    def __init__(
        self, tracks: Tracks, levels: Callable[[], tuple[Levels, Levels]] | None = None
    ) -> None:
        self.tracks = tracks
        self._fills = Fills(tracks.names, tracks.category)
        self.lanes: dict[int, Lane] = {lane.id: lane for lane in tracks.lanes}
        both = tracks.events, tracks.extra
        count = tracks.lane_ids
        for events in both:
            if len(events):
                count = max(count, int(events.lane[-1]) + 1)
        if levels is None:
            levels = partial(_depths, both)
        self.parts = [
            Part(tracks.events, 0, count, lambda: levels()[0]),
            Part(tracks.extra, len(tracks.events), count, lambda: levels()[1]),
        ]
        self.kind = np.zeros(count, np.uint8)
        """Code of the kind of each lane by id, into `KINDS`."""
        for lane in tracks.lanes:
            self.kind[lane.id] = KINDS.index(lane.kind)
        self._same: OrderedDict[tuple[str, int], Int64s] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(part.events) for part in self.parts)

    def part_and_row(self, event: int) -> tuple[Part, int]:
        """The part with an event, and the row of the event.

        Raises
        ------
        IndexError
            The event does not exist.
        """
        if not 0 <= event < len(self):
            raise IndexError(f"there is no event {event:,}; there are {len(self):,}")
        part = self.parts[int(event >= self.parts[1].first)]
        return part, event - part.first

    def part_of(self, lane: int) -> Part:
        """The part that the events of a lane are in."""
        first, second = self.parts
        return second if second.bounds[lane] < second.bounds[lane + 1] else first

    def is_drawn(self, lane: int) -> bool:
        """Return whether a lane exists and has slices, as a counter has not."""
        return lane in self.lanes and self.lanes[lane].kind != "counter"

    def touching(self, from_: int, to: int) -> npt.NDArray[np.bool_]:
        """Lanes with slices in from…to, ps. bool[lanes]"""
        first, second = self.parts
        return first.touching(from_, to) | second.touching(from_, to)

    def ns(self, time: int) -> float:
        """Time in ps on the trace's clock as ns since the origin."""
        return (int(time) - self.tracks.origin) / 1000

    def ps(self, time: float) -> int:
        """Time in ns since the origin as ps on the trace's clock."""
        return min(max(round(float(time) * 1000) + self.tracks.origin, -_FAR), _FAR)

    def fill(self, code: int) -> int:
        """The fill of a name code: 1…9 a category, 100…107 a tint."""
        return int(self._fills.by_code(np.array([code]))[0])

    def name(self, event: int) -> str:
        """The short name, whole."""
        part, row = self.part_and_row(event)
        return str(self.tracks.names[part.events.name[row]])

    def ref(self, event: int) -> dict[str, Any]:
        """A `SliceRef`."""
        part, row = self.part_and_row(event)
        return {
            "event": int(event),
            "lane": int(part.events.lane[row]),
            "depth": int(part.level[row]),
            "start_ns": self.ns(part.events.start[row]),
            "duration_ns": int(part.events.duration[row]) / 1000,
            "name": self.name(event)[:MOST_NAME],
        }

    def ref_or_none(self, event: int | None) -> dict[str, Any] | None:
        """A `SliceRef` where there is an event."""
        return None if event is None else self.ref(event)

    def step(self, event: int, to: Direction) -> int | None:
        """The neighbour of an event in a direction; None at the end.

        `previous` and `next` are on its row as drawn; `child` is the longest event directly in it;
        `previous_same` and `next_same` have the same name, on any lane of the same kind.
        """
        part, row = self.part_and_row(event)
        if to == "previous":
            return self._neighbour(part, row, back=True)
        if to == "next":
            return self._neighbour(part, row, back=False)
        if to == "parent":
            above = int(part.events.parent[row])
            return part.first + above if above >= 0 else None
        if to == "child":
            below = self.children(part, row)
            if not len(below):
                return None
            return part.first + int(below[np.argmax(part.events.duration[below])])
        return self._same_neighbour(event, back=to == "previous_same")

    def children(self, part: Part, row: int) -> Int64s:
        """Rows of the events directly in another."""
        events = part.events
        high = int(part.bounds[int(events.lane[row]) + 1])
        end = np.int64(ends_of(events, slice(row, row + 1))[0])
        behind = row + 1 + int(np.searchsorted(events.start[row + 1 : high], end, side="right"))
        return row + 1 + np.flatnonzero(events.parent[row + 1 : behind] == row)

    def _neighbour(self, part: Part, row: int, *, back: bool) -> int | None:
        """The nearest event of the lane on the same level, searched in ever longer ranges."""
        lane = int(part.events.lane[row])
        low, high = int(part.bounds[lane]), int(part.bounds[lane + 1])
        level, length = part.level, 64
        if back:
            stop = row
            while low < stop:
                start = max(stop - length, low)
                same_level = np.flatnonzero(level[start:stop] == level[row])
                if len(same_level):
                    return part.first + start + int(same_level[-1])
                stop, length = start, length * 4
            return None
        start = row + 1
        while start < high:
            stop = min(start + length, high)
            same_level = np.flatnonzero(level[start:stop] == level[row])
            if len(same_level):
                return part.first + start + int(same_level[0])
            start, length = stop, length * 4
        return None

    def same(self, event: int) -> Int64s:
        """Ids of the events of the same name on lanes of the same kind, ascending.

        Of a step only those on its own lane: steps of a device and of its host differ. The ids of
        the last few names are cached.
        """
        part, row = self.part_and_row(event)
        lane = int(part.events.lane[row])
        kind = int(self.kind[lane])
        is_kind = self.kind == kind
        key = (self.name(event), kind)
        if KINDS[kind] == "steps":
            is_kind = np.arange(len(self.kind)) == lane
            key = (self.name(event), -1 - lane)
        cached = self._same.pop(key, None)
        if cached is None:
            # Different full names may have one short name.
            codes = np.flatnonzero(self.tracks.names == key[0])
            ids = []
            for each in self.parts:
                for start_row, behind in each.ranges(is_kind):
                    rows = np.flatnonzero(
                        _any_of(each.events.name[start_row:behind], codes, len(self.tracks.names))
                    )
                    ids.append((rows + (start_row + each.first)).astype(np.int32))
            cached = np.concatenate(ids)
        self._same[key] = cached
        while len(self._same) > 1 and (
            len(self._same) > _MOST_CACHED_NAMES
            or sum(map(len, self._same.values())) > _MOST_CACHED_IDS
        ):
            self._same.popitem(last=False)
        return cached

    def starts(self, ids: npt.NDArray[Any]) -> Int64s:
        """Starts of events (ascending ids), ps."""
        return self._column(ids, lambda events: events.start)

    def durations(self, ids: npt.NDArray[Any]) -> Int64s:
        """Durations of events (ascending ids), ps."""
        return self._column(ids, lambda events: events.duration)

    def _column(self, ids: npt.NDArray[Any], column: Callable[[Events], Int64s]) -> Int64s:
        boundary = int(np.searchsorted(ids, ids.dtype.type(self.parts[1].first)))
        first, second = (column(part.events) for part in self.parts)
        result: Int64s = first[ids[:boundary]]
        if boundary < len(ids):
            derived = ids[boundary:] - self.parts[1].first
            result = np.concatenate([result, second[derived]])
        return result

    def _same_neighbour(self, event: int, *, back: bool) -> int | None:
        ids = self.same(event)
        index = self.nearest(ids, self.starts(ids), self._start(event), event, back=back)
        return None if index is None else int(ids[index])

    def _start(self, event: int) -> int:
        part, row = self.part_and_row(event)
        return int(part.events.start[row])

    @staticmethod
    def nearest(
        ids: npt.NDArray[Any], starts: Int64s, start: int, event: int, *, back: bool
    ) -> int | None:
        """Position of the event next to (start, event) in the order of (start, id)."""
        beyond = starts < start if back else starts > start
        beyond |= (starts == start) & (ids < event if back else ids > event)
        rows = np.flatnonzero(beyond)
        if not len(rows):
            return None
        # Ids ascend, so of equal starts the first row has the smallest, the last the largest.
        if back:
            return int(rows[len(rows) - 1 - np.argmax(starts[rows][::-1])])
        return int(rows[np.argmin(starts[rows])])

    def first(self, from_: float, to: float, lanes: list[int]) -> int | None:
        """The first event that starts in from…to (ns), else the outermost that reaches in.

        It is on the first of the lanes with such an event.
        """
        low, high = self.ps(from_), self.ps(to)
        for lane in lanes:
            if lane not in self.lanes:
                continue
            part = self.part_of(lane)
            first_row, behind = part.starting(lane, low, min(high + 1, _FAR))
            if first_row < behind:
                return part.first + first_row
            rows = part.reaching(lane, low)
            if len(rows):
                return part.first + int(rows[0])
        return None


def _depths(tables: tuple[Events, Events]) -> tuple[Levels, Levels]:
    return tables[0].depth, tables[1].depth


def _any_of(
    names: npt.NDArray[np.int32], codes: npt.NDArray[Any], size: int
) -> npt.NDArray[np.bool_]:
    if len(codes) == 1:
        return np.asarray(names == names.dtype.type(codes[0]))
    selected = np.zeros(size, np.bool_)
    selected[codes] = True
    return np.asarray(selected[names])

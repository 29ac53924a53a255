"""Slices of the timeline by the id of their event: where each lies, what it is called, and what
lies beside, above and below it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Events, Int64s
from nbprof.timeline.colours import Fills
from nbprof.timeline.tracks import Lane, Tracks

Direction = Literal["previous", "next", "parent", "child", "previous_same", "next_same"]
Levels = npt.NDArray[np.unsignedinteger[Any]]

KINDS = ("", "steps", "device", "host", "counter")
"""Kinds of lanes by the number that stands for them here; that of none is 0."""
MOST_NAME = 2_000
"""Characters of a name that is listed; the details of a slice have all of it."""
_BLOCK = 1024
_FAR = np.iinfo(np.int64).max
_KEPT_NAMES = 8
_KEPT_IDS = 20_000_000


class Part:
    """Some events of the timeline with consecutive ids: those that were recorded, or those that
    were derived.

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
        ends = [
            ends_of(self.events, slice(offset, offset + (_BLOCK << 8)))
            for offset in range(0, len(self.events), _BLOCK << 8)
        ]
        parts = [np.maximum.reduceat(end, np.arange(0, len(end), _BLOCK)) for end in ends]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def stretches(self, lanes: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
        """The events of some lanes (bool[lanes]), as stretches that are as long as can be."""
        edges = np.flatnonzero(np.diff(lanes, prepend=False, append=False))
        for first, behind in zip(
            self.bounds[edges[::2]].tolist(), self.bounds[edges[1::2]].tolist(), strict=True
        ):
            if behind > first:
                yield first, behind

    def starting(self, lane: int, from_: int, to: int) -> tuple[int, int]:
        """The events of a lane that start in from…to (ps, `to` not included), as first and behind
        the last.
        """
        low, high = int(self.bounds[lane]), int(self.bounds[lane + 1])
        start = self.events.start[low:high]
        # The method: the function takes three times as long, and there may be thousands of lanes.
        return low + int(start.searchsorted(np.int64(from_))), low + int(
            start.searchsorted(np.int64(to))
        )

    @cached_property
    def _several(self) -> npt.NDArray[np.bool_]:
        """Mask of blocks of events that hold more than one lane."""
        first = self.events.lane[::_BLOCK]
        behind = np.minimum(np.arange(1, len(first) + 1) * _BLOCK, len(self.events))
        several: npt.NDArray[np.bool_] = self.events.lane[behind - 1] != first
        return several

    def touching(self, from_: int, to: int) -> npt.NDArray[np.bool_]:
        """Lanes with events in from…to, ps: those of `starting` and `reaching`. bool[lanes]

        Told for all lanes at once, as there may be thousands of a few events each. A block of one
        lane is looked at only where its time is near.
        """
        result = np.zeros(self._lanes, np.bool_)
        lane, start = self.events.lane, self.events.start
        for block in np.flatnonzero(
            (self._reach >= from_) & (self._several | (start[::_BLOCK] < to))
        ).tolist():
            if result[lane[block * _BLOCK]] and not self._several[block]:
                continue
            rows = slice(block * _BLOCK, (block + 1) * _BLOCK)
            begin = start[rows]
            overlaps = (begin < to) & ((begin >= from_) | (ends_of(self.events, rows) > from_))
            result[lane[rows][overlaps]] = True
        return result

    def reaching(self, lane: int, time: int) -> Int64s:
        """Events of a lane that start before a time (ps) and end after it, in order.

        Only blocks of events are looked at in which one ends that late, which are few also in front
        of millions of events.
        """
        low = int(self.bounds[lane])
        high = low + int(
            self.events.start[low : int(self.bounds[lane + 1])].searchsorted(np.int64(time))
        )
        if high <= low:
            return np.zeros(0, np.int64)
        first = low // _BLOCK
        blocks = first + np.flatnonzero(self._reach[first : (high - 1) // _BLOCK + 1] > time)
        parts_ = []
        for block in blocks.tolist():
            start_row = max(block * _BLOCK, low)
            rows = slice(start_row, min((block + 1) * _BLOCK, high))
            parts_.append(start_row + np.flatnonzero(ends_of(self.events, rows) > time))
        if len(parts_) == 1:
            return parts_[0]
        return np.concatenate(parts_) if parts_ else np.zeros(0, np.int64)


def ends_of(events: Events, rows: slice | Int64s) -> Int64s:
    """Ends of some events, ps; one beyond what int64 holds is its last number."""
    start = events.start[rows]
    end = start + events.duration[rows]
    result: Int64s = np.where((end < start) & (events.duration[rows] > 0), _FAR, end)
    return result


class Slices:
    """All slices of a timeline.

    Parameters
    ----------
    tracks : Tracks
    levels : callable, optional
        Gives the level of each event of `tracks.events` and of `tracks.extra`, as drawn; how many
        events of its lane each lies in when left out.
    """

    def __init__(
        self, tracks: Tracks, levels: Callable[[], tuple[Levels, Levels]] | None = None
    ) -> None:
        self.tracks = tracks
        self._fills = Fills(tracks.names, tracks.category)
        self.lanes: dict[int, Lane] = {lane.id: lane for lane in tracks.lanes}
        size = max(self.lanes, default=-1) + 1
        both = tracks.events, tracks.extra
        count = max([size, *(int(e.lane[-1]) + 1 for e in both if len(e))])
        durations = (
            (lambda i: lambda: levels()[i])
            if levels is not None
            else (lambda i: lambda: both[i].depth)
        )
        self.parts = [
            Part(e, first, count, durations(i))
            for i, (e, first) in enumerate(zip(both, (0, len(tracks.events)), strict=True))
        ]
        self.kind = np.zeros(count, np.uint8)
        """By lane id: what kind of lane it is; 0 for one that is not drawn."""
        for lane in tracks.lanes:
            self.kind[lane.id] = KINDS.index(lane.kind)
        self._same: OrderedDict[tuple[str, int], Int64s] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(part.events) for part in self.parts)

    def of(self, event: int) -> tuple[Part, int]:
        """The part that an event is in, and its index there.

        Raises
        ------
        IndexError
            There is no such event.
        """
        if not 0 <= event < len(self):
            raise IndexError(f"there is no event {event:,}; there are {len(self):,}")
        part = self.parts[int(event >= self.parts[1].first)]
        return part, event - part.first

    def part_of(self, lane: int) -> Part:
        """The part that the events of a lane are in."""
        first, second = self.parts
        return second if second.bounds[lane] < second.bounds[lane + 1] else first

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
        return int(self._fills.of(np.array([code]))[0])

    def name(self, event: int) -> str:
        """The short name, whole."""
        part, row = self.of(event)
        return str(self.tracks.names[part.events.name[row]])

    def ref(self, event: int) -> dict[str, Any]:
        """A `SliceRef`."""
        part, row = self.of(event)
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
        """The event beside, above or below another, or the one before or after it that has the same
        name; None at the end.

        `previous` and `next` are those on its row as drawn; `child` is the longest of those
        directly in it; the same name is looked for in time, on all lanes of the same kind.
        """
        part, row = self.of(event)
        if to == "previous":
            return self._beside(part, row, back=True)
        if to == "next":
            return self._beside(part, row, back=False)
        if to == "parent":
            above = int(part.events.parent[row])
            return part.first + above if above >= 0 else None
        if to == "child":
            below = self.children(part, row)
            return (
                part.first + int(below[np.argmax(part.events.duration[below])])
                if len(below)
                else None
            )
        return self._same_beside(event, back=to == "previous_same")

    def children(self, part: Part, row: int) -> Int64s:
        """Rows of the events directly in another."""
        events = part.events
        high = int(part.bounds[int(events.lane[row]) + 1])
        end = np.int64(ends_of(events, slice(row, row + 1))[0])
        behind = row + 1 + int(np.searchsorted(events.start[row + 1 : high], end, side="right"))
        return row + 1 + np.flatnonzero(events.parent[row + 1 : behind] == row)

    def _beside(self, part: Part, row: int, *, back: bool) -> int | None:
        """The nearest event of the lane on the same level; looked for in ever longer stretches."""
        lane = int(part.events.lane[row])
        low, high = int(part.bounds[lane]), int(part.bounds[lane + 1])
        level, row_, length = part.level, row if back else row + 1, 64
        while low < row_ if back else row_ < high:
            to = max(row_ - length, low) if back else min(row_ + length, high)
            levels_near = level[to:row_] if back else level[row_:to]
            same_level = np.flatnonzero(levels_near == level[row])
            if len(same_level):
                return part.first + (
                    to + int(same_level[-1]) if back else row_ + int(same_level[0])
                )
            row_, length = to, length * 4
        return None

    def same(self, event: int) -> Int64s:
        """Ids of the events of the same name on lanes of the same kind, ascending; kept for the
        last few names.

        Of a step only those on its own lane: that of a device and that of its host are not two of a
        kind.
        """
        part, row = self.of(event)
        lane = int(part.events.lane[row])
        kind = int(self.kind[lane])
        is_kind = self.kind == kind
        if KINDS[kind] == "steps":
            is_kind = np.arange(len(self.kind)) == lane
        key = (self.name(event), kind if KINDS[kind] != "steps" else -1 - lane)
        cached = self._same.pop(key, None)
        if cached is None:
            # Different names in full may be shown as one.
            codes = np.flatnonzero(self.tracks.names == key[0])
            parts_ = []
            for each in self.parts:
                for start_row, behind in each.stretches(is_kind):
                    rows = np.flatnonzero(
                        _any_of(each.events.name[start_row:behind], codes, len(self.tracks.names))
                    )
                    parts_.append((rows + (start_row + each.first)).astype(np.int32))
            cached = np.concatenate(parts_)
        self._same[key] = cached
        while len(self._same) > 1 and (
            len(self._same) > _KEPT_NAMES or sum(map(len, self._same.values())) > _KEPT_IDS
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
        return (
            np.concatenate([first[ids[:boundary]], second[ids[boundary:] - self.parts[1].first]])
            if boundary < len(ids)
            else first[ids]
        )

    def _same_beside(self, event: int, *, back: bool) -> int | None:
        ids = self.same(event)
        index = self.nearest(ids, self.starts(ids), self._start(event), event, back=back)
        return None if index is None else int(ids[index])

    def _start(self, event: int) -> int:
        part, row = self.of(event)
        return int(part.events.start[row])

    @staticmethod
    def nearest(
        ids: npt.NDArray[Any], starts: Int64s, start: int, event: int, *, back: bool
    ) -> int | None:
        """Position of the event next to (start, event) in the order of (start, id), which is that
        of (start, lane, id).
        """
        beyond = starts < start if back else starts > start
        beyond |= (starts == start) & (ids < event if back else ids > event)
        rows = np.flatnonzero(beyond)
        if not len(rows):
            return None
        # Ids ascend, so of equal starts the first row has the smallest, the last the largest.
        return int(
            rows[len(rows) - 1 - np.argmax(starts[rows][::-1])]
            if back
            else rows[np.argmin(starts[rows])]
        )

    def first(self, from_: float, to: float, lanes: list[int]) -> int | None:
        """The first event that starts in from…to (ns), else the outermost that reaches in, on the
        first of some lanes that has one.
        """
        low, high = self.ps(from_), self.ps(to)
        for lane in lanes:
            if lane not in self.lanes:
                continue
            part = self.part_of(lane)
            first_row, behind = part.starting(lane, low, min(high + 1, _FAR))
            if first_row < behind:
                return part.first + first_row
            if len(rows := part.reaching(lane, low)):
                return part.first + int(rows[0])
        return None


def _any_of(
    names: npt.NDArray[np.int32], codes: npt.NDArray[Any], size: int
) -> npt.NDArray[np.bool_]:
    result: npt.NDArray[np.bool_]
    if len(codes) == 1:
        result = names == names.dtype.type(codes[0])
    else:
        selected = np.zeros(size, np.bool_)
        selected[codes] = True
        result = selected[names]
    return result

"""Tiles: what is drawn of a row in 512 bins of time, found in some microseconds however many events
the row has.

In the order of time a row is slices that take turns. So of those that start in a bin only the last
can be as long as the bin: it is a mark of its own. The others become one mark, whose ends are the
first's start and the last's end. A lone short slice is a mark with its own times, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.errors import NbprofError
from nbprof.core.trace import Int64s
from nbprof.display.codec import smallest
from nbprof.display.wording import one_line
from nbprof.timeline.bins import TILE, Bins, since
from nbprof.timeline.index import Index, Rows
from nbprof.timeline.tracks import Counter, Tracks

MOST_TILES = 4096
MOST_TEXT = 200
LABEL_BINS = 8
"""So many bins wide is what may get a label, and whose name is sent."""

MARKS = (
    ("start", "f4"),
    ("end", "f4"),
    ("event", "u4"),
    ("name", "u4"),
    ("fill", "u1"),
    ("count", "u4"),
    ("busy", "u1"),
    ("hit", "u1"),
)

_GATHERED = 8192
_INTEGERS = (int, np.integer)


@dataclass
class _Units:
    """Tiles of rows of one table, all of flat lanes or all of others, by unit.

    `first` and `stop` are the positions of the row, `start` ps of the tile.
    """

    table: Rows
    flat: bool
    lane: Int64s
    level: Int64s
    tile: Int64s
    start: Int64s
    first: Int64s
    stop: Int64s

    def some(self, units: Int64s) -> _Units:
        """Some of the units."""
        columns = (self.lane, self.level, self.tile, self.start, self.first, self.stop)
        return _Units(self.table, self.flat, *(column[units] for column in columns))


@dataclass
class _Marks:
    """Marks by unit in the order of time; ids are those of the table, `start` and `end` ps (which
    may wrap around int64's end).
    """

    unit: Int64s
    first: Int64s
    last: Int64s
    event: Int64s
    start: Int64s
    end: Int64s
    count: Int64s
    busy: npt.NDArray[np.uint8]

    @classmethod
    def own(cls, size: int) -> _Marks:
        """Marks of slices of their own, to be filled."""
        unit, first, last, event, start, end = np.empty((6, size), np.int64)
        return cls(
            unit,
            first,
            last,
            event,
            start,
            end,
            np.ones(size, np.int64),
            np.full(size, 255, np.uint8),
        )


def tiles(
    index: Index, request: Mapping[str, Any], hits: npt.NDArray[np.integer] | None = None
) -> dict[str, Any]:
    """The answer to a request of tiles.

    Parameters
    ----------
    index : Index
    request : mapping
        `level`: a bin is 2**level ns; `want`: rows of [lane, depth, depth_to, tile, tile_to], each
        from … to, both included. What a lane has not got is left out.
    hits : integers, optional
        Ids of the events that a search found, ascending.

    Returns
    -------
    dict
        `rows`: columns lane, depth, first, count (u4) and tile (f8), one entry for each tile of a
        row that has marks, which are `count` marks from the `first` on. By mark: `start`, `end`
        (f4, ns from the tile's start), `event` (u4, of merged slices the longest), `name`, `fill`,
        `count`, `busy` (share of the bin, 1…255; 255 for a slice of its own), `hit` (none where
        nothing was found), in the narrowest unsigned types. `names`: text by name code of slices 8
        bins wide or more. `counters`: see `counter_tiles`. A slice of a bin or more that reaches
        into a tile from before it is in both; a shorter one is where it starts.

    Raises
    ------
    NbprofError
        The request is no such, or wants more than 4,096 tiles with something in them.
    """
    bins = Bins(request.get("level"), index.tracks.origin)
    want = list(_wanted(request.get("want")))
    parts = [(units, _marks(units, bins)) for units in _units(index, bins, want)]
    columns = _Columns(index, bins, hits)
    for units, marks in parts:
        columns.add(units, marks)
    return {**columns.columns(), "counters": counter_tiles(index.tracks, bins, want, MOST_TILES)}


def _wanted(want: object) -> Iterator[tuple[int, int, int, int, int]]:
    if not isinstance(want, (list, tuple)):
        raise NbprofError("A request for tiles needs a list of rows.")
    for row in want:
        complete = (
            isinstance(row, (list, tuple))
            and len(row) == 5
            and all(isinstance(n, _INTEGERS) for n in row)
        )
        if not complete:
            raise NbprofError(
                "A row of tiles is given by five integers: lane, depth, depth_to, tile, tile_to."
            )
        lane, depth, depth_to, tile, tile_to = map(int, row)
        yield lane, depth, depth_to, tile, tile_to


def _units(index: Index, bins: Bins, want: list[tuple[int, int, int, int, int]]) -> list[_Units]:
    """The wanted tiles in which a row may have something."""
    blocks: dict[tuple[bool, bool], list[tuple[int, int, int, int, int, int]]] = {}
    count = 0
    for lane, depth, depth_to, tile, tile_to in want:
        table = index.table(lane)
        if table is None:
            continue
        flat = bool(table.stack.flat[table.place[lane]])
        into = blocks.setdefault((table is index.main, flat), [])
        for level in range(max(depth, 0), min(depth_to, index.rows(lane) - 1) + 1):
            start, stop = table.range(lane, level)
            begin, end = table.extent(start, stop, flat)
            some = bins.clip(tile, tile_to, begin, end)
            count += len(some)
            if count > MOST_TILES:
                raise NbprofError(
                    f"More than {MOST_TILES:,} tiles were requested at once; request fewer rows or"
                    " a coarser level."
                )
            into.extend((lane, level, k, bins.start(k), start, stop) for k in some)
    return [
        _Units(index.main if main else index.extra, flat, *np.array(rows, np.int64).T)
        for (main, flat), rows in blocks.items()
        if rows
    ]


def _bisect(units: _Units, first: Int64s, stop: Int64s, edges: Int64s) -> Int64s:
    """The first position from `first` on, before `stop`, whose event starts at an edge or later;
    `stop` where there is none.
    """
    blocks, start = units.table.blocks, units.table.events.start
    low, high = np.broadcast_arrays(first, stop, edges)[:2]
    last = stop - 1
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        # With nothing left to halve, the position may be after the last.
        less = start.take(blocks.event(np.minimum(middle, last), units.flat)) < edges
        less &= open_
        low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
    return low


@dataclass
class _Known:
    """Sums and longest events by bin, int64[units, 512], of units with `coarse` rows; `row` is the
    row here of each unit, or -1.
    """

    row: Int64s
    sums: Int64s
    longest: Int64s


def _bounds(units: _Units, bins: Bins) -> tuple[Int64s, _Known | None]:
    """int64[units, 513]: the first position of each bin, and the one behind the last; and what is
    known of the bins.
    """
    coarse_tables = [
        units.table.coarse.get(row)
        for row in zip(units.lane.tolist(), units.level.tolist(), strict=True)
    ]
    usable, read = [], []
    for u, coarse in enumerate(coarse_tables):
        if coarse is not None and coarse.level <= bins.level:
            usable.append(u)
            tile = int(units.tile[u])
            read.append(coarse.tile(units.table.blocks, units.flat, bins.level, tile))
    if not usable:
        return _positions(units, bins), None
    result = np.empty((len(coarse_tables), TILE + 1), np.int64)
    row = np.full(len(coarse_tables), -1)
    row[usable] = np.arange(len(usable))
    result[usable] = [bounds for bounds, _, _ in read]
    if len(unread := np.flatnonzero(row < 0)):
        result[unread] = _positions(units.some(unread), bins)
    return result, _Known(
        row, np.array([sums for _, sums, _ in read]), np.array([longest for _, _, longest in read])
    )


def _positions(units: _Units, bins: Bins) -> Int64s:
    """int64[units, 513]: the first position of each bin, and the one behind the last, as the
    events' starts have them.
    """
    edges, beyond = bins.edges(units.start)
    ends = _bisect(units, units.first[:, None], units.stop[:, None], edges[:, [0, TILE]])
    if beyond is not None:
        ends = np.where(beyond[:, [0, TILE]], units.stop[:, None], ends)
    start, order, sample = (
        units.table.events.start,
        units.table.stack.order,
        units.table.blocks.sample,
    )
    step = units.table.blocks.step
    result = np.empty(edges.shape, np.int64)
    many = []
    for u, (index, stop) in enumerate(ends.tolist()):
        if index == stop:
            result[u] = index
        elif units.flat or stop - index <= _GATHERED:
            result[u] = index + np.searchsorted(
                start[index:stop] if units.flat else start[order[index:stop]], edges[u]
            )
        else:
            many.append(u)
    if many:
        index, stop = ends[many].T[:, :, None]
        # Between two of the positions whose start is at hand.
        first = -(-index // step)
        k = np.stack(
            [
                np.searchsorted(sample[i:j], edges[u])
                for u, i, j in zip(many, first[:, 0], -(-stop[:, 0] // step), strict=True)
            ]
        )
        result[many] = _bisect(
            units,
            np.where(k > 0, (first + k - 1) * step + 1, index),
            np.minimum((first + k) * step, stop),
            edges[many],
        )
    return result if beyond is None else np.where(beyond, units.stop[:, None], result)


def _marks(units: _Units, bins: Bins) -> _Marks:
    blocks, start, duration = (
        units.table.blocks,
        units.table.events.start,
        units.table.events.duration,
    )
    flat = units.flat
    bounds, coarse_bins = _bounds(units, bins)
    # Events that reach in from before.
    before = np.flatnonzero(bounds[:, 0] > units.first)
    earlier = blocks.event(bounds[before, 0] - 1, flat)
    reaches = (duration[earlier] >= bins.least) & (
        start[earlier] + duration[earlier] > units.start[before]
    )
    before, earlier = before[reaches], earlier[reaches]
    # Events that start in each bin: short ones first, then perhaps a long one.
    size = np.diff(bounds, axis=1).ravel()
    bin_ = np.flatnonzero(size)
    unit = bin_ // TILE
    # A tile has an edge more than bins.
    first = bounds.ravel().take(bin_ + unit)
    stop = first + size.take(bin_)
    last = blocks.event(stop - 1, flat)
    long = duration.take(last) >= bins.least
    stop -= long
    short = stop > first
    # Positions of marks: by unit, those that reach in, then by bin.
    reaching = np.zeros(len(units.lane), np.int64)
    reaching[before] = 1
    some = short.astype(np.int64) + long
    until = np.cumsum(some)
    mark_position = until - some + np.cumsum(reaching).take(unit)
    of_short, of_long = np.flatnonzero(short), np.flatnonzero(long)
    first, stop = first.take(of_short), stop.take(of_short)
    at_short, at_long = mark_position.take(of_short), (mark_position + short).take(of_long)
    at_before = np.append(0, until).take(np.searchsorted(unit, before)) + np.arange(len(before))
    marks = _Marks.own(len(at_short) + len(at_long) + len(before))
    marks.unit[at_before], marks.unit[at_short], marks.unit[at_long] = (
        before,
        unit.take(of_short),
        unit.take(of_long),
    )
    marks.first[at_before], marks.first[at_long] = earlier, last.take(of_long)
    marks.first[at_short] = blocks.event(first, flat)
    marks.last[:] = marks.first
    marks.event[:] = marks.first
    several = np.flatnonzero(stop - first > 1)
    to, first, stop = at_short.take(several), first.take(several), stop.take(several)
    marks.count[to] = stop - first
    marks.last[to] = blocks.event(stop - 1, flat)
    if coarse_bins is None:
        longest, sums = blocks.longest(first, stop - 1, flat), blocks.sums(first, stop, flat)
    else:
        longest, sums = np.empty((2, len(to)), np.int64)
        short_bins = of_short.take(several)
        row = coarse_bins.row.take(unit.take(short_bins))
        # The columns of a bin cover all that starts in it, also a long event.
        read = (row >= 0) & ~long.take(short_bins)
        here, rest = np.flatnonzero(read), np.flatnonzero(~read)
        mark_position = row.take(here) * TILE + bin_.take(short_bins.take(here)) % TILE
        longest[here], sums[here] = (
            coarse_bins.longest.ravel().take(mark_position),
            coarse_bins.sums.ravel().take(mark_position),
        )
        first, stop = first.take(rest), stop.take(rest)
        longest[rest], sums[rest] = (
            blocks.longest(first, stop - 1, flat),
            blocks.sums(first, stop, flat),
        )
    marks.event[to] = blocks.event(longest, flat)
    marks.busy[to] = np.clip(np.rint(sums * (255 / bins.width)), 1, 255)
    start.take(marks.first, out=marks.start)
    np.add(start.take(marks.last), duration.take(marks.last), out=marks.end)
    return marks


class _Columns:
    """The columns of an answer, put together of parts."""

    def __init__(self, index: Index, bins: Bins, hits: npt.NDArray[np.integer] | None) -> None:
        self._index, self._bins = index, bins
        self._hits = index.hit_rows(hits)
        self._rows: list[list[npt.NDArray[Any]]] = []
        self._marks: list[list[npt.NDArray[Any]]] = []
        self._texts: set[int] = set()
        self._size = 0

    def add(self, units: _Units, marks: _Marks) -> None:
        """Adds the marks of some tiles."""
        counts = np.bincount(marks.unit, minlength=len(units.lane))
        used = np.flatnonzero(counts)
        firsts = np.cumsum(counts) - counts
        self._rows.append(
            [
                units.lane[used],
                units.level[used],
                units.tile[used],
                firsts[used] + self._size,
                counts[used],
            ]
        )
        self._size += len(marks.unit)
        origin = units.start.take(marks.unit)
        start, end = since(marks.start, origin), since(marks.end, origin)
        name = units.table.events.name.take(marks.event)
        wide = (marks.count == 1) & (marks.end - marks.start >= LABEL_BINS * self._bins.width)
        self._texts.update(np.unique(name[wide]).tolist())
        event = marks.event + units.table.base
        hit = self._hit(units, marks, used, firsts, counts)
        self._marks.append(
            [start, end, event, name, self._index.fills.of(name), marks.count, marks.busy, hit]
        )

    def _hit(
        self, units: _Units, marks: _Marks, used: Int64s, firsts: Int64s, counts: Int64s
    ) -> npt.NDArray[np.uint8]:
        if self._hits is None:
            return np.zeros(0, np.uint8)
        result = np.zeros(len(marks.unit), np.uint8)
        for u in used.tolist():
            matches = self._hits.of(units.table, int(units.lane[u]), int(units.level[u]))
            if len(matches):
                part = slice(int(firsts[u]), int(firsts[u] + counts[u]))
                # Ids of a row ascend with time. The type is that of the hits, which would be copied
                # otherwise.
                low = np.searchsorted(
                    matches, (marks.first[part] + units.table.base).astype(matches.dtype)
                )
                high = np.searchsorted(
                    matches,
                    (marks.last[part] + units.table.base).astype(matches.dtype),
                    side="right",
                )
                result[part] = high > low
        return result

    def columns(self) -> dict[str, Any]:
        """`rows`, marks and `names`."""
        rows = _joined(
            self._rows,
            ("lane", "u4"),
            ("depth", "u4"),
            ("tile", "f8"),
            ("first", "u4"),
            ("count", "u4"),
        )
        marks = _joined(self._marks, *MARKS)
        texts = self._index.tracks.names
        names = {
            str(code): one_line(str(texts[code])[: 2 * MOST_TEXT])[:MOST_TEXT]
            for code in sorted(self._texts)
        }
        # A page holds what it has got for long, so these are as narrow as can be.
        narrow = {column: smallest(marks[column]) for column in ("name", "count")}
        return {"rows": rows, **marks, **narrow, "names": names}


def _joined(
    parts: list[list[npt.NDArray[Any]]], *columns: tuple[str, str]
) -> dict[str, npt.NDArray[Any]]:
    return {
        name: (
            np.concatenate([part[i] for part in parts], dtype=kind, casting="unsafe")
            if parts
            else np.zeros(0, kind)
        )
        for i, (name, kind) in enumerate(columns)
    }


COLUMNS = (
    ("lane", "u4"),
    ("tile", "f8"),
    ("t", "f4"),
    ("low", "f8"),
    ("high", "f8"),
    ("last", "f8"),
    ("mean", "f8"),
)


def counter_tiles(
    tracks: Tracks, bins: Bins, want: list[tuple[int, int, int, int, int]], limit: int
) -> dict[str, npt.NDArray[Any]]:
    """Columns over the bins of the wanted tiles, in the order of time: lane, tile, t (where the bin
    starts, ns from the tile's start), low, high and last value, and its mean: NaN where the counter
    is no share of time.

    A value holds until the next sample. So the one that a bin starts with counts in it, too, and a
    bin without a sample has but that one. The first bin is that of the first sample, the last that
    of the end of the profile.

    Raises
    ------
    NbprofError
        More than `limit` tiles are wanted.
    """
    by_id = {counter.id: counter for counter in tracks.counters}
    parts: list[list[npt.NDArray[Any]]] = []
    count = 0
    for lane, _, _, tile, tile_to in want:
        counter = by_id.get(lane)
        if counter is None or not len(counter.time):
            continue
        first, end = int(counter.time[0]), max(int(counter.time[-1]), tracks.end)
        some = bins.clip(tile, tile_to, first, end)
        count += len(some)
        if count > limit:
            raise NbprofError(
                f"More than {limit:,} counter tiles were requested at once; request fewer rows or a"
                " coarser level."
            )
        if len(some):
            parts.append(_tiles(counter, bins, np.array(some), end))
    return {
        name: (
            np.concatenate([part[i] for part in parts], dtype=kind, casting="unsafe")
            if parts
            else np.zeros(0, kind)
        )
        for i, (name, kind) in enumerate(COLUMNS)
    }


def _tiles(counter: Counter, bins: Bins, tile: Int64s, end: int) -> list[npt.NDArray[Any]]:
    """The columns of tiles that follow one another."""
    start = np.array([bins.start(k) for k in tile.tolist()])
    edges, beyond = bins.edges(start)
    bounds = np.searchsorted(counter.time, edges)
    if beyond is not None:
        bounds[beyond] = len(counter.time)
    # From the bin of the first sample to that of the end.
    visible = (bounds[:, 1:] > 0) & (edges[:, :-1] <= end)
    if beyond is not None:
        visible &= ~beyond[:, :-1]
    first, stop, begin = bounds[:, :-1][visible], bounds[:, 1:][visible], edges[:, :-1][visible]
    held = first > 0
    low = np.where(held, counter.value[first - 1], np.inf)
    high = np.where(held, counter.value[first - 1], -np.inf)
    filled = np.flatnonzero(stop > first)
    if len(filled):
        # Bins with samples lie side by side: each ends where the next one starts.
        values, index = (
            counter.value[first[filled[0]] : stop[filled[-1]]],
            first[filled] - first[filled[0]],
        )
        # A sample at a bin's very start leaves nothing of the value before.
        anew = counter.time[first[filled]] <= begin[filled]
        low[filled] = np.fmin(np.where(anew, np.inf, low[filled]), np.fmin.reduceat(values, index))
        high[filled] = np.fmax(
            np.where(anew, -np.inf, high[filled]), np.fmax.reduceat(values, index)
        )
    size = visible.sum(axis=1)
    times = since(begin, np.repeat(start, size))
    mean = np.full(len(first), np.nan)
    if counter.unit == "percent":
        span = edges[:, 1:][visible] - begin
        # Bins of less than a picosecond have the value that holds there.
        mean = np.where(
            span > 0,
            (counter.until(begin + span) - counter.until(begin)) / np.maximum(span, 1),
            high,
        )
    return [
        np.full(len(first), counter.id),
        np.repeat(tile, size),
        times,
        low,
        high,
        counter.value[stop - 1],
        mean,
    ]

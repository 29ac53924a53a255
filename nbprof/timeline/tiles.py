"""Tiles: the marks of a row in 512 bins of time, found in microseconds for any number of events.

The slices of a row do not overlap. So of those that start in a bin only the last can be as long as
the bin: it is a separate mark. The others become one mark, from the start of the first to the end
of the last. A single short slice is a mark with its own times, too.
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
"""Slices of this many bins may get a label, so their names are sent."""

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
    """Tiles of rows of one table, all on flat lanes or all on other lanes, by unit.

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

    def take(self, units: Int64s) -> _Units:
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
    def single(cls, size: int) -> _Marks:
        """Marks of one slice each, to be filled."""
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
    """Marks, names and counters of requested tiles, by row.

    Parameters
    ----------
    index : Index
    request : mapping
        `level`: a bin is 2**level ns; `want`: rows of [lane, depth, depth_to, tile, tile_to], each
        from … to, both included. Levels and tiles beyond those of a lane are ignored.
    hits : integers, optional
        Ids of the events that a search found, ascending.

    Returns
    -------
    dict
        `rows`: columns lane, depth, first, count (u4) and tile (f8), one entry for each tile of a
        row that has marks, which are `count` marks from the `first` on. By mark: `start`, `end`
        (f4, ns from the tile's start), `event` (u4, of merged slices the longest), `name`, `fill`,
        `count`, `busy` (share of the bin, 1…255; 255 for a single slice), `hit` (none where
        nothing was found), in the narrowest unsigned types. `names`: text by name code of slices 8
        bins wide or more. `counters`: see `counter_tiles`. A slice of a bin or more that reaches
        into a tile from before it is in both; a shorter one is where it starts.

    Raises
    ------
    NbprofError
        The request is invalid, or for more than 4,096 tiles with events.
    """
    bins = Bins(request.get("level"), index.tracks.origin)
    want = list(_checked_rows(request.get("want")))
    parts = [(units, _marks(units, bins)) for units in _units(index, bins, want)]
    columns = _Columns(index, bins, hits)
    for units, marks in parts:
        columns.add(units, marks)
    return {**columns.columns(), "counters": counter_tiles(index.tracks, bins, want, MOST_TILES)}


def _checked_rows(want: object) -> Iterator[tuple[int, int, int, int, int]]:
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
    """The requested tiles in which a row may have events."""
    blocks: dict[tuple[bool, bool], list[tuple[int, int, int, int, int, int]]] = {}
    count = 0
    for lane, depth, depth_to, tile, tile_to in want:
        table = index.table(lane)
        if table is None:
            continue
        flat = bool(table.stack.flat[table.index_of[lane]])
        into = blocks.setdefault((table is index.main, flat), [])
        for level in range(max(depth, 0), min(depth_to, index.rows(lane) - 1) + 1):
            start, stop = table.range(lane, level)
            begin, end = table.extent(start, stop, flat)
            chosen = bins.clip(tile, tile_to, begin, end)
            count += len(chosen)
            if count > MOST_TILES:
                raise NbprofError(
                    f"More than {MOST_TILES:,} tiles were requested at once; request fewer rows or"
                    " a coarser level."
                )
            into.extend((lane, level, k, bins.start(k), start, stop) for k in chosen)
    return [
        _Units(index.main if main else index.extra, flat, *np.array(rows, np.int64).T)
        for (main, flat), rows in blocks.items()
        if rows
    ]


def _bisect(units: _Units, first: Int64s, stop: Int64s, edges: Int64s) -> Int64s:
    """The first position in first…stop whose event starts at an edge or later, else `stop`."""
    blocks, start = units.table.blocks, units.table.events.start
    low, high = np.broadcast_arrays(first, stop, edges)[:2]
    last = stop - 1
    open_ = low < high
    while open_.any():
        middle = (low + high) >> 1
        # With nothing left to halve, the position may be after the last.
        less = start.take(blocks.event(np.minimum(middle, last), units.flat)) < edges
        less &= open_
        low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
        open_ = low < high
    return low


@dataclass
class _CoarseBins:
    """Sums and longest events by bin of units with `coarse` rows, int64[k, 512].

    `row` is the row here of each unit, or -1.
    """

    row: Int64s
    sums: Int64s
    longest: Int64s


def _bounds(units: _Units, bins: Bins) -> tuple[Int64s, _CoarseBins | None]:
    """int64[units, 513]: the first position of each bin, and the one behind the last.

    With them the sums and longest events of units with coarse rows; None without any.
    """
    usable, read = [], []
    rows = zip(units.lane.tolist(), units.level.tolist(), strict=True)
    for u, lane_level in enumerate(rows):
        coarse = units.table.coarse.get(lane_level)
        if coarse is not None and coarse.level <= bins.level:
            usable.append(u)
            tile = int(units.tile[u])
            read.append(coarse.tile(units.table.blocks, units.flat, bins.level, tile))
    if not usable:
        return _positions(units, bins), None
    result = np.empty((len(units.lane), TILE + 1), np.int64)
    row = np.full(len(units.lane), -1)
    row[usable] = np.arange(len(usable))
    result[usable] = [bounds for bounds, _, _ in read]
    unread = np.flatnonzero(row < 0)
    if len(unread):
        result[unread] = _positions(units.take(unread), bins)
    sums = np.array([sums for _, sums, _ in read])
    longest = np.array([longest for _, _, longest in read])
    return result, _CoarseBins(row, sums, longest)


def _positions(units: _Units, bins: Bins) -> Int64s:
    """int64[units, 513]: bounds of the bins as in `_bounds`, from the starts of the events."""
    edges, beyond = bins.edges(units.start)
    ends = _bisect(units, units.first[:, None], units.stop[:, None], edges[:, [0, TILE]])
    if beyond is not None:
        ends = np.where(beyond[:, [0, TILE]], units.stop[:, None], ends)
    start, order = units.table.events.start, units.table.stack.order
    sample, step = units.table.blocks.sample, units.table.blocks.step
    result = np.empty(edges.shape, np.int64)
    many = []
    for u, (index, stop) in enumerate(ends.tolist()):
        if index == stop:
            result[u] = index
        elif units.flat or stop - index <= _GATHERED:
            starts = start[index:stop] if units.flat else start[order[index:stop]]
            result[u] = index + np.searchsorted(starts, edges[u])
        else:
            many.append(u)
    if many:
        index, stop = ends[many].T[:, :, None]
        # Between two of the positions with a sample.
        first, last = -(-index // step), -(-stop // step)
        samples = zip(many, first[:, 0], last[:, 0], strict=True)
        k = np.stack([np.searchsorted(sample[i:j], edges[u]) for u, i, j in samples])
        result[many] = _bisect(
            units,
            np.where(k > 0, (first + k - 1) * step + 1, index),
            np.minimum((first + k) * step, stop),
            edges[many],
        )
    if beyond is None:
        return result
    return np.where(beyond, units.stop[:, None], result)


def _marks(units: _Units, bins: Bins) -> _Marks:
    """The marks of tiles: by unit, first an event that reaches in, then by bin."""
    table, flat = units.table, units.flat
    blocks, start, duration = table.blocks, table.events.start, table.events.duration
    bounds, coarse = _bounds(units, bins)
    before, earlier = _reaching(units, bins, bounds)
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
    # Positions of the marks of each bin.
    reaching = np.zeros(len(units.lane), np.int64)
    reaching[before] = 1
    marks_of_bin = short.astype(np.int64) + long
    until = np.cumsum(marks_of_bin)
    position = until - marks_of_bin + np.cumsum(reaching).take(unit)
    of_short, of_long = np.flatnonzero(short), np.flatnonzero(long)
    first, stop = first.take(of_short), stop.take(of_short)
    at_short, at_long = position.take(of_short), (position + short).take(of_long)
    at_before = np.append(0, until).take(np.searchsorted(unit, before)) + np.arange(len(before))
    marks = _Marks.single(len(at_short) + len(at_long) + len(before))
    marks.unit[at_before] = before
    marks.unit[at_short], marks.unit[at_long] = unit.take(of_short), unit.take(of_long)
    marks.first[at_before], marks.first[at_long] = earlier, last.take(of_long)
    marks.first[at_short] = blocks.event(first, flat)
    marks.last[:] = marks.first
    marks.event[:] = marks.first
    several = np.flatnonzero(stop - first > 1)
    to, first, stop = at_short.take(several), first.take(several), stop.take(several)
    marks.count[to] = stop - first
    marks.last[to] = blocks.event(stop - 1, flat)
    # The columns of a coarse bin cover all events that start in it, also a long one.
    merged = of_short.take(several)
    row = np.full(len(to), -1)
    if coarse is not None:
        row = np.where(long.take(merged), -1, coarse.row.take(unit.take(merged)))
    longest, sums = _merged(units, _Merged(first, stop, row, bin_.take(merged) % TILE), coarse)
    marks.event[to] = blocks.event(longest, flat)
    marks.busy[to] = np.clip(np.rint(sums * (255 / bins.width)), 1, 255)
    start.take(marks.first, out=marks.start)
    np.add(start.take(marks.last), duration.take(marks.last), out=marks.end)
    return marks


def _reaching(units: _Units, bins: Bins, bounds: Int64s) -> tuple[Int64s, npt.NDArray[np.integer]]:
    """Units into which a long event from before reaches, and that event."""
    start, duration = units.table.events.start, units.table.events.duration
    before = np.flatnonzero(bounds[:, 0] > units.first)
    earlier = units.table.blocks.event(bounds[before, 0] - 1, units.flat)
    reaches = (duration[earlier] >= bins.least) & (
        start[earlier] + duration[earlier] > units.start[before]
    )
    return before[reaches], earlier[reaches]


@dataclass
class _Merged:
    """Positions of the events of merged marks, and the row and bin of each in `_CoarseBins`."""

    first: Int64s
    stop: Int64s
    row: Int64s
    bin: Int64s


def _merged(units: _Units, merged: _Merged, coarse: _CoarseBins | None) -> tuple[Int64s, Int64s]:
    """Position of the longest event, and the sum of durations, of merged marks."""
    blocks, flat = units.table.blocks, units.flat
    if coarse is None:
        longest = blocks.longest(merged.first, merged.stop - 1, flat)
        return longest, blocks.sums(merged.first, merged.stop, flat)
    longest, sums = np.empty((2, len(merged.first)), np.int64)
    read, rest = np.flatnonzero(merged.row >= 0), np.flatnonzero(merged.row < 0)
    position = merged.row.take(read) * TILE + merged.bin.take(read)
    longest[read] = coarse.longest.ravel().take(position)
    sums[read] = coarse.sums.ravel().take(position)
    first, stop = merged.first.take(rest), merged.stop.take(rest)
    longest[rest] = blocks.longest(first, stop - 1, flat)
    sums[rest] = blocks.sums(first, stop, flat)
    return longest, sums


class _Columns:
    """The columns of an answer, joined from parts."""

    def __init__(self, index: Index, bins: Bins, hits: npt.NDArray[np.integer] | None) -> None:
        self._index, self._bins = index, bins
        self._hits = index.hit_rows(hits)
        self._rows: list[list[npt.NDArray[Any]]] = []
        self._marks: list[list[npt.NDArray[Any]]] = []
        self._texts: set[int] = set()
        self._size = 0

    def add(self, units: _Units, marks: _Marks) -> None:
        """Adds the marks of tiles."""
        counts = np.bincount(marks.unit, minlength=len(units.lane))
        used = np.flatnonzero(counts)
        firsts = np.cumsum(counts) - counts
        first = firsts[used] + self._size
        self._rows.append(
            [units.lane[used], units.level[used], units.tile[used], first, counts[used]]
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
            [start, end, event, name, self._index.fills.by_code(name), marks.count, marks.busy, hit]
        )

    def _hit(
        self, units: _Units, marks: _Marks, used: Int64s, firsts: Int64s, counts: Int64s
    ) -> npt.NDArray[np.uint8]:
        if self._hits is None:
            return np.zeros(0, np.uint8)
        result = np.zeros(len(marks.unit), np.uint8)
        for u in used.tolist():
            matches = self._hits.in_row(units.table, int(units.lane[u]), int(units.level[u]))
            if len(matches):
                part = slice(int(firsts[u]), int(firsts[u] + counts[u]))
                # Ids of a row ascend with time. The type is that of the hits, which would be copied
                # otherwise.
                first_ids = (marks.first[part] + units.table.base).astype(matches.dtype)
                last_ids = (marks.last[part] + units.table.base).astype(matches.dtype)
                low = np.searchsorted(matches, first_ids)
                high = np.searchsorted(matches, last_ids, side="right")
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
        # A page keeps tiles for long, so these are as narrow as possible.
        narrow = {column: smallest(marks[column]) for column in ("name", "count")}
        return {"rows": rows, **marks, **narrow, "names": names}


def _joined(
    parts: list[list[npt.NDArray[Any]]], *columns: tuple[str, str]
) -> dict[str, npt.NDArray[Any]]:
    if not parts:
        return {name: np.zeros(0, kind) for name, kind in columns}
    result = {}
    for (name, kind), arrays in zip(columns, zip(*parts, strict=True), strict=True):
        result[name] = np.concatenate(arrays, dtype=kind, casting="unsafe")
    return result


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
    """Columns over the bins of the requested tiles, in the order of time.

    They are lane, tile, t (start of the bin, ns from the tile's start), low, high and last value,
    and the mean: NaN unless the counter is a share of time. A value holds until the next sample, so
    a bin also has the value with which it starts. The first bin is that of the first sample, the
    last that of the end of the profile.

    Raises
    ------
    NbprofError
        More than `limit` tiles are requested.
    """
    by_id = {counter.id: counter for counter in tracks.counters}
    parts: list[list[npt.NDArray[Any]]] = []
    count = 0
    for lane, _, _, tile, tile_to in want:
        counter = by_id.get(lane)
        if counter is None or not len(counter.time):
            continue
        first, end = int(counter.time[0]), max(int(counter.time[-1]), tracks.end)
        chosen = bins.clip(tile, tile_to, first, end)
        count += len(chosen)
        if count > limit:
            raise NbprofError(
                f"More than {limit:,} counter tiles were requested at once; request fewer rows or a"
                " coarser level."
            )
        if len(chosen):
            parts.append(_tiles(counter, bins, np.array(chosen), end))
    return _joined(parts, *COLUMNS)


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
        # Bins with samples are contiguous: each ends where the next one starts.
        values = counter.value[first[filled[0]] : stop[filled[-1]]]
        index = first[filled] - first[filled[0]]
        # A sample at a bin's very start leaves nothing of the value before.
        anew = counter.time[first[filled]] <= begin[filled]
        low[filled] = np.fmin(np.where(anew, np.inf, low[filled]), np.fmin.reduceat(values, index))
        before = np.where(anew, -np.inf, high[filled])
        high[filled] = np.fmax(before, np.fmax.reduceat(values, index))
    size = visible.sum(axis=1)
    times = since(begin, np.repeat(start, size))
    mean = np.full(len(first), np.nan)
    if counter.unit == "percent":
        span = edges[:, 1:][visible] - begin
        # Bins of less than a picosecond have the value that holds there.
        sums = counter.until(begin + span) - counter.until(begin)
        mean = np.where(span > 0, sums / np.maximum(span, 1), high)
    return [
        np.full(len(first), counter.id),
        np.repeat(tile, size),
        times,
        low,
        high,
        counter.value[stop - 1],
        mean,
    ]

"""Batches of events on their way from bytes to columns: decoded on several threads, then completed
by what had no common shape.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.distinct import distinct
from nbprof.core.files import Buffer
from nbprof.core.quiet import silence
from nbprof.core.trace import Int32s, Int64s
from nbprof.core.wire import Words, words_of
from nbprof.formats.times import LONGEST_PS
from nbprof.formats.xspace import general as xspace_general
from nbprof.formats.xspace.events import BYTES_TAG, DOUBLE_TAG, INT_TAG, TEXT_TAG, Stats, decode
from nbprof.formats.xspace.planes import PlaneMessage
from nbprof.formats.xspace.split import spans

# Rows of a batch are numbered by 16 bits, and its columns fit the second-level cache.
MOST_EVENTS = 1 << 16
_FEWEST_EVENTS = 1 << 14
# What has no common shape is decoded together for so many events: it costs a fixed time, and memory
# until then.
_WINDOW = 1 << 21
_THREADS = min(4, os.cpu_count() or 1)
# The first bytes are kept: they tell what happened to a file that turns out to be damaged.
_KEPT = 1 << 22

Numbers = npt.NDArray[np.signedinteger[Any] | np.unsignedinteger[Any]]


def _none() -> Int64s:
    return np.zeros(0, np.int64)


@dataclass
class Values:
    """One stat of some events of a batch: rows ascending, values as narrow as they are.

    For texts and bytes the value is a code into the batch's own `texts`.
    """

    ident: int
    tag: int
    row: npt.NDArray[np.uint16]
    value: Numbers


@dataclass
class Batch:
    """Up to 2^16 events in a row of one plane.

    `starts` are the bytes of their tags, `lines` how many of them lie on which line (index into the
    plane's lines), `bases` what is added to their offsets, in ps (None: a line whose time cannot
    be). The rest is filled by `run`.
    """

    plane: PlaneMessage
    starts: Int64s
    lines: list[int]
    counts: list[int]
    bases: list[int | None]
    meta: Int64s = field(default_factory=_none)
    name: Int32s = field(default_factory=lambda: np.zeros(0, np.int32))
    start: Int64s = field(default_factory=_none)
    duration: Int64s = field(default_factory=_none)
    values: list[Values] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    left: Int64s = field(default_factory=_none)
    left_spans: tuple[Int64s, Int64s] = field(default_factory=lambda: (_none(), _none()))
    """Rows, and starts and ends of the contents, of the events that have no common shape."""
    count: int = 0
    """Events that are kept."""
    unnamed: Int64s = field(default_factory=_none)
    """Ids of the events whose `name` is -1."""
    valueless: int = 0
    hidden: list[bytes] = field(default_factory=list)
    """Texts that do not count: another value of their stat comes behind them, or their event is
    left out.
    """
    wild: int = 0
    negative: int = 0
    aggregated: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(line, id, occurrences, duration) of the events that have a count instead of a place."""


def batches(plane: PlaneMessage, bases: Sequence[int | None], size: int) -> Iterable[Batch]:
    """The events of a plane in batches of `size`, line after line; `bases` (ps) by line."""
    parts: list[Int64s] = []
    lines: list[int] = []
    room = size
    for index, line in enumerate(plane.lines):
        first_event = 0
        while first_event < len(line.starts):
            take = min(room, len(line.starts) - first_event)
            parts.append(line.starts[first_event : first_event + take])
            lines.append(index)
            first_event += take
            room -= take
            if not room:
                yield _batch(plane, parts, lines, bases)
                parts, lines, room = [], [], size
    if parts:
        yield _batch(plane, parts, lines, bases)


def _batch(
    plane: PlaneMessage, parts: list[Int64s], lines: list[int], bases: Sequence[int | None]
) -> Batch:
    starts = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return Batch(plane, starts, lines, [len(p) for p in parts], [bases[i] for i in lines])


def run(buffer: Buffer, work: Sequence[Batch]) -> None:
    """Decodes all batches of a file.

    Raises
    ------
    ReadError
        A field of an event or of a stat does not fit its message.
    """
    reader = _Reader(buffer)
    # A pool of threads costs more than it saves where there is little, and many hosts are read side
    # by side.
    if _THREADS < 2 or sum(len(batch.starts) for batch in work) < MOST_EVENTS:
        _run(reader, work, map)
        return
    with ThreadPoolExecutor(_THREADS, initializer=silence) as pool:
        _run(reader, work, pool.map)


def batch_size(events: int) -> int:
    """How many events a batch has, so that all threads have some."""
    return max(_FEWEST_EVENTS, min(MOST_EVENTS, -(-events // (2 * _THREADS))))


def _run(
    reader: _Reader,
    work: Sequence[Batch],
    each: Callable[[Callable[[Any], None], Sequence[Any]], Iterable[None]],
) -> None:
    first = 0
    while first < len(work):
        last, events = first, 0
        while last < len(work) and (last == first or events + len(work[last].starts) <= _WINDOW):
            events += len(work[last].starts)
            last += 1
        window = work[first:last]
        list(each(reader.decode, window))
        rest = reader.rest(window)
        list(each(reader.finish, list(zip(window, rest, strict=True))))
        first = last


@dataclass
class _Rest:
    """What `general` made of the events that a batch left: their rows in the batch, and which stats
    are theirs.
    """

    events: xspace_general.EventRows
    first: int
    last: int


class _Reader:
    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.buf = buffer.array
        self.data = buffer.array.data
        self.words: Words = words_of(buffer.array)

    def decode(self, batch: Batch) -> None:
        """What the common shapes give."""
        start, stop = spans(self.buf, batch.starts)
        self.buffer.reached(int(stop[-1]))
        done = decode(self.words, start, stop)
        batch.meta, batch.start, batch.duration, batch.left = (
            done.meta,
            done.offset,
            done.duration,
            done.left,
        )
        texts = [s for s in done.stats if s.length is not None]
        if texts:
            index = np.concatenate([s.value for s in texts]).view(np.int64)
            codes, batch.texts = distinct(
                self.buf, index, np.concatenate([s.length for s in texts if s.length is not None])
            )
            first = 0
            for stats in texts:
                stats.value = codes[first : first + len(stats.row)].astype(np.uint64)
                first += len(stats.row)
        batch.values = [
            Values(s.ident, s.tag, s.row.astype(np.uint16), _narrow(s)) for s in done.stats
        ]
        if len(batch.left):
            batch.left_spans = (start[batch.left], stop[batch.left])
        else:
            self._release(batch)

    def rest(self, window: Sequence[Batch]) -> list[_Rest | None]:
        """What is left of several batches, in one go."""
        with_rest = [b for b in window if len(b.left)]
        if not with_rest:
            return [None] * len(window)
        start, stop = (np.concatenate([b.left_spans[side] for b in with_rest]) for side in (0, 1))
        events = xspace_general.events(self.buf, start, stop)
        with_rest[0].hidden += [bytes(self.data[a:b]) for a, b in events.stats.hidden]
        offset: list[_Rest | None] = []
        first = 0
        for batch in window:
            offset.append(
                _Rest(events, first, first + len(batch.left)) if len(batch.left) else None
            )
            first += len(batch.left)
        return offset

    def finish(self, item: tuple[Batch, _Rest | None]) -> None:
        """Adds what was left, puts times in place, takes out what is no event, and orders the
        stats.
        """
        batch, rest = item
        keep: npt.NDArray[np.bool_] | None = None
        if rest is not None:
            keep = self._add(batch, rest)
            self._release(batch)
        keep = _place(batch, keep)
        batch.count = len(batch.starts)
        batch.starts = batch.left = _none()
        batch.left_spans = (_none(), _none())
        if keep is not None:
            _drop(batch, keep)
        batch.name = batch.plane.events.places(batch.meta)
        batch.unnamed = batch.meta[batch.name < 0]
        batch.meta = _none()
        batch.values = _ordered(batch.values, batch.count)

    def _release(self, batch: Batch) -> None:
        self.buffer.release(max(_KEPT, int(batch.starts[0])), int(batch.starts[-1]))

    def _add(self, batch: Batch, rest: _Rest) -> npt.NDArray[np.bool_] | None:
        events, rows, event_range = rest.events, batch.left, slice(rest.first, rest.last)
        batch.meta[rows] = events.meta[event_range]
        batch.start[rows] = events.offset[event_range]
        batch.duration[rows] = events.duration[event_range]
        stats = events.stats
        low, high = np.searchsorted(stats.owner, (rest.first, rest.last))
        owner, ident, tag, value, end = (
            column[low:high]
            for column in (stats.owner, stats.ident, stats.tag, stats.value, stats.end)
        )
        batch.valueless = int(np.count_nonzero(tag == 0))
        order = np.lexsort((tag, ident))
        edges = np.flatnonzero((np.diff(ident[order]) != 0) | (np.diff(tag[order]) != 0)) + 1
        for index in np.split(order, edges) if len(order) else []:
            number, kind = int(ident[index[0]]), int(tag[index[0]])
            if not kind:
                continue
            numbers = value[index].view(np.uint64)
            if kind in (TEXT_TAG, BYTES_TAG):
                first = len(batch.texts)
                batch.texts += [
                    bytes(self.data[a:b])
                    for a, b in zip(value[index].tolist(), end[index].tolist(), strict=True)
                ]
                numbers = np.arange(first, len(batch.texts), dtype=np.uint64)
            row = rows[owner[index] - rest.first]
            batch.values.append(
                Values(
                    number,
                    kind,
                    row.astype(np.uint16),
                    _narrow(Stats(number, kind, row.astype(np.int32), numbers)),
                )
            )
        counted = np.flatnonzero(events.has_count[event_range])
        if not len(counted):
            return None
        keep = np.ones(len(batch.meta), np.bool_)
        keep[rows[counted]] = False
        line = np.repeat(batch.lines, batch.counts)[rows[counted]].tolist()
        columns = (
            events.meta[event_range][counted],
            events.occurrences[event_range][counted],
            events.duration[event_range][counted],
        )
        batch.aggregated = list(zip(line, *(c.tolist() for c in columns), strict=True))
        return keep


def _narrow(stats: Stats) -> Numbers:
    """The values in the smallest type that holds them."""
    value = stats.value
    if not len(value):
        return np.zeros(0, np.uint8)
    if stats.tag == DOUBLE_TAG:
        return value.view(np.int64)
    high = int(value.max())
    for bits, unsigned in ((8, np.uint8), (16, np.uint16), (32, np.uint32)):
        if high >> bits == 0:
            return value.astype(unsigned)
    if stats.tag != INT_TAG:
        return value
    numbers = value.view(np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    for size, small in ((1 << 7, np.int8), (1 << 15, np.int16), (1 << 31, np.int32)):
        if -size <= low and high < size:
            return numbers.astype(small)
    return numbers


def _place(batch: Batch, keep: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    """Makes starts of offsets; tells which events have times that can be."""
    start, duration = batch.start, batch.duration
    bases = [base or 0 for base in batch.bases]
    base: Int64s | int = (
        bases[0] if len(bases) == 1 else np.repeat(np.array(bases, np.int64), batch.counts)
    )
    wild: npt.NDArray[np.bool_] | None = None
    if None in batch.bases:
        wild = np.repeat([base is None for base in batch.bases], batch.counts)
    # Before and after the base is added, so that the sum cannot go round.
    for column in (start, duration, start):
        if int(column.max()) > LONGEST_PS or int(column.min()) < -LONGEST_PS:
            beyond = (column > LONGEST_PS) | (column < -LONGEST_PS)
            wild = beyond if wild is None else wild | beyond
        if column is duration:
            start += base
    if wild is not None:
        if keep is not None:
            wild &= keep
        batch.wild = int(wild.sum())
        keep = ~wild if keep is None else keep & ~wild
    if int(duration.min()) < 0:
        negative = duration < 0 if keep is None else (duration < 0) & keep
        batch.negative = int(negative.sum())
        duration[negative] = 0
    return keep


def _drop(batch: Batch, keep: npt.NDArray[np.bool_]) -> None:
    """Takes events out, with their stats."""
    position = np.cumsum(keep) - 1
    for values in batch.values:
        on = keep[values.row]
        if values.tag == TEXT_TAG and not on.all():
            batch.hidden += [batch.texts[i] for i in np.unique(values.value[~on]).tolist()]
        values.row, values.value = position[values.row[on]].astype(np.uint16), values.value[on]
    line = np.repeat(np.arange(len(batch.counts)), batch.counts)[keep]
    batch.counts = np.bincount(line, minlength=len(batch.counts)).tolist()
    batch.meta, batch.start, batch.duration = (
        batch.meta[keep],
        batch.start[keep],
        batch.duration[keep],
    )
    batch.count = len(batch.start)


def _ordered(values: list[Values], count: int) -> list[Values]:
    """One entry for each stat and type, its rows ascending; rows of one event stay in the order of
    the file.
    """
    groups: dict[tuple[int, int], list[Values]] = {}
    for item in values:
        groups.setdefault((item.ident, item.tag), []).append(item)
    parts = []
    for (ident, tag), items in groups.items():
        row = items[0].row if len(items) == 1 else np.concatenate([v.row for v in items])
        value = items[0].value if len(items) == 1 else np.concatenate([v.value for v in items])
        if len(items) > 1:
            position = np.full(count, -1, np.int32)
            position[row] = np.arange(len(row), dtype=np.int32)
            order: Int64s = position[position >= 0].astype(np.int64)
            if len(order) != len(row):
                order = np.argsort(row, kind="stable")
            row, value = row[order], value[order]
        parts.append(Values(ident, tag, row, value))
    return parts

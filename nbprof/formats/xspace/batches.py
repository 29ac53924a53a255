"""Batches of events on their way from bytes to columns, on several threads: by the compiled reader,
and by `general` what that leaves, or all where it is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.files import Buffer
from nbprof.core.quiet import thread_pool
from nbprof.core.trace import Int32s, Int64s
from nbprof.core.wire import Words
from nbprof.formats.times import LONGEST_PS
from nbprof.formats.xspace import general as xspace_general
from nbprof.formats.xspace.general import BYTES_TAG, DOUBLE_TAG, INT_TAG, TEXT_TAG
from nbprof.formats.xspace.planes import PlaneMessage
from nbprof.formats.xspace.split import spans
from nbprof.native import library
from nbprof.native import xspace as native

MOST_EVENTS = native.MOST_EVENTS
_FEWEST_EVENTS = 1 << 14
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
    # A pool of threads costs more than it saves where there is little, and many hosts are read side
    # by side.
    if _THREADS < 2 or sum(len(batch.starts) for batch in work) < MOST_EVENTS:
        for batch in work:
            _read(buffer, batch)
        return
    with thread_pool(_THREADS) as pool:
        list(pool.map(partial(_read, buffer), work))


def batch_size(events: int) -> int:
    """How many events a batch has, so that all threads have some."""
    return max(_FEWEST_EVENTS, min(MOST_EVENTS, -(-events // (2 * _THREADS))))


def _read(buffer: Buffer, batch: Batch) -> None:
    """Fills a batch: decodes its events, puts times in place, takes out what is no event, and
    orders the stats.
    """
    left = _decode(buffer, batch)
    buffer.reached(int(spans(buffer.array, batch.starts[-1:])[1][0]))
    keep = _add(buffer, batch, left) if len(left) else None
    buffer.release(max(_KEPT, int(batch.starts[0])), int(batch.starts[-1]))
    batch.count = len(batch.starts)
    batch.starts = _none()
    keep = _place(batch, keep)
    if keep is not None:
        _drop(batch, keep)
    batch.name = batch.plane.events.places(batch.meta)
    batch.unnamed = batch.meta[batch.name < 0]
    batch.meta = _none()
    batch.values = _ordered(batch.values, batch.count)


def _decode(buffer: Buffer, batch: Batch) -> Int64s:
    """What the compiled reader makes of the events; returns the rows of those that it leaves."""
    count = len(batch.starts)
    if library.load().library is None:
        batch.meta, batch.start, batch.duration = (np.zeros(count, np.int64) for _ in range(3))
        return np.arange(count)
    events, stats = native.read(buffer.array, buffer.size, batch.starts)
    batch.meta, batch.start, batch.duration = events.meta, events.offset, events.duration
    data = buffer.data
    batch.texts = [bytes(data[a:b]) for a, b in stats.text.tolist()]
    edges = stats.edges.tolist()
    for group, (ident, tag) in enumerate(
        zip(stats.ident.tolist(), stats.tag.tolist(), strict=True)
    ):
        rows = slice(edges[group], edges[group + 1])
        if rows.start < rows.stop:
            # Views would keep the stats of all groups in memory for the sake of one.
            value = _narrow(tag, stats.value[rows])
            batch.values.append(Values(ident, tag, stats.row[rows].copy(), value))
    return np.flatnonzero(events.left)


def _add(buffer: Buffer, batch: Batch, rows: Int64s) -> npt.NDArray[np.bool_] | None:
    """Adds the events of some rows, whatever they have in them; tells which events of the batch
    have a place in time, None where all have.
    """
    data = buffer.data
    events = xspace_general.events(buffer.array, *spans(buffer.array, batch.starts[rows]))
    batch.meta[rows] = events.meta
    batch.start[rows] = events.offset
    batch.duration[rows] = events.duration
    stats = events.stats
    batch.hidden += [bytes(data[a:b]) for a, b in stats.hidden]
    batch.valueless = int(np.count_nonzero(stats.tag == 0))
    codes = {text: code for code, text in enumerate(batch.texts)}
    order = np.lexsort((stats.tag, stats.ident))
    ident, tag = stats.ident[order], stats.tag[order]
    edges = np.flatnonzero((np.diff(ident) != 0) | (np.diff(tag) != 0)) + 1
    groups = np.split(order, edges) if len(order) else []
    for index in sorted(groups, key=lambda group: int(group[0])):
        number, kind = int(stats.ident[index[0]]), int(stats.tag[index[0]])
        if not kind:
            continue
        numbers = stats.value[index].view(np.uint64)
        if kind in (TEXT_TAG, BYTES_TAG):
            places = zip(stats.value[index].tolist(), stats.end[index].tolist(), strict=True)
            texts = [bytes(data[a:b]) for a, b in places]
            numbers = np.array([codes.setdefault(text, len(codes)) for text in texts], np.uint64)
        row = rows[stats.owner[index]].astype(np.uint16)
        batch.values.append(Values(number, kind, row, _narrow(kind, numbers)))
    batch.texts = list(codes)
    counted = np.flatnonzero(events.has_count)
    if not len(counted):
        return None
    keep = np.ones(len(batch.meta), np.bool_)
    keep[rows[counted]] = False
    line = np.repeat(batch.lines, batch.counts)[rows[counted]].tolist()
    columns = (events.meta[counted], events.occurrences[counted], events.duration[counted])
    batch.aggregated = list(zip(line, *(c.tolist() for c in columns), strict=True))
    return keep


def _narrow(tag: int, value: Words) -> Numbers:
    """A copy of the values, in the smallest type that holds them."""
    if not len(value):
        return np.zeros(0, np.uint8)
    if tag == DOUBLE_TAG:
        return value.view(np.int64).copy()
    high = int(value.max())
    for bits, unsigned in ((8, np.uint8), (16, np.uint16), (32, np.uint32)):
        if high >> bits == 0:
            return value.astype(unsigned)
    if tag != INT_TAG:
        return value.copy()
    numbers = value.view(np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    for size, small in ((1 << 7, np.int8), (1 << 15, np.int16), (1 << 31, np.int32)):
        if -size <= low and high < size:
            return numbers.astype(small)
    return numbers.copy()


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
    """One entry for each stat and type, in the order in which events have them first, its rows
    ascending; rows of one event stay in the order of the file.
    """
    groups: dict[tuple[int, int], list[Values]] = {}
    # Where two readers gave some, each of an event's stats are from one of them, in order.
    for item in sorted(values, key=lambda item: int(item.row[0]) if len(item.row) else count):
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

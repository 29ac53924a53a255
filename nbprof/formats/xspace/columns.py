"""Columns over all events from batches: in the order of a Trace, each arg put together when it is
first asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbprof.core.trace import BYTES, DOUBLE, INT, TEXT, UINT, ArgColumn, Int32s, Int64s
from nbprof.formats.xspace.batches import Batch, Numbers, Values
from nbprof.formats.xspace.general import (
    BYTES_TAG,
    DOUBLE_TAG,
    INT_TAG,
    REF_TAG,
    TEXT_TAG,
    UINT_TAG,
)
from nbprof.formats.xspace.texts import Strings

_KIND = {
    DOUBLE_TAG: DOUBLE,
    UINT_TAG: UINT,
    INT_TAG: INT,
    TEXT_TAG: TEXT,
    BYTES_TAG: BYTES,
    REF_TAG: TEXT,
}
# Over so many lanes that are out of order, all events are sorted at once.
_MANY_LANES = 1000


@dataclass
class _Part:
    """One stat of one batch: rows count from `first`; texts and refs are looked up in `codes` by
    `known`, or by value.
    """

    first: int
    kind: int
    values: Values
    codes: Int32s | None = None
    known: Int64s | None = None

    def events(self) -> Int32s:
        return self.values.row.astype(np.int32) + np.int32(self.first)

    def numbers(self) -> Numbers:
        value = self.values.value
        if self.codes is None:
            return value
        if self.known is None:
            return self.codes[value]
        return self.codes[
            np.searchsorted(self.known, value.view(np.int64) if value.itemsize == 8 else value)
        ]


class LazyArgs(Mapping[str, ArgColumn]):
    """The args of a trace; a column is put together when it is first asked for.

    Everything that can be wrong with the bytes was found before: what is kept here are numbers.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[_Part]] = {}
        self._columns: dict[str, ArgColumn] = {}
        self._lock = threading.Lock()
        self.place: Int32s | None = None
        """Where each event of the file is among the sorted ones; None where they are sorted
        already.
        """

    def __getitem__(self, name: str) -> ArgColumn:
        with self._lock:
            if name not in self._columns:
                self._columns[name] = self._column(self._parts[name])
                self._parts[name] = []
            return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def add(self, batch: Batch, first: int, strings: Strings, blobs: Blobs) -> None:
        """Takes the stats of a batch whose first event is the `first` one of all."""
        for values in batch.values:
            part = _Part(first, _KIND[values.tag], values)
            if values.tag in (TEXT_TAG, BYTES_TAG):
                part.known = _used(values.value)
                texts = [batch.texts[i] for i in part.known.tolist()]
                part.codes = strings.table(texts) if values.tag == TEXT_TAG else blobs.table(texts)
            elif values.tag == REF_TAG:
                part.known = _used(values.value)
                names = batch.plane.stats.names
                part.codes = strings.numbered([names.get(i, "") for i in part.known.tolist()])
            if (
                part.known is not None
                and part.codes is not None
                and len(part.known)
                and int(part.known[-1]) < 4096
                and part.known[0] >= 0
            ):
                table = np.zeros(int(part.known[-1]) + 1, np.int32)
                table[part.known] = part.codes
                part.codes, part.known = table, None
            self._parts.setdefault(batch.plane.stats.name(values.ident), []).append(part)
        batch.values, batch.texts = [], []

    def _column(self, parts: list[_Part]) -> ArgColumn:
        event = np.concatenate([part.events() for part in parts])
        numbers = [part.numbers() for part in parts]
        if len({n.dtype for n in numbers}) > 1 and any(n.dtype == np.uint64 for n in numbers):
            # numpy would make float64 of unsigned and signed numbers together.
            numbers = [n.astype(np.int64) for n in numbers]
        value = np.concatenate(numbers)
        kinds = {part.kind for part in parts}
        kind: Any = kinds.pop()
        if kinds:
            kind = np.concatenate(
                [np.full(len(part.values.row), part.kind, np.uint8) for part in parts]
            )
        if self.place is not None:
            event = self.place[event]
        if len(event) and (event[1:] < event[:-1]).any():
            order = np.argsort(event, kind="stable")
            event, value = event[order], value[order]
            kind = kind if isinstance(kind, int) else kind[order]
        return ArgColumn(event, kind, value)


class Blobs:
    """Values that are bytes, each once."""

    def __init__(self) -> None:
        self.codes: dict[bytes, int] = {}

    def table(self, blobs: list[bytes]) -> Int32s:
        """Codes of many."""
        return np.array([self.codes.setdefault(b, len(self.codes)) for b in blobs], np.int32)


def _used(value: Numbers) -> Int64s:
    """The different values, ascending as int64."""
    if value.itemsize <= 2:
        seen = np.zeros(1 << 8 * value.itemsize, np.bool_)
        seen[value] = True
        return np.flatnonzero(seen)
    return (
        np.unique(value).astype(np.int64) if value.itemsize < 8 else np.unique(value.view(np.int64))
    )


def sorted_order(lane: Int32s, start: Int64s, duration: Int64s) -> Int64s | None:
    """The order of events by (lane, start, -duration); None where they are in it already.

    Most lines of most files are sorted, and the others nearly so.
    """
    order: Int64s | None = None
    if (lane[1:] < lane[:-1]).any():
        order = np.argsort(lane, kind="stable")
        lane, start, duration = lane[order], start[order], duration[order]
    wrong = start[1:] < start[:-1]
    ties = start[1:] == start[:-1]
    ties &= duration[1:] > duration[:-1]
    wrong |= ties
    wrong &= lane[1:] == lane[:-1]
    lanes = np.unique(lane[1:][wrong])
    if not len(lanes):
        return order
    if len(lanes) > _MANY_LANES:
        inner: Int64s = np.lexsort((-duration, start, lane))
        return inner if order is None else order[inner]
    if order is None:
        order = np.arange(len(lane))
    bounds = np.searchsorted(lane, np.stack([lanes, lanes + 1]))
    for low, high in bounds.T.tolist():
        order[low:high] = order[low:high][_by_time(start[low:high], duration[low:high])]
    return order


def _by_time(start: Int64s, duration: Int64s) -> Int64s:
    """The order by (start, -duration) of one lane: a stable sort by start, then only what starts
    together.
    """
    order = np.argsort(start, kind="stable")
    start, duration = start[order], duration[order]
    tied = np.zeros(len(start), np.bool_)
    tied[1:] = start[1:] == start[:-1]
    tied[:-1] |= tied[1:]
    rows = np.flatnonzero(tied)
    if len(rows):
        order[rows] = order[rows][np.lexsort((-duration[rows], start[rows]))]
    return order

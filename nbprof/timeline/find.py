"""Search for slices by name, and by the texts and numbers recorded with them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import DOUBLE, INT, TEXT, UINT, ArgColumn, Int32s, Int64s, Trace
from nbprof.timeline.patterns import Pattern, PatternError
from nbprof.timeline.slices import Slices

STRIP = 2048
"""Parts of the strip of hits."""
_MOST_CACHED = 4
_MOST_CACHED_IDS = 20_000_000
_CHUNK = 1 << 20
_INT64 = np.iinfo(np.int64)


@dataclass
class Hits:
    """The result of a search.

    Attributes
    ----------
    ids : int32[k]
        Events, ascending.
    error : str
        The fault of an invalid search, which has no hits.
    note : str
        A sentence about texts that were not searched; "" if all were.
    names : int
        Number of different names of the hits.
    """

    slices: Slices
    ids: Int32s
    error: str = ""
    note: str = ""
    names: int = 0

    @cached_property
    def starts(self) -> Int64s:
        """Starts of the hits in the order of `ids`, ps."""
        return self.slices.starts(self.ids)

    @cached_property
    def order(self) -> Int32s:
        """Positions in `ids` in the order of (start, lane, event)."""
        # Ids ascend with the lane, and within a lane in time: there are few runs to merge.
        return np.argsort(self.starts, kind="stable").astype(np.int32)

    @cached_property
    def strip(self) -> npt.NDArray[np.uint8]:
        """Number of hits that start in each of `STRIP` equal parts of the profile, uint8, at most
        255.
        """
        first = self.slices.tracks.origin
        length = max(self.slices.tracks.end - first, 1)
        result = np.zeros(STRIP, np.int64)
        for offset in range(0, len(self.ids), _CHUNK):
            starts = self.slices.starts(self.ids[offset : offset + _CHUNK])
            bins = (starts - first) * (STRIP / length)
            result += np.bincount(np.clip(bins.astype(np.int64), 0, STRIP - 1), minlength=STRIP)
        return np.minimum(result, 255).astype(np.uint8)

    def mask(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """Hits among `count` events from an id on, bool[count]."""
        low, high = np.searchsorted(self.ids, np.array([first, first + count], self.ids.dtype))
        result = np.zeros(count, np.bool_)
        result[self.ids[low:high] - first] = True
        return result

    def event(self, position: int) -> int:
        """The event at a position in time order."""
        return int(self.ids[self.order[position]])

    def position(self, event: int) -> int:
        """Position of a hit in time order."""
        index = int(np.searchsorted(self.ids, self.ids.dtype.type(event)))
        return self.before(int(self.starts[index]), event)

    def before(self, start: int, event: int) -> int:
        """Number of hits before (start, event) in time order."""
        starts = self.starts
        earlier = np.count_nonzero(starts < start)
        return int(earlier + np.count_nonzero(self.ids[starts == start] < event))


class Finder:
    """Searches all slices that are drawn, and keeps the hits of the last few searches.

    Parameters
    ----------
    trace : Trace
    slices : Slices
    """

    def __init__(self, trace: Trace, slices: Slices) -> None:
        self._trace, self._slices = trace, slices
        self._cache: OrderedDict[str, Hits] = OrderedDict()
        self._lock = threading.Lock()

    def hits(self, query: str) -> Hits:
        """The hits of a text, a `/regular expression/` (both in any case), or an integer, which
        also matches equal numbers.
        """
        query = query.strip()
        with self._lock:
            hits = self._cache.pop(query, None) or self._search(query)
            self._cache[query] = hits
            while len(self._cache) > 1 and self._cache_is_full():
                self._cache.popitem(last=False)
            return hits

    def _cache_is_full(self) -> bool:
        count = sum(len(hits.ids) for hits in self._cache.values())
        return len(self._cache) > _MOST_CACHED or count > _MOST_CACHED_IDS

    def _search(self, query: str) -> Hits:
        none = np.zeros(0, np.int32)
        if not query:
            return Hits(self._slices, none)
        try:
            pattern = Pattern(query)
        except PatternError as error:
            return Hits(self._slices, none, str(error))
        tracks, trace = self._slices.tracks, self._trace
        short = pattern.matches(tracks.names)
        if tracks.full is not tracks.names:
            differ = np.flatnonzero(~short & (tracks.full != tracks.names))
            short[differ] = pattern.matches(tracks.full[differ])
        _with_name_args(trace.name_args, pattern, short)
        hits = []
        for part in self._slices.parts:
            hit = short[part.events.name]
            if part.first == 0:
                _with_args(trace, pattern, hit)
            lanes = self._slices.kind > 0
            if not lanes.all():
                hit &= lanes[part.events.lane]
            hits.append((np.flatnonzero(hit) + part.first).astype(np.int32))
        ids = np.concatenate(hits)
        return Hits(self._slices, ids, "", pattern.note, self._names(ids))

    def _names(self, ids: Int32s) -> int:
        used = np.zeros(len(self._slices.tracks.names), np.bool_)
        first = self._slices.parts[1].first
        index = int(np.searchsorted(ids, ids.dtype.type(first)))
        used[self._slices.tracks.events.name[ids[:index]]] = True
        used[self._slices.tracks.extra.name[ids[index:] - first]] = True
        return len(set(self._slices.tracks.names[used]))

    def search(self, query: str) -> dict[str, Any]:
        """A `Found`, with the count of different names."""
        hits = self.hits(query)
        return {
            "count": len(hits.ids),
            "error": hits.error,
            "strip": hits.strip,
            "names": hits.names,
            "where": hits.note,
        }

    def hit(self, query: str, target: Mapping[str, Any]) -> dict[str, Any]:
        """A `Hit` by its index in time, next to an event or a time, or the longest.

        Without such a hit it has no slice. Beyond the last hit the search goes on from the first,
        and the other way round.
        """
        hits = self.hits(query)
        count = len(hits.ids)
        if not count:
            return {"index": -1, "slice": None}
        if target.get("longest"):
            event = int(hits.ids[np.argmax(self._slices.durations(hits.ids))])
            return {"index": hits.position(event), "slice": self._slices.ref(event)}
        if "event" in target or "time_ns" in target:
            forward = int(target.get("by", 1)) >= 0
            if "event" in target:
                event = int(target["event"])
                part, row = self._slices.part_and_row(event)
                start = int(part.events.start[row])
            else:
                # Of hits that start at the time itself the first comes after it, and none before.
                start, event = self._slices.ps(target["time_ns"]), -1
            index = hits.before(start, event)
            if not forward:
                index -= 1
            elif index < count and hits.event(index) == event:
                index += 1
            index %= count
        else:
            index = int(target["index"])
            if not -count <= index < count:
                return {"index": -1, "slice": None}
            index %= count
        return {"index": index, "slice": self._slices.ref(hits.event(index))}


def _with_name_args(
    name_args: Mapping[str, Mapping[int, object]], pattern: Pattern, hit: npt.NDArray[np.bool_]
) -> None:
    """Marks the names with a matching arg."""
    number = pattern.number
    for values in name_args.values():
        texts: dict[int, str] = {}
        for code, value in values.items():
            if isinstance(value, str):
                texts[code] = value
            elif isinstance(value, int | float) and not isinstance(value, bool):
                hit[code] |= value == number
        codes = np.array(list(texts), np.int64)
        hit[codes[pattern.matches(texts.values())]] = True


def _with_args(trace: Trace, pattern: Pattern, hit: npt.NDArray[np.bool_]) -> None:
    """Marks the events with a matching arg."""
    columns = [trace.args[name] for name in trace.args]
    texts = None
    if any(_may_be(column, TEXT) for column in columns) and len(trace.strings):
        texts = pattern.matches(trace.strings)
    for column in columns:
        if texts is not None and texts.any() and _may_be(column, TEXT):
            for rows, values in _rows(column, TEXT):
                hit[rows[texts[values]]] = True
        if pattern.number is not None:
            _with_number(column, pattern.number, hit)


def _with_number(column: ArgColumn, number: int, hit: npt.NDArray[np.bool_]) -> None:
    if _INT64.min <= number <= _INT64.max:
        for rows, values in _rows(column, INT):
            hit[rows[values == number]] = True
    if 0 <= number <= _INT64.max:
        for rows, values in _rows(column, UINT):
            hit[rows[values == number]] = True
    elif 0 < number < 1 << 64:
        # An unsigned number of 2^63 or more is kept as its two's complement.
        for rows, values in _rows(column, UINT):
            hit[rows[values == number - (1 << 64)]] = True
    bits = int(np.float64(number).view(np.int64))
    for rows, values in _rows(column, DOUBLE):
        hit[rows[values == bits]] = True


def _may_be(column: ArgColumn, kind: int) -> bool:
    return not isinstance(column.kind, int) or column.kind == kind


def _rows(column: ArgColumn, kind: int) -> list[tuple[Int32s, npt.NDArray[Any]]]:
    """Events and values of the rows of one kind; no copy where all rows are of it."""
    if isinstance(column.kind, int):
        return [(column.event, column.value)] if column.kind == kind else []
    rows = np.flatnonzero(column.kind == kind)
    return [(column.event[rows], column.value[rows])] if len(rows) else []

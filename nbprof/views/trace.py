"""The timeline: tracks of slices, thinned to what a saved notebook can carry."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nbprof.timeline.density import Density, bytes_of, strip
from nbprof.timeline.tracks import Counter, Lane, Tracks, tracks
from nbprof.trace import Events
from nbprof.views.codec import Delta, coded, short, smallest
from nbprof.views.longest import Ints, longest
from nbprof.views.wording import one_line

if TYPE_CHECKING:
    from nbprof.run import Run

MOST_EVENTS = 20_000
MOST_NAME = 600
MOST_SAMPLES = 500
"""Samples of one counter."""
MOST_DENSITY = 1 << 16
"""Bytes of the density of what was left out, of all rows together."""
_FEWEST_BINS, _MOST_BINS = 8, 1024
_PS = 1000


def payload(run: Run, most: int = MOST_EVENTS) -> dict[str, Any]:
    """The `Trace` part: all lanes and step markers, of the other events the longest of each lane, and how dense the rest lies.

    Parameters
    ----------
    run : Run
    most : int
        Events in all; 0 leaves only the lanes and the density.
    """
    made = tracks(run)
    if not len(made.events) and not len(made.extra) and not made.counters:
        return nothing()
    # Times count from the start of the profile, as in every frame; an event before it moves the origin.
    tick = tick_ns(made.end - made.origin)
    always = {lane.id for lane in made.lanes if lane.kind == "steps"}
    tables = (made.events, made.extra)
    kept = longest([(events.lane, events.duration) for events in tables], always, most)
    columns = _Columns(made, kept, tick)
    counters = {counter.id: counter for counter in made.counters}
    return {
        "empty": None,
        "key": "",
        "tick_ns": tick,
        "end": max((made.end - made.origin) // (tick * _PS), 0),
        "names": [one_line(str(made.names[code]))[:MOST_NAME] for code in columns.used],
        "category": made.category[columns.used].astype(np.uint8),
        "lanes": [{**head(lane), **columns.of(lane, counters.get(lane.id))} for lane in made.lanes],
        "shown": sum(map(len, kept)),
        "total": len(made.events) + len(made.extra),
        "rest": _rest(made, kept, tick),
        "strip": strip(made),
        "gaps": _gaps([]),
        "notes": list(made.notes),
    }


def head(lane: Lane) -> dict[str, Any]:
    """What the timeline says of a lane beside its events."""
    return {
        "id": lane.id,
        "process": lane.process,
        "name": one_line(lane.name)[:MOST_NAME],
        "note": one_line(lane.note)[:MOST_NAME],
        "kind": lane.kind,
        "events": lane.events,
        "folded": lane.folded,
        "derived": lane.derived,
    }


class _Columns:
    """The kept events, and how one lane is cut out of them."""

    def __init__(self, tracks: Tracks, kept: list[Ints], tick: int) -> None:
        self._origin = tracks.origin
        unit = tick * _PS
        parts = []
        first = 0
        for events, rows in zip((tracks.events, tracks.extra), kept, strict=True):
            start = events.start[rows] - tracks.origin
            # The end of every event is rounded like its start: what was nested stays nested.
            begin, end = start // unit, (start + np.maximum(events.duration[rows], 0)) // unit
            own = np.minimum(np.maximum(events.self_time[rows], 0) // unit, end - begin)
            parts.append((events.lane[rows], begin, end - begin, own, level(events)[rows], events.name[rows], rows + first))
            first += len(events)
        lane, self._start, self._duration, self._own, self._level, name, self._event = map(np.concatenate, zip(*parts, strict=True))
        self._lane = lane
        self.used, names = np.unique(name, return_inverse=True)
        self._names = smallest(names)
        self._depths = [_deepest(events) for events in (tracks.events, tracks.extra)]

    def of(self, lane: Lane, counter: Counter | None) -> dict[str, Any]:
        part = slice(*np.searchsorted(self._lane, [lane.id, lane.id + 1]))
        columns = {
            "depths": max((int(depths[lane.id]) for depths in self._depths if lane.id < len(depths)), default=1),
            "start": Delta(self._start[part]),
            "duration": self._duration[part].astype(np.uint32),
            # Beside the durations, which it mostly repeats: gzip finds that within its window.
            "self": self._own[part].astype(np.uint32),
            "name_code": self._names[part],
            "depth": _levels(self._level[part]),
            "event": Delta(self._event[part]),
        }
        return columns if counter is None else {**columns, **_samples(counter, self._origin)}


def level(events: Events) -> npt.NDArray[np.uint16]:
    """The row of its lane in which each event is drawn."""
    return events.depth


def _deepest(events: Events) -> Ints:
    """Rows by lane id."""
    deepest = np.ones(int(events.lane[-1]) + 1 if len(events) else 0, np.int64)
    if len(events):
        first = np.flatnonzero(np.diff(events.lane, prepend=-1))
        deepest[events.lane[first]] = np.maximum.reduceat(level(events), first).astype(np.int64) + 1
    return deepest


def _levels(level: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint8 | np.uint16]:
    return level.astype(np.uint8) if not len(level) or level.max() < 256 else level


def _samples(counter: Counter, origin: int) -> dict[str, Any]:
    """A counter's samples; of too many, the lowest and the highest of equally long runs of them."""
    rows = np.arange(len(counter.time))
    if len(rows) > MOST_SAMPLES:
        edges = np.linspace(0, len(rows), MOST_SAMPLES // 2 + 1).astype(np.int64)
        picked = [[a + f(counter.value[a:b]) for f in (np.argmin, np.argmax)] for a, b in pairwise(edges.tolist())]
        rows = np.unique(np.array(picked))
    return {"time": short((counter.time[rows] - origin) / _PS), "value": short(counter.value[rows]), "unit": counter.unit}


def _rest(tracks: Tracks, kept: list[Ints], tick: int) -> dict[str, Any]:
    """The density of what was left out, by lane and level; levels so deep that there is no room are left out of it."""
    left = []
    for events, rows in zip((tracks.events, tracks.extra), kept, strict=True):
        out = np.ones(len(events), np.bool_)
        out[rows] = False
        left.append(np.flatnonzero(out))
    if not sum(map(len, left)):
        return no_rest()
    keys = [
        (events.lane[rows].astype(np.int64) << 16) | level(events)[rows]
        for events, rows in zip((tracks.events, tracks.extra), left, strict=True)
    ]
    found, counts = _counts(keys)
    deep = found & 0xFFFF
    # Outer levels first, as many as there is room for.
    order = np.argsort(deep, kind="stable")[: MOST_DENSITY // _FEWEST_BINS]
    found, counts = found[np.sort(order)], counts[np.sort(order)]
    bins = int(np.clip(MOST_DENSITY // len(found), _FEWEST_BINS, _MOST_BINS))
    first, last = _span(tracks, left)
    density = Density(len(found), bins, first, last)
    for events, rows, key in zip((tracks.events, tracks.extra), left, keys, strict=True):
        if not len(rows):
            continue
        row = np.minimum(np.searchsorted(found, key), len(found) - 1)
        here = found[row] == key
        start = events.start[rows[here]]
        density.add(row[here], start, start + events.duration[rows[here]])
    unit = tick * _PS
    return {
        "bins": bins,
        "from": (first - tracks.origin) / unit,
        "to": (last - tracks.origin) / unit,
        "lane": (found >> 16).astype(np.uint32),
        "depth": (found & 0xFFFF).astype(np.uint16),
        "count": counts.astype(np.uint32),
        "busy": bytes_of(density.shares()),
    }


def _counts(keys: list[Ints]) -> tuple[Ints, Ints]:
    parts = [np.unique(key, return_counts=True) for key in keys]
    found, place = np.unique(np.concatenate([part for part, _ in parts]), return_inverse=True)
    counts = np.bincount(place, weights=np.concatenate([count for _, count in parts]), minlength=len(found))
    return found, counts.astype(np.int64)


def _span(tracks: Tracks, left: list[Ints]) -> tuple[int, int]:
    pairs = [
        (int(events.start[rows].min()), int((events.start[rows] + events.duration[rows]).max()))
        for events, rows in zip((tracks.events, tracks.extra), left, strict=True)
        if len(rows)
    ]
    first, last = min(low for low, _ in pairs), max(high for _, high in pairs)
    return first, max(last, first + 1)


def _gaps(gaps: list[tuple[str, float, float]]) -> dict[str, Any]:
    return {
        "process": coded([process for process, _, _ in gaps]),
        "start": np.array([start for _, start, _ in gaps], np.float64),
        "duration": np.array([duration for _, _, duration in gaps], np.float64),
    }


def tick_ns(span_ps: int) -> int:
    """Nanoseconds of a tick: as few as let the profile fit into 31 bits of ticks."""
    return span_ps // (_PS * (2**31 - 1)) + 1


def no_rest() -> dict[str, Any]:
    """The density of a trace of which nothing was left out."""
    none = np.zeros(0, np.uint32)
    return {"bins": 0, "from": 0.0, "to": 0.0, "lane": none, "depth": none.astype(np.uint16), "count": none, "busy": none.astype(np.uint8)}


def nothing() -> dict[str, Any]:
    """A `Trace` part without events."""
    none = np.zeros(0, np.uint8)
    return {
        "empty": {"title": "No events in this run", "text": "The profile holds no timed event, so there is nothing to draw."},
        "key": "",
        "tick_ns": 1,
        "end": 0,
        "names": [],
        "category": none,
        "lanes": [],
        "shown": 0,
        "total": 0,
        "rest": no_rest(),
        "strip": {"above": none, "below": none, "below_is": "device"},
        "gaps": _gaps([]),
        "notes": [],
    }

"""Timelines made of lists of slices."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nbprof.core.trace import ArgColumn, Events
from nbprof.timeline.slices import Slices
from nbprof.timeline.tracks import Kind, Lane, Tracks

NAMES = ("a", "b", "c", "A::b", "conv")


@dataclass
class Span:
    """One slice; times in ps."""

    lane: int
    name: int
    start: int
    duration: int


@dataclass
class Track:
    """What a lane is."""

    kind: Kind = "host"
    name: str = "thread"
    process: str = "Host"
    host: str = "h"
    derived: bool = False


SPANS = st.lists(
    st.builds(Span, st.integers(0, 3), st.integers(0, 4), st.integers(0, 60), st.integers(0, 25)),
    max_size=40,
)
TRACKS = [
    Track("device", "Stream 1", "GPU 0"),
    Track("device", "Stream 2", "GPU 0"),
    Track(),
    Track(name="other"),
]


def events_of(spans: list[Span]) -> tuple[Events, list[Span]]:
    """The columns of some slices, and the slices in the order of these."""
    order = sorted(spans, key=lambda s: (s.lane, s.start, -s.duration))
    lane, name = (np.array([getattr(s, f) for s in order], np.int32) for f in ("lane", "name"))
    start, duration = (
        np.array([getattr(s, f) for s in order], np.int64) for f in ("start", "duration")
    )
    return Events(lane, name, start, duration), order


def timeline(
    spans: list[Span],
    tracks: list[Track] | None = None,
    names: tuple[str, ...] = NAMES,
    extra: list[Span] | None = None,
) -> tuple[Slices, list[Span]]:
    """Slices on lanes, and the list of them by id; `extra` are derived ones on the lanes behind the
    others.
    """
    tracks = TRACKS if tracks is None else tracks
    events, order = events_of(spans)
    more, derived = events_of(extra or [])
    everything = order + derived
    count = [sum(s.lane == i for s in everything) for i in range(len(tracks))]
    lanes = [
        Lane(i, t.process, t.name, "", t.kind, t.host, "0", count[i], derived=t.derived)
        for i, t in enumerate(tracks)
    ]
    texts = np.array(names, object)
    origin = min([0, *(s.start for s in everything)])
    end = max([0, *(s.start + s.duration for s in everything)])
    return Slices(
        Tracks(lanes, events, more, texts, texts, np.zeros(len(names), np.uint8), [], origin, end)
    ), everything


def trace_of(
    slices: Slices, args: dict[str, ArgColumn] | None = None, strings: list[str] | None = None
) -> Any:
    """What a search looks at beside the names."""
    return SimpleNamespace(
        events=slices.tracks.events, args=args or {}, name_args={}, strings=strings or [], blobs=()
    )


def covered(spans: list[tuple[int, int]]) -> int:
    """How much of the numbers' line some spans cover, by counting."""
    return len({t for low, high in spans for t in range(low, high)})

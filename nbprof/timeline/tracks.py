"""The lanes of a profile as they are drawn: those that were recorded, those derived from them, and counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nbprof.timeline import lanes as drawn
from nbprof.timeline.lanes import Kind as Kind
from nbprof.timeline.lanes import Lane as Lane
from nbprof.timeline.lanes import section as section
from nbprof.trace import Events, Int64s

if TYPE_CHECKING:
    from nbprof.run import Run

Samples = tuple[Int64s, npt.NDArray[np.float64]]


class Counter:
    """Samples of one counter, in time order; each holds until the next.

    Parameters
    ----------
    id : int
        That of its lane.
    label, unit : str
        The unit is "bytes", "percent" or "count".
    time : int64[k]
        ps.
    value : float64[k]
    make : callable
        Gives time and value instead, when they are first asked for: a first picture does not wait for them.
    """

    def __init__(
        self,
        id: int,
        label: str,
        unit: str,
        time: Int64s | None = None,
        value: npt.NDArray[np.float64] | None = None,
        make: Callable[[], Samples] | None = None,
    ) -> None:
        self.id, self.label, self.unit = id, label, unit
        self._given = (time, value) if time is not None and value is not None else None
        self._make = make

    @cached_property
    def samples(self) -> Samples:
        """Time and value."""
        if self._given is not None:
            return self._given
        return self._make() if self._make is not None else (np.zeros(0, np.int64), np.zeros(0))

    @property
    def time(self) -> Int64s:
        """int64[k] ps."""
        return self.samples[0]

    @property
    def value(self) -> npt.NDArray[np.float64]:
        """float64[k] in `unit`."""
        return self.samples[1]


@dataclass
class Tracks:
    """What is drawn: lanes in order, and their events.

    Attributes
    ----------
    lanes : list of Lane
        In the order of drawing.
    events : Events
        Those of the trace; an event's id is its index.
    extra : Events
        Derived here; ids go on behind those of `events`. Sorted by (lane, start, -duration); the lanes are ids.
    names, full : object[names]
        Short and full name by name code, first those of the trace.
    category : uint8[names]
        1 + index of the step-time category, 0 for none.
    counters : list of Counter
    origin, end : int
        ps; where the drawn time starts (0, or the first event where that lies before), and the end of the last event.
    notes : list of str
        What was derived, left out or looks wrong.
    """

    lanes: list[Lane]
    events: Events
    extra: Events
    names: npt.NDArray[np.object_]
    full: npt.NDArray[np.object_]
    category: npt.NDArray[np.uint8]
    counters: list[Counter]
    origin: int
    end: int
    notes: list[str] = field(default_factory=list)


def tracks(run: Run) -> Tracks:
    """The tracks of a run."""
    trace = run.trace
    events = trace.events
    origin, end = extent(events)
    lanes = drawn.recorded(run, end - origin)
    none = np.zeros(0, np.int64)
    extra = Events(none.astype(np.int32), none.astype(np.int32), none, none)
    category = np.asarray(run.activity.name_category)
    codes = category.astype(np.uint8) if len(category) else np.zeros(len(trace.names), np.uint8)
    return Tracks(lanes, events, extra, trace.display, trace.names, codes, [], origin, end)


def extent(events: Events) -> tuple[int, int]:
    """Where the drawn time starts and ends, ps."""
    if not len(events):
        return 0, 0
    end = max(int((events.start[at : at + CHUNK] + events.duration[at : at + CHUNK]).max()) for at in range(0, len(events), CHUNK))
    return min(int(events.start.min()), 0), end


CHUNK = 1 << 18

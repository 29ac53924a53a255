"""The lanes of a profile as they are drawn: those that were recorded, those derived from them, and counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from nbprof.trace import Events, Int64s
from nbprof.views.trace import section

if TYPE_CHECKING:
    from nbprof.run import Run

Kind = Literal["steps", "device", "host", "counter"]


@dataclass(frozen=True)
class Lane:
    """One track of the timeline. `id` is the number of the trace's lane, or one behind these for a derived lane or a counter."""

    id: int
    process: str
    name: str
    note: str
    kind: Kind
    host: str
    device: str
    events: int
    folded: bool = False
    derived: bool = False


@dataclass(frozen=True)
class Counter:
    """Samples of one counter, in time order; each holds until the next.

    `time` int64[k] ps; `value` float64[k] in `unit` ("bytes", "percent" or "count"); `id` is that of its lane.
    """

    id: int
    label: str
    unit: str
    time: Int64s
    value: npt.NDArray[np.float64]


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
    table = trace.lanes.reset_index(drop=True)
    counts = np.bincount(events.lane, minlength=len(table))
    order = table["order"].argsort(kind="stable") if "order" in table else range(len(table))
    lanes = []
    for i in map(int, order):
        row = table.iloc[i]
        process = section(str(row.get("process", "")), row.get("device"))
        kind: Kind = "steps" if row["kind"] == "steps" else "device" if process.startswith(("GPU", "TPU", "NPU")) else "host"
        note = row.get("note")
        lanes.append(
            Lane(
                i,
                process,
                str(row.get("thread", "")),
                note if isinstance(note, str) else "",
                kind,
                str(row["host"]),
                str(row.get("device")),
                int(counts[i]),
            )
        )
    none = np.zeros(0, np.int64)
    extra = Events(none.astype(np.int32), none.astype(np.int32), none, none)
    category = np.asarray(run.activity.name_category)
    codes = category.astype(np.uint8) if len(category) else np.zeros(len(trace.names), np.uint8)
    origin = min(int(events.start.min()), 0) if len(events) else 0
    end = int(events.end.max()) if len(events) else 0
    return Tracks(lanes, events, extra, trace.display, trace.names, codes, [], origin, end)

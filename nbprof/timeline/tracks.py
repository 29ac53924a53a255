"""The lanes of a profile as they are drawn: recorded ones, derived ones, and counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nbprof.core.cells import readable
from nbprof.core.trace import Events, Int64s
from nbprof.frameworks.register import PYTORCH
from nbprof.timeline import counting, derived_gpu, derived_torch
from nbprof.timeline import lanes as drawn
from nbprof.timeline.counting import Counter as Counter
from nbprof.timeline.derived import DerivedLines, Line, steps_of_hosts
from nbprof.timeline.lanes import Kind as Kind
from nbprof.timeline.lanes import Lane as Lane
from nbprof.timeline.lanes import section as section

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

_CHUNK = 1 << 18


@dataclass
class Tracks:
    """The lanes of a profile, and their events.

    Attributes
    ----------
    lanes : list of Lane
        In the order of drawing.
    events : Events
        Those of the trace; an event's id is its index.
    extra : Events
        Derived events, whose ids follow those of `events`, sorted by (lane, start, -duration); the
        lanes are ids.
    names, full : object[names]
        Short and full name by name code, first those of the trace.
    category : uint8[names]
        1 + index of the step-time category, 0 for none.
    counters : list of Counter
    origin, end : int
        ps; the start of the drawn time (0, or the first event before it), and the end of the last
        event.
    notes : list of str
        Sentences about derived, omitted or suspicious events.
    args : dict
        Args of derived events, by their row in `extra`.
    feeds : tuple of int64[k]
        Rows of derived events in `extra`, and the event of the trace that used the result of each.
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
    args: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    feeds: tuple[Int64s, Int64s] = field(
        default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, np.int64))
    )

    @property
    def lane_ids(self) -> int:
        """One more than the largest id of a lane."""
        return max((lane.id for lane in self.lanes), default=-1) + 1


def tracks(run: Drawable) -> Tracks:
    """The tracks of a run."""
    trace = run.trace
    events = trace.events
    origin, end = extent(events)
    lanes = drawn.recorded(run, end - origin)
    stored: dict[str, Any] = run.persist(
        "timeline_derived", lambda: _derive(run, lanes, (origin, end))
    )
    extra = Events(*stored["events"])
    first = len(trace.lanes)
    more = [Lane(first + i, *values) for i, values in enumerate(stored["lanes"])]
    counters = counting.counters(run, lanes, first + len(more))
    names = np.concatenate([trace.display, np.array(stored["short"], object)])
    full = np.concatenate([trace.names, np.array(stored["full"], object)])
    for texts in (names, full):
        texts[stored["relabelled"]] = stored["labels"]
        _name_cells(texts, run.cells)
    category = np.asarray(run.activity.name_category)
    codes = np.zeros(len(names), np.uint8)
    codes[: len(category)] = category
    counter_lanes = [lane for lane, _ in counters]
    sections = in_sections(lanes, more, counter_lanes)
    return Tracks(
        drawn.with_places(sections, run.activity.devices),
        events,
        extra,
        names,
        full,
        codes,
        [counter for _, counter in counters],
        origin,
        max(end, extent(extra)[1]),
        stored["notes"],
        dict(zip(stored["arg_rows"], stored["args"], strict=True)),
        (stored["feeds"][0], stored["feeds"][1]),
    )


def _name_cells(texts: npt.NDArray[np.object_], cells: Mapping[str, int]) -> None:
    """Names calls of Python code in a cell by the cell."""
    for code, text in enumerate(texts.tolist()):
        if "ipykernel_" in text or (cells and text.startswith("$")):
            texts[code] = readable(text, cells)


def extent(events: Events) -> tuple[int, int]:
    """Start and end of the drawn time, ps."""
    if not len(events):
        return 0, 0
    ends = []
    for offset in range(0, len(events), _CHUNK):
        rows = slice(offset, offset + _CHUNK)
        ends.append(int((events.start[rows] + events.duration[rows]).max()))
    return min(int(events.start.min()), 0), max(ends)


def in_sections(recorded: list[Lane], derived: list[Lane], counters: list[Lane]) -> list[Lane]:
    """All lanes by section: steps, what was derived here, what was recorded, counters."""
    sections: dict[str, list[Lane]] = {}
    for lane in [*recorded, *derived, *counters]:
        sections[lane.process] = []
    for lane in [*derived, *recorded, *counters]:
        sections[lane.process].append(lane)
    result: list[Lane] = []
    for part in sections.values():
        result += sorted(part, key=lambda lane: lane.kind != "steps")
    return result


def _derive(run: Drawable, lanes: list[Lane], span: tuple[int, int]) -> dict[str, Any]:
    """Lanes and events derived from the recorded ones, in types that the cache stores."""
    # Few profiles have loaders with workers.
    from nbprof.timeline import derived_loaders

    derived, hosts = DerivedLines(), len(run.hosts)
    marked: set[str] = set()
    if run.activity.framework is PYTORCH:
        derived_torch.add(run, derived, hosts)
    else:
        derived_gpu.add(run, derived, hosts)
        # Steps of a device are those of its host.
        marked = {lane.host for lane in lanes if lane.kind == "steps"}
        marked |= {line.host for line in derived.lines if line.kind == "steps"}
    steps_of_hosts(run, derived, hosts, marked)
    derived_loaders.add(run, derived, span)
    events = derived.events(len(run.trace.lanes), len(run.trace.names))
    relabelled, labels = _labels(run)
    args = derived.args()
    return {
        "lanes": [_stored_lane(line) for line in derived.lines],
        "events": [events.lane, events.name, events.start, events.duration],
        "short": derived.short,
        "full": derived.full,
        "notes": derived.notes,
        "arg_rows": list(args),
        "args": list(args.values()),
        "feeds": list(derived.feeds()),
        "relabelled": relabelled,
        "labels": labels,
    }


def _stored_lane(line: Line) -> tuple[Any, ...]:
    """The fields of a derived `Lane` without its id."""
    events, derived = len(line.name), True
    heading = (line.process, line.title, line.note, line.kind, line.host, line.device)
    return (*heading, events, line.folded, derived)


def _labels(run: Drawable) -> tuple[Int64s, list[str]]:
    """Name codes of a device's steps, and their names in the table of steps.

    Recorders name them by number alone.
    """
    trace, names = run.trace, drawn.step_names(run)
    on_steps = (trace.lanes["kind"] == "steps").to_numpy(np.bool_)
    if not on_steps.any():
        return np.zeros(0, np.int64), []
    markers = run.activity.markers.frame()
    markers = markers[on_steps[trace.events.lane[markers["event"].to_numpy(np.int64)]]]
    event = markers["event"].to_numpy(np.int64)
    names_by_code: dict[int, set[str]] = {}
    for code, host, group in zip(
        trace.events.name[event].tolist(),
        markers["host"].tolist(),
        markers["group"].tolist(),
        strict=True,
    ):
        names_by_code.setdefault(code, set()).add(names.get((host, group), str(group)))
    # A name that other events have too, or that means several steps, stays.
    size = len(trace.names)
    alone = np.bincount(trace.events.name, minlength=size) == np.bincount(
        trace.events.name[event], minlength=size
    )
    labels: dict[int, str] = {}
    for code, texts in names_by_code.items():
        if len(texts) == 1 and alone[code]:
            labels[code] = texts.pop()
    return np.array(list(labels), np.int64), list(labels.values())

"""Turns the Trace of a recording without a profiler into the activity tables.

It has steps, their waits for items, and the recorded time, but no ops of a framework.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.tables import Markers, Work
from nbprof.activity.unit import MARKED, RECORDING, Unit
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.environment import environment
from nbprof.dialects.iterations import Placed, first_events, placed
from nbprof.dialects.lookups import host_of_lanes
from nbprof.frameworks.framework import Framework, Words
from nbprof.frameworks.register import UNKNOWN, titled

HOW = "No loop and no step is marked, so the whole recording is the unit; {loop}"

_CELL, _STEP, _WAIT = "nbprof_recording", "nbprof_step", "nbprof_wait"
"""Categories of events, as `nbprof.capture.python` writes them."""


def is_python(trace: Trace) -> bool:
    """True if nbprof recorded the trace without a profiler; the first of several files decides."""
    return not _framework(trace).profiled


def _framework(trace: Trace) -> Framework:
    facts = trace.metadata.get("otherData")
    if not isinstance(facts, dict) or facts.get("recorder") != "nbprof":
        return UNKNOWN
    return titled(str(facts.get("framework")))


def interpret(trace: Trace) -> act.Activity:
    """The activity of one recording; fills the kinds of `trace.lanes`.

    Each table is computed when it is first asked for.
    """
    lanes = trace.lanes
    lanes["kind"] = "host"
    lanes["device"] = -1
    lanes["lane"] = np.arange(len(lanes))
    host = host_of_lanes(trace)[trace.events.lane].astype(np.int64)
    category = _categories(trace)
    activity = act.Activity(hosts=trace.hosts)
    activity.framework = framework = _framework(trace)
    activity.traits = {act.UNKNOWN_EAGER}
    units = _units(trace, host, category, framework.words)
    activity.unit = units.unit
    activity.later("environment", lambda: environment(trace))
    activity.later("markers", lambda: _markers(units))
    activity.later("group_names", lambda: _names(trace, units))
    waits = np.flatnonzero(category == _WAIT)
    if units.iterations is not None and units.iterations.waits:
        activity.traits.add(act.WAITS)
        iterations = units.iterations
        activity.later("work", lambda: _waiting_of_loop(units, iterations))
    else:
        activity.later("work", lambda: _waiting(trace, host, waits, units))
    activity.missing = _missing(units, waits, framework.words)
    activity.notes = units.unit.notes
    return activity


class _Units(NamedTuple):
    """The steps or other units, in time order: `event`, `host`, `group` by host; times in ps."""

    unit: Unit
    event: Int64s
    host: Int64s
    group: Int64s
    start: Int64s
    end: Int64s
    iterations: Placed | None = None


def _categories(trace: Trace) -> npt.NDArray[np.object_]:
    """The category of each event; "" for none."""
    texts = np.array([*trace.strings, ""], object)
    return np.asarray(texts[trace.text_arg("cat")])


def _units(trace: Trace, host: Int64s, category: npt.NDArray[np.object_], words: Words) -> _Units:
    """The steps, else the iterations of the cell's loop, else the recorded time."""
    events = trace.events
    rows, unit = np.flatnonzero(category == _STEP), MARKED
    iterations = placed(trace) if not len(rows) else None
    if iterations is not None:
        count = len(iterations.start)
        none = np.zeros(count, np.int64)
        events_of = first_events(trace, np.arange(len(events)), iterations.start)
        return _Units(
            iterations.unit,
            events_of,
            none,
            np.arange(count),
            iterations.start,
            iterations.end,
            iterations,
        )
    if not len(rows):
        rows, unit = (
            np.flatnonzero(category == _CELL),
            Unit(RECORDING, how=HOW.format(loop=words.loop)),
        )
    rows = rows[np.lexsort((events.start[rows], host[rows]))]
    of_host = host[rows]
    first = np.searchsorted(of_host, of_host)
    start = events.start[rows]
    return _Units(
        unit, rows, of_host, np.arange(len(rows)) - first, start, start + events.duration[rows]
    )


def _markers(units: _Units) -> Markers:
    return Markers(
        event=units.event,
        host=units.host,
        group=units.group,
        device=-1,
        start=units.start,
        end=units.end,
    )


def _names(trace: Trace, units: _Units) -> dict[tuple[int, int], str]:
    if units.unit.is_recording:
        names = ["recording"] * len(units.event)
    elif units.iterations is not None:
        names = units.iterations.names
    else:
        names = [str(trace.names[code]) for code in trace.events.name[units.event].tolist()]
    return dict(
        zip(zip(units.host.tolist(), units.group.tolist(), strict=True), names, strict=True)
    )


def _waiting(trace: Trace, host: Int64s, waits: Int64s, units: _Units) -> Work:
    """The `work` table: waits for items, in the step of their thread or in the recording."""
    events = trace.events
    start, end = events.start[waits], events.start[waits] + events.duration[waits]
    lane = events.lane[waits] if not units.unit.is_recording else host[waits]
    of_unit = events.lane[units.event] if not units.unit.is_recording else units.host
    unit = np.full(len(waits), -1)
    for each in np.unique(lane).tolist():
        rows, in_unit = np.flatnonzero(lane == each), np.flatnonzero(of_unit == each)
        before = np.searchsorted(units.start[in_unit], start[rows], side="right") - 1
        has_unit = before >= 0
        unit[rows[has_unit]] = in_unit[before[has_unit]]
    # The last wait of a loop is outside of steps.
    good = np.flatnonzero(unit >= 0)
    good = good[start[good] < units.end[unit[good]]]
    unit_of_row = unit[good]
    return Work(
        event=waits[good],
        host=host[waits[good]],
        group=units.group[unit_of_row],
        device=np.full(len(good), -1),
        start=start[good],
        end=np.minimum(end[good], units.end[unit_of_row]),
        cls=np.full(len(good), act.HOST_WAIT_INPUT),
    )


def _waiting_of_loop(units: _Units, iterations: Placed) -> Work:
    """The `work` table: how long each iteration of a loop waited for its item."""
    return Work(
        event=units.event,
        host=units.host,
        group=units.group,
        device=-1,
        start=iterations.start,
        end=iterations.item,
        cls=act.HOST_WAIT_INPUT,
    )


def _missing(units: _Units, waits: Int64s, words: Words) -> dict[str, str]:
    """A sentence for each kind of data that the recording lacks."""
    unmarked = (
        "nothing marks what it waits for: 'for item in nbprof.steps(items):' marks the wait for"
        " each item."
    )
    marked = (
        "the steps state how long they wait for their items, and no input pipeline was recorded."
    )
    missing = {
        "input": (
            f"{words.unprofiled}:"
            f" {marked if len(waits) or units.iterations is not None else unmarked}"
        ),
        "ops": f"{words.unprofiled}, so it has no ops.",
        "kernels": f"{words.unprofiled}, so it has no GPU kernels.",
        "memory": (
            f"{words.unprofiled}, so it has no allocator events; the trace view shows the resident"
            " memory of the process."
        ),
    }
    if not len(units.event):
        missing["steps"] = (
            "The file has neither steps nor the span of its recording: it is damaged."
        )
    return missing

"""The cost of recording: measured with bare steps, or as the profiler states it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.steps.bare import BareSteps
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import counted
from nbprof.core.intervals import EMPTY, Intervals

Recorded = tuple[float, float]
"""Time in the events of the profiler's own overhead: ms per counted step, and percent of the steps
in which nothing else was recorded.
"""
_MEASURED = "measured: the same cell ran steps without the profiler"
_STATED = "estimate, a lower bound: the profiler's own overhead events in the file"
_UNKNOWN = "the file has no overhead events, and no steps ran without the profiler"


def recorded(activity: Activity, steps: pd.DataFrame) -> Recorded | None:
    """The overhead that the profiler recorded of itself; None without such events."""
    spans = activity.overheads
    used = counted(steps)
    if not len(spans) or not len(used):
        return None
    overhead = alone = length = 0
    work = activity.work
    for number, name in enumerate(activity.hosts):
        of_host = used[(used["host"] == name).to_numpy()]
        in_steps = Intervals.union(*step_bounds(of_host))
        rows = spans.host == number
        spent = Intervals.union(spans.start[rows], spans.end[rows]).intersection(in_steps)
        rows = work.host == number
        covered = Intervals.union(work.start[rows], work.end[rows]) if len(spent) else EMPTY
        length += in_steps.total()
        overhead += spent.total()
        alone += spent.difference(covered).total()
    return overhead / 1e9 / len(used), 100 * alone / max(length, 1)


def mean(values: list[Recorded | None]) -> Recorded | None:
    """The mean of hosts that have such events."""
    recorded_values = [value for value in values if value is not None]
    if not recorded_values:
        return None
    ms, percent = np.mean(recorded_values, axis=0).tolist()
    return ms, percent


def overview(bare: BareSteps, of_events: Recorded | None, *, has_steps: bool) -> dict[str, Any]:
    """The keys of `p.overview`: ms per step, and where they come from, or why there are none."""
    ms, source = None, _UNKNOWN if has_steps else "no steps were recorded"
    if bare.slowdown is not None:
        ms, source = bare.recorded_ms - bare.median_ms, _MEASURED
    elif of_events is not None:
        ms, source = of_events[0], _STATED
    return {"recording_overhead_ms": ms, "recording_overhead_source": source}

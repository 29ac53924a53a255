"""The user's functions with the most time outside of ops, if PyTorch recorded calls of Python.

For TensorFlow and JAX a recorded call of Python is work of the host, as in XProf, and not time
outside of ops.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.activity.activity import PYTHON_CALLS, Activity
from nbprof.analysis.lines import person_call
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import counted
from nbprof.core import nesting
from nbprof.core.cells import title
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Trace
from nbprof.dialects import around

MOST = 3
_LEAST = 0.1
"""Functions with less of the time are not named."""
_KINETO = re.compile(r"(?P<file>[^(]+\.py)\((?P<line>\d+)\): (?P<name>.+)")


def outside_ops(activity: Activity, trace: Trace, steps: pd.DataFrame) -> tuple[str, ...]:
    """Functions as "make_batch, data.py line 12 (**40%**)", the longest first; empty where calls of
    Python were not recorded.

    Time counts for the innermost function of the person's: what a library does when it is called
    counts for the caller. Where none of the person's was recorded, it counts for the innermost of
    any.

    Parameters
    ----------
    activity : Activity
    trace : Trace
        Its events.
    steps : DataFrame
        `p.steps.frame` with its column `counted`.
    """
    if PYTHON_CALLS not in activity.traits or len(activity.hosts) != 1 or not len(steps):
        return ()
    unexplained = _unexplained(activity, counted(steps))
    return _longest(trace, unexplained, persons=True) or _longest(trace, unexplained, persons=False)


def _longest(trace: Trace, unexplained: Intervals, *, persons: bool) -> tuple[str, ...]:
    """The functions with the most time in some intervals, of the user's code or of all."""
    events = trace.events
    labels = {}
    for code in np.unique(events.name).tolist():
        label = _label(trace.names[code], persons=persons)
        if label:
            labels[code] = label
    rows = np.flatnonzero(np.isin(events.name, list(labels)))
    if not len(rows):
        return ()
    start = events.start[rows]
    time = unexplained.covered_within(start, start + events.duration[rows])
    parent = nesting.parents(events.lane[rows], start, events.duration[rows])
    alone = np.maximum(nesting.self_times(parent, time), 0)
    # Other threads than the one of the steps run at the same time.
    lane = events.lane[rows]
    alone[lane != int(np.bincount(lane, alone).argmax())] = 0
    by_code = np.bincount(events.name[rows], alone)
    total = unexplained.total()
    if not total:
        return ()
    longest = []
    for code in np.argsort(-by_code, kind="stable")[:MOST].tolist():
        share = by_code[code] / total
        if share >= _LEAST:
            longest.append(f"{labels[code]} (**{100 * share:.0f}%**)")
    return tuple(longest)


def _unexplained(activity: Activity, used: pd.DataFrame) -> Intervals:
    """When no op, call or device work of the counted steps was recorded."""
    # Steps may overlap: the union counts each instant once.
    pieces = Intervals.union(activity.work.start, activity.work.end).pieces_outside(
        *step_bounds(used)
    )
    return Intervals.union(pieces.start, pieces.end)


def _label(name: str, *, persons: bool) -> str:
    """A function, by the name of its event; "" for other events, for code that starts a program,
    and for libraries if only the user's code counts.
    """
    match = _KINETO.fullmatch(name)
    # PyTorch leaves out the folders that Python imports from, so a library's file has a short path
    # as well.
    if match is None or (persons and person_call(name) is None):
        return ""
    if around.KINETO.starts.match(name) or around.KINETO.helpers.match(name):
        return ""
    function = "" if match["name"] == "<module>" else f"{match['name']}, "
    return f"{function}{title(match['file'], {})} line {match['line']}"

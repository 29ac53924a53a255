"""Ranges of JAX's `TraceAnnotation` and TensorFlow's `tf.profiler.experimental.Trace`.

They are events of a thread of Python like those of the runtime. They are never inside events of the
runtime, which does not call the program.
"""

from __future__ import annotations

import numpy as np

from nbprof.activity import activity as act
from nbprof.activity.tables import Ranges
from nbprof.core import nesting
from nbprof.core.factorize import heads, starting
from nbprof.core.trace import Int64s
from nbprof.dialects.lookups import rows_that
from nbprof.dialects.named_ranges import SLACK_PS, personal_in_xspace, table
from nbprof.dialects.xplane import opnames
from nbprof.dialects.xplane.placed import Placed

_KIND = "TraceAnnotation"
_GIVEN_UP = "nbprof_given_up"
"""The argument of spans that nbprof opened for a step, and that became none."""


def ranges(placed: Placed, activity: act.Activity) -> Ranges:
    """The table `ranges`."""
    trace = placed.trace
    of_python = trace.lanes["thread"].astype(str).str.startswith("python").to_numpy(np.bool_)
    of_lane = (placed.lane_kind == "host") & of_python
    rows = trace.events.of_lanes(of_lane)
    # Functions of Python are around and in ranges alike.
    rows = rows[~starting(heads(trace.names), "$")[trace.events.name[rows]]]
    marks = activity.markers.event
    marks = marks[marks >= 0]
    marks = marks[placed.on_host[marks]]
    marked = set(map(str, trace.names[np.unique(trace.events.name[marks])]))

    def is_personal(name: str) -> bool:
        if name in marked or not personal_in_xspace(name):
            return False
        return not opnames.parse(name).category

    chosen_rows = rows_that(trace, rows, is_personal)
    is_given_up = trace.arg(_GIVEN_UP, rows=chosen_rows) != -1
    given_up, chosen_rows = chosen_rows[is_given_up], chosen_rows[~is_given_up]
    chosen_rows = np.setdiff1d(
        chosen_rows[trace.events.duration[chosen_rows] > 0],
        activity.functions.event,
        assume_unique=True,
    )
    if not len(chosen_rows):
        return Ranges.empty()
    around_steps = rows_that(trace, rows, lambda name: name in marked)
    around = np.union1d(around_steps, given_up)
    chosen_rows = _in_no_other(placed, rows, chosen_rows, around)
    if len(chosen_rows):
        return table(trace, chosen_rows, placed.host, _KIND, activity)
    return Ranges.empty()


def _in_no_other(placed: Placed, rows: Int64s, ranges: Int64s, steps: Int64s) -> Int64s:
    """Those of some events that lie in nothing but others of them, and in marks of steps."""
    events = placed.trace.events
    parent = nesting.parents(events.lane[rows], events.start[rows], events.duration[rows], SLACK_PS)
    may_be = np.isin(rows, ranges)
    passes = np.isin(rows, steps)
    in_other = np.zeros(len(rows), np.bool_)
    for level in nesting.levels(parent):
        above = parent[level]
        free = (above < 0) | in_other[above] | passes[above]
        # A mark of a step within an op of the runtime hands nothing down.
        passes[level] &= free
        in_other[level] = may_be[level] & free
    return rows[in_other]

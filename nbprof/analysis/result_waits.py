"""Time in which the thread of the steps waits for the results of a JAX program.

A conversion to NumPy or Python waits in a recorded call. `block_until_ready` leaves no event, so
its time is that of the sampled stacks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Trace
from nbprof.dialects.lookups import names_that
from nbprof.frameworks.register import JAX

if TYPE_CHECKING:
    from nbprof.analysis.python import Python, TopFunction

_CONVERTS = re.compile(r"np\.asarray\(jax\.Array\)\Z")
_RUNS = re.compile(r"PjitFunction\(")
"""A compiled function is called on the thread of the steps."""


class ResultWaits(NamedTuple):
    """Waits for results in the counted steps.

    Attributes
    ----------
    ms : float
        Mean time per step.
    function : TopFunction or None
        The line with most of the waits by `block_until_ready`.
    """

    ms: float
    function: TopFunction | None


def find(
    activity: Activity, trace: Trace, steps: pd.DataFrame, python: Python | None, origin_ns: int
) -> ResultWaits | None:
    """The waits; None of programs other than JAX's, and without any.

    Parameters
    ----------
    activity : Activity
        Of one host.
    trace : Trace
    steps : DataFrame
        The counted rows of `p.steps.frame`.
    python : Python, optional
        Sampled stacks.
    origin_ns : int
        Moment 0 of the trace, in ns since 1970.
    """
    if activity.framework is not JAX or not len(steps):
        return None
    in_steps = Intervals.union(*step_bounds(steps))
    ms = _converting_ps(trace, in_steps) / 1e9
    function = None
    if python is not None and origin_ns:
        start, end = in_steps.start // 1000 + origin_ns, in_steps.end // 1000 + origin_ns
        share, function = python.blocked(Intervals.union(start, end, merge_touching=False))
        ms += share * in_steps.total() / 1e9
    return ResultWaits(ms / len(steps), function) if ms else None


def _converting_ps(trace: Trace, in_steps: Intervals) -> int:
    """Time in steps in which a thread that runs compiled functions converts arrays."""
    events = trace.events
    is_conversion = names_that(_CONVERTS.match, trace.names)[events.name]
    if not is_conversion.any():
        return 0
    lanes = np.unique(events.lane[names_that(_RUNS.match, trace.names)[events.name]])
    rows = np.flatnonzero(is_conversion & np.isin(events.lane, lanes))
    calls = Intervals.union(events.start[rows], events.start[rows] + events.duration[rows])
    return int(in_steps.covered_within(calls.start, calls.end).sum())

"""Collectives on the host (Gloo, MPI), and the time in which steps wait for them.

PyTorch runs such a collective on a thread of its own, and the thread of the step waits for it. It
ends when the last rank has come, so that the ranks that are not slow wait in it. While the thread
of the step is in no op, it is taken to wait: code that it runs meanwhile outside of any op is not
recorded.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.device_time.device_time import rank_of
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.lookups import host_of_lanes, names_that

_CALLS = ("gloo:", "mpi:")
"""Beginnings of the names of collectives that run on the host."""
COLUMNS = {
    "host": "object",
    "rank": "Int64",
    "device": "Int64",
    "group": "int64",
    "step": "int64",
    "start_ms": "float64",
    "communication_ms": "float64",
    "exposed_communication_ms": "float64",
}
_MS = 1e9


def by_step(trace: Trace, activity: Activity, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per step of each host that has such collectives.

    Parameters
    ----------
    trace : Trace
    activity : Activity
    steps : DataFrame
        As `run.steps`.

    Returns
    -------
    DataFrame
        `host rank device group step start_ms communication_ms exposed_communication_ms`, as
        `p.device_time.overlap` has them of devices; `device` is missing, and exposed is the time in
        which the thread of the step is in no op.
    """
    called = names_that(lambda name: name.startswith(_CALLS), trace.names)
    if not called.any() or not len(steps):
        return none()
    event = np.flatnonzero(called[trace.events.name])
    host_of_event = host_of_lanes(trace)[trace.events.lane[event]]
    tables = [none()]
    for number in np.unique(host_of_event).tolist():
        calls = event[host_of_event == number]
        talks = Intervals.union(trace.events.start[calls], trace.events.end[calls])
        name = trace.hosts[number]
        rows = steps[steps["host"] == name]
        start = _ps(rows["start_ms"])
        end = start + _ps(rows["step_time_ms"])
        waits = talks.difference(_in_ops(activity, number))
        tables.append(
            rows[["host", "group", "step", "start_ms"]].assign(
                rank=pd.array([rank_of(name)] * len(rows), "Int64"),
                device=pd.array([pd.NA] * len(rows), "Int64"),
                communication_ms=talks.covered_within(start, end) / _MS,
                exposed_communication_ms=waits.covered_within(start, end) / _MS,
            )
        )
    return pd.concat([table for table in tables if len(table)] or tables)[list(COLUMNS)].astype(
        COLUMNS
    )


def without_waiting(steps: pd.DataFrame, communication: pd.DataFrame) -> pd.DataFrame:
    """The steps without the exposed communication in the time in which nothing was recorded."""
    exposed = communication[["host", "group", "exposed_communication_ms"]]
    rows = steps[["host", "group"]].merge(exposed, on=["host", "group"], how="left")
    waited = rows["exposed_communication_ms"].fillna(0.0).to_numpy(np.float64)
    return steps.assign(other_ms=(steps["other_ms"] - waited).clip(lower=0.0))


def none() -> pd.DataFrame:
    """The table of hosts without such collectives."""
    return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)


def _in_ops(activity: Activity, host: int) -> Intervals:
    """When the thread of the host with the most time in ops is in one."""
    ops = activity.host_ops
    ops = ops.take(ops.host == host)
    if not len(ops.event):
        return Intervals.union(np.zeros(0, np.int64), np.zeros(0, np.int64))
    # Nested ops count several times on any thread.
    time = np.bincount(ops.lane, weights=ops.end - ops.start)
    ops = ops.take(ops.lane == time.argmax())
    return Intervals.union(ops.start, ops.end)


def _ps(ms: pd.Series) -> Int64s:
    return np.asarray((ms.to_numpy(np.float64) * _MS).round(), np.int64)

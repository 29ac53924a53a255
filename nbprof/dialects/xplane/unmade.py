"""Waits for input without events: steps of the CPU that wait for the pipeline or its Python.

A step waits from the call of its function, not from the moment when a thread of tf.data asks for
the batch: on a busy machine that thread gets a core late, and what takes the cores is often the
pipeline. And while a Python function of a pipeline runs, a call that has done its work cannot
return: it needs the interpreter.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work, marked
from nbprof.core.factorize import ending
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s
from nbprof.dialects.xplane import cpu_ops
from nbprof.dialects.xplane.compiling import COMPILES
from nbprof.dialects.xplane.placed import Flags, Placed

_CALL = "TFE_Py_Execute"
_RETURNS = "TFE_Py_"
"""Calls of TensorFlow from Python; in C++, they let the interpreter go."""
_COMPILED = "ThunkExecutor::Execute"
_THREADS, _ASKS = "tf_data_", "tf_data_iterator_get_next"
_PYTHON = "PyFunc"


def waited(placed: Placed, activity: act.Activity, work: pd.DataFrame) -> pd.DataFrame:
    """Work with the waits for input of steps that run no op while their batch is made.

    They also wait while the Python of a pipeline holds up a call.
    """
    events = placed.trace.events
    calls = np.flatnonzero(placed.named(_RETURNS)[events.name] & (placed.step_group >= 0))
    makers = _on_threads(placed)
    if not len(calls) or not makers.any():
        return work
    ops = _ops(placed, activity, makers)
    python = np.flatnonzero(makers & ending(placed.trace.names, events.name, _PYTHON)[events.name])
    returning = _returning(placed, calls)
    around = calls[placed.named(_CALL)[events.name[calls]]]
    work_of_steps = work[
        makers[work["event"].to_numpy(np.int64)] & (work["cls"].to_numpy() == act.HOST_COMPUTE)
    ]
    parts = [work]
    for host in np.unique(placed.host[calls]).tolist():
        busy = _covered(placed, ops[placed.host[ops] == host])
        calling = _covered(placed, around[placed.host[around] == host])
        interpreting = _covered(placed, python[placed.host[python] == host])
        candidates = [
            calling.rows_inside(work_of_steps[work_of_steps["host"] == host]),
            interpreting.rows_inside(returning[returning["host"] == host]),
        ]
        parts += [
            busy.rows_outside(rows).assign(cls=np.int16(act.HOST_WAIT_INPUT)) for rows in candidates
        ]
    return Work.of(*parts).frame()


def _on_threads(placed: Placed) -> Flags:
    """bool[events]: on a thread of tf.data's that makes elements, rather than hands them on."""
    thread = placed.trace.lanes["thread"].astype(str).str
    lanes = thread.startswith(_THREADS) & ~thread.startswith(_ASKS) & (placed.lane_kind == "host")
    return np.asarray(lanes.to_numpy(np.bool_)[placed.trace.events.lane], np.bool_)


def _ops(placed: Placed, activity: act.Activity, makers: Flags) -> Int64s:
    """Work of a step in the meantime: its ops, runs of compiled programs, and compiling."""
    ops = activity.host_ops.frame()
    host_ops = ops["event"].to_numpy(np.int64)[~ops["dataset"].to_numpy(np.bool_)]
    named = placed.named(_COMPILED, *COMPILES)[placed.trace.events.name] & placed.on_host
    return np.concatenate(
        [host_ops[~makers[host_ops]], cpu_ops.run_rows(placed), np.flatnonzero(named)]
    )


def _returning(placed: Placed, calls: Int64s) -> pd.DataFrame:
    """Calls from the end of the last that they did to their own end."""
    events = placed.trace.events
    nested = np.flatnonzero(events.parent >= 0)
    done = np.zeros(len(events), np.int64)
    np.maximum.at(done, events.parent[nested], events.start[nested] + events.duration[nested])
    spans = marked(events, calls[done[calls] > 0], placed.host, placed.step_group).frame()
    return spans.assign(
        start=done[spans["event"].to_numpy(np.int64)], cls=np.int16(act.HOST_COMPUTE)
    )


def _covered(placed: Placed, rows: Int64s) -> Intervals:
    """When any of some events runs; touching ones are merged, so that no wait is split there."""
    events = placed.trace.events
    return Intervals.union(events.start[rows], events.start[rows] + events.duration[rows])

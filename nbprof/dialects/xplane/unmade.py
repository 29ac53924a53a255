"""Waits for input without events: steps of the CPU that wait for the pipeline or its Python.

A step waits from the call of its function, not from the moment when a thread of tf.data asks for
the batch: on a busy machine that thread gets a core late, and what takes the cores is often the
pipeline. And while a Python function of a pipeline runs, a call that has done its work cannot
return: it needs the interpreter.
"""

from __future__ import annotations

import numpy as np

from nbprof.activity import activity as act
from nbprof.activity.tables import Work, marked
from nbprof.core.factorize import ending
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s
from nbprof.dialects.xplane import cpu_ops
from nbprof.dialects.xplane.compiling import COMPILES
from nbprof.dialects.xplane.placed import Flags, Placed
from nbprof.dialects.xplane.work_spans import classified, inside, outside

_CALL = "TFE_Py_Execute"
_RETURNS = "TFE_Py_"
"""Calls of TensorFlow from Python; in C++, they release the interpreter."""
_COMPILED = "ThunkExecutor::Execute"
_THREADS, _ASKS = "tf_data_", "tf_data_iterator_get_next"
_PYTHON = "PyFunc"


def waited(placed: Placed, activity: act.Activity, work: Work) -> Work:
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
    making = work.take(makers[work.event] & (work.cls == act.HOST_COMPUTE))
    parts = [work]
    for host in np.unique(placed.host[calls]).tolist():
        busy = _covered(placed, ops[placed.host[ops] == host])
        calling = _covered(placed, around[placed.host[around] == host])
        interpreting = _covered(placed, python[placed.host[python] == host])
        for waits in (
            inside(calling, making.take(making.host == host)),
            inside(interpreting, returning.take(returning.host == host)),
        ):
            parts.append(outside(busy, waits).with_(cls=act.HOST_WAIT_INPUT))
    return Work.concat(parts)


def _on_threads(placed: Placed) -> Flags:
    """bool[events]: events on threads of tf.data that make elements."""
    thread = placed.trace.lanes["thread"].astype(str).str
    lanes = thread.startswith(_THREADS) & ~thread.startswith(_ASKS) & (placed.lane_kind == "host")
    return np.asarray(lanes.to_numpy(np.bool_)[placed.trace.events.lane], np.bool_)


def _ops(placed: Placed, activity: act.Activity, makers: Flags) -> Int64s:
    """Work of a step in the meantime: its ops, runs of compiled programs, and compiling."""
    host_ops = activity.host_ops.event[~activity.host_ops.dataset]
    named = placed.named(_COMPILED, *COMPILES)[placed.trace.events.name] & placed.on_host
    return np.concatenate(
        [host_ops[~makers[host_ops]], cpu_ops.run_rows(placed), np.flatnonzero(named)]
    )


def _returning(placed: Placed, calls: Int64s) -> Work:
    """The end of each call, after the last event inside."""
    events = placed.trace.events
    nested = np.flatnonzero(events.parent >= 0)
    done = np.zeros(len(events), np.int64)
    np.maximum.at(done, events.parent[nested], events.start[nested] + events.duration[nested])
    spans = marked(events, calls[done[calls] > 0], placed.host, placed.step_group)
    return classified(spans, act.HOST_COMPUTE).with_(start=done[spans.event])


def _covered(placed: Placed, rows: Int64s) -> Intervals:
    """Times at which any of some events runs; touching ones are merged, so no wait is split."""
    events = placed.trace.events
    return Intervals.union(events.start[rows], events.start[rows] + events.duration[rows])

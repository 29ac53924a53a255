"""Calls of tf.data iterators in an XSpace file, their parameters, and links across threads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.activity import activity as act
from nbprof.activity.activity import MOST_BUFFERED
from nbprof.activity.tables import Iterators
from nbprof.core.factorize import ending
from nbprof.core.trace import DOUBLE, TEXT, Int64s
from nbprof.dialects.xplane.grouping import match
from nbprof.dialects.xplane.placed import Placed

# A dataset that Python iterates over, and one that a graph runs by itself: ds.reduce, or a loop
# over a dataset inside a tf.function, which is compiled to one. TensorFlow Profiler reads only the
# first.
_ITERATORS = ("Iterator::", "ReduceIterator::")
# Parameters and state of an iterator. Other args only link events.
_PARAMS = (
    *(
        "parallelism",
        "num_parallel_calls",
        "autotune",
        "deterministic",
        "batch_size",
        "drop_remainder",
        "buffer_size",
        "buffer_limit",
    ),
    *(
        "cycle_length",
        "block_length",
        "interleave_depth",
        "intra_op_parallelism",
        "num_threads",
        "buffered_elements",
        "max_outstanding",
    ),
    *(
        "element_size",
        "num_shards",
        "cache_type",
        "dataset_type",
        "shapes",
        "types",
        "ram_budget_megabytes",
    ),
)


def _called(placed: Placed) -> npt.NDArray[np.bool_]:
    """bool[names]"""
    return placed.named(*_ITERATORS)


def iterators(placed: Placed, activity: act.Activity) -> Iterators:
    """The calls of iterators on hosts: the table `iterators` of the activity."""
    trace = placed.trace
    events = trace.events
    called = _called(placed)
    rows = np.flatnonzero(called[events.name] & placed.on_host)
    codes = np.full(len(trace.names), -1, np.int32)
    for code in np.flatnonzero(called).tolist():
        codes[code] = activity.ops.code(trace.names[code])
    return Iterators(
        event=rows,
        host=placed.host[rows],
        lane=events.lane[rows],
        iterator=trace.arg("id", rows=rows),
        parent=trace.arg("parent_id", rows=rows),
        name=codes[events.name[rows]],
        start=events.start[rows],
        end=events.start[rows] + events.duration[rows],
    )


def links(placed: Placed) -> npt.NDArray[np.int64]:
    """int64[k, 2]: calls that took an element, and calls that made it on another thread.

    The first iterator call within a `…Produce` event is found by (its `parent_id`, the event's
    `element_id`); the iterator call around a `…Consume` event looks for (its `id`, the event's
    `element_id`), on the same host.
    """
    trace = placed.trace
    element = trace.args.get("element_id")
    if element is None:
        return np.zeros((0, 2), np.int64)
    events, names = trace.events, trace.names
    produced = element.dense(len(events))
    called = _called(placed)[events.name]
    rows = element.event.astype(np.int64)
    produces, consumes = (ending(names, events.name[rows], text) for text in ("Produce", "Consume"))
    maker = np.zeros(len(events) + 1, np.bool_)
    maker[rows[produces[events.name[rows]]]] = True
    # Events of a lane are sorted by start, so that the first below a producer is the first in the
    # table. (Parent -1 is not a producer.)
    below = np.flatnonzero(called & maker[events.parent])
    _, first = np.unique(events.parent[below], return_index=True)
    child = below[first]
    taker = rows[consumes[events.name[rows]]]
    taker = taker[events.parent[taker] >= 0]
    above = events.parent[taker].astype(np.int64)
    taker, above = taker[called[above]], above[called[above]]
    host = placed.host.astype(np.int64)
    ident, parent_id = trace.arg("id"), trace.arg("parent_id")
    up, down = match(
        np.arange(len(taker)),
        [ident[above], produced[taker], host[taker]],
        child,
        [parent_id[child], produced[events.parent[child]], host[child]],
    )
    return np.stack([above[up], down], axis=1)


def params(placed: Placed) -> dict[int, dict[str, object]]:
    """Stated facts on iterators by their id; the last value of each key counts."""
    trace = placed.trace
    called = _called(placed)[trace.events.name]
    ident = trace.arg("id")
    params_of: dict[int, dict[str, object]] = {}
    for key in _PARAMS:
        column = trace.args.get(key)
        if column is None:
            continue
        rows = np.flatnonzero(called[column.event])
        if not len(rows):
            continue
        owner: Int64s = ident[column.event[rows]]
        # Of several the last is the first from the end.
        distinct, last = np.unique(owner[::-1], return_index=True)
        kinds, values, floats = column.kinds, column.values, column.floats()
        for iterator, row in zip(distinct.tolist(), rows[::-1][last].tolist(), strict=True):
            value: object = int(values[row])
            if kinds[row] in (TEXT, DOUBLE):
                value = trace.strings[values[row]] if kinds[row] == TEXT else float(floats[row])
            params_of.setdefault(iterator, {})[key] = value
    for iterator, elements in _most_buffered(placed, called, ident).items():
        params_of.setdefault(iterator, {})[MOST_BUFFERED] = elements
    return params_of


def _most_buffered(placed: Placed, called: npt.NDArray[np.bool_], ident: Int64s) -> dict[int, int]:
    """The most elements that the buffer of an iterator held at one of its calls."""
    column = placed.trace.args.get("buffered_elements")
    if column is None:
        return {}
    rows = np.flatnonzero(called[column.event] & ~np.isin(column.kinds, (TEXT, DOUBLE)))
    distinct, code = np.unique(ident[column.event[rows]], return_inverse=True)
    elements = np.zeros(len(distinct), np.int64)
    np.maximum.at(elements, code, column.values[rows])
    return dict(zip(distinct.tolist(), elements.tolist(), strict=True))


def functions(placed: Placed, activity: act.Activity) -> dict[str, float]:
    """Types and times in ms of ops in functions of pipelines, on the threads of tf.data."""
    ops = activity.host_ops.frame()
    of_lane = placed.trace.lanes["thread"].astype(str).str.startswith("tf_data_").to_numpy(np.bool_)
    host_ops = ops[~ops["dataset"].to_numpy(np.bool_) & of_lane[ops["lane"].to_numpy(np.int64)]]
    time = (host_ops["end"] - host_ops["start"]).groupby(host_ops["type"]).sum() / 1e9
    return dict(
        zip(map(str, activity.types.values[time.index.to_numpy()]), time.tolist(), strict=True)
    )

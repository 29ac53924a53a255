"""Calls of tf.functions, and stages of input pipelines that are no tf.data, in an XSpace file."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Functions, HostOps, located
from nbprof.core.trace import Int32s, Int64s
from nbprof.dialects.lookups import codes_by_name
from nbprof.dialects.xplane.placed import Placed


def functions(placed: Placed, activity: act.Activity) -> Functions:
    """Calls of tf.functions: events on a host with a `tf_function_call`."""
    trace = placed.trace
    if "tf_function_call" not in trace.args:
        return Functions.empty()
    events = trace.events
    rows = np.flatnonzero(trace.above("tf_function_call", -1, text=True) & placed.on_host)
    mode = trace.text_arg("tf_function_call", rows)
    called = events.name[rows]
    return Functions(
        **located(events, rows, placed.host[rows], lane=events.lane[rows]),
        name=codes_by_name(trace, called, activity.texts.code)[called],
        mode=activity.texts.encode(trace.texts(mode)),
        tracings=trace.arg("tracing_count", 0, rows),
    )


def stages(placed: Placed, activity: act.Activity) -> tuple[Int64s, Int32s, Int32s]:
    """Stages of input pipelines: events, and codes of names and kinds for the table of host ops.

    A stage states `_ipl_stage_id` and `_ipl_stage_cat`, and has the name of its event; several of
    one name get their ids.
    """
    trace = placed.trace
    none = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
    if "_ipl_stage_id" not in trace.args or "_ipl_stage_cat" not in trace.args:
        return none
    kind = trace.text_arg("_ipl_stage_cat")
    ident = trace.arg("_ipl_stage_id")
    has_stage = np.zeros(len(trace.events), np.bool_)
    has_stage[trace.args["_ipl_stage_id"].event] = True
    rows = np.flatnonzero(has_stage & (kind >= 0) & placed.on_host)
    if not len(rows):
        return none
    code, seen = pd.factorize(
        pd.MultiIndex.from_arrays([trace.events.name[rows], ident[rows], kind[rows]])
    )
    idents: dict[int, set[int]] = {}
    for name, number, _ in seen.tolist():
        idents.setdefault(name, set()).add(number)
    op, category = [], []
    for name, number, text in seen.tolist():
        label = str(trace.names[name])
        if len(idents[name]) > 1:
            label = f"{label} (stage {number})"
        op.append(activity.ops.code(label))
        category.append(activity.types.code(trace.strings[text]))
    return rows, np.array(op, np.int32)[code], np.array(category, np.int32)[code]


def with_stages(placed: Placed, activity: act.Activity, ops: HostOps) -> HostOps:
    """The table of host ops with the stages of input pipelines as ops of their kind."""
    rows, op, kind = stages(placed, activity)
    if not len(rows):
        return ops
    events = placed.trace.events
    added = HostOps(
        **located(events, rows, placed.host[rows], lane=events.lane[rows]),
        op=op,
        type=kind,
        dataset=True,
        in_dataset=False,
        eager=False,
    )
    table = HostOps.concat([ops.take(~np.isin(ops.event, rows)), added])
    return table.take(np.argsort(table.event, kind="stable"))

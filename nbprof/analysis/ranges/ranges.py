"""Time by range that the program names, per step: `p.ranges.frame`.

Ranges are instances on threads; a row is a path of names, as ranges lie in each other. Figures are
those of the steps that averages use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.ranges import threads
from nbprof.analysis.ranges.instances import Instances, Steps
from nbprof.analysis.ranges.named_scopes import scope_sums
from nbprof.analysis.ranges.totals import (
    KEYS,
    MAIN,
    OTHER,
    PROGRAM,
    SEPARATOR,
    SUMS,
    Totals,
    nothing,
)
from nbprof.core.trace import Trace
from nbprof.schema import frames

_PS_PER_MS = 1e9
_TIMES = {
    "host_ms_per_step": "host",
    "host_self_ms_per_step": "host_self",
    "wait_ms_per_step": "sync",
    "device_ms_per_step": "device",
    "device_self_ms_per_step": "device_self",
    "backward_host_ms_per_step": "backward_host",
    "backward_device_ms_per_step": "backward_device",
}
_THREAD_ORDER = {MAIN: 0, OTHER: 1, PROGRAM: 2}


def totals(
    activity: Activity, trace: Trace, steps: pd.DataFrame, self_times: Callable[[], pd.DataFrame]
) -> Totals:
    """Time in ranges, over some steps.

    Parameters
    ----------
    activity : Activity
    trace : Trace
    steps : DataFrame
        Rows of `p.steps.frame`: those that averages use.
    self_times : callable
        Returns ops of the host with their self time, as `ops.host_self_times` does.
    """
    if not len(steps) or not (len(activity.ranges) or activity.framework.has_scopes):
        return nothing()
    host_ops = self_times()
    steps_by_host = Steps.of(steps, activity.hosts)
    rows, ops = [], []
    outside, places = {"host": np.nan, "device": np.nan}, nothing().places
    if len(activity.ranges):
        instances = Instances(activity, trace, steps_by_host)
        sums = threads.range_sums(instances, host_ops)
        rows.append(sums.rows)
        ops.append(sums.ops)
        outside = sums.outside
        places = threads.places(instances, host_ops)
    of_scopes = scope_sums(activity, steps_by_host, host_ops)
    if of_scopes is not None:
        rows.append(of_scopes[0])
        ops.append(of_scopes[1])
    if not rows:
        return nothing()
    step_ps = float(steps["step_time_ms"].sum()) * _PS_PER_MS
    return Totals(
        pd.concat(rows, ignore_index=True),
        pd.concat(ops, ignore_index=True),
        places,
        len(steps),
        step_ps,
        outside,
    ).largest()


def added(parts: Sequence[Totals]) -> Totals:
    """The totals of several hosts together; NaN where all are unknown."""
    with_ranges = [part for part in parts if len(part.rows)]
    if not with_ranges:
        return nothing()
    rows = pd.concat([part.rows for part in with_ranges], ignore_index=True)
    by_path = rows.groupby(list(KEYS), sort=False)
    sums = by_path[list(SUMS)].sum(min_count=1).join(by_path["first"].min()).reset_index()
    ops = _summed([part.ops for part in with_ranges], [*KEYS, "side", "op"])
    places = _summed([part.places for part in with_ranges], [*KEYS, "what"])
    outside = {}
    for key in ("host", "device"):
        values = [part.outside[key] for part in with_ranges if not np.isnan(part.outside[key])]
        outside[key] = float(sum(values)) if values else np.nan
    # Steps of hosts without ranges are steps without these.
    steps, step_ps = sum(part.steps for part in parts), sum(part.step_ps for part in parts)
    rows = sums[[*KEYS, "first", *SUMS]]
    return Totals(rows, ops, places, steps, step_ps, outside).largest()


def _summed(tables: list[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    rows = pd.concat(tables, ignore_index=True)
    return rows.groupby(keys, sort=False)["own"].sum().reset_index()


def frame(sums: Totals) -> pd.DataFrame:
    """The columns of `p.ranges.frame`: a tree of ranges in the order in which they first began."""
    if not len(sums.rows) or not sums.steps:
        return frames.empty("ranges.frame")
    rows = sums.rows.iloc[_preorder(sums.rows)].reset_index(drop=True)
    per_step = {name: rows[name].to_numpy(np.float64) / sums.steps for name in SUMS}
    names = [str(path).split(SEPARATOR) for path in rows["path"].tolist()]
    percent: Any = np.nan
    if sums.step_ps:
        percent = 100 * rows["host"].to_numpy(np.float64) / sums.step_ps
    columns: dict[str, Any] = {
        "range": ["/".join(parts) for parts in names],
        "name": [parts[-1] for parts in names],
        "depth": [len(parts) - 1 for parts in names],
        "kind": rows["kind"],
        "thread": rows["thread"],
        "calls_per_step": per_step["count"],
        "percent": percent,
        "kernels_per_step": per_step["kernels"],
    }
    for name, key in _TIMES.items():
        columns[name] = per_step[key] / _PS_PER_MS
    top_ops = _top_ops(sums.ops)
    keys = list(rows[list(KEYS)].itertuples(index=False, name=None))
    for side in ("host", "device"):
        top = [top_ops.get((*key, side), (None, np.nan)) for key in keys]
        columns[f"top_{side}_op"] = [op for op, _ in top]
        times = np.array([time for _, time in top])
        columns[f"top_{side}_op_ms_per_step"] = times / sums.steps / _PS_PER_MS
    return frames.shaped("ranges.frame", pd.DataFrame(columns))


def _top_ops(ops: pd.DataFrame) -> dict[tuple[str, ...], tuple[str | None, float]]:
    """The op with the most time and that time, by the keys of a path and side."""
    keys = [*KEYS, "side"]
    paths = list(zip(*(ops[key].tolist() for key in keys), strict=True))
    names, times = ops["op"].tolist(), ops["own"].tolist()
    top: dict[tuple[str, ...], tuple[str | None, float]] = {}
    for row in np.argsort(-ops["own"].to_numpy(), kind="stable").tolist():
        top.setdefault(paths[row], (names[row], times[row]))
    return top


def _preorder(rows: pd.DataFrame) -> list[int]:
    """The rows of paths so that each stands below the path around it, and siblings by when they
    first began; the main thread first.
    """
    keys = list(rows[list(KEYS)].itertuples(index=False, name=None))
    # A range may lie in one of another kind: NVTX in record_function.
    row_of = {(thread, path): row for row, (thread, _, path) in enumerate(keys)}
    children: dict[int, list[int]] = {}
    first = rows["first"].tolist()
    for row, (thread, _, path) in enumerate(keys):
        outer = path.rpartition(SEPARATOR)[0]
        parent = row_of.get((thread, outer), -1) if outer else -1
        children.setdefault(parent, []).append(row)
    order: list[int] = []
    roots = children.get(-1, [])
    pending = sorted(roots, key=lambda row: (_THREAD_ORDER[keys[row][0]], first[row]), reverse=True)
    while pending:
        row = pending.pop()
        order.append(row)
        pending += sorted(children.get(row, []), key=lambda inner: first[inner], reverse=True)
    return order


def outside_ms(sums: Totals) -> dict[str, float]:
    """Time per step that is in no range, ms: `host_ms_per_step` of the thread that marks steps,
    `device_ms_per_step`.
    """
    if not sums.steps:
        return {f"{key}_ms_per_step": np.nan for key in sums.outside}
    return {
        f"{key}_ms_per_step": time / sums.steps / _PS_PER_MS for key, time in sums.outside.items()
    }

"""Programs without an accelerator: the host's time in categories that suggest a remedy.

*Host compute* of the step breakdown is true of every program on a CPU. Here it is split. An instant
in which any thread runs an op, and no op in it, is compute if the self time of the op is at least
`TINY_PS`. The rest is overhead: ops of a few microseconds, and what the framework does between and
around ops (dispatch, autograd, allocation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import HOST_COMPUTE, Activity
from nbprof.analysis import sweep
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core import nesting
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s
from nbprof.frameworks.register import PYTORCH

TINY_PS = 20_000_000
"""An op that takes less does hardly more than being dispatched: on a CPU that takes PyTorch and
TensorFlow 2 to 10 µs an op.
"""
_COMPUTE = HOST_COMPUTE + 1
_WIDE = ("float32", "tf32")


@dataclass(frozen=True)
class CpuSplit:
    """The parts of host compute.

    Attributes
    ----------
    compute : float
        Part of host compute that is in ops which take their time, 0 to 1; the rest is overhead.
    op_calls : float
        Calls of ops, per unit.
    tiny_calls : float
        Those of them with a self time of less than `TINY_PS`.
    top_op : str
        The op (of TensorFlow and JAX: the type of op) with the most compute; "" without any.
    top_percent : float
        Its share of the compute of all ops, summed over threads.
    """

    compute: float
    op_calls: float
    tiny_calls: float
    top_op: str
    top_percent: float


@dataclass(frozen=True)
class _Runs:
    """Times in which ops run, without the ops in them.

    Start and end (ps), the self time of the op, its kind as a code, and whether the time is the
    first of its run.
    """

    start: Int64s
    end: Int64s
    self_ps: Int64s
    kind: Int64s
    first: npt.NDArray[np.bool_]

    def take(self, rows: npt.NDArray[Any]) -> _Runs:
        return _Runs(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def concat(cls, parts: Sequence[_Runs]) -> _Runs:
        columns = []
        for field in fields(cls):
            columns.append(np.concatenate([getattr(part, field.name) for part in parts]))
        return cls(*columns)


Totals = dict[str, Any]
"""Sums over steps: `compute` and `overhead` (ps), `calls` and `tiny` (ops), `steps`, and `ops`, the
compute of each op in ps.
"""


def totals(activity: Activity, steps: pd.DataFrame) -> Totals | None:
    """Host compute of some steps by its parts; None with a device and if no op was recorded.

    Parameters
    ----------
    activity : Activity
    steps : DataFrame
        Rows of `p.steps.frame`.
    """
    on_device = activity.has_device or len(activity.device_extents)
    if on_device or not len(steps) or not activity.has_host_ops:
        return None
    parts = []
    for number, name in enumerate(activity.hosts):
        rows = steps[steps["host"] == name]
        if len(rows):
            parts.append(_of_host(activity, number, rows))
    return added(parts)


def added(parts: Sequence[Totals | None]) -> Totals | None:
    """The totals of several hosts together; None without any."""
    recorded = [part for part in parts if part is not None]
    if not recorded:
        return None
    ops: dict[str, float] = {}
    for part in recorded:
        for name, time in part["ops"].items():
            ops[name] = ops.get(name, 0.0) + time
    sums: Totals = {}
    for key in ("compute", "overhead", "calls", "tiny", "steps"):
        sums[key] = sum(part[key] for part in recorded)
    return {**sums, "ops": ops}


def split(totals: Totals | None) -> CpuSplit | None:
    """The parts of host compute, from totals over steps; None without any."""
    if totals is None or not totals["compute"] + totals["overhead"]:
        return None
    top = max(totals["ops"], key=totals["ops"].__getitem__, default="")
    return CpuSplit(
        totals["compute"] / (totals["compute"] + totals["overhead"]),
        totals["calls"] / totals["steps"],
        totals["tiny"] / totals["steps"],
        top,
        100 * totals["ops"][top] / sum(totals["ops"].values()) if top else 0.0,
    )


class Products(NamedTuple):
    """Matrix products and convolutions of 32-bit numbers: their percent of the time of steps, by
    self time, and their mean FLOPs.
    """

    percent: float
    flops: float


NO_PRODUCTS = Products(0.0, 0.0)


def products(activity: Activity, steps: pd.DataFrame) -> Products:
    """The products of one host without a device; none where shapes, and so the costs of ops, were
    not recorded.
    """
    runs, parts = activity.cost_runs.frame(), activity.cost_parts.frame()
    total = float(steps["step_time_ms"].sum()) * 1e9
    if not len(runs) or activity.has_device or not total:
        return NO_PRODUCTS
    is_wide = parts["product"].to_numpy(np.bool_) & parts["precision"].isin(_WIDE).to_numpy(
        np.bool_
    )
    begin, stop = step_bounds(steps)
    start = runs["start"].to_numpy(np.int64)
    step = np.searchsorted(begin, start, side="right") - 1
    counts = is_wide[runs["part"].to_numpy(np.int64)] & (step >= 0) & (start < stop[step])
    self_ps, flops = (runs[column].to_numpy(np.float64)[counts] for column in ("own", "flops"))
    stated_flops = flops[np.isfinite(flops)]
    return Products(
        min(100.0, 100 * float(self_ps.sum()) / total),
        float(stated_flops.mean()) if len(stated_flops) else 0.0,
    )


def _of_host(activity: Activity, host: int, steps: pd.DataFrame) -> Totals:
    begin, stop = step_bounds(steps)
    runs = _in_steps(_self_times(activity, host), begin, stop)
    long = runs.take(runs.self_ps >= TINY_PS)
    compute, overhead = _compute_and_overhead(activity, host, long, (begin, stop))
    names = (activity.ops if activity.framework is PYTORCH else activity.types).values
    by_kind = np.bincount(long.kind, (long.end - long.start).astype(np.float64), len(names))
    return {
        "compute": compute,
        "overhead": overhead,
        "calls": int(runs.first.sum()),
        "tiny": int((runs.first & (runs.self_ps < TINY_PS)).sum()),
        "steps": len(steps),
        "ops": {
            str(names[kind]): float(by_kind[kind]) for kind in np.flatnonzero(by_kind).tolist()
        },
    }


def _self_times(activity: Activity, host: int) -> _Runs:
    """The times in which ops of a host run, those of programs compiled for the CPU among them,
    without the ops in them.
    """
    kind = "op" if activity.framework is PYTORCH else "type"
    ops = activity.host_ops
    of_program = ops.take(~ops.dataset & ~ops.in_dataset).frame()
    tables = (of_program, activity.eager_runs.frame(), activity.cpu_ops.frame())
    parts = [_pieces(table[table["host"].to_numpy() == host], kind) for table in tables]
    return _Runs.concat(parts)


def _pieces(table: pd.DataFrame, kind: str) -> _Runs:
    """Each run as the time before the first run in it, and after each of these."""
    lane, start, end = (
        table[column].to_numpy(np.int64) for column in (_lane(table), "start", "end")
    )
    order = np.lexsort((start - end, start, lane))
    lane, start, end = lane[order], start[order], end[order]
    parent = nesting.parents(lane.astype(np.int32), start, end - start).astype(np.int64)
    self_ps = np.maximum(nesting.self_times(parent.astype(np.int32), end - start), 0)
    child = np.flatnonzero(parent >= 0)
    child = child[np.argsort(parent[child], kind="stable")]
    parent_of = parent[child]
    if len(parent_of):
        follows = np.append(parent_of[1:] == parent_of[:-1], False)
    else:
        follows = np.zeros(0, np.bool_)
    next_start = np.append(start[child][1:], 0)[: len(child)]
    until = np.where(follows, next_start, end[parent_of])
    before = end.copy()
    first_child = child[np.append(True, parent_of[1:] != parent_of[:-1])[: len(parent_of)]]
    before[parent[first_child]] = start[first_child]
    run = np.concatenate([np.arange(len(start)), parent_of])
    code = table[kind].to_numpy(np.int64)[order]
    is_first = np.concatenate([np.ones(len(start), np.bool_), np.zeros(len(parent_of), np.bool_)])
    begins = np.concatenate([start, end[child]])
    ends = np.maximum(np.concatenate([before, until]), begins)
    return _Runs(begins, ends, self_ps[run], code[run], is_first)


def _lane(table: pd.DataFrame) -> str:
    return "lane" if "lane" in table else "device"


def _in_steps(runs: _Runs, begin: Int64s, stop: Int64s) -> _Runs:
    """The parts of the runs in each step: what one step launches may run on in the next."""
    run, step = Intervals(begin, stop).overlapping(runs.start, runs.end)
    pieces = runs.take(run)
    return replace(
        pieces,
        start=np.maximum(pieces.start, begin[step]),
        end=np.minimum(pieces.end, stop[step]),
        first=pieces.first & (pieces.start >= begin[step]),
    )


def _compute_and_overhead(
    activity: Activity, host: int, runs: _Runs, spans: tuple[Int64s, Int64s]
) -> tuple[float, float]:
    """Time of the steps in compute and in overhead, ps: each instant counts once, input and
    compiling before compute.
    """
    work, (begin, stop) = activity.work.frame(), spans
    rows = (work["group"].to_numpy() >= 0) & (work["host"].to_numpy() == host)
    start, end, cls = (work[column].to_numpy()[rows] for column in ("start", "end", "cls"))
    start, end = np.concatenate([start, runs.start]), np.concatenate([end, runs.end])
    cls = np.concatenate([cls, np.full(len(runs.start), _COMPUTE)]).astype(np.int16)
    step = np.searchsorted(begin, start, side="right") - 1
    in_step = (step >= 0) & (start < stop[step])
    start, cls, step = start[in_step], cls[in_step], step[in_step]
    layers = sweep.layers_of(start, np.minimum(end[in_step], stop[step]), cls)
    time = sweep.times(layers, Intervals.total)
    return float(time.get(_COMPUTE, 0)), float(time.get(HOST_COMPUTE, 0))

"""Costs of PyTorch's ops from the shapes of their inputs, in sums for the roofline."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.ops import ops
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.table import stacked, table
from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import index_by_group
from nbprof.core.trace import Int64s

_KEYS = ["name", "category", "shapes", "precision", "product", "known"]
_SUMS = ["runs", "own", "total", "flops", "normalized", "moved", "memory", "model", "again"]
_UNKNOWN_TOGETHER = ("flops", "normalized", "moved", "memory")
PRODUCTS, REST, MODEL = "products:", "rest:", "model:"
"""Prefixes of the columns of FLOPs by precision: of products, of other ops, and of products that
were not computed again.
"""


Costed = tuple[pd.DataFrame, int, int]
"""Ops with what they cost; the time in which the devices ran nothing; and what rates are over, all
in ps.

The ops are as `analysis.hlo.measured` gives those of programs, with `shapes`, `precision`,
`product`; of FLOPs also `model` (of products that were not computed again) and `again` (those that
were). Rates are over the time of the devices, idle included, without that in which they ran ops of
unknown cost alone; without devices over that of ops of known cost.
"""


def measured(activity: Activity) -> Costed:
    """The ops of one activity."""
    parts, runs = activity.cost_parts, activity.cost_runs
    count = len(parts)
    self_ps = runs.own.astype(np.float64)
    of_product = parts.product[runs.part] if count else np.zeros(0, np.bool_)
    known_flops = np.nan_to_num(runs.flops)
    each = {
        "runs": np.ones(len(runs)),
        "own": self_ps,
        "total": self_ps,
        "flops": runs.flops,
        "normalized": runs.flops,
        "moved": runs.bytes,
        "memory": runs.bytes,
        "model": np.where(of_product & ~runs.recomputed, known_flops, 0.0),
        "again": np.where(of_product & runs.recomputed, known_flops, 0.0),
    }
    columns: dict[str, Any] = dict(parts.arrays)
    for name, values in each.items():
        columns[name] = np.bincount(runs.part, values, count)
    columns["known"] = ~np.isnan(columns["flops"])
    idle, time = 0, int(self_ps[~np.isnan(runs.flops)].sum())
    if activity.has_device:
        extents = activity.device_extents
        idle = ops.device_idle(activity, activity.device_ops.frame())
        time = int((extents.end - extents.start).sum()) - int(runs.alone.sum())
    return added([(table(columns), idle, time)])


def added(hosts: list[Costed]) -> Costed:
    """The ops of several hosts together."""
    ops_of_hosts, idle, time = zip(*hosts, strict=True)
    rows = stacked(ops_of_hosts)
    # An op of which some runs are not known is two.
    first, of_row = unique_rows(*(pd.factorize(rows[key])[0].astype(np.int64) for key in _KEYS))
    columns: dict[str, Any] = {key: rows[key].to_numpy()[first] for key in _KEYS}
    unknown = ~columns["known"].astype(np.bool_)
    for key in _SUMS:
        columns[key] = _sums_by(of_row, rows[key].to_numpy(np.float64), len(first))
        if key in _UNKNOWN_TOGETHER:
            columns[key][unknown] = np.nan
    ranks = [pd.factorize(columns[key], sort=True)[0] for key in ("shapes", "name")]
    order = np.lexsort((*ranks, -columns["own"]))
    columns = {key: values[order] for key, values in columns.items()}
    costs = table(columns).assign(host=0, program=0, module="", expression="")
    return costs, sum(idle), sum(time)


def _sums_by(
    group: Int64s, values: npt.NDArray[np.float64], groups: int
) -> npt.NDArray[np.float64]:
    """The sum of the known values of each group; NaN where none is known."""
    is_known = ~np.isnan(values)
    sums = np.bincount(group[is_known], values[is_known], groups)
    return np.where(np.bincount(group[is_known], minlength=groups) > 0, sums, np.nan)


def sums_of_steps(activity: Activity, steps: pd.DataFrame) -> pd.DataFrame:
    """Costs of the ops of each step: a row per step, in the order of `steps`, for
    `analysis.roofline.by_step`.

    A run of an op belongs to the step in which it begins, on the device where there is one.

    Returns
    -------
    DataFrame
        `host`, `start_ms`, `devices`, `busy` and `unknown` (time of ops, and of those of unknown
        cost, ps), `alone` (what of the latter the devices did nothing else), `normalized`,
        `memory`, `model`, `again`, and FLOPs by precision in columns that begin with `PRODUCTS`,
        `REST` or `MODEL`.
    """
    of_steps = steps[["host", "start_ms"]].reset_index(drop=True)
    runs, parts = activity.cost_runs.frame(), activity.cost_parts.frame()
    if steps.empty or not len(runs):
        return of_steps.assign(
            **dict.fromkeys(
                ("devices", "busy", "unknown", "alone", "normalized", "memory", "model", "again"),
                0.0,
            )
        )
    step, devices = in_steps(activity, steps, runs)
    in_step = step >= 0
    part = runs["part"].to_numpy(np.int64)[in_step]
    flops = runs["flops"].to_numpy(np.float64)[in_step]
    self_ps = runs["own"].to_numpy(np.float64)[in_step]
    again = runs["recomputed"].to_numpy(np.bool_)[in_step]
    product = parts["product"].to_numpy(np.bool_)[part]

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(step[in_step], np.nan_to_num(values), len(steps))

    sums = {
        "devices": devices,
        "busy": total(self_ps),
        "unknown": total(np.where(np.isnan(flops), self_ps, 0.0)),
        "alone": total(runs["alone"].to_numpy(np.float64)[in_step]),
        "normalized": total(flops),
        "memory": total(runs["bytes"].to_numpy(np.float64)[in_step]),
        "model": total(np.where(product & ~again, flops, 0.0)),
        "again": total(np.where(product & again, flops, 0.0)),
    }
    codes, precisions = pd.factorize(parts["precision"])
    for code, precision in enumerate(precisions.tolist()):
        of_kind = codes[part] == code
        for key, rows_of_kind in ((PRODUCTS, product), (REST, ~product), (MODEL, product & ~again)):
            if (of_kind & rows_of_kind & (flops > 0)).any():
                sums[f"{key}{precision}"] = total(np.where(of_kind & rows_of_kind, flops, 0.0))
    return of_steps.assign(**sums)


def in_steps(
    activity: Activity, steps: pd.DataFrame, runs: pd.DataFrame
) -> tuple[Int64s, npt.NDArray[np.float64]]:
    """By run the row of the step in which it begins, -1 for none; by step how many devices of its
    host ran any.
    """
    if "host" in steps.columns:
        hosts = pd.Index(activity.hosts).get_indexer(pd.Index(steps["host"]))
    else:
        hosts = np.zeros(len(steps), np.int64)
    host, start = (runs[name].to_numpy(np.int64) for name in ("host", "start"))
    first, _ = unique_rows(host, runs["device"].to_numpy(np.int64))
    devices = np.bincount(host[first], minlength=len(activity.hosts))
    of_step = np.where(hosts >= 0, devices[hosts], 0.0)
    return index_by_group(step_bounds(steps), hosts, start, host), of_step

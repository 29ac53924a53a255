"""GPU kernels by name, op and launch shape: the GPU kernel stats of TensorFlow Profiler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.tables import Kernels
from nbprof.analysis import occupancy
from nbprof.analysis.steps import backlog
from nbprof.core.callstacks import BETWEEN
from nbprof.core.factorize import unique_rows
from nbprof.dialects.tensorcores import takes_only_32_bit
from nbprof.frameworks.register import PYTORCH
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]

COLUMNS = frames.names("kernels.frame")
XPROF_COLUMNS = (
    *(
        "rank",
        "kernel",
        "registers",
        "static_shared_bytes",
        "dynamic_shared_bytes",
        "block",
        "grid",
        "occupancy_percent",
    ),
    *(
        "op_tensor_core_eligible",
        "uses_tensor_core",
        "op",
        "occurrences",
        "total_us",
        "avg_us",
        "min_us",
        "max_us",
    ),
)
XPROF_ROWS = 1000
"""XProf shows only the rows with the most time."""

_GROUPED = [
    "occurrences",
    "total_us",
    "avg_us",
    "min_us",
    "max_us",
    "percent",
    "tensor_core_percent",
    "occupancy_percent",
]


def frame(activity: Activity, rows: Kernels | None = None) -> pd.DataFrame:
    """One row a kernel x op x launch shape, total time descending: the columns of
    `p.kernels.frame`.

    Occupancy is that of the first launch of the row; it is no part of the key. Where no launch of a
    row states one, it is computed. `rows` are those of `activity.kernels` that count, when given.
    """
    out = _grouped(activity.kernels if rows is None else rows, activity.launch_shapes, activity)
    if not len(out):
        return pd.DataFrame(columns=COLUMNS)
    stated = out["occupancy_percent"].to_numpy(np.float64)
    computed = _computed_occupancy(out, activity)
    out["occupancy_percent"] = np.where(np.isnan(stated), computed, stated)
    source = np.full(len(out), "recorded", object)
    source[np.isnan(stated)] = "computed"
    source[np.isnan(stated) & np.isnan(computed)] = None
    out["occupancy_source"] = source
    for key in _FLAGS:
        said = out[key].to_numpy()
        # A bool as long as each row tells; a column of three values only where one does not.
        out[key] = (
            said == 1 if (said >= 0).all() else pd.Series(said == 1, dtype="boolean").mask(said < 0)
        )
    return out.reindex(columns=COLUMNS)


_FLAGS = ("op_tensor_core_eligible", "uses_tensor_core")
_ORIGINS = ("module", "source", "aten_ops")


def _joined(texts: pd.Series) -> str | None:
    """Each of what some texts list once, in the order of the alphabet."""
    return _unique(texts.dropna().unique())


def _unique(texts: Iterable[str]) -> str | None:
    """Unique entries of several lists, sorted."""
    entries = {entry for text in texts for entry in text.split(BETWEEN)}
    return BETWEEN.join(sorted(entries)) or None


_KEY = [
    "kernel",
    "registers",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "block",
    "grid",
    "op_tensor_core_eligible",
]


def added(frames_of_hosts: list[pd.DataFrame]) -> pd.DataFrame:
    """The kernels of several hosts, of which each is given as `frame`, as it would give all of them
    together.
    """
    parts = [part for part in frames_of_hosts if len(part)]
    if not parts:
        return frames_of_hosts[0]
    rows = pd.concat(parts, ignore_index=True)
    rows["ns"] = np.round(rows["total_us"].to_numpy(np.float64) * 1000).astype(np.int64)
    # What no host has is joined for no kernel.
    told = [key for key in _ORIGINS if rows[key].notna().any()]
    grouped = rows.groupby([*_KEY, "uses_tensor_core", "op"], sort=False, dropna=False)
    out = grouped.agg(
        occurrences=("occurrences", "sum"),
        ns=("ns", "sum"),
        min_us=("min_us", "min"),
        max_us=("max_us", "max"),
        # The first that is known.
        occupancy_percent=("occupancy_percent", "first"),
        occupancy_source=("occupancy_source", "first"),
        **{key: (key, _joined) for key in told},
    ).reset_index()
    out = out.assign(**{key: None for key in _ORIGINS if key not in told})
    out["total_us"] = out["ns"] / 1000
    out["avg_us"] = (out["ns"] // out["occurrences"]) / 1000
    said = {key: out[key].to_numpy(np.float64, na_value=-1.0).astype(np.int64) for key in _FLAGS}
    order = _order(out.assign(**said), out["ns"].to_numpy(np.int64))
    out = out.iloc[order].reset_index(drop=True)
    out["rank"] = np.arange(1, len(out) + 1)
    for key in ("occupancy_source", *_ORIGINS):
        out[key] = out[key].where(out[key].notna(), None)
    return out[COLUMNS]


def in_steps(activity: Activity) -> pd.DataFrame:
    """`frame` without kernels that were launched before the recording began, for figures a step."""
    return frame(activity, activity.kernels.take(backlog.apart(activity, activity.kernels.event)))


def as_xprof(activity: Activity) -> pd.DataFrame:
    """The rows of XProf 2.24's kernel stats, in its order: `p.kernels.as_xprof()`. Empty for a file
    that XProf cannot read.
    """
    out = _grouped(activity.xprof_kernels, activity.xprof_launch_shapes, activity)
    if not len(out):
        return pd.DataFrame(columns=list(XPROF_COLUMNS))
    for key in _FLAGS:
        out[key] = out[key].to_numpy() == 1
    return out.head(XPROF_ROWS)[list(XPROF_COLUMNS)]


def _grouped(
    kernels: Kernels, launch_shapes: list[dict[str, object]], activity: Activity
) -> pd.DataFrame:
    """Launches grouped by all that tells them apart, sorted as TensorFlow Profiler does: by total
    time, then by the key itself.
    """
    if not len(kernels):
        return pd.DataFrame()
    keys = (kernels.kernel, kernels.op, kernels.details, kernels.eligible, kernels.tensor_core)
    first, code = unique_rows(*(key.astype(np.int64) for key in keys))
    duration = kernels.duration // 1000
    total, shortest, longest = np.zeros(len(first), np.int64), duration[first], duration[first]
    np.add.at(total, code, duration)
    np.minimum.at(shortest, code, duration)
    np.maximum.at(longest, code, duration)
    # The first that is stated.
    known = np.flatnonzero(~np.isnan(kernels.occupancy))[::-1]
    occupancy = np.full(len(first), np.nan)
    occupancy[code[known]] = kernels.occupancy[known]
    count = np.bincount(code)
    launches = [launch_shapes[i] for i in kernels.details[first].tolist()]
    table = pd.DataFrame(
        {
            "rank": 0,
            "kernel": activity.kernel_names.values[kernels.kernel[first]],
            **{
                k: _whole([d[k] for d in launches])
                for k in ("registers", "static_shared_bytes", "dynamic_shared_bytes")
            },
            "block": [str(d["block"]) for d in launches],
            "grid": [str(d["grid"]) for d in launches],
            "occupancy_percent": occupancy,
            "op_tensor_core_eligible": kernels.eligible[first],
            "uses_tensor_core": kernels.tensor_core[first],
            "op": activity.ops.values[kernels.op[first]],
            "occurrences": count,
            "total_us": total / 1000,
            "avg_us": (total // count) / 1000,
            "min_us": shortest / 1000,
            "max_us": longest / 1000,
            "host": kernels.host[first],
            "device": kernels.device[first],
            **{
                key: _listed(code, kernels.arrays[key].astype(np.int64), activity)
                for key in _ORIGINS
                if key in kernels
            },
        }
    )
    table = table.iloc[_order(table, total)].reset_index(drop=True)
    table["rank"] = np.arange(1, len(table) + 1)
    return table


def _listed(
    code: npt.NDArray[np.int64], said: npt.NDArray[np.int64], activity: Activity
) -> npt.NDArray[np.object_]:
    """For each group of launches what they say, as texts by code, each once; None where none says
    anything.
    """
    texts = activity.texts.values
    out = np.full(int(code.max(initial=-1)) + 1, None, object)
    known = np.flatnonzero(said >= 0)
    first, _ = unique_rows(code[known], said[known])
    of_group: dict[int, list[str]] = {}
    for group, text in zip(code[known[first]].tolist(), said[known[first]].tolist(), strict=True):
        of_group.setdefault(group, []).append(str(texts[text]))
    for group, listed in of_group.items():
        out[group] = _unique(listed)
    return out


def _order(table: pd.DataFrame, total: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    keys = [table["op"], table["op_tensor_core_eligible"], table["uses_tensor_core"]]
    keys += [
        table[c].fillna(-1) for c in ("dynamic_shared_bytes", "static_shared_bytes", "registers")
    ]
    by: list[Any] = [key.to_numpy() for key in keys]
    for name in ("block", "grid"):
        by += list(_sides(table[name]).T[::-1])
    by += [table["kernel"].to_numpy(), -total]
    # The texts as codes in their order: lexsort takes numbers.
    ranked = [pd.factorize(key, sort=True)[0] if key.dtype == object else key for key in by]
    return np.lexsort(ranked)


def _sides(shapes: pd.Series) -> Floats:
    """float64[n, 3]: x, y, z of texts like "128,1,1"; NaN where that is not what they say."""
    code, seen = pd.factorize(shapes)
    sides = np.full((len(seen), 3), np.nan)
    for i, text in enumerate(seen.tolist()):
        parts = text.split(",")
        if len(parts) == 3 and all(p.strip().isdecimal() for p in parts):
            sides[i] = [float(p) for p in parts]
    out: Floats = sides[code]
    return out


def _computed_occupancy(table: pd.DataFrame, activity: Activity) -> Floats:
    """Occupancy in percent of the rows' launch shapes on their devices; NaN where the device or a
    part of the shape is not known.
    """
    devices = activity.devices
    nvidia = {
        (activity.hosts.index(h), int(d)): (
            c,
            float(n) if n is not None and not pd.isna(n) else np.nan,
        )
        for h, d, k, name, c, n in zip(
            *(
                devices[c]
                for c in ("host", "device", "kind", "name", "compute_capability", "cores")
            ),
            strict=True,
        )
        # AMD numbers its architectures alike: 9.0 is a Hopper here, and a gfx90a there.
        if k == "GPU" and isinstance(c, str) and "AMD" not in str(name) and h in activity.hosts
    }
    if not nvidia:
        return np.full(len(table), np.nan)
    which = [
        nvidia.get(at, (None, np.nan))
        for at in zip(table["host"].tolist(), table["device"].tolist(), strict=True)
    ]
    capability = [c for c, _ in which]
    cores = np.array([n for _, n in which], np.float64)
    threads, blocks = (np.prod(_sides(table[c]), axis=1) for c in ("block", "grid"))
    registers, static, dynamic = (
        table[c].to_numpy(np.float64, na_value=np.nan)
        for c in ("registers", "static_shared_bytes", "dynamic_shared_bytes")
    )
    shared = static + np.where(np.isnan(dynamic), 0, dynamic)
    if activity.framework is PYTORCH:
        # What the file itself estimates for other launches counts the grid.
        return occupancy.achieved_percent(capability, threads, registers, shared, blocks, cores)
    return occupancy.theoretical_percent(capability, threads, registers, shared)


def by_name(kernels: pd.DataFrame) -> pd.DataFrame:
    """One row per kernel, total time descending: `p.kernels.by_name()`."""
    return _summed(kernels, "kernel", "op", "ops")


def by_op(kernels: pd.DataFrame) -> pd.DataFrame:
    """One row per op, total time descending: `p.kernels.by_op()`. Kernels without an op are one
    row, of the empty name.
    """
    return _summed(kernels, "op", "kernel", "kernels")


def _summed(kernels: pd.DataFrame, key: str, other: str, counted: str) -> pd.DataFrame:
    columns = [key, counted, *_GROUPED]
    if not len(kernels):
        return pd.DataFrame(columns=columns)
    time = kernels["total_us"].to_numpy(np.float64)
    uses = kernels["uses_tensor_core"].to_numpy(np.float64, na_value=np.nan)
    occupied = kernels["occupancy_percent"].to_numpy(np.float64, na_value=np.nan)
    parts = pd.DataFrame(
        {
            "occurrences": kernels["occurrences"].to_numpy(np.int64),
            "total_us": time,
            "known": np.where(np.isnan(uses), 0, time),
            "used": np.where(uses == 1, time, 0),
            "occupied": np.where(np.isnan(occupied), 0, time),
            "weighted": np.where(np.isnan(occupied), 0, occupied * time),
        }
    )
    row, names = pd.factorize(kernels[key].to_numpy(object), sort=True)
    # All sums in one pass.
    sums = {str(name): column.to_numpy() for name, column in parts.groupby(row).sum().items()}
    pairs, _ = unique_rows(row.astype(np.int64), pd.factorize(kernels[other])[0].astype(np.int64))
    shortest, longest = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    np.minimum.at(shortest, row, kernels["min_us"].to_numpy(np.float64))
    np.maximum.at(longest, row, kernels["max_us"].to_numpy(np.float64))
    figures = {
        key: names,
        counted: np.bincount(row[pairs]),
        "occurrences": sums["occurrences"],
        "total_us": sums["total_us"],
        "avg_us": sums["total_us"] / sums["occurrences"],
        "min_us": shortest,
        "max_us": longest,
        "percent": 100 * sums["total_us"] / time.sum(),
        # Of the time of kernels whose name tells; none does where all were compiled by Triton.
        "tensor_core_percent": 100
        * sums["used"]
        / np.where(sums["known"] > 0, sums["known"], np.nan),
        "occupancy_percent": sums["weighted"]
        / np.where(sums["occupied"] > 0, sums["occupied"], np.nan),
    }
    order = np.argsort(-sums["total_us"], kind="stable")
    return pd.DataFrame({name: figures[name][order] for name in columns})


def fixed_type_percent(kernels: pd.DataFrame) -> float:
    """Percent of kernel time in hand-written kernels that take only 32-bit numbers, which no
    setting of a framework changes.
    """
    total = float(kernels["total_us"].sum()) if len(kernels) else 0.0
    if not total:
        return 0.0
    code, names = pd.factorize(kernels["kernel"].astype(object))
    fixed = np.array([takes_only_32_bit(str(name)) for name in names], np.bool_)[code]
    # What an op of PyTorch launches follows its autocast.
    fixed &= ~kernels["op"].astype(str).str.startswith("aten::").to_numpy(np.bool_)
    return 100 * float(kernels["total_us"].to_numpy(np.float64)[fixed].sum()) / total


def mean_occupancy(kernels: pd.DataFrame) -> float | None:
    """Mean occupancy in percent, each row weighted by its time; None where no row has one."""
    if not len(kernels):
        return None
    value = kernels["occupancy_percent"].to_numpy(np.float64, na_value=np.nan)
    time = np.where(np.isnan(value), 0, kernels["total_us"].to_numpy(np.float64))
    return float((np.nan_to_num(value) * time).sum() / time.sum()) if time.sum() > 0 else None


def _whole(values: list[object]) -> pd.Series:
    return pd.Series(values, dtype="Int64")

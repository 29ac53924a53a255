"""GPU kernels by name, op and launch shape: the GPU kernel stats of TensorFlow Profiler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.activity.tables import Kernels
from nbprof.analysis import occupancy
from nbprof.analysis.steps import backlog
from nbprof.analysis.table import positions, stacked
from nbprof.core.callstacks import BETWEEN
from nbprof.core.factorize import unique_rows
from nbprof.dialects.tensorcores import takes_only_32_bit
from nbprof.frameworks.register import PYTORCH
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]

COLUMNS = frames.names("kernels.frame")
XPROF_COLUMNS = (
    "rank",
    "kernel",
    "registers",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "block",
    "grid",
    "occupancy_percent",
    "op_tensor_core_eligible",
    "uses_tensor_core",
    "op",
    "occurrences",
    "total_us",
    "avg_us",
    "min_us",
    "max_us",
)
XPROF_ROWS = 1000
"""XProf shows only the rows with the most time."""

_SUMMED = [
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
    """One row per kernel, op and launch shape, total time descending: the columns of
    `p.kernels.frame`.

    Occupancy is that of the first launch of the row; rows do not differ in it alone. It is computed
    if no launch of a row states one.

    Parameters
    ----------
    activity : Activity
    rows : Kernels, optional
        The kernels that count; all by default.
    """
    kernels = activity.kernels if rows is None else rows
    table = _grouped(kernels, activity.launch_shapes, activity)
    if not len(table):
        return pd.DataFrame(columns=COLUMNS)
    recorded = table["occupancy_percent"].to_numpy(np.float64)
    computed = _computed_occupancy(table, activity)
    table["occupancy_percent"] = np.where(np.isnan(recorded), computed, recorded)
    source = np.full(len(table), "recorded", object)
    source[np.isnan(recorded)] = "computed"
    source[np.isnan(recorded) & np.isnan(computed)] = None
    table["occupancy_source"] = source
    for key in _FLAGS:
        flags = table[key].to_numpy()
        table[key] = flags == 1
        if (flags < 0).any():
            # Three values only where some are unknown.
            table[key] = pd.Series(flags == 1, dtype="boolean").mask(flags < 0)
    return table.reindex(columns=COLUMNS)


_FLAGS = ("op_tensor_core_eligible", "uses_tensor_core")
_ORIGINS = ("module", "source", "aten_ops")


def _unique_entries(texts: Iterable[str]) -> str | None:
    """Unique entries of several lists, sorted, as one list; None without any."""
    entries: set[str] = set()
    for text in texts:
        entries.update(text.split(BETWEEN))
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
    """The kernels of several hosts together; of each host the result of `frame`."""
    rows = stacked(frames_of_hosts)
    if not len(rows):
        return frames_of_hosts[0]
    rows["ns"] = np.round(rows["total_us"].to_numpy(np.float64) * 1000).astype(np.int64)
    origins = [key for key in _ORIGINS if rows[key].notna().any()]
    grouped = rows.groupby([*_KEY, "uses_tensor_core", "op"], sort=False, dropna=False)
    table = grouped.agg(
        occurrences=("occurrences", "sum"),
        ns=("ns", "sum"),
        min_us=("min_us", "min"),
        max_us=("max_us", "max"),
        # The first that is not missing.
        occupancy_percent=("occupancy_percent", "first"),
        occupancy_source=("occupancy_source", "first"),
        **{key: (key, lambda texts: _unique_entries(texts.dropna().unique())) for key in origins},
    ).reset_index()
    table = table.assign(**{key: None for key in _ORIGINS if key not in origins})
    table["total_us"] = table["ns"] / 1000
    table["avg_us"] = (table["ns"] // table["occurrences"]) / 1000
    flags = {key: table[key].to_numpy(np.float64, na_value=-1.0).astype(np.int64) for key in _FLAGS}
    order = _order(table.assign(**flags), table["ns"].to_numpy(np.int64))
    table = table.iloc[order].reset_index(drop=True)
    table["rank"] = np.arange(1, len(table) + 1)
    for key in ("occupancy_source", *_ORIGINS):
        table[key] = table[key].where(table[key].notna(), None)
    return table[COLUMNS]


def in_steps(activity: Activity) -> pd.DataFrame:
    """`frame` without kernels launched before the recording began, for figures per step."""
    return frame(
        activity,
        activity.kernels.take(backlog.not_launched_before(activity, activity.kernels.event)),
    )


def as_xprof(activity: Activity) -> pd.DataFrame:
    """The rows of XProf 2.24's kernel stats, in its order: `p.kernels.as_xprof()`. Empty for a file
    that XProf cannot read.
    """
    table = _grouped(activity.xprof_kernels, activity.xprof_launch_shapes, activity)
    if not len(table):
        return pd.DataFrame(columns=list(XPROF_COLUMNS))
    for key in _FLAGS:
        table[key] = table[key].to_numpy() == 1
    return table.head(XPROF_ROWS)[list(XPROF_COLUMNS)]


def _grouped(
    kernels: Kernels, launch_shapes: list[dict[str, object]], activity: Activity
) -> pd.DataFrame:
    """Launches grouped by kernel, op and shape, sorted as TensorFlow Profiler does: by total time,
    then by the key.
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
    # The first of a group: the last assignment wins.
    recorded = np.flatnonzero(~np.isnan(kernels.occupancy))[::-1]
    occupancy = np.full(len(first), np.nan)
    occupancy[code[recorded]] = kernels.occupancy[recorded]
    count = np.bincount(code)
    shapes = [launch_shapes[i] for i in kernels.details[first].tolist()]
    columns: dict[str, Any] = {
        "rank": 0,
        "kernel": activity.kernel_names.values[kernels.kernel[first]],
        "registers": _nullable([shape["registers"] for shape in shapes]),
        "static_shared_bytes": _nullable([shape["static_shared_bytes"] for shape in shapes]),
        "dynamic_shared_bytes": _nullable([shape["dynamic_shared_bytes"] for shape in shapes]),
        "block": [str(shape["block"]) for shape in shapes],
        "grid": [str(shape["grid"]) for shape in shapes],
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
    }
    for key in _ORIGINS:
        if key in kernels:
            columns[key] = _entries_of_groups(code, kernels.arrays[key].astype(np.int64), activity)
    table = pd.DataFrame(columns)
    table = table.iloc[_order(table, total)].reset_index(drop=True)
    table["rank"] = np.arange(1, len(table) + 1)
    return table


def _entries_of_groups(
    code: npt.NDArray[np.int64], text: npt.NDArray[np.int64], activity: Activity
) -> npt.NDArray[np.object_]:
    """By group, the unique entries of its texts, which are lists; None for groups without any.

    `code` is the group of each launch, `text` a code into `Activity.texts`, -1 for none.
    """
    texts = activity.texts.values
    entries = np.full(int(code.max(initial=-1)) + 1, None, object)
    has_text = np.flatnonzero(text >= 0)
    first, _ = unique_rows(code[has_text], text[has_text])
    rows = has_text[first]
    texts_of_group: dict[int, list[str]] = {}
    for group, text_code in zip(code[rows].tolist(), text[rows].tolist(), strict=True):
        texts_of_group.setdefault(group, []).append(str(texts[text_code]))
    for group, of_group in texts_of_group.items():
        entries[group] = _unique_entries(of_group)
    return entries


def _order(table: pd.DataFrame, total: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The rows by total time, most first, then by the key; `lexsort` takes the last key first."""
    arrays: list[Any] = []
    for name in ("op", "op_tensor_core_eligible", "uses_tensor_core"):
        arrays.append(table[name].to_numpy())
    for name in ("dynamic_shared_bytes", "static_shared_bytes", "registers"):
        arrays.append(table[name].fillna(-1).to_numpy())
    for name in ("block", "grid"):
        arrays += list(_sides(table[name]).T[::-1])
    arrays += [table["kernel"].to_numpy(), -total]
    for number, array in enumerate(arrays):
        # Texts as codes in their order: lexsort takes numbers.
        if array.dtype == object:
            arrays[number], _ = pd.factorize(array, sort=True)
    return np.lexsort(arrays)


def _sides(shapes: pd.Series) -> Floats:
    """float64[n, 3]: x, y, z of texts like "128,1,1"; NaN for other texts."""
    code, distinct = pd.factorize(shapes)
    sides = np.full((len(distinct), 3), np.nan)
    for row, text in enumerate(distinct.tolist()):
        parts = text.split(",")
        if len(parts) == 3 and all(part.strip().isdecimal() for part in parts):
            sides[row] = [float(part) for part in parts]
    result: Floats = sides[code]
    return result


def _computed_occupancy(table: pd.DataFrame, activity: Activity) -> Floats:
    """Occupancy in percent of the rows' launch shapes on their devices; NaN if the device or a part
    of the shape is unknown.
    """
    gpus = _nvidia_gpus(activity)
    if not gpus:
        return np.full(len(table), np.nan)
    unknown = _Gpu(None, np.nan)
    keys = zip(table["host"].tolist(), table["device"].tolist(), strict=True)
    of_rows = [gpus.get(key, unknown) for key in keys]
    capability = [gpu.capability for gpu in of_rows]
    cores = np.array([gpu.cores for gpu in of_rows], np.float64)
    threads, blocks = (np.prod(_sides(table[column]), axis=1) for column in ("block", "grid"))
    registers, static, dynamic = (
        table[column].to_numpy(np.float64, na_value=np.nan)
        for column in ("registers", "static_shared_bytes", "dynamic_shared_bytes")
    )
    shared = static + np.where(np.isnan(dynamic), 0, dynamic)
    if activity.framework is PYTORCH:
        # PyTorch's own estimates, where the file has them, count the grid.
        return occupancy.achieved_percent(capability, threads, registers, shared, blocks, cores)
    return occupancy.theoretical_percent(capability, threads, registers, shared)


class _Gpu(NamedTuple):
    """Compute capability and number of multiprocessors (NaN if unknown) of a GPU."""

    capability: str | None
    cores: float


def _nvidia_gpus(activity: Activity) -> dict[tuple[int, int], _Gpu]:
    """The GPUs of NVIDIA with a known compute capability, by host and device."""
    hosts = positions(activity.hosts)
    gpus: dict[tuple[int, int], _Gpu] = {}
    for row in activity.devices.to_dict("records"):
        capability, cores = row["compute_capability"], row["cores"]
        # AMD numbers its architectures alike: 9.0 is a Hopper here, and a gfx90a there.
        if row["kind"] != "GPU" or not isinstance(capability, str) or "AMD" in str(row["name"]):
            continue
        if row["host"] in hosts:
            cores = np.nan if cores is None or pd.isna(cores) else float(cores)
            gpus[hosts[row["host"]], int(row["device"])] = _Gpu(capability, cores)
    return gpus


def by_name(kernels: pd.DataFrame) -> pd.DataFrame:
    """One row per kernel, total time descending: `p.kernels.by_name()`."""
    return _summed(kernels, "kernel", "op", "ops")


def by_op(kernels: pd.DataFrame) -> pd.DataFrame:
    """One row per op, total time descending: `p.kernels.by_op()`. Kernels without an op are one
    row, of the empty name.
    """
    return _summed(kernels, "op", "kernel", "kernels")


def _summed(kernels: pd.DataFrame, key: str, other: str, counted: str) -> pd.DataFrame:
    columns = [key, counted, *_SUMMED]
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
        # Kernels of no recorded duration have no shares.
        "percent": 100 * sums["total_us"] / (time.sum() or np.nan),
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
    # Kernels that an op of PyTorch launches follow its autocast.
    fixed &= ~kernels["op"].astype(str).str.startswith("aten::").to_numpy(np.bool_)
    return 100 * float(kernels["total_us"].to_numpy(np.float64)[fixed].sum()) / total


def mean_occupancy(kernels: pd.DataFrame) -> float | None:
    """Mean occupancy in percent, each row weighted by its time; None where no row has one."""
    if not len(kernels):
        return None
    percent = kernels["occupancy_percent"].to_numpy(np.float64, na_value=np.nan)
    time = np.where(np.isnan(percent), 0, kernels["total_us"].to_numpy(np.float64))
    if not time.sum() > 0:
        return None
    return float((np.nan_to_num(percent) * time).sum() / time.sum())


def _nullable(values: list[object]) -> pd.Series:
    return pd.Series(values, dtype="Int64")

"""Hardware counters of an NPU's cores: which pipes an op keeps busy, and what it waits for.

A capture has one group of counters (`aic_metrics`). The names of its columns depend on the chip:
with `aic_` (cube core) and `aiv_` (vector core) on Atlas A2 and A3, without on 910A and 310.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.analysis.ascend.ascend import COMMUNICATION, Floats, floats, quotients
from nbprof.schema import frames

PIPES = {
    "mac": "cube",
    "vec": "vector",
    "scalar": "scalar",
    "mte1": "MTE1",
    "mte2": "MTE2",
    "mte3": "MTE3",
    "fixpipe": "fixpipe",
}
"""Pipes by the word in the names of columns, and what they are called: cube multiplies matrices;
MTE1 moves from L1 to L0, MTE2 from the memory of the device to the core, MTE3 back; fixpipe takes
results out of L0C."""
SATURATED = 0.8
"""Above this share of cycles, a pipe is the op's bound."""
LONG_US = 20.0
"""Ops shorter than this are not worth tuning one by one."""
_SIDES = ("aic_", "aiv_", "")

GROUPS = {
    "PipeUtilization": ("mac_ratio", "vec_ratio", "mte2_ratio"),
    "ArithmeticUtilization": ("mac_fp16_ratio", "vec_fp32_ratio", "cube_fops", "vector_fops"),
    "Memory": ("main_mem_read_bw_gb_per_second", "ub_read_bw_gb_per_second"),
    "MemoryL0": ("l0a_read_bw_gb_per_second", "l0c_read_bw_cube_gb_per_second"),
    "MemoryUB": ("ub_read_bw_scalar_gb_per_second", "ub_read_bw_vector_gb_per_second"),
    "ResourceConflictRatio": ("vec_bankgroup_cflt_ratio", "vec_bank_cflt_ratio"),
    "L2Cache": ("r0_read_cache_hit", "write_cache_hit", "read_local_l2_hit"),
    "MemoryAccess": ("read_main_memory_datas_bytes",),
    "PipelineExecuteUtilization": ("mac_exe_ratio", "vec_exe_ratio"),
}
"""Counter groups, by columns that only they have."""
_HITS = (
    ("write_cache_hit", "write_cache_miss_allocate"),
    ("r0_read_cache_hit", "r0_read_cache_miss_allocate"),
    ("r1_read_cache_hit", "r1_read_cache_miss_allocate"),
    ("read_local_l2_hit", "read_local_l2_miss"),
    ("write_local_l2_hit", "write_local_l2_miss"),
)


_FRACTIONS = [f"{name.lower()}_fraction" for name in PIPES.values()]
_COLUMNS_OF_OPS = [
    "host",
    "device",
    "op",
    "op_type",
    "task_type",
    "core",
    "stream",
    "task",
    "iteration",
    "start_ms",
    "duration_us",
    "block_num",
]
COLUMNS = frames.names("ascend.pmu.frame")


def groups(tasks: pd.DataFrame) -> list[str]:
    """The groups of counters of which a table of tasks has a number."""
    columns = {_bare(str(name)): str(name) for name in tasks.columns}
    result = []
    for group, marks in GROUPS.items():
        recorded = [floats(tasks, columns[mark]) for mark in marks if mark in columns]
        if any(np.isfinite(counter).any() for counter in recorded):
            result.append(group)
    return result


def frame(
    tasks: pd.DataFrame, ops: pd.DataFrame, cache: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per task that has counters; the columns of `SCHEMA["ascend.pmu.frame"]`.

    Parameters
    ----------
    tasks : DataFrame
        The tables `op_summary`, gathered.
    ops : DataFrame
        Of `ascend_ops.frame`, of the same rows.
    cache : DataFrame, optional
        The tables `l2_cache`, gathered: hit rates by device, stream and task, where op_summary has
        none.
    """
    table = ops[_COLUMNS_OF_OPS].copy()
    ran = {side: _used(tasks, side) for side in _SIDES}
    for word, name in PIPES.items():
        table[f"{name.lower()}_fraction"] = _largest(tasks, f"{word}_ratio", ran)
    table["core_us"] = np.fmax(
        _largest(tasks, "aicore_time_us", {"": ran["aic_"] | ran[""]}),
        _largest(tasks, "aiv_time_us", {"": ran["aiv_"]}),
    )
    busiest = _busiest_pipe(table)
    table["bound_by"], table["bound_fraction"] = busiest.name, busiest.fraction
    table["memory_bound"] = _memory_bound(tasks, table)
    table["cube_utilization_fraction"] = floats(tasks, "cube_utilization_percent") / 100
    table["icache_miss_fraction"] = _largest(tasks, "icache_miss_rate", ran)
    table["bank_group_conflict_fraction"] = _largest(tasks, "vec_bankgroup_cflt_ratio", ran)
    table["bank_conflict_fraction"] = _largest(tasks, "vec_bank_cflt_ratio", ran)
    table["cache_hit_fraction"] = _hits(tasks, table, cache)
    table["read_bytes_per_second"] = _sum(tasks, "main_mem_read_bw_gb_per_second") * 1e9
    table["write_bytes_per_second"] = _sum(tasks, "main_mem_write_bw_gb_per_second") * 1e9
    numbers = [name for name in COLUMNS if name not in _COLUMNS_OF_OPS and name != "bound_by"]
    recorded = np.isfinite(table[numbers].to_numpy(np.float64)).any(axis=1) & (
        table["core"] != COMMUNICATION
    ).to_numpy(np.bool_)
    rows: pd.DataFrame = table.loc[recorded, COLUMNS]
    return rows.reset_index(drop=True)


def _bare(name: str) -> str:
    """The name of a counter without its side."""
    return name[4:] if name.startswith(("aic_", "aiv_")) else name


def _used(tasks: pd.DataFrame, side: str) -> Any:
    """True if a task used the cores of a side; the unused side has zeros in all columns."""
    cycles = floats(tasks, f"{side}total_cycles")
    time = floats(tasks, "aiv_time_us" if side == "aiv_" else "aicore_time_us")
    used = np.where(np.isfinite(cycles), cycles, time)
    # Tables without cycles still have ratios.
    return ~(used <= 0)


def _largest(tasks: pd.DataFrame, name: str, used: dict[str, Any]) -> Floats:
    """A counter of the side that was used; the larger of both; NaN if neither has it."""
    largest = np.full(len(tasks), np.nan)
    for side, ran in used.items():
        largest = np.fmax(largest, np.where(ran, floats(tasks, f"{side}{name}"), np.nan))
    return largest


class _Busiest(NamedTuple):
    """The busiest pipe of each row, '' if none is busy, and the fraction of its cycles."""

    name: Any
    fraction: Floats


def _busiest_pipe(table: pd.DataFrame) -> _Busiest:
    ratios = table[_FRACTIONS].to_numpy(np.float64)
    best = np.nan_to_num(ratios, nan=-1.0).argmax(axis=1)
    fraction = ratios[np.arange(len(table)), best] if len(table) else np.zeros(0)
    labels = np.array(list(PIPES.values()), object)
    return _Busiest(np.where(fraction > 0, labels[best], ""), fraction)


def _sum(tasks: pd.DataFrame, name: str) -> Floats:
    """A counter of both sides together; NaN where neither has it."""
    values = np.stack([floats(tasks, f"{side}{name}") for side in _SIDES])
    return np.where(np.isfinite(values).any(axis=0), np.nansum(values, axis=0), np.nan)


def _memory_bound(tasks: pd.DataFrame, table: pd.DataFrame) -> Floats:
    """MTE2 by the larger of cube and vector, which msprof writes for older chips itself."""
    compute = np.fmax(
        table["cube_fraction"].to_numpy(np.float64), table["vector_fraction"].to_numpy(np.float64)
    )
    moved = table["mte2_fraction"].to_numpy(np.float64)
    ratio = np.divide(moved, compute, out=np.full(len(table), np.nan), where=compute > 0)
    reported = floats(tasks, "memory_bound")
    return np.asarray(np.where(np.isfinite(reported), reported, ratio))


def _hits(tasks: pd.DataFrame, ops: pd.DataFrame, cache: pd.DataFrame | None) -> Floats:
    """The hit rate of the L2 cache of each task, from its counters or the table l2_cache."""
    hit, miss = np.zeros(len(tasks)), np.zeros(len(tasks))
    for good, bad in _HITS:
        hits, misses = _sum(tasks, good), _sum(tasks, bad)
        recorded = np.isfinite(hits) & np.isfinite(misses)
        hit, miss = hit + np.where(recorded, hits, 0), miss + np.where(recorded, misses, 0)
    rate: Floats = np.full(len(tasks), np.nan)
    np.divide(hit, hit + miss, out=rate, where=hit + miss > 0)
    if cache is None or not len(cache):
        return rate
    return np.asarray(np.where(np.isfinite(rate), rate, _hit_rates_of_tasks(ops, cache)))


def _hit_rates_of_tasks(ops: pd.DataFrame, cache: pd.DataFrame) -> Floats:
    """The hit rates of l2_cache by device, stream and task; NaN if it does not have a task."""
    keys = ["host", "device", "stream", "task"]
    table = pd.DataFrame(
        {
            "host": cache["host"].to_numpy(object),
            "device": cache["device"].to_numpy(np.int64),
            "stream": pd.array(floats(cache, "stream_id"), dtype="Float64"),
            "task": pd.array(floats(cache, "task_id"), dtype="Float64"),
            "rate": floats(cache, "hit_rate"),
        }
    ).drop_duplicates(keys)
    tasks = ops[keys].astype({"stream": "Float64", "task": "Float64"}).dropna()
    rates = tasks.reset_index().merge(table, on=keys).set_index("index")["rate"]
    return np.asarray(rates.reindex(ops.index).to_numpy(np.float64))


def by_type(pmu: pd.DataFrame) -> pd.DataFrame:
    """Counters by type of op, most time first: means weighted by duration, and the bound that takes
    most of the time.

    The columns of `SCHEMA["ascend.pmu.types"]`.
    """
    averaged = [name for name in COLUMNS if name.endswith("_fraction") and name != "bound_fraction"]
    averaged += ["memory_bound", "read_bytes_per_second", "write_bytes_per_second"]
    names = [
        "op_type",
        "core",
        "tasks",
        "duration_us",
        "core_us",
        "bound_by",
        "bound_fraction",
        "saturated_fraction",
        *averaged,
    ]
    if not len(pmu):
        return pd.DataFrame(columns=names)
    keys = ["op_type", "core"]
    weight = pmu["duration_us"].fillna(0).to_numpy(np.float64)
    weighted, weights = pmu[keys].copy(), pmu[keys].copy()
    for name in averaged:
        values = pmu[name].to_numpy(np.float64)
        recorded = np.isfinite(values)
        weighted[name] = np.where(recorded, values, 0) * weight
        weights[name] = np.where(recorded, weight, 0)
    weighted["saturated"] = (pmu["bound_fraction"].to_numpy(np.float64) > SATURATED) * weight
    weighted = weighted.groupby(keys, sort=False).sum()
    weights = weights.groupby(keys, sort=False).sum()
    groups = pmu.groupby(keys, sort=False)
    table = groups.agg(tasks=("op", "size"), duration_us=("duration_us", "sum"))
    table["core_us"] = groups["core_us"].sum(min_count=1)
    for name in averaged:
        table[name] = quotients(
            weighted[name].to_numpy(np.float64), weights[name].to_numpy(np.float64)
        )
    busiest = _busiest_pipe(table)
    table["bound_by"], table["bound_fraction"] = busiest.name, busiest.fraction
    duration = table["duration_us"].to_numpy(np.float64)
    table["saturated_fraction"] = quotients(weighted["saturated"].to_numpy(np.float64), duration)
    table.loc[np.isnan(busiest.fraction), "saturated_fraction"] = np.nan
    table = table.reset_index().sort_values(
        "duration_us", ascending=False, kind="stable", ignore_index=True
    )
    return table[names]

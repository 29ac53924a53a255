"""Tasks of an NPU: what ran where, by op, by type and by kind of core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend.ascend import (
    CORES,
    KEYS,
    NOT_TOLD,
    Int64s,
    floats,
    integers,
    moments,
    nullable,
    quotients,
    texts,
)
from nbprof.core.intervals import Intervals
from nbprof.display import wording
from nbprof.schema import frames

_PS_OF_US, _PS_OF_MS = 1e6, 1e9
_TEXTS = (
    "input_shapes",
    "input_data_types",
    "input_formats",
    "output_shapes",
    "output_data_types",
    "output_formats",
)
OPS = frames.names("ascend.ops.frame")
TYPES = frames.names("ascend.op_types.frame")
_COMPUTE = (ascend.AI_CORE, ascend.VECTOR, ascend.MIX, ascend.AI_CPU)
CORE_COLUMNS = frames.names("ascend.op_types.cores")


_SUMS = {"size": "tasks", "sum": "total_us", "mean": "avg_us", "min": "min_us", "max": "max_us"}


def frame(tasks: pd.DataFrame, iterations: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per task in the order of the file; the columns of `SCHEMA["ascend.ops.frame"]`.

    The file's own `Task Wait Time` counts from the row before, whatever its stream or device;
    `wait_us` counts from the end of all tasks of the same stream before.

    Parameters
    ----------
    tasks : DataFrame
        The tables `op_summary`, gathered.
    iterations : DataFrame, optional
        Of `ascend_iterations.frame`: which iteration a task began in.
    """
    start, recorded = moments(tasks, "start_ps")
    duration = floats(tasks, "duration_us")
    task_type = texts(tasks, "task_type")
    stream = integers(tasks, "stream_id")
    data: dict[str, Any] = {
        "host": tasks["host"],
        "device": tasks["device"],
        "model": nullable(integers(tasks, "model_id")),
        "stream": nullable(stream),
        "task": nullable(integers(tasks, "task_id")),
        "op": texts(tasks, "op_name"),
        "op_type": texts(tasks, "op_type"),
        "task_type": task_type,
        "core": ascend.cores(task_type),
        "op_state": texts(tasks, "op_state"),
        "iteration": _iteration(tasks, start, recorded, iterations),
        "start_ms": np.where(recorded, start / _PS_OF_MS, np.nan),
        "duration_us": duration,
        "wait_us": waits(tasks, stream, start, recorded, duration),
        "reported_wait_us": floats(tasks, "wait_us"),
        "block_num": nullable(integers(tasks, "block_num")),
        "mix_block_num": nullable(integers(tasks, "mix_block_num")),
        "hf32_eligible": texts(tasks, "hf32_eligible"),
    }
    data |= {name: texts(tasks, name) for name in _TEXTS}
    return pd.DataFrame(data)[OPS]


def waits(
    tasks: pd.DataFrame, group: Int64s, start: Int64s, recorded: Any, duration_us: Any
) -> Any:
    """Time in us from the end of all earlier tasks of a group on a device to the start of each; NaN
    for the first, and if unknown.

    A negative group is none.
    """
    recorded = recorded & np.isfinite(duration_us) & (group >= 0)
    end = start + np.nan_to_num(duration_us * _PS_OF_US).astype(np.int64)
    rows = pd.DataFrame(
        {
            "host": tasks["host"].to_numpy(),
            "device": tasks["device"].to_numpy(),
            "group": group,
            "start": start,
            "end": end,
        }
    )
    rows = rows[recorded].sort_values([*KEYS, "group", "start"], kind="stable")
    groups = rows.groupby([*KEYS, "group"], sort=False)["end"]
    reach, first = groups.cummax(), groups.cumcount() == 0
    gap = rows["start"] - reach.shift(1, fill_value=0)
    result = np.full(len(tasks), np.nan)
    result[rows.index] = np.where(first, np.nan, np.maximum(gap, 0) / _PS_OF_US)
    return result


def _iteration(
    tasks: pd.DataFrame, start: Int64s, recorded: Any, iterations: pd.DataFrame | None
) -> Any:
    """The iteration of the main model of its device in which each task began; NA without one."""
    result = np.full(len(tasks), NOT_TOLD, np.int64)
    if iterations is None or not len(iterations) or not recorded.any():
        return nullable(result)
    timed = iterations["start_ms"].notna() & iterations["iteration_ms"].notna()
    host, device = tasks["host"].to_numpy(), tasks["device"].to_numpy()
    for key, of_device in iterations[timed & iterations["main"]].groupby(KEYS):
        of_device = of_device.sort_values("start_ms", kind="stable")
        low = of_device["start_ms"].to_numpy(np.float64) * _PS_OF_MS
        high = low + of_device["iteration_ms"].to_numpy(np.float64) * _PS_OF_MS
        rows = np.flatnonzero((host == key[0]) & (device == key[1]) & recorded)
        index = np.searchsorted(low, start[rows], "right") - 1
        in_iteration = (index >= 0) & (start[rows] < high[index])
        numbers = of_device["iteration"].to_numpy(np.int64)
        result[rows[in_iteration]] = numbers[index[in_iteration]]
    return nullable(result)


def types(ops: pd.DataFrame | None, statistic: pd.DataFrame | None) -> pd.DataFrame:
    """Time by type of op and kind of core, most first; the columns of
    `SCHEMA["ascend.op_types.frame"]`.

    Parameters
    ----------
    ops : DataFrame or None
        Of `frame`; used only for devices that have no rows in `statistic`, which has all tasks,
        while op_summary may be truncated.
    statistic : DataFrame or None
        The tables `op_statistic`, gathered.
    """
    tables = []
    if statistic is not None and len(statistic):
        tables.append(_counted_types(statistic))
    if ops is not None and len(ops):
        listed = _listed_types(ops)
        for counted in tables[:1]:
            devices = pd.MultiIndex.from_frame(counted[KEYS])
            listed = listed[~pd.MultiIndex.from_frame(listed[KEYS]).isin(devices)]
        tables.append(listed)
    tables = [table for table in tables if len(table)]
    if not tables:
        return pd.DataFrame(columns=TYPES)
    result = pd.concat(tables, ignore_index=True)
    device_us = result.groupby(KEYS)["total_us"].transform("sum").to_numpy(np.float64)
    result["fraction"] = quotients(result["total_us"].to_numpy(np.float64), device_us)
    result = result.sort_values(
        [*KEYS, "total_us", "op_type"],
        ascending=[True, True, False, True],
        kind="stable",
        ignore_index=True,
    )
    return result[TYPES]


def _counted_types(statistic: pd.DataFrame) -> pd.DataFrame:
    """The types of op_statistic."""
    count, total = integers(statistic, "count", 0), floats(statistic, "total_us")
    task_type = texts(statistic, "core_type")
    return pd.DataFrame(
        {
            "host": statistic["host"],
            "device": statistic["device"],
            "model": texts(statistic, "model_name"),
            "op_type": texts(statistic, "op_type"),
            "task_type": task_type,
            "core": ascend.cores(task_type),
            "tasks": count,
            "total_us": total,
            "avg_us": quotients(total, count),
            "min_us": floats(statistic, "min_us"),
            "max_us": floats(statistic, "max_us"),
            "source": "op_statistic",
        }
    )


def _listed_types(ops: pd.DataFrame) -> pd.DataFrame:
    """The types of op_summary as op_statistic counts them, without communication."""
    rows = ops[(ops["core"] != ascend.COMMUNICATION) & ops["duration_us"].notna()]
    keys = [*KEYS, "op_type", "task_type", "core"]
    durations = rows.groupby(keys, sort=False)["duration_us"]
    sums = durations.agg(["size", "sum", "mean", "min", "max"]).reset_index()
    return sums.rename(columns=_SUMS).assign(model="", source="op_summary")


def disagreement(ops: pd.DataFrame, statistic: pd.DataFrame) -> str:
    """A sentence if op_statistic counts other tasks than op_summary lists; '' if they agree to a
    thousandth, or if one is absent.
    """
    if not len(ops) or not len(statistic) or "total_us" not in statistic:
        return ""
    counted, listed = _counted_types(statistic), _listed_types(ops)
    counted_keys = pd.MultiIndex.from_frame(counted[KEYS])
    listed_keys = pd.MultiIndex.from_frame(listed[KEYS])
    counted_us = float(counted["total_us"][counted_keys.isin(listed_keys)].sum())
    listed_us = float(listed["total_us"][listed_keys.isin(counted_keys)].sum())
    if not (counted_us > 0 and listed_us > 0):
        return ""
    if abs(counted_us - listed_us) <= 1e-3 * max(counted_us, listed_us):
        return ""
    return (
        f"op_statistic counts {wording.micros(counted_us)} of tasks, and the tasks that op_summary"
        f" lists take {wording.micros(listed_us)}: one of them is not complete."
    )


def by_core(ops: pd.DataFrame) -> pd.DataFrame:
    """Time by kind of core: the columns of `SCHEMA["ascend.op_types.cores"]`.

    `busy_us` is the time in which at least one such task ran, `alone_us` that in which no task of
    another kind did.
    """
    rows = []
    device_us: dict[Any, float] = ops.groupby(KEYS)["duration_us"].sum().to_dict()
    for key, device_ops in _timed(ops).groupby(KEYS):
        start, end = _span(device_ops)
        core = device_ops["core"].to_numpy(object)
        all_busy = Intervals.union(start, end).total()
        for name in [*CORES, ""]:
            on_core = core == name
            if not on_core.any():
                continue
            total = float(device_ops["duration_us"][on_core].sum())
            busy = Intervals.union(start[on_core], end[on_core]).total()
            other_busy = Intervals.union(start[~on_core], end[~on_core]).total()
            fraction = total / device_us[key] if device_us[key] else np.nan
            alone = (all_busy - other_busy) / _PS_OF_US
            busy_us = busy / _PS_OF_US
            rows.append((*key, name, int(on_core.sum()), total, busy_us, alone, fraction))
    return pd.DataFrame(rows, columns=CORE_COLUMNS)


def ai_cpu_alone(ops: pd.DataFrame) -> tuple[float, float]:
    """Time in us in which only the AI CPU ran tasks, and in which it or any core did, over all
    devices.

    The terms of msprof's rule about an AI CPU that runs serially (prof_rule): only AI CPU, by the
    same and only AI Core and both at once.
    """
    alone = total = 0
    for _, device_ops in _timed(ops[ops["core"].isin(_COMPUTE)]).groupby(KEYS):
        start, end = _span(device_ops)
        on_core = (device_ops["core"] != ascend.AI_CPU).to_numpy(np.bool_)
        busy = Intervals.union(start, end).total()
        alone += busy - Intervals.union(start[on_core], end[on_core]).total()
        total += busy
    return alone / _PS_OF_US, total / _PS_OF_US


def _timed(ops: pd.DataFrame) -> pd.DataFrame:
    return ops[ops["start_ms"].notna() & ops["duration_us"].notna()]


def _span(ops: pd.DataFrame) -> tuple[Int64s, Int64s]:
    """Begin and end in ps."""
    start = (ops["start_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
    return start, start + (ops["duration_us"].to_numpy(np.float64) * _PS_OF_US).astype(np.int64)


def grouped(ops: pd.DataFrame, column: str) -> pd.DataFrame:
    """Tasks grouped by a column, most time first: `tasks total_us avg_us min_us max_us wait_us
    fraction`.
    """
    groups = ops.groupby(column, sort=False, dropna=False)
    table = groups["duration_us"].agg(["size", "sum", "mean", "min", "max"]).reset_index()
    table.columns = pd.Index([column, "tasks", "total_us", "avg_us", "min_us", "max_us"])
    table["wait_us"] = groups["wait_us"].sum(min_count=1).to_numpy(np.float64)
    table["fraction"] = (
        table["total_us"] / table["total_us"].sum() if table["total_us"].sum() > 0 else np.nan
    )
    return table.sort_values("total_us", ascending=False, kind="stable", ignore_index=True)


def scoped(names: pd.Series[Any]) -> pd.Series[Any]:
    """The layer of an op of a TensorFlow graph: the first two parts of its name; the whole of a
    name without slashes.
    """
    return names.astype(str).str.split("/").str[:2].str.join("/")

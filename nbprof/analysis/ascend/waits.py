"""Idle time of the streams of an NPU between their tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend.ascend import COMMUNICATION, KEYS, NOT_TOLD, Floats, nullable, part
from nbprof.core.intervals import Intervals, gaps_between

LONG_US = 10.0
"""The rule of msprof counts longer waits."""
_PS_OF_US, _PS_OF_MS = 1e6, 1e9
COLUMNS = [
    "host",
    "device",
    "stream",
    "tasks",
    "busy_us",
    "wait_us",
    "wait_fraction",
    "input_wait_us",
    "long_waits",
    "long_wait_us",
    "longest_us",
    "longest_at_ms",
    "longest_before",
]


def frame(ops: pd.DataFrame, iterations: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per stream, and one for all streams of a device (`stream` NA); the columns of
    `SCHEMA["ascend.waits.frame"]`.

    Parameters
    ----------
    ops : DataFrame
        Of `ascend_ops.frame`. Communication has no stream there, and keeps the device busy.
    iterations : DataFrame, optional
        Of `ascend_iterations.frame`: `input_wait_us` is the part of the waits in a Data Aug Bound;
        missing without.
    """
    timed = ops[ops["start_ms"].notna() & ops["duration_us"].notna()]
    rows = []
    for key, tasks in timed.groupby(KEYS):
        tasks = tasks.sort_values("start_ms", kind="stable")
        input_waits = _input_waits(iterations, key)
        stream = tasks["stream"].fillna(NOT_TOLD).to_numpy(np.int64)
        device = {"host": key[0], "device": key[1]}
        rows.append({**device, "stream": NOT_TOLD, **_waits_of(tasks, input_waits)})
        for number in sorted(set(stream.tolist()) - {NOT_TOLD}):
            waits = _waits_of(tasks[stream == number], input_waits)
            rows.append({**device, "stream": number, **waits})
    result = pd.DataFrame(rows, columns=COLUMNS)
    result["stream"] = nullable(result["stream"].to_numpy(np.int64))
    return result


def _waits_of(tasks: pd.DataFrame, input_waits: Intervals | None) -> dict[str, Any]:
    """Count, busy time and waits of tasks in the order of their start."""
    start = np.rint(tasks["start_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
    end = start + np.rint(tasks["duration_us"].to_numpy(np.float64) * _PS_OF_US).astype(np.int64)
    idle = gaps_between(start, end)
    wait: Floats = (idle.end - idle.start) / _PS_OF_US
    total = float(wait.sum())
    busy = float(end.max() - start[0]) / _PS_OF_US - total
    input_wait = np.nan
    if input_waits is not None:
        input_wait = float(input_waits.covered_within(idle.start, idle.end).sum()) / _PS_OF_US
    long = wait > LONG_US
    longest, longest_at, before = np.nan, np.nan, ""
    if len(wait):
        best = int(wait.argmax())
        longest, longest_at = float(wait[best]), float(idle.start[best]) / _PS_OF_MS
        before = str(tasks["op"].to_numpy(object)[idle.following[best]])
    return {
        "tasks": len(start),
        "busy_us": busy,
        "wait_us": total,
        "wait_fraction": part(total, total + busy),
        "input_wait_us": input_wait,
        "long_waits": int(long.sum()),
        "long_wait_us": float(wait[long].sum()),
        "longest_us": longest,
        "longest_at_ms": longest_at,
        "longest_before": before,
    }


def _input_waits(iterations: pd.DataFrame | None, key: tuple[Any, ...]) -> Intervals | None:
    """Data Aug Bounds of a device in ps; None if unknown."""
    if iterations is None or not len(iterations):
        return None
    of_device = (iterations["host"] == key[0]) & (iterations["device"] == key[1])
    recorded = iterations["data_aug_ms"].notna() & iterations["start_ms"].notna()
    bounds = iterations[of_device & iterations["main"] & recorded]
    bounds = bounds.sort_values("start_ms", kind="stable")
    if not len(bounds):
        return None
    start = np.rint(bounds["start_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
    length = np.rint(bounds["data_aug_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
    # Rounding may let two overlap by a picosecond: the union counts that once.
    return Intervals.union(start, start + length)


def rule_share(ops: pd.DataFrame, long_us: float = LONG_US) -> float:
    """Waits above `long_us` as a share of the time of tasks and waits, as the rule of msprof has
    it, without communication.
    """
    rows = ops[(ops["core"] != COMMUNICATION) & ops["duration_us"].notna()]
    wait = rows["wait_us"].fillna(0).to_numpy(np.float64)
    duration = rows["duration_us"].to_numpy(np.float64)
    return part(float(wait[wait > long_us].sum()), float((wait + duration).sum()))

"""How long the streams of an NPU were idle between their tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nbprof.analysis.ascend.ascend import COMMUNICATION, KEYS, NOT_TOLD, Floats, Int64s, part
from nbprof.core.intervals import Intervals, gaps_between

LONG_US = 10.0
"""A wait above this is one that the rule of msprof counts."""
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
    """One row per stream, and one for all streams of a device together (`stream` NA); the columns
    of `SCHEMA["ascend.waits.frame"]`.

    Parameters
    ----------
    ops : DataFrame
        Of `ascend_ops.frame`. Communication has no stream there, and keeps the device busy.
    iterations : DataFrame, optional
        Of `ascend_iterations.frame`: `input_wait_us` is what of the waits lies in a Data Aug Bound;
        missing without.
    """
    timed = ops[ops["start_ms"].notna() & ops["duration_us"].notna()]
    rows = []
    for key, device_tasks in timed.groupby(KEYS):
        device_tasks = device_tasks.sort_values("start_ms", kind="stable")
        start = np.rint(device_tasks["start_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
        end = start + np.rint(device_tasks["duration_us"].to_numpy(np.float64) * _PS_OF_US).astype(
            np.int64
        )
        input_waits = _input_waits(iterations, key)
        names = device_tasks["op"].to_numpy(object)
        stream = device_tasks["stream"].fillna(NOT_TOLD).to_numpy(np.int64)
        for stream_id in [NOT_TOLD, *sorted(set(stream.tolist()) - {NOT_TOLD})]:
            rows_of_stream = (
                np.flatnonzero(stream == stream_id)
                if stream_id != NOT_TOLD
                else np.arange(len(device_tasks))
            )
            rows.append(
                (
                    *key,
                    stream_id,
                    *_stream(
                        start[rows_of_stream],
                        end[rows_of_stream],
                        names[rows_of_stream],
                        input_waits,
                    ),
                )
            )
    result = pd.DataFrame(rows, columns=COLUMNS)
    result["stream"] = pd.array(
        result["stream"].to_numpy(np.int64) if len(result) else [], dtype="Int64"
    )
    result.loc[result["stream"] == NOT_TOLD, "stream"] = pd.NA
    return result


def _stream(
    start: Int64s,
    end: Int64s,
    names: np.ndarray[tuple[int], np.dtype[np.object_]],
    input_waits: Intervals | None,
) -> tuple[int, float, float, float, float, int, float, float, float, str]:
    """Of tasks by start: count, busy, waits."""
    idle = gaps_between(start, end)
    wait: Floats = (idle.end - idle.start) / _PS_OF_US
    total = float(wait.sum())
    busy = float(end.max() - start[0]) / _PS_OF_US - total
    waiting = (
        np.nan
        if input_waits is None
        else float(input_waits.covered_within(idle.start, idle.end).sum()) / _PS_OF_US
    )
    long = wait > LONG_US
    longest, longest_at, before = np.nan, np.nan, ""
    if len(wait):
        best = int(wait.argmax())
        longest, longest_at = float(wait[best]), float(idle.start[best]) / _PS_OF_MS
        before = str(names[idle.following[best]])
    return (
        len(start),
        busy,
        total,
        part(total, total + busy),
        waiting,
        int(long.sum()),
        float(wait[long].sum()),
        longest,
        longest_at,
        before,
    )


def _input_waits(iterations: pd.DataFrame | None, key: tuple[Any, ...]) -> Intervals | None:
    """Data Aug Bounds of a device, ps; None if unknown."""
    if iterations is None or not len(iterations):
        return None
    bounds = iterations[
        (iterations["host"] == key[0]) & (iterations["device"] == key[1]) & iterations["main"]
    ]
    bounds = bounds[bounds["data_aug_ms"].notna() & bounds["start_ms"].notna()].sort_values(
        "start_ms", kind="stable"
    )
    if not len(bounds):
        return None
    start = np.rint(bounds["start_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
    # Rounding may let two overlap by a picosecond: the union counts that once.
    return Intervals.union(
        start,
        start + np.rint(bounds["data_aug_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64),
    )


def rule_share(ops: pd.DataFrame, long_us: float = LONG_US) -> float:
    """Waits above `long_us` of all of the time of tasks and waits, as the rule of msprof has it;
    communication left out.
    """
    rows = ops[(ops["core"] != COMMUNICATION) & ops["duration_us"].notna()]
    wait, duration = (
        rows["wait_us"].fillna(0).to_numpy(np.float64),
        rows["duration_us"].to_numpy(np.float64),
    )
    return part(float(wait[wait > long_us].sum()), float((wait + duration).sum()))

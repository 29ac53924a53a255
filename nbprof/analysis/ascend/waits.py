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
    for key, own in timed.groupby(KEYS):
        own = own.sort_values("start_ms", kind="stable")
        start = np.rint(own["start_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
        end = start + np.rint(own["duration_us"].to_numpy(np.float64) * _PS_OF_US).astype(np.int64)
        input_waits = _input_waits(iterations, key)
        names = own["op"].to_numpy(object)
        stream = own["stream"].fillna(NOT_TOLD).to_numpy(np.int64)
        for one in [NOT_TOLD, *sorted(set(stream.tolist()) - {NOT_TOLD})]:
            mine = np.flatnonzero(stream == one) if one != NOT_TOLD else np.arange(len(own))
            rows.append((*key, one, *_stream(start[mine], end[mine], names[mine], input_waits)))
    out = pd.DataFrame(rows, columns=COLUMNS)
    out["stream"] = pd.array(out["stream"].to_numpy(np.int64) if len(out) else [], dtype="Int64")
    out.loc[out["stream"] == NOT_TOLD, "stream"] = pd.NA
    return out


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
    longest, at, before = np.nan, np.nan, ""
    if len(wait):
        best = int(wait.argmax())
        longest, at = float(wait[best]), float(idle.start[best]) / _PS_OF_MS
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
        at,
        before,
    )


def _input_waits(iterations: pd.DataFrame | None, key: tuple[Any, ...]) -> Intervals | None:
    """Data Aug Bounds of a device, ps; None if unknown."""
    if iterations is None or not len(iterations):
        return None
    own = iterations[
        (iterations["host"] == key[0]) & (iterations["device"] == key[1]) & iterations["main"]
    ]
    own = own[own["data_aug_ms"].notna() & own["start_ms"].notna()].sort_values(
        "start_ms", kind="stable"
    )
    if not len(own):
        return None
    start = np.rint(own["start_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
    # Rounding may let two overlap by a picosecond: the union counts that once.
    return Intervals.union(
        start, start + np.rint(own["data_aug_ms"].to_numpy(np.float64) * _PS_OF_MS).astype(np.int64)
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

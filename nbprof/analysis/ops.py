"""Time by framework op, on the device and on the host: the TensorFlow stats of TensorFlow Profiler.

Self time on a host thread is what is left of an op when the ops inside it are taken away; on a device each kernel counts for the op that
launched it. Idle is the part of the recorded time in which no op ran, per thread and per device.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import Activity

COLUMNS = [
    "rank",
    "where",
    "type",
    "op",
    "occurrences",
    "total_us",
    "avg_us",
    "self_us",
    "avg_self_us",
    "self_fraction",
    "cumulative_fraction",
    "eager",
]


def host_self_times(activity: Activity) -> tuple[pd.DataFrame, int]:
    """Host ops that nest properly, with their self time in ps, and the idle time of all threads in ps.

    Begins and ends of a thread are walked in time order with a stack. An op whose end comes after that of an op
    around it (partly overlapping events) is left out, as in TensorFlow Profiler.
    """
    ops = activity.host_ops
    kept: list[int] = []
    selves: list[int] = []
    idle = 0
    lane = ops["lane"].to_numpy()
    order = np.argsort(lane, kind="stable")
    bounds = np.flatnonzero(np.diff(lane[order])) + 1
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    for rows in np.split(order, bounds) if len(order) else []:
        times = np.empty(2 * len(rows), np.int64)
        times[0::2], times[1::2] = start[rows], end[rows]
        stack: list[list[int]] = []
        open_: set[int] = set()
        busy = 0
        for at in np.argsort(times, kind="stable").tolist():
            which = at >> 1
            if not at & 1:
                stack.append([which, 0])
                open_.add(which)
                continue
            if which not in open_:
                continue
            while stack:
                top, inner = stack.pop()
                open_.discard(top)
                if top == which:
                    length = int(times[at] - times[at - 1])
                    if stack:
                        stack[-1][1] += length
                    kept.append(int(rows[which]))
                    selves.append(length - inner)
                    busy += length - inner
                    break
        idle += max(busy, int(times.max() - times.min())) - busy
    out = ops.iloc[kept].copy()
    out["own"] = np.array(selves, np.int64)
    return out, idle


def frames(activity: Activity, host_rows: pd.DataFrame, host_idle: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The ops without idle rows, and with them: `p.ops.frame` and `p.ops.with_idle`.

    `host_rows` and `host_idle` (ps) are what `host_self_times` gives.
    """
    device, device_idle = _device(activity)
    host = _group(activity, host_rows, host_rows["own"])
    sides = [
        ("device", device, device_idle if activity.has_device else None),
        ("host", host, host_idle if activity.has_host_ops else None),
    ]
    return _table(sides, with_idle=False), _table(sides, with_idle=True)


def _group(activity: Activity, rows: pd.DataFrame, self_time: pd.Series) -> pd.DataFrame:
    timed = rows.assign(total=rows["end"] - rows["start"])
    timed["own"] = self_time
    grouped = timed.groupby("op", sort=False)
    out = grouped.agg(
        type=("type", "first"),
        occurrences=("total", "size"),
        total=("total", "sum"),
        own=("own", "sum"),
        eager=("eager", "max"),
    ).reset_index()
    names, types = activity.ops.values, activity.types.values
    out["op"] = names[out["op"].to_numpy(np.int64)] if len(out) else out["op"].astype(object)
    out["type"] = types[out["type"].to_numpy(np.int64)] if len(out) else out["type"].astype(object)
    return out.sort_values(["own", "op"], ascending=[False, True], kind="stable", ignore_index=True)


def _device(activity: Activity) -> tuple[pd.DataFrame, int]:
    """Device ops by name, and the time in which the devices ran none of them, in ps."""
    rows = activity.device_ops
    duration = rows["end"] - rows["start"]
    idle = 0
    busy = duration.groupby([rows["host"], rows["device"]]).sum() if len(rows) else pd.Series(dtype="i8")
    for _, extent in activity.device_extents.iterrows():
        used = int(busy.get((extent["host"], extent["device"]), 0))
        idle += max(used, int(extent["end"] - extent["start"])) - used
    return _group(activity, rows, duration), idle


def _table(sides: list[tuple[str, pd.DataFrame, int | None]], *, with_idle: bool) -> pd.DataFrame:
    parts: list[pd.DataFrame] = []
    for where, ops, idle in sides:
        part = ops
        if with_idle and idle is not None:
            row = pd.DataFrame({"op": ["IDLE"], "type": ["IDLE"], "occurrences": [0], "total": [idle], "own": [idle], "eager": [False]})
            part = pd.concat([ops, row], ignore_index=True) if len(ops) else row
            part = part.sort_values(["own", "op"], ascending=[False, True], kind="stable", ignore_index=True)
        total = float(part["own"].sum())
        share = part["own"] / total if total else part["own"] * 0.0
        occurrences = part["occurrences"].replace(0, np.nan)
        parts.append(
            pd.DataFrame(
                {
                    "rank": 0,
                    "where": where,
                    "type": part["type"],
                    "op": part["op"],
                    "occurrences": part["occurrences"].astype("i8"),
                    "total_us": part["total"] / 1e6,
                    "avg_us": part["total"] / occurrences / 1e6,
                    "self_us": part["own"] / 1e6,
                    "avg_self_us": part["own"] / occurrences / 1e6,
                    "self_fraction": share,
                    "cumulative_fraction": share.cumsum(),
                    "eager": part["eager"].astype(bool),
                }
            )
        )
    filled = [p for p in parts if len(p)]
    out = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=COLUMNS)
    out["rank"] = np.arange(1, len(out) + 1)
    return out[COLUMNS]

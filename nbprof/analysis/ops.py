"""Time by framework op, on the device and on the host: the TensorFlow stats of TensorFlow Profiler.

Self time on a host thread is what is left of an op when the ops inside it are taken away; on a device each kernel counts for the op that
launched it. Idle is the part of the recorded time in which no op ran, per thread and per device. (As in TensorFlow Profiler, ops that run
at once on several streams of a device are each taken off it, so idle can come out too small there; of PyTorch each instant counts once.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof import nesting
from nbprof.activity import Activity
from nbprof.trace import Int32s, Int64s

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

    Begins and ends of a thread are walked in time order with a stack. An op that is still on the stack when an op around it ends
    (partly overlapping events, or two that end at one instant) is left out, as in TensorFlow Profiler. Ops on threads where nothing of
    that kind happens are done all at once; only the stretches in which it does are walked. PyTorch's ops are scopes of one thread, so they
    do nest: they all count, also those that end with the op around them.
    """
    ops = activity.host_ops
    if not len(ops):
        return ops.assign(own=np.zeros(0, np.int64)), 0
    lane = ops["lane"].to_numpy()
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    order = np.lexsort((start - end, start, lane))
    if (np.diff(order) != 1).any():
        ops, lane, start, end = ops.iloc[order], lane[order], start[order], end[order]
    duration = end - start
    parent = nesting.parents(lane, start, duration)
    own = nesting.self_times(parent, duration)
    kept = np.ones(len(lane), np.bool_)
    if activity.framework == "PyTorch":
        own = np.maximum(own, 0)
    else:
        for rows in _tangles(lane, start, end, parent):
            kept[rows], own[rows] = _walk(start[rows], end[rows])
    first = np.flatnonzero(np.diff(lane, prepend=lane[0] - 1))
    extent = np.maximum.reduceat(end, first) - start[first]
    busy = np.add.reduceat(np.where(kept, own, 0), first)
    out = ops.assign(own=own)
    return (out if kept.all() else out[kept]), int((np.maximum(busy, extent) - busy).sum())


def _tangles(lane: Int32s, start: Int64s, end: Int64s, parent: Int32s) -> list[slice]:
    """Stretches of a thread, each with all ops that touch one another, in which ops overlap partly or end at one instant."""
    inside = np.flatnonzero(parent >= 0)
    odd = np.zeros(len(lane), np.bool_)
    odd[inside] = end[inside] == end[parent[inside]]
    # Siblings in their order: one that starts before the one before it has ended overlaps it.
    siblings = np.lexsort((np.arange(len(lane)), parent, lane))
    same = (parent[siblings][1:] == parent[siblings][:-1]) & (lane[siblings][1:] == lane[siblings][:-1])
    overlap = same & (start[siblings][1:] < end[siblings][:-1])
    odd[siblings[1:][overlap]] = True
    if not odd.any():
        return []
    # A stretch begins where everything before it on the thread has ended.
    begins = np.ones(len(lane), np.bool_)
    bounds = np.append(np.flatnonzero(np.diff(lane, prepend=lane[0] - 1)), len(lane))
    for at, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        begins[at + 1 : stop] = start[at + 1 : stop] >= np.maximum.accumulate(end[at:stop])[:-1]
    heads = np.flatnonzero(begins)
    tangled = np.unique(np.searchsorted(heads, np.flatnonzero(odd), side="right") - 1)
    stops = np.append(heads[1:], len(lane))
    return [slice(a, b) for a, b in zip(heads[tangled].tolist(), stops[tangled].tolist(), strict=True)]


def _walk(start: Int64s, end: Int64s) -> tuple[npt.NDArray[np.bool_], Int64s]:
    """One stretch of a thread, event by event: which ops nest properly, and their self times."""
    kept = np.zeros(len(start), np.bool_)
    own = np.zeros(len(start), np.int64)
    times = np.empty(2 * len(start), np.int64)
    times[0::2], times[1::2] = start, end
    stack: list[list[int]] = []
    open_: set[int] = set()
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
                kept[which], own[which] = True, length - inner
                break
    return kept, own


def frames(activity: Activity, host_rows: pd.DataFrame, host_idle: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The ops without idle rows, and with them: `p.ops.frame` and `p.ops.with_idle`.

    `host_rows` and `host_idle` (ps) are what `host_self_times` gives.
    """
    device, device_idle = _device(activity)
    host = _group(activity, host_rows, host_rows["own"].to_numpy(np.int64))
    sides = [
        ("device", device, device_idle if activity.has_device else None),
        ("host", host, host_idle if activity.has_host_ops else None),
    ]
    return _table(sides, with_idle=False), _table(sides, with_idle=True)


def _group(activity: Activity, rows: pd.DataFrame, self_time: Int64s) -> pd.DataFrame:
    """Runs by op: how many, their time and their self time, in ps."""
    code = rows["op"].to_numpy(np.int64)
    count = np.bincount(code)
    used = np.flatnonzero(count)
    total, own = np.zeros(len(count), np.int64), np.zeros(len(count), np.int64)
    eager = np.zeros(len(count), np.bool_)
    np.add.at(total, code, rows["end"].to_numpy(np.int64) - rows["start"].to_numpy(np.int64))
    np.add.at(own, code, self_time)
    eager[code[rows["eager"].to_numpy(np.bool_)]] = True
    kind = np.zeros(len(count), np.int64)
    # The last assignment wins, so that this is the type of the first run.
    kind[code[::-1]] = rows["type"].to_numpy(np.int64)[::-1]
    out = pd.DataFrame(
        {
            "op": activity.ops.values[used] if len(used) else np.zeros(0, object),
            "type": activity.types.values[kind[used]] if len(used) else np.zeros(0, object),
            "occurrences": count[used],
            "total": total[used],
            "own": own[used],
            "eager": eager[used],
        }
    )
    return out.sort_values(["own", "op"], ascending=[False, True], kind="stable", ignore_index=True)


def _device(activity: Activity) -> tuple[pd.DataFrame, int]:
    """Device ops by name, and the time in which the devices ran none of them, in ps."""
    rows = activity.device_ops
    duration = rows["end"].to_numpy(np.int64) - rows["start"].to_numpy(np.int64)
    idle = 0
    where = rows["host"].to_numpy(), rows["device"].to_numpy()
    for host, device, start, end in activity.device_extents[["host", "device", "start", "end"]].to_numpy(np.int64).tolist():
        mine = (where[0] == host) & (where[1] == device)
        used = _covered(rows[mine]) if activity.framework == "PyTorch" else int(duration[mine].sum())
        idle += max(used, end - start) - used
    return _group(activity, rows, duration), idle


def _covered(rows: pd.DataFrame) -> int:
    """The time in which at least one of some runs of ops went on, in ps."""
    if not len(rows):
        return 0
    start, end = rows["start"].to_numpy(np.int64), rows["end"].to_numpy(np.int64)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    before = np.append(start[0], end[:-1])
    return int(np.maximum(end - np.maximum(start, before), 0).sum())


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

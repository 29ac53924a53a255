"""Queue lengths of streams and bandwidths of copies: over time, and summarized."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity, text_column
from nbprof.analysis.device_time.device_time import Work, rank_column
from nbprof.analysis.figures import largest, median, percent, ratio, smallest
from nbprof.analysis.table import positions
from nbprof.core.factorize import unique_rows
from nbprof.core.runs import rows_by_code, run_starts
from nbprof.core.trace import Int64s, Trace
from nbprof.schema import frames

Floats = npt.NDArray[np.float64]

FULL = 1024
"""Launches that CUDA queues on a stream before the launching call blocks."""
QUEUE_SERIES = frames.names("device_time.queue_series")
QUEUE = frames.names("device_time.queue")
BANDWIDTH_SERIES = frames.names("device_time.bandwidth_series")
BANDWIDTH = frames.names("device_time.bandwidth")
COPIES = {
    "H2D": "host to device",
    "D2H": "device to host",
    "D2D": "within the device",
    "P2P": "between devices",
    "H2H": "within the host",
    "memset": "fill",
}
_MS = 1e9
_FASTEST = 1e15


def queue_steps(done: Work, trace: Trace) -> tuple[Int64s, Int64s, Int64s]:
    """Lane, time and length of the queue of each stream whenever it changes: one more at each
    launch, one less as a work begins.
    """
    has_launch = np.flatnonzero(done.launch >= 0)
    launched = trace.events.start[done.launch[has_launch]]
    # Clocks that disagree a little let work begin before its launch.
    begun = np.maximum(done.start[has_launch], launched)
    lane = np.concatenate([done.lane[has_launch], done.lane[has_launch]]).astype(np.int64)
    time = np.concatenate([launched, begun])
    change = np.repeat(np.array([1, -1], np.int8), len(has_launch))
    # Of one moment the launches stay first.
    order = np.lexsort((time, lane))
    lane, time, change = lane[order], time[order], change[order]
    # The works of a stream are launched as often as they begin, so that each stream's sum ends at
    # 0.
    return lane, time, np.cumsum(change, dtype=np.int64)


def _labels(done: Work, trace: Trace, lane: Int64s) -> dict[str, Any]:
    """The columns that tell which stream a row is of."""
    lanes = trace.lanes
    hosts = positions(done.hosts)
    host = np.array([hosts[name] for name in lanes["host"].tolist()], np.int64)
    return {
        "host": text_column(np.array(done.hosts, object), host[lane]),
        "rank": rank_column(done.ranks, host[lane]),
        "device": lanes["device"].to_numpy(np.int64)[lane],
        "stream": text_column(lanes["thread"].astype(str).to_numpy(object), lane),
    }


def _settled(done: Work, trace: Trace) -> tuple[Int64s, Int64s, Int64s]:
    """`queue_steps` with what holds after each moment alone."""
    lane, time, length = queue_steps(done, trace)
    last = _lasts(lane, time)
    return lane[last], time[last], length[last]


def _lasts(group: Int64s, time: Int64s) -> npt.NDArray[np.bool_]:
    """Flags of the last row of each moment of each group."""
    if not len(group):
        return np.zeros(0, np.bool_)
    return np.append((group[1:] != group[:-1]) | (time[1:] != time[:-1]), True)


def queue_curves(
    done: Work, trace: Trace, streams: list[tuple[str, int, str]]
) -> list[tuple[Floats, Floats]]:
    """Time in ms and length of the queues of some streams, given by host, device and name; of each
    its rows of `queue_series`.
    """
    lane, time, length = _settled(done, trace)
    lanes = trace.lanes
    hosts, devices = lanes["host"].tolist(), lanes["device"].tolist()
    stream_of_lane = list(zip(hosts, devices, lanes["thread"].astype(str).tolist(), strict=True))
    curves = []
    for stream in streams:
        of_stream = [number for number, name in enumerate(stream_of_lane) if name == stream]
        rows = np.flatnonzero(np.isin(lane, of_stream))
        curves.append((time[rows] / _MS, length[rows].astype(np.float64)))
    return curves


def queue_series(done: Work, trace: Trace) -> pd.DataFrame:
    """The columns of `p.device_time.queue_series`; a length holds until the next row of the
    stream.
    """
    lane, time, length = _settled(done, trace)
    return pd.DataFrame(
        {**_labels(done, trace, lane), "time_ms": time / _MS, "queue_length": length}
    )[QUEUE_SERIES]


def queue(done: Work, trace: Trace, full: int = FULL) -> pd.DataFrame:
    """One row per stream, weighted by time: the columns of `p.device_time.queue`."""
    lane, time, length = queue_steps(done, trace)
    if not len(lane):
        return pd.DataFrame(columns=QUEUE)
    edges = run_starts(lane).tolist()
    rows = []
    for a, b in zip(edges, [*edges[1:], len(lane)], strict=True):
        held, counts = np.diff(time[a:b]), length[a : b - 1]
        total = int(held.sum())
        order = np.argsort(counts, kind="stable")
        middle = int(np.searchsorted(np.cumsum(held[order]), total / 2))
        at_full = int(held[counts >= full].sum())
        middle_length = float(counts[order][min(middle, len(order) - 1)]) if total else np.nan
        rows.append(
            (
                (b - a) // 2,
                ratio(float(held @ counts), total),
                middle_length,
                int(length[a:b].max()),
                percent(float(held[counts == 0].sum()), total),
                at_full / _MS,
                percent(at_full, total),
            )
        )
    table = pd.DataFrame(rows, columns=QUEUE[4:])
    return table.assign(**_labels(done, trace, lane[edges]))[QUEUE].sort_values(
        ["host", "device", "works"], ascending=[True, True, False], kind="stable", ignore_index=True
    )


def rates(activity: Activity) -> Floats:
    """Bytes a second of each transfer: what the file states, else its bytes by its time; NaN where
    neither is known.
    """
    moved = activity.transfers
    length = (moved.end - moved.start).astype(np.float64)
    size = moved.bytes.astype(np.float64)
    is_known = (size >= 0) & (length > 0)
    result: Floats = np.divide(size * 1e12, length, out=np.full(len(moved), np.nan), where=is_known)
    if "rate" not in moved:
        return result
    recorded = moved.rate
    return np.asarray(np.where(np.isfinite(recorded) & (recorded > 0), recorded, result))


def _groups(activity: Activity) -> tuple[Int64s, Int64s]:
    moved = activity.transfers
    codes = (moved.host, moved.device, moved.kind)
    return unique_rows(*(code.astype(np.int64) for code in codes))


def _copy_labels(activity: Activity, ranks: list[int | None], rows: Int64s) -> dict[str, Any]:
    moved = activity.transfers
    host = moved.host[rows].astype(np.int64)
    # By code, not by row: copies are many, kinds of copies few. The last place is that of -1.
    kinds = np.array([*(COPIES.get(kind, kind) for kind in activity.texts.codes), "other"], object)
    return {
        "host": text_column(np.array(activity.hosts, object), host),
        "rank": rank_column(ranks, host),
        "device": moved.device[rows].astype(np.int64),
        "copy": kinds[moved.kind[rows]],
    }


def bandwidth(activity: Activity, ranks: list[int | None]) -> pd.DataFrame:
    """One row per device and kind of copy: the columns of `p.device_time.bandwidth`."""
    moved, rate = activity.transfers, rates(activity)
    first, group = _groups(activity)
    if not len(first):
        return pd.DataFrame(columns=BANDWIDTH)
    length, size = moved.end - moved.start, moved.bytes
    peaks = _peaks(activity, rate)
    rows = []
    for number, rows_of_group in enumerate(rows_by_code(group)):
        is_known = rows_of_group[~np.isnan(rate[rows_of_group])]
        values = rate[is_known] / 1e9
        sized = rows_of_group[size[rows_of_group] >= 0]
        both = is_known[size[is_known] >= 0]
        time = float(length[both].sum())
        rows.append(
            (
                len(rows_of_group),
                int(size[sized].sum()) if len(sized) else pd.NA,
                length[rows_of_group].sum() / _MS,
                # Of the copies whose size and time are known, and as one: a mean of rates would
                # count a byte of a small copy for more.
                ratio(float(size[both].sum()) * 1e3, time),
                smallest(values),
                median(values),
                largest(values),
                peaks.get(number, np.nan),
                len(rows_of_group) - len(is_known),
            )
        )
    table = pd.DataFrame(rows, columns=BANDWIDTH[4:]).astype({"bytes": "Int64"})
    labels = _copy_labels(activity, ranks, first)
    return table.assign(**labels)[BANDWIDTH].sort_values(
        ["host", "device", "time_ms"],
        ascending=[True, True, False],
        kind="stable",
        ignore_index=True,
    )


def _changes(activity: Activity, rate: Floats) -> tuple[Int64s, Int64s, Int64s, Floats]:
    """First rows of the groups; group, time and rate of all copies of the group together, whenever
    that changes.
    """
    first, group = _groups(activity)
    moved = activity.transfers
    is_known = np.flatnonzero(~np.isnan(rate) & (moved.end > moved.start))
    time = np.concatenate([moved.start[is_known], moved.end[is_known]])
    group_of = np.concatenate([group[is_known], group[is_known]])
    # Whole bytes a second, so that what begins and ends leaves exactly nothing. No link is that
    # fast; sums of more are no numbers.
    rounded = np.round(np.minimum(rate[is_known], _FASTEST)).astype(np.int64)
    change = np.concatenate([rounded, -rounded])
    order = np.lexsort((time, group_of))
    time, group_of, total = time[order], group_of[order], np.cumsum(change[order])
    last = _lasts(group_of, time)
    return first, group_of[last], time[last], total[last] / 1e9


def _peaks(activity: Activity, rate: Floats) -> dict[int, float]:
    _, group_of, _, value = _changes(activity, rate)
    begin = np.flatnonzero(np.diff(group_of, prepend=-1))
    peak = np.maximum.reduceat(value, begin) if len(begin) else value
    return dict(zip(group_of[begin].tolist(), peak.tolist(), strict=True))


def bandwidth_series(activity: Activity, ranks: list[int | None]) -> pd.DataFrame:
    """The columns of `p.device_time.bandwidth_series`; a rate holds until the next row of its
    device and kind.
    """
    first, group_of, time, value = _changes(activity, rates(activity))
    labels: dict[str, Any] = {key: [] for key in BANDWIDTH_SERIES[:4]}
    if len(first):
        labels = _copy_labels(activity, ranks, first[group_of])
    return pd.DataFrame({**labels, "time_ms": time / _MS, "gb_per_second": value})[BANDWIDTH_SERIES]

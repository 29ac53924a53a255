"""Time in ranges of threads: on the host, on devices for what was launched in them, in their part
of the backward pass, and of what advice speaks of.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.ranges.instances import NOT_COUNTED, Instances
from nbprof.analysis.ranges.totals import KEYS, SIDES, Floats, OpTimes, PathKey, with_inner
from nbprof.core import nesting
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s

CALLS_OF_CAUSE = {
    "launch": ("launch", "graph"),
    "wait": ("sync",),
    "allocate": ("allocate",),
    "copy": ("copy", "copy H2D", "copy D2H"),
}
PLACES = (*CALLS_OF_CAUSE, "input", "ops", "collectives", "other")
"""What advice speaks of: calls of the host by kind, its waits for input, its ops, collectives of
devices, and time of no op or call.
"""
_HOST, _DEVICE = (SIDES.index(side) for side in ("host", "device"))
_OUTSIDE = -1


class Launched(NamedTuple):
    """Device work launched in steps.

    Attributes
    ----------
    row : int64[events]
        The range that launched it; -1 for none.
    duration : float64[events]
        Its time, ps.
    op : int64[events]
        Code of the name of the op it comes of; -1 for none.
    is_kernel : bool[events]
    event : int64[events]
    """

    row: Int64s
    duration: Floats
    op: Int64s
    is_kernel: npt.NDArray[np.bool_]
    event: Int64s


class Backward(NamedTuple):
    """Ops of the backward pass in steps: the range of their op of the forward pass, and their self
    time on the host and the device, ps.
    """

    row: Int64s
    host: Floats
    device: Floats


class RangeSums(NamedTuple):
    """Tables as `rows` and `ops` of `Totals`, and the time outside ranges in ps."""

    rows: pd.DataFrame
    ops: pd.DataFrame
    outside: dict[str, float]


def range_sums(instances: Instances, host_ops: pd.DataFrame) -> RangeSums:
    """The time in ranges of threads; `host_ops` as `ops.host_self_times` returns them."""
    path, above, keys = instances.paths
    count = len(keys)
    host = instances.steps.within(instances.host, instances.start, instances.end)
    host_self = np.maximum(nesting.self_times(instances.parent, host), 0)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, path, instances.start)
    columns: dict[str, npt.NDArray[np.generic]] = {
        "count": np.bincount(path, instances.step >= 0, count),
        "host": np.bincount(path, host, count),
        "host_self": np.bincount(path, host_self, count),
        "sync": _waits(instances),
        **dict.fromkeys(
            ("device", "device_self", "kernels", "backward_host", "backward_device"),
            np.full(count, np.nan),
        ),
    }
    op_times = [_host_op_times(instances, host_ops)]
    outside = {"host": _host_time_outside(instances, host), "device": np.nan}
    launched = launched_in_steps(instances)
    if launched is not None:
        in_range = launched.row >= 0
        path_of = path[launched.row[in_range]]
        duration = launched.duration[in_range]
        columns["device_self"] = np.bincount(path_of, duration, count)
        columns["device"] = with_inner(above, columns["device_self"])
        kernels = np.bincount(path_of, launched.is_kernel[in_range], count)
        columns["kernels"] = with_inner(above, kernels)
        outside["device"] = float(launched.duration[~in_range].sum())
        side = np.full(len(path_of), _DEVICE, np.int64)
        op_times.append(OpTimes(path_of, side, launched.op[in_range], duration))
    backward = backward_in_steps(instances)
    if backward is not None:
        path_of = path[backward.row]
        columns["backward_host"] = with_inner(above, np.bincount(path_of, backward.host, count))
        if launched is not None:
            device = np.bincount(path_of, backward.device, count)
            columns["backward_device"] = with_inner(above, device)
    rows = pd.DataFrame(keys, columns=list(KEYS)).assign(first=first.astype(np.float64), **columns)
    # Ranges that were in no step that counts are left out.
    is_counted = np.asarray(columns["host"]) > 0
    largest = OpTimes.concat(op_times).largest(above)
    largest = largest.take(is_counted[largest.path])
    ops = largest.frame(keys, instances.trace.names)
    return RangeSums(rows[is_counted].reset_index(drop=True), ops, outside)


def _waits(instances: Instances) -> Floats:
    """Time by path of calls that wait for a device; NaN where no call was recorded."""
    path, above, _ = instances.paths
    calls, events = instances.activity.calls, instances.trace.events
    if not len(calls):
        return np.full(len(above), np.nan)
    is_sync = np.array([str(text) == "sync" for text in instances.activity.texts.values], np.bool_)
    event = np.unique(calls.event[is_sync[calls.kind]])
    start, duration = events.start[event], events.duration[event].astype(np.float64)
    row = instances.innermost(events.lane[event], start)
    used = (row >= 0) & (instances.steps.number(instances.host[row], start) >= 0)
    return with_inner(above, np.bincount(path[row[used]], duration[used], len(above)))


def _host_time_outside(instances: Instances, within_steps: Int64s) -> float:
    """Time in steps of the hosts with ranges that is in no range of their main thread, ps."""
    in_ranges = float(within_steps[(instances.parent < 0) & instances.is_main].sum())
    hosts = np.unique(instances.host).tolist()
    total = sum(float(instances.steps.by_host[host].total()) for host in hosts)
    return max(total - in_ranges, 0.0)


def _host_op_times(instances: Instances, host_ops: pd.DataFrame) -> OpTimes:
    """Self time of ops of the host by the path that they ran in."""
    row = instances.innermost_in_steps(
        host_ops["lane"].to_numpy(np.int64), host_ops["start"].to_numpy(np.int64)
    )
    used = np.flatnonzero(row >= 0)
    name = instances.trace.events.name[host_ops["event"].to_numpy(np.int64)[used]]
    return OpTimes(
        instances.paths.of_range[row[used]],
        np.full(len(used), _HOST, np.int64),
        name.astype(np.int64),
        host_ops["own"].to_numpy(np.float64)[used],
    )


def launched_in_steps(instances: Instances) -> Launched | None:
    """Device work launched in steps; None without.

    The range is the innermost one of the thread that launched. A thread of autograd without ranges
    works for the thread that called it: its work belongs to the range there.
    """
    activity, events = instances.activity, instances.trace.events
    launches = activity.launches
    launches = launches.take(launches.target >= 0)
    if not activity.has_device or not len(launches):
        return None
    target, first = np.unique(launches.target, return_index=True)
    launches = launches.take(first)
    host, time = launches.host.astype(np.int64), events.start[launches.event]
    # Ranges of one host tell nothing about the work of another.
    used = (instances.steps.number(host, time) >= 0) & np.isin(host, instances.host)
    launches, target, host, time = launches.take(used), target[used], host[used], time[used]
    lane = events.lane[launches.event].astype(np.int64)
    row = instances.innermost(lane, time)
    away = np.flatnonzero((row < 0) & np.isin(lane, _autograd_lanes(instances)))
    row[away] = instances.innermost(instances.main[host[away]], time[away])
    op_event = launches.came_of if "came_of" in launches else launches.op
    op = np.where(op_event >= 0, events.name[np.maximum(op_event, 0)], -1)
    return Launched(
        row,
        events.duration[target].astype(np.float64),
        op.astype(np.int64),
        np.isin(target, activity.kernels.event),
        target,
    )


def _autograd_lanes(instances: Instances) -> Int64s:
    """Threads of PyTorch's autograd that work for another: other lanes than the main ones, with
    calls of its engine.
    """
    ops, types = instances.activity.host_ops, instances.activity.types.codes
    if "autograd" not in types:
        return np.zeros(0, np.int64)
    lanes = np.unique(ops.lane[ops.type == types["autograd"]])
    return np.setdiff1d(lanes, instances.main)


def backward_in_steps(instances: Instances) -> Backward | None:
    """Ops of the backward pass in steps; None where unknown."""
    ops, steps = instances.activity.torch_ops, instances.steps
    back = np.flatnonzero(ops.forward >= 0)
    if not len(back):
        return None
    back = back[steps.number(ops.host[back], ops.start[back]) >= 0]
    forward = ops.forward[back]
    lane = instances.trace.events.lane[ops.event]
    row = instances.innermost(lane[forward], ops.start[forward])
    back, row = back[row >= 0], row[row >= 0]
    return Backward(row, ops.own[back].astype(np.float64), ops.device_own[back].astype(np.float64))


def places(instances: Instances, host_ops: pd.DataFrame) -> pd.DataFrame:
    """The time by path of what advice speaks of, as `Totals.places`."""
    path, above, keys = instances.paths
    rows = _place_rows(keys, "other", *_unrecorded(instances))
    for cause, (row, duration) in _causes(instances, host_ops).items():
        in_range = row >= 0
        sums = np.bincount(path[row[in_range]], duration[in_range], len(keys))
        total = float(duration[row != NOT_COUNTED].sum())
        rows += _place_rows(keys, cause, with_inner(above, sums), total)
    return pd.DataFrame(rows, columns=[*KEYS, "what", "own"])


def _causes(instances: Instances, host_ops: pd.DataFrame) -> dict[str, tuple[Int64s, Floats]]:
    """By what advice speaks of: the range of each event, -1 for none, `NOT_COUNTED` for those in no
    step that counts; and its time, ps.
    """
    activity, events = instances.activity, instances.trace.events
    causes: dict[str, tuple[Int64s, Floats]] = {}
    calls = activity.calls
    if len(calls):
        event, first = np.unique(calls.event, return_index=True)
        kinds = activity.texts.values[calls.kind[first]]
        for cause, kinds_of_cause in CALLS_OF_CAUSE.items():
            of_cause = event[np.isin(kinds, kinds_of_cause)]
            causes[cause] = (
                instances.innermost_in_steps(events.lane[of_cause], events.start[of_cause]),
                events.duration[of_cause].astype(np.float64),
            )
    dataset_ops = host_ops[host_ops["dataset"].to_numpy(np.bool_)]
    for cause, ops in (("input", dataset_ops), ("ops", host_ops)):
        row = instances.innermost_in_steps(
            ops["lane"].to_numpy(np.int64), ops["start"].to_numpy(np.int64)
        )
        causes[cause] = row, ops["own"].to_numpy(np.float64)
    launched = launched_in_steps(instances)
    if launched is not None:
        is_collective = np.isin(launched.event, activity.collectives.event)
        row = np.where(launched.row >= 0, launched.row, _OUTSIDE)
        causes["collectives"] = row[is_collective], launched.duration[is_collective]
    return causes


def _place_rows(
    keys: list[PathKey], cause: str, sums: Floats, total: float
) -> list[tuple[str, str, str, str, float]]:
    """Rows of `Totals.places` for one kind of time, the total last."""
    rows = [(*keys[path], cause, float(sums[path])) for path in np.flatnonzero(sums > 0).tolist()]
    return [*rows, ("", "", "", cause, total)]


def _unrecorded(instances: Instances) -> tuple[Floats, float]:
    """Time in which nothing was recorded of the host or its devices, ps: by path of the main
    threads, and in total.
    """
    work = instances.activity.work
    path, _, keys = instances.paths
    sums, total = np.zeros(len(keys)), 0.0
    for host in np.unique(instances.host).tolist():
        of_host = work.host == host
        recorded = Intervals.union(work.start[of_host], work.end[of_host])
        unrecorded = instances.steps.by_host[host].difference(recorded)
        rows = np.flatnonzero((instances.host == host) & instances.is_main)
        total += float(unrecorded.total())
        time = unrecorded.covered_within(instances.start[rows], instances.end[rows])
        np.add.at(sums, path[rows], time)
    return sums, total

"""Time by framework op, on the device and on the host: the TensorFlow stats of TensorFlow Profiler.

Self time on a host thread is the time of an op without that of the ops inside it; on a device each
kernel counts for the op that launched it, and an op of a TPU without those inside it.
Idle is the part of the recorded time in which no op ran, per thread and device. (As in TensorFlow
Profiler, ops that run at once on several streams of a device are each taken off it, so idle can
come out too small there; of PyTorch each instant counts once.)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import UNKNOWN_EAGER, Activity
from nbprof.activity.given_peaks import KEYS, ON_CHIP
from nbprof.analysis.ops import self_time
from nbprof.analysis.steps import backlog
from nbprof.analysis.steps.inside import begin_in_steps
from nbprof.core import nesting
from nbprof.core.intervals import Intervals
from nbprof.core.runs import run_starts
from nbprof.core.trace import Int32s, Int64s
from nbprof.frameworks.register import PYTORCH
from nbprof.schema import frames as schema

COLUMNS = schema.names("ops.with_idle")
RATES = [
    "flops_per_second",
    "bytes_per_second",
    "operational_intensity",
    "bound_by",
    "tensor_core_fraction",
]
"""Optional columns: present if any row has a value."""
COMPUTE, HBM, DEVICE_MEMORY, HOST_MEMORY = "Compute", "HBM", "Device memory", "Main memory"
"""The resources that may bound an op, besides on-chip memory: computation, or main memory, by its
name.
"""
LATENCY = "Latency"
"""The bound of an op that is near no peak: it waits, for launches, dependencies, too little
parallel work, or a link to the host.
"""
NEAR_ROOF = 0.6
"""An op is bound by a resource from this fraction of its peak on.

Below it, Nsight Compute's rule for the Speed of Light section says "typically indicate latency
issues" of both compute and memory."""
# Of NVIDIA the chips for data centers and their like: P100, V100, A100, H100, B200, B300.
_WITH_HBM = ("6.0", "7.0", "8.0", "9.0", "10.0", "10.3")
# An op that only begins a transfer, or finds it done, took no time over its bytes. Memory on the
# chip is up to 15 times as fast as the device's main memory; a value far above that is not a rate.
IMPOSSIBLE = 100


def host_self_times(
    activity: Activity, ops: pd.DataFrame | None = None, as_xprof: bool = False
) -> tuple[pd.DataFrame, int]:
    """Host ops with their self time in ps (`own`), and the idle time of all threads in ps.

    At each instant the op that began last of those that are open is at work, of several that began
    at once the shortest. So self times add up to the time in which any op of a thread was open,
    also where ops overlap partly, are equal, or end together; where they nest it is an op's
    duration less that of the ops directly in it. `overlaps` marks ops that began within another one
    and outlast it. Calls of PyTorch's ops that an op hands on to itself are left out; see
    `_without_repeats`.

    Parameters
    ----------
    activity : Activity
    ops : DataFrame, optional
        Columns of `nbprof.activity.tables.HostOps`; those of the activity when left out.
    as_xprof : bool
        TensorFlow Profiler's rule: an op that is still on the stack when an op around it ends is
        left out.
    """
    ops = activity.host_ops.frame() if ops is None else ops
    if not len(ops):
        return ops.assign(own=np.zeros(0, np.int64), overlaps=np.zeros(0, np.bool_)), 0
    lane = ops["lane"].to_numpy()
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    # Events are in this order, unless stages of pipelines are among them.
    later = (lane[1:] > lane[:-1]) | (lane[1:] == lane[:-1]) & (
        (start[1:] > start[:-1]) | (start[1:] == start[:-1]) & (end[1:] <= end[:-1])
    )
    if not later.all():
        order = np.lexsort((start - end, start, lane))
        ops, lane, start, end = ops.iloc[order], lane[order], start[order], end[order]
    duration = end - start
    parent = nesting.parents(lane, start, duration)
    self_ps = nesting.self_times(parent, duration)
    retained = np.ones(len(lane), np.bool_)
    overlaps = self_time.overlapping(lane, start, end, parent)
    if as_xprof:
        for rows in self_time.overlap_groups(
            lane, start, end, overlaps | self_time.ends_with_its_parent(end, parent)
        ):
            retained[rows], self_ps[rows] = self_time.stacked(start[rows], end[rows])
    else:
        self_time.share_out(self_ps, lane, start, end, overlaps)
        if activity.framework is PYTORCH:
            self_ps, retained = _without_repeats(ops["op"].to_numpy(np.int64), parent, self_ps)
    first = run_starts(lane)
    extent = np.maximum.reduceat(end, first) - start[first]
    busy = np.add.reduceat(np.where(retained, self_ps, 0), first)
    table = ops.assign(own=self_ps, overlaps=overlaps)
    return (table if retained.all() else table[retained]), int(
        (np.maximum(busy, extent) - busy).sum()
    )


def _without_repeats(
    op: Int64s, parent: Int32s, self_ps: Int64s
) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Calls of PyTorch's ops without those that are the same call once more, whose self time goes
    to the call around them.

    The dispatcher may hand an op on to itself (`aten::div` of a number): a call with the name of
    the call around it, and nothing beside it there. `key_averages()` of torch.profiler counts the
    two as one.
    """
    nested = np.flatnonzero(parent >= 0)
    children = np.bincount(parent[nested], minlength=len(parent))
    again = np.zeros(len(parent), np.bool_)
    again[nested] = (op[nested] == op[parent[nested]]) & (children[parent[nested]] == 1)
    head = np.arange(len(parent))
    moving = np.flatnonzero(again)
    while len(moving):
        head[moving] = parent[head[moving]]
        moving = moving[again[head[moving]]]
    result = np.zeros(len(self_ps), np.int64)
    np.add.at(result, head, self_ps)
    return result, ~again


@dataclass
class Side:
    """The ops of a side (device or host), most self time first, and its idle time in ps (None: that
    side was not recorded).
    """

    where: str
    ops: pd.DataFrame
    idle: int | None


def frames(side_tables: list[Side]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The ops without idle rows, and with them: `p.ops.frame` and `p.ops.with_idle`.

    `sides` is the result of `with_rates`.
    """
    return table(side_tables, with_idle=False), table(side_tables, with_idle=True)


def in_steps(activity: Activity) -> pd.DataFrame:
    """The runs on devices without those launched before the recording began, for figures per
    step.
    """
    runs = activity.device_ops
    return runs.take(backlog.not_launched_before(activity, runs.event)).frame()


def host_us_in_steps(
    activity: Activity, host_rows: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """Self time, µs, of the runs of each host op that begin in a step of their host: columns `op`
    `self_us`.
    """
    rows = np.flatnonzero(begin_in_steps(host_rows, steps, activity.hosts))
    of_row, code = pd.factorize(host_rows["op"].to_numpy(np.int64)[rows])
    self_ps = np.zeros(len(code), np.int64)
    np.add.at(self_ps, of_row, host_rows["own"].to_numpy(np.int64)[rows])
    return pd.DataFrame({"op": activity.ops.values[code], "self_us": self_ps / 1e6})


def added_host_us(hosts: list[pd.DataFrame]) -> pd.DataFrame:
    """The results of `host_us_in_steps` of several hosts together."""
    rows = pd.concat(hosts, ignore_index=True)
    return rows.groupby("op", sort=False)["self_us"].sum().reset_index()


def eager_us(activity: Activity, host_rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Self time of runs that were eager (NaN: unknown), and of all runs, by side.

    If some runs of an op were compiled, only the others are eager.
    """
    host_ps, host_eager = host_rows["own"].to_numpy(np.int64), host_rows["eager"]
    device_ps, device_eager = activity.device_ops.own, activity.device_ops.eager
    eager_device = float(device_ps[device_eager].sum()) / 1e6
    if UNKNOWN_EAGER in activity.traits:
        eager_device = float("nan")
    eager_host = float(host_ps[host_eager.to_numpy(np.bool_)].sum()) / 1e6
    return {
        "device": (eager_device, float(device_ps.sum()) / 1e6),
        "host": (eager_host, float(host_ps.sum()) / 1e6),
    }


def sides(
    activity: Activity,
    device_rows: pd.DataFrame,
    host_rows: pd.DataFrame,
    host_idle: int,
    *,
    as_xprof: bool = False,
) -> list[Side]:
    """Runs of ops grouped by op, device first; with `as_xprof`, impossible byte rates are included
    and runs are counted as XProf does.
    """
    sums = summed(activity, device_rows, host_rows, host_idle, as_xprof=as_xprof)
    return with_rates(sums, activity, as_xprof=as_xprof)


def summed(
    activity: Activity,
    device_rows: pd.DataFrame,
    host_rows: pd.DataFrame,
    host_idle: int,
    *,
    as_xprof: bool = False,
) -> list[Side]:
    """Runs of ops grouped by op, device first, in sums that add up over hosts."""
    on_device = activity.has_device or bool(len(activity.device_extents))
    device = _on_device(activity, device_rows, as_xprof)
    host = _grouped(activity, host_rows, host_rows["own"].to_numpy(np.int64))
    return [
        Side("device", device, device_idle(activity, device_rows) if on_device else None),
        Side("host", host, host_idle if activity.has_host_ops else None),
    ]


def added(hosts: list[list[Side]]) -> list[Side]:
    """The results of `summed` of several hosts together."""
    device_sides = [sides[0] for sides in hosts]
    host_sides = [sides[1] for sides in hosts]
    return [_added(device_sides), _added(host_sides)]


def _added(sides: list[Side]) -> Side:
    idle_of_sides = [side.idle for side in sides if side.idle is not None]
    idle = sum(idle_of_sides) if idle_of_sides else None
    tables = [side.ops for side in sides if len(side.ops)]
    if not tables:
        return Side(sides[0].where, sides[0].ops, idle)
    rows = pd.concat(tables, ignore_index=True)
    optional = [column for column in ("of_kernels", "on_tensor_cores") if column in rows]
    by_op = rows.groupby("op", sort=False)
    table = by_op[["occurrences", "total", "own", *optional]].sum()
    for column in ("flops", "bytes"):
        if column in rows:
            # One host with an unknown value leaves the rate unknown, as one part of an op does.
            is_unknown = rows[column].isna().groupby(rows["op"], sort=False).any()
            table[column] = by_op[column].sum().mask(is_unknown)
    table["eager"] = by_op["eager"].any()
    types = rows[rows["type"] != ""].groupby("op", sort=False)["type"].first()
    table["type"] = types.reindex(table.index).fillna("")
    table = table.reset_index()
    order = _by_time(table["own"].to_numpy(np.int64), table["op"].to_numpy(object))
    return Side(sides[0].where, table.iloc[order].reset_index(drop=True), idle)


def with_rates(sides: list[Side], activity: Activity, *, as_xprof: bool = False) -> list[Side]:
    """The sides with the rates of device ops: FLOPs and bytes per second, and the fraction of time
    on Tensor Cores.
    """
    device = sides[0].ops
    if not len(device):
        return sides
    if UNKNOWN_EAGER in activity.traits:
        device = device.assign(eager=pd.array([pd.NA] * len(device), dtype="boolean"))
    kernel_time = device["of_kernels"].to_numpy(np.float64)
    on_tensor_cores = device["on_tensor_cores"].to_numpy(np.float64)
    fraction = np.full(len(device), np.nan)
    np.divide(on_tensor_cores, kernel_time, out=fraction, where=kernel_time > 0)
    device = device.assign(tensor_core_fraction=fraction)
    memory = HBM if as_xprof else main_memory(activity)
    device = _rates(device, *peaks(activity, as_xprof), memory, as_xprof)
    return [Side("device", device, sides[0].idle), *sides[1:]]


def _grouped(activity: Activity, rows: pd.DataFrame, self_time: Int64s) -> pd.DataFrame:
    """Runs by op: how many, their time and their self time, in ps."""
    code = rows["op"].to_numpy(np.int64)
    count = np.bincount(code)
    used = np.flatnonzero(count)
    total, self_ps = np.zeros(len(count), np.int64), np.zeros(len(count), np.int64)
    eager = np.zeros(len(count), np.bool_)
    np.add.at(total, code, rows["end"].to_numpy(np.int64) - rows["start"].to_numpy(np.int64))
    np.add.at(self_ps, code, self_time)
    eager[code[rows["eager"].to_numpy(np.bool_)]] = True
    table = pd.DataFrame(
        {
            "code": used,
            "op": activity.ops.values[used] if len(used) else np.zeros(0, object),
            "type": _types(activity, code, rows["type"].to_numpy(np.int64), len(count))[used],
            "occurrences": count[used],
            "total": total[used],
            "own": self_ps[used],
            "eager": eager[used],
        }
    )
    return table.iloc[_by_time(table["own"].to_numpy(), table["op"].to_numpy(object))].reset_index(
        drop=True
    )


def _by_time(self_ps: Int64s | npt.NDArray[np.float64], name: npt.NDArray[np.object_]) -> Int64s:
    """The order by self time, most first, then by name; names are compared only where times are
    equal.
    """
    order = np.argsort(-self_ps, kind="stable")
    equal = np.append(False, self_ps[order][1:] == self_ps[order][:-1])[: len(self_ps)]
    tied = np.flatnonzero(equal | np.append(equal[1:], False)[: len(self_ps)])
    if len(tied):
        rows = order[tied]
        keys = list(zip((-self_ps[rows]).tolist(), name[rows].tolist(), strict=True))
        order[tied] = rows[sorted(range(len(rows)), key=keys.__getitem__)]
    return order


def _types(activity: Activity, op: Int64s, kind: Int64s, count: int) -> npt.NDArray[np.object_]:
    """By op code: the type of its first run that has one."""
    names = activity.types.values
    first = np.full(count, -1, np.int64)
    named = np.array([bool(n) for n in names], np.bool_)
    rows = np.flatnonzero(named[kind])[::-1] if len(kind) else np.zeros(0, np.int64)
    # The last assignment wins.
    first[op[rows]] = kind[rows]
    # The last one is that of no type.
    return np.append(names, np.array([""], object))[first]


def _on_device(activity: Activity, rows: pd.DataFrame, as_xprof: bool) -> pd.DataFrame:
    """Device ops by name, with the FLOPs and bytes of their runs."""
    table = _grouped(activity, rows, rows["own"].to_numpy(np.int64))
    if not len(table):
        return table
    part, op = rows["part"].to_numpy(np.int64), rows["op"].to_numpy(np.int64)
    size = int(op.max()) + 1
    op_of_part = np.full(int(part.max()) + 1, -1, np.int64)
    op_of_part[part] = op
    code = table["code"]
    table["occurrences"] = _runs(rows["host"].to_numpy(np.int64), part, op_of_part, size)[code]
    for column in ("flops", "bytes"):
        table[column] = _sum_of_parts(activity, column, op_of_part, size, as_xprof)[code]
    uses = rows["tensor_core"].to_numpy(np.int8)
    time = rows["end"].to_numpy(np.int64) - rows["start"].to_numpy(np.int64)
    table["of_kernels"] = np.bincount(op, np.where(uses >= 0, time, 0), size)[code]
    table["on_tensor_cores"] = np.bincount(op, np.where(uses == 1, time, 0), size)[code]
    return table


def _sum_of_parts(
    activity: Activity, column: str, op_of_part: Int64s, size: int, as_xprof: bool
) -> npt.NDArray[np.float64]:
    """By op, the FLOPs or bytes of its parts; one unknown part leaves the sum unknown, XProf has 0
    for it.
    """
    parts = activity.op_parts
    if not len(parts):
        return np.full(size, np.nan)
    used = np.flatnonzero(op_of_part >= 0)
    values = parts.flops if column == "flops" else parts.bytes
    if as_xprof:
        values = parts.xprof_flops if column == "flops" else parts.bytes
        values = np.nan_to_num(values * parts.xprof_runs.astype(np.float64))
    sums = np.zeros(size)
    np.add.at(sums, op_of_part[used], values[used].astype(np.float64))
    return sums


def _runs(host: Int64s, part: Int64s, op_of_part: Int64s, count: int) -> Int64s:
    """The number of runs by op: on each host that of its part which ran most there, since each host
    may have different parts.
    """
    ran, runs = np.unique(host * len(op_of_part) + part, return_counts=True)
    host_of, part_of = np.divmod(ran, len(op_of_part))
    most_runs = np.zeros((int(host_of.max()) + 1, count), np.int64)
    np.maximum.at(most_runs, (host_of, op_of_part[part_of]), runs)
    return np.asarray(most_runs.sum(axis=0), np.int64)


def _rates(
    ops: pd.DataFrame, peak_flops: float, peak_bytes: float, memory: str, any_rate: bool
) -> pd.DataFrame:
    seconds = ops["total"].where(ops["total"] > 0) / 1e12
    ops["flops_per_second"] = ops["flops"] / seconds
    rate = ops["bytes"] / seconds
    ops["bytes_per_second"] = rate if any_rate else rate.mask(rate > IMPOSSIBLE * peak_bytes)
    ops["operational_intensity"] = ops["flops"] / ops["bytes"].where(ops["bytes"] > 0)
    computing, moving = ops["flops_per_second"] / peak_flops, ops["bytes_per_second"] / peak_bytes
    is_known = computing.notna() & moving.notna() & ((computing > 0) | (moving > 0))
    ops["bound_by"] = np.where(is_known, np.where(moving > computing, memory, COMPUTE), "")
    return ops


def bound(
    nearest: npt.NDArray[np.object_], fraction: npt.NDArray[np.float64]
) -> npt.NDArray[np.object_]:
    """The bound of ops: the resource that each comes closest to if it is near that peak, else
    `LATENCY`; '' if unknown.

    Parameters
    ----------
    nearest : object[n]
        The resource that each op comes closest to; '' if unknown.
    fraction : float64[n]
        The fraction of that resource's peak that the op reaches.
    """
    return np.where((nearest != "") & (fraction < NEAR_ROOF), LATENCY, nearest)


def peaks(activity: Activity, as_xprof: bool = False) -> tuple[float, float]:
    """Peak FLOP/s and bytes per second of a device; NaN if unknown or different between devices.

    XProf uses the bandwidth that the file states, which for AMD devices may be half the real one.
    """
    bytes_per_second = _peak(activity, "memory_bytes_per_second")
    if as_xprof and "bytes" not in activity.given_peaks and activity.xprof_bytes_per_second > 0:
        bytes_per_second = activity.xprof_bytes_per_second
    return _peak(activity, "peak_flops_per_second"), bytes_per_second


def main_memory(activity: Activity) -> str:
    """The kind of main memory of the devices: `HBM` if all have that, else `DEVICE_MEMORY`;
    `HOST_MEMORY` if ops ran on the CPU.

    TPUs have HBM, and of AMD the gfx9 chips (Vega, Instinct). XProf says HBM for every device.
    """
    if not activity.has_device:
        return HOST_MEMORY
    facts = [activity.devices[key].tolist() for key in ("kind", "name", "compute_capability")]
    with_hbm = [_has_hbm(*map(str, device)) for device in zip(*facts, strict=True)]
    return HBM if with_hbm and all(with_hbm) else DEVICE_MEMORY


def _has_hbm(kind: str, name: str, capability: str) -> bool:
    if kind == "TPU":
        return True
    if name.startswith("AMD"):
        return capability.startswith("9.")
    return capability in _WITH_HBM


def on_chip_peaks(activity: Activity) -> dict[str, float]:
    """Peak bytes per second of each memory on the chip, by the names of `given_peaks.ON_CHIP`; only
    known ones.
    """
    peaks_by_level = {level: _peak(activity, f"{level}_bytes_per_second") for level in ON_CHIP}
    return {level: peak for level, peak in peaks_by_level.items() if peak > 0}


def _peak(activity: Activity, column: str) -> float:
    """The peak that the person gave, else that of the devices; NaN if unknown or different between
    them.
    """
    for name, value in activity.given_peaks.items():
        # Also where ops ran without a device, on the CPU.
        if column == KEYS[name]:
            return value
    if column not in activity.devices.columns:
        return float("nan")
    values = set()
    for value in activity.devices[column].tolist():
        if isinstance(value, Real) and not np.isnan(float(value)):
            values.add(float(value))
    return values.pop() if len(values) == 1 else float("nan")


def device_idle(activity: Activity, rows: pd.DataFrame) -> int:
    """The time in which the devices ran no ops, in ps."""
    self_ps = rows["own"].to_numpy(np.int64)
    start, end = rows["start"].to_numpy(np.int64), rows["end"].to_numpy(np.int64)
    host, device = rows["host"].to_numpy(), rows["device"].to_numpy()
    extents = activity.device_extents
    idle = 0
    for row in range(len(extents)):
        of_device = (host == extents.host[row]) & (device == extents.device[row])
        if activity.framework is PYTORCH:
            used = Intervals.union(start[of_device], end[of_device]).total()
        else:
            used = int(self_ps[of_device].sum())
        idle += max(used, int(extents.end[row]) - int(extents.start[row])) - used
    return idle


def table(sides: list[Side], *, with_idle: bool, limit: int = sys.maxsize) -> pd.DataFrame:
    """The public frame of some sides; at most `limit` rows of each, which are counted before idle
    is left out.
    """
    parts = [_rows(side, with_idle, limit) for side in sides]
    parts = [part for part in parts if len(part)]
    if len(parts) == 1:
        rows = parts[0]
    else:
        rows = pd.concat(parts or [pd.DataFrame(columns=COLUMNS)], ignore_index=True)
    rows["rank"] = np.arange(1, len(rows) + 1)
    if "bound_by" in rows:
        rows["bound_by"] = rows["bound_by"].fillna("")
    rates = [name for name in RATES if name in rows and _has_values(rows[name])]
    return rows[COLUMNS + rates]


def _has_values(column: pd.Series) -> bool:
    if column.name == "bound_by":
        return bool((column != "").any())
    return bool(column.notna().any())


def _rows(side: Side, with_idle: bool, limit: int) -> pd.DataFrame:
    ops, self_ps = side.ops, side.ops["own"].to_numpy(np.int64)
    total_ps, rows = int(self_ps.sum()), np.arange(len(ops))
    if side.idle is not None:
        # Ops are sorted by self time, equal ones by name; the idle row has its place among them.
        equal = ops["op"].to_numpy(object)[self_ps == side.idle]
        above = int((self_ps > side.idle).sum()) + int((equal < "IDLE").sum())
        if with_idle:
            total_ps += side.idle
            # The row behind the last op is the idle one.
            rows = np.insert(rows, above, len(ops))
        elif above < limit:
            limit -= 1
    rows = rows[:limit]

    def column(name: str, of_idle: Any) -> npt.NDArray[Any]:
        values = ops[name].to_numpy()
        return np.append(values, np.array([of_idle], values.dtype))[rows]

    count = column("occurrences", 0)
    total, self_ps = column("total", side.idle or 0), column("own", side.idle or 0)
    share = self_ps / total_ps if total_ps else self_ps * 0.0
    occurrences = np.where(count == 0, np.nan, count)
    eager: Any = column("eager", False)
    if len(rows) and ops["eager"].array.isna().any():
        eager = pd.array(eager, dtype="boolean")
    else:
        eager = eager.astype(np.bool_)
    columns = {
        "rank": 0,
        "where": side.where,
        "type": column("type", "IDLE"),
        "op": column("op", "IDLE"),
        "occurrences": count.astype(np.int64),
        "total_us": total / 1e6,
        "avg_us": total / occurrences / 1e6,
        "self_us": self_ps / 1e6,
        "avg_self_us": self_ps / occurrences / 1e6,
        "self_fraction": share,
        "cumulative_fraction": np.cumsum(share),
        "eager": eager,
    }
    for name in RATES:
        if name in ops:
            columns[name] = column(name, "" if name == "bound_by" else np.nan)
    return pd.DataFrame(columns)


def by_type(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of an ops frame summed by type: `p.ops.by_type()`."""
    return _folded(frame, "type", frame["type"])


def by_scope(frame: pd.DataFrame, level: int | None) -> pd.DataFrame:
    """The rows of an ops frame summed by name scope: `p.ops.by_scope()`."""
    return _folded(
        frame, "scope", pd.Series([scope(op, level) for op in frame["op"]], frame.index, object)
    )


def scope(op: str, level: int | None = None) -> str:
    """The name scope of an op: its name without the last component, or the first `level` components
    of that.

    Components are separated by "/", those of names without one (tf.data iterators, PyTorch's ops)
    by "::".
    """
    for mark in ("/", "::"):
        end = op.rfind(mark)
        if end > 0:
            return mark.join(op[:end].split(mark)[:level])
    return ""


def _folded(frame: pd.DataFrame, name: str, key: pd.Series) -> pd.DataFrame:
    columns = {
        "ops": ("op", "size"),
        **{c: (c, "sum") for c in ("occurrences", "total_us", "self_us", "self_fraction")},
    }
    table = (
        frame.assign(**{name: key})
        .groupby(["where", name], sort=False)
        .agg(**columns)
        .reset_index()
    )
    # Device first, as in the frame; of equal times in the order of the names.
    return table.sort_values(
        ["where", "self_us", name], ascending=[True, False, True], kind="stable", ignore_index=True
    )


def distribution(frame: pd.DataFrame, side: str, by: str) -> pd.DataFrame:
    """Self time of a side by op or type, with cumulative shares: `p.ops.distribution()`."""
    rows = np.flatnonzero(frame["where"].to_numpy(object) == side)
    names = frame[by].to_numpy(object)[rows]
    time, share = (frame[column].to_numpy()[rows] for column in ("self_us", "self_fraction"))
    if len(set(names.tolist())) < len(names):
        sums = pd.DataFrame({"time": time, "share": share}).groupby(names, sort=False).sum()
        names = sums.index.to_numpy(object)
        time, share = sums["time"].to_numpy(), sums["share"].to_numpy()
    order = _by_time(time.astype(np.float64), names)
    return pd.DataFrame(
        {
            by: pd.Series(names[order], dtype=frame[by].dtype),
            "self_us": time[order],
            "self_fraction": share[order],
            "cumulative_fraction": np.cumsum(share[order]),
        }
    )

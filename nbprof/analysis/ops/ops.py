"""Time by framework op, on the device and on the host: the TensorFlow stats of TensorFlow Profiler.

Self time on a host thread is what is left of an op when the ops inside it are taken away; on a
device each kernel counts for the op that launched it, and an op of a TPU without those inside it.
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
"""What an op may be bound by, besides on-chip memory: computation, or main memory, by its name."""
LATENCY = "Latency"
"""What bounds an op that is near no peak: it waits, for launches, dependencies, too little parallel
work, or a link to the host.
"""
NEAR_ROOF = 0.6
"""An op is bound by a resource from this fraction of its peak on.

Below it, Nsight Compute's rule for the Speed of Light section says "typically indicate latency
issues" of both compute and memory."""
# Of NVIDIA the chips for data centers and their like: P100, V100, A100, H100, B200, B300.
_WITH_HBM = ("6.0", "7.0", "8.0", "9.0", "10.0", "10.3")
# An op that only begins a transfer, or finds it done, took no time over its bytes. Memory on the
# chip is up to 15 times as fast as the device's main memory, so what is far above that is no rate.
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
        for rows in self_time.stretches(
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
    """The ops without idle rows, and with them: `p.ops.frame` and `p.ops.with_idle`; `found` is
    what `with_rates` gives.
    """
    return table(side_tables, with_idle=False), table(side_tables, with_idle=True)


def in_steps(activity: Activity) -> pd.DataFrame:
    """The runs on devices without those that were launched before the recording began, for figures
    a step.
    """
    runs = activity.device_ops
    return runs.take(backlog.apart(activity, runs.event)).frame()


def host_us_in_steps(
    activity: Activity, host_rows: pd.DataFrame, steps: pd.DataFrame
) -> pd.DataFrame:
    """Self time, µs, of the runs of each host op that begin in a step of their host: columns `op`
    `self_us`.
    """
    rows = host_rows[begin_in_steps(host_rows, steps, activity.hosts)]
    self_ps = rows.groupby("op", sort=False)["own"].sum()
    return pd.DataFrame(
        {
            "op": activity.ops.values[self_ps.index.to_numpy(np.int64)],
            "self_us": self_ps.to_numpy(np.float64) / 1e6,
        }
    )


def added_host_us(hosts: list[pd.DataFrame]) -> pd.DataFrame:
    """What `host_us_in_steps` gives of several hosts, as it would give it of all of them
    together.
    """
    return (
        pd.concat(hosts, ignore_index=True).groupby("op", sort=False)["self_us"].sum().reset_index()
    )


def eager_us(activity: Activity, host_rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Self time of runs that were eager (NaN: not known), and of all, by side.

    Of an op of which some runs were compiled the others alone are eager.
    """
    shares = {}
    for side, rows in (("device", activity.device_ops.frame()), ("host", host_rows)):
        self_ps = rows["own"].to_numpy(np.int64)
        if side == "device" and UNKNOWN_EAGER in activity.traits:
            shares[side] = float("nan"), float(self_ps.sum()) / 1e6
            continue
        shares[side] = (
            float(self_ps[rows["eager"].to_numpy(np.bool_)].sum()) / 1e6,
            float(self_ps.sum()) / 1e6,
        )
    return shares


def sides(
    activity: Activity,
    device_rows: pd.DataFrame,
    host_rows: pd.DataFrame,
    host_idle: int,
    *,
    as_xprof: bool = False,
) -> list[Side]:
    """Runs of ops grouped by op, device first; `as_xprof` also rates of bytes that cannot be, and
    runs as XProf counts them.
    """
    return with_rates(
        summed(activity, device_rows, host_rows, host_idle, as_xprof=as_xprof),
        activity,
        as_xprof=as_xprof,
    )


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
    """What `summed` gives of several hosts, as it would give it of all of them together."""
    return [_added([sides[i] for sides in hosts]) for i in range(2)]


def _added(sides: list[Side]) -> Side:
    idle = [side.idle for side in sides if side.idle is not None]
    tables = [side.ops for side in sides if len(side.ops)]
    if not tables:
        return Side(sides[0].where, sides[0].ops, sum(idle) if idle else None)
    rows = pd.concat(tables, ignore_index=True)
    sums = [
        "occurrences",
        "total",
        "own",
        *(c for c in ("of_kernels", "on_tensor_cores") if c in rows),
    ]
    by_op = rows.groupby("op", sort=False)
    sums_by_op = by_op[sums].sum()
    for column in ("flops", "bytes"):
        if column in rows:
            # One host that does not know leaves the rate unknown, as one part of an op does.
            sums_by_op[column] = (
                by_op[column].sum().mask(rows[column].isna().groupby(rows["op"], sort=False).any())
            )
    sums_by_op["eager"] = by_op["eager"].any()
    sums_by_op["type"] = (
        rows[rows["type"] != ""]
        .groupby("op", sort=False)["type"]
        .first()
        .reindex(sums_by_op.index)
        .fillna("")
    )
    sums_by_op = sums_by_op.reset_index()
    order = _by_time(sums_by_op["own"].to_numpy(np.int64), sums_by_op["op"].to_numpy(object))
    return Side(
        sides[0].where, sums_by_op.iloc[order].reset_index(drop=True), sum(idle) if idle else None
    )


def with_rates(sides: list[Side], activity: Activity, *, as_xprof: bool = False) -> list[Side]:
    """The sides with what each op of the device computed and moved in a second, and its share on
    Tensor Cores.
    """
    device = sides[0].ops
    if not len(device):
        return sides
    of_kernels, on = (
        device["of_kernels"].to_numpy(np.float64),
        device["on_tensor_cores"].to_numpy(np.float64),
    )
    if UNKNOWN_EAGER in activity.traits:
        device = device.assign(eager=pd.array([pd.NA] * len(device), dtype="boolean"))
    device = device.assign(
        tensor_core_fraction=np.divide(
            on, of_kernels, out=np.full(len(device), np.nan), where=of_kernels > 0
        )
    )
    memory = HBM if as_xprof else main_memory(activity)
    return [
        Side("device", _rates(device, *peaks(activity, as_xprof), memory, as_xprof), sides[0].idle),
        *sides[1:],
    ]


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
    """The order by self time, most first, and of equal ones by name; names are compared only where
    times are equal.
    """
    order = np.argsort(-self_ps, kind="stable")
    equal = np.append(False, self_ps[order][1:] == self_ps[order][:-1])[: len(self_ps)]
    tied = np.flatnonzero(equal | np.append(equal[1:], False)[: len(self_ps)])
    if len(tied):
        rows = order[tied]
        rank, _ = pd.factorize(name[rows], sort=True)
        order[tied] = rows[np.lexsort((rank, -self_ps[rows]))]
    return order


def _types(activity: Activity, op: Int64s, kind: Int64s, count: int) -> npt.NDArray[np.object_]:
    """By op code: the type of its first run that has one."""
    names = activity.types.values
    first = np.full(count, -1, np.int64)
    named = np.array([bool(n) for n in names], np.bool_)
    rows = np.flatnonzero(named[kind])[::-1] if len(kind) else np.zeros(0, np.int64)
    # The last assignment wins.
    first[op[rows]] = kind[rows]
    # The last place is that of no type.
    return np.append(names, np.array([""], object))[first]


def _on_device(activity: Activity, rows: pd.DataFrame, as_xprof: bool) -> pd.DataFrame:
    """Device ops by name, with what they computed and moved."""
    table = _grouped(activity, rows, rows["own"].to_numpy(np.int64))
    if not len(table):
        return table
    part, op = rows["part"].to_numpy(np.int64), rows["op"].to_numpy(np.int64)
    size = int(op.max()) + 1
    op_of_part = np.full(int(part.max()) + 1, -1, np.int64)
    op_of_part[part] = op
    used = np.flatnonzero(op_of_part >= 0)
    table["occurrences"] = _runs(rows["host"].to_numpy(np.int64), part, op_of_part, size)[
        table["code"]
    ]
    parts = activity.op_parts.frame()
    for column in ("flops", "bytes"):
        sums = np.full(size, np.nan)
        if len(parts):
            sums = np.zeros(size)
            # One part that states nothing leaves the op's rate unknown; XProf has 0 for it.
            values = parts["xprof_flops" if as_xprof and column == "flops" else column].to_numpy(
                np.float64
            )
            if as_xprof:
                values = np.nan_to_num(values * parts["xprof_runs"].to_numpy(np.float64))
            np.add.at(sums, op_of_part[used], values[used])
        table[column] = sums[table["code"]]
    tells = rows["tensor_core"].to_numpy(np.int8)
    time = rows["end"].to_numpy(np.int64) - rows["start"].to_numpy(np.int64)
    table["of_kernels"] = np.bincount(op, np.where(tells >= 0, time, 0), size)[table["code"]]
    table["on_tensor_cores"] = np.bincount(op, np.where(tells == 1, time, 0), size)[table["code"]]
    return table


def _runs(host: Int64s, part: Int64s, op_of_part: Int64s, count: int) -> Int64s:
    """By op how often it ran: on each host as often as the part of it that ran most there, since
    each host may have parts of its own.
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
    """What bounds ops: the resource that each comes closest to if it is near that peak, else
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
    moving = _one(activity, "memory_bytes_per_second")
    if as_xprof and "bytes" not in activity.given_peaks and activity.xprof_bytes_per_second > 0:
        moving = activity.xprof_bytes_per_second
    return _one(activity, "peak_flops_per_second"), moving


def main_memory(activity: Activity) -> str:
    """What the main memory of the devices is: `HBM` where all have that, else `DEVICE_MEMORY`;
    `HOST_MEMORY` where ops ran on the CPU.

    TPUs have HBM, and of AMD what is gfx9 (Vega, Instinct). XProf says HBM of each.
    """
    devices = activity.devices
    if not activity.has_device:
        return HOST_MEMORY
    facts = zip(
        *(map(str, devices[column].tolist()) for column in ("kind", "name", "compute_capability")),
        strict=True,
    )
    return HBM if len(devices) and all(_has_hbm(*device) for device in facts) else DEVICE_MEMORY


def _has_hbm(kind: str, name: str, capability: str) -> bool:
    if kind == "TPU":
        return True
    return capability.startswith("9.") if name.startswith("AMD") else capability in _WITH_HBM


def on_chip_peaks(activity: Activity) -> dict[str, float]:
    """Bytes a second that each memory on the chip can move at most, by the names of
    `given_peaks.ON_CHIP`; those that are known.
    """
    peaks_by_level = {level: _one(activity, f"{level}_bytes_per_second") for level in ON_CHIP}
    return {level: peak for level, peak in peaks_by_level.items() if peak > 0}


def _one(activity: Activity, column: str) -> float:
    """What was given, else what the devices have in common; NaN if unknown or differs."""
    for name, value in activity.given_peaks.items():
        # Also where ops ran without a device, on the CPU.
        if column == KEYS[name]:
            return value
    if column not in activity.devices.columns:
        return float("nan")
    values = {
        float(value)
        for value in activity.devices[column].tolist()
        if isinstance(value, Real) and not np.isnan(float(value))
    }
    return values.pop() if len(values) == 1 else float("nan")


def device_idle(activity: Activity, rows: pd.DataFrame) -> int:
    """The time in which the devices ran no ops, in ps."""
    self_ps = rows["own"].to_numpy(np.int64)
    idle = 0
    row_host = rows["host"].to_numpy(), rows["device"].to_numpy()
    for host, device, start, end in (
        activity.device_extents.frame()[["host", "device", "start", "end"]]
        .to_numpy(np.int64)
        .tolist()
    ):
        of_device = (row_host[0] == host) & (row_host[1] == device)
        used = (
            Intervals.of_rows(rows[of_device]).total()
            if activity.framework is PYTORCH
            else int(self_ps[of_device].sum())
        )
        idle += max(used, end - start) - used
    return idle


def table(sides: list[Side], *, with_idle: bool, limit: int = sys.maxsize) -> pd.DataFrame:
    """The public frame of some sides; at most `most` rows of each, which are counted before idle is
    left out.
    """
    parts = [part for side in sides if len(part := _rows(side, with_idle, limit))]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)
    table["rank"] = np.arange(1, len(table) + 1)
    rates = [
        c
        for c in RATES
        if c in table and (table[c].fillna("") != "" if c == "bound_by" else table[c].notna()).any()
    ]
    if "bound_by" in rates:
        table["bound_by"] = table["bound_by"].fillna("")
    return table[COLUMNS + rates]


def _rows(side: Side, with_idle: bool, limit: int) -> pd.DataFrame:
    ops, self_ps = side.ops, side.ops["own"].to_numpy(np.int64)
    total_ps, rows = int(self_ps.sum()), np.arange(len(ops))
    if side.idle is not None:
        # Where the idle row has its place: ops are sorted by self time, equal ones by name.
        above = int((self_ps > side.idle).sum()) + int(
            (ops["op"].to_numpy(object)[self_ps == side.idle] < "IDLE").sum()
        )
        if with_idle:
            total_ps += side.idle
            # The place behind the last op is that of the idle row.
            rows = np.insert(rows, above, len(ops))
        elif above < limit:
            limit -= 1
    rows = rows[:limit]

    def column(name: str, of_idle: Any) -> npt.NDArray[Any]:
        values = ops[name].to_numpy()
        return np.append(values, np.array([of_idle], values.dtype))[rows]

    count, total, self_ps = (
        column(*pair)
        for pair in (("occurrences", 0), ("total", side.idle or 0), ("own", side.idle or 0))
    )
    share = self_ps / total_ps if total_ps else self_ps * 0.0
    occurrences = np.where(count == 0, np.nan, count)
    eager = ops["eager"].array
    unknown = bool(len(rows) and eager.isna().any())
    return pd.DataFrame(
        {
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
            "eager": pd.array(column("eager", False), dtype="boolean")
            if unknown
            else column("eager", False).astype(np.bool_),
            **{
                name: column(name, "" if name == "bound_by" else np.nan)
                for name in RATES
                if name in ops
            },
        }
    )


def by_type(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of an ops frame summed by type: `p.ops.by_type()`."""
    return _folded(frame, "type", frame["type"])


def by_scope(frame: pd.DataFrame, level: int | None) -> pd.DataFrame:
    """The rows of an ops frame summed by name scope: `p.ops.by_scope()`."""
    return _folded(
        frame, "scope", pd.Series([scope(op, level) for op in frame["op"]], frame.index, object)
    )


def scope(op: str, level: int | None = None) -> str:
    """The name scope of an op: its name without the last component, of that the first `level`
    components.

    Components are parted by "/", those of names without one (tf.data iterators, PyTorch's ops) by
    "::".
    """
    for mark in ("/", "::"):
        if (position := op.rfind(mark)) > 0:
            return mark.join(op[:position].split(mark)[:level])
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
    """How the self time of a side is distributed: `p.ops.distribution()`."""
    rows = np.flatnonzero(frame["where"].to_numpy(object) == side)
    names, time, share = (
        frame[column].to_numpy()[rows] for column in (by, "self_us", "self_fraction")
    )
    if len(set(names.tolist())) < len(names):
        sums = pd.DataFrame({"time": time, "share": share}).groupby(names, sort=False).sum()
        names, time, share = (
            sums.index.to_numpy(object),
            sums["time"].to_numpy(),
            sums["share"].to_numpy(),
        )
    order = _by_time(time.astype(np.float64), names)
    return pd.DataFrame(
        {
            by: pd.Series(names[order], dtype=frame[by].dtype),
            "self_us": time[order],
            "self_fraction": share[order],
            "cumulative_fraction": np.cumsum(share[order]),
        }
    )

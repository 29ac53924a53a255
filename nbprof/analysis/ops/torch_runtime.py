"""The cost per step of a PyTorch program's runtime calls: evidence for advice."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import HOST_WAIT_INPUT, Activity
from nbprof.activity.unit import ITERATION
from nbprof.analysis.steps.bare_parts import cost_within
from nbprof.analysis.steps.inside import begin_in_steps
from nbprof.analysis.steps.steps import counted
from nbprof.analysis.table import positions
from nbprof.core.factorize import distinct, unique_rows
from nbprof.core.intervals import Intervals


@dataclass
class Calls:
    """The calls of one kind in an average step: number, time in ms, and the name with the most
    time.
    """

    count: float = 0.0
    ms: float = 0.0
    name: str = ""


@dataclass
class Runtime:
    """Figures of an average counted step.

    Attributes
    ----------
    calls : by kind (launch, graph, copy, copy H2D, copy D2H, fill, sync, allocate, captured, other)
    pageable_bytes : bytes a step copied to the device from memory that is not pinned
    loader, loader_ms : the DataLoader with the most time, and ms per step in it; '' and 0 where
    none was recorded
    iterator_ms : ms per step in the iterator of `nbprof.steps` or of the loop whose iterations are
    the steps, DataLoaders in it included
    capability : compute capability of the devices (major, minor), where known
    amd : whether the devices are AMD's
    data_parallel : whether torch.nn.DataParallel ran
    gloo : how many calls of Gloo there are, which moves the data of GPUs through the host
    out_of_memory : how often the allocator ran out of memory
    optimizer, optimizer_ms, optimizer_idle_ms, optimizer_launches : the class of the optimizer with
    the most time, ms per step in its
        `step`, those of them in which the device stands idle, and the kernels that it launches
        there a step; '' where none was recorded
    optimizer_ops, optimizer_op_us : the ops that its `step` calls a step, and the median of how
    long they last; of programs on the CPU
    optimizer_cost : what recording cost in its `step`, see `bare_parts.cost_of_events`
    pinned_ms : ms per step of copies to the device from pinned memory
    """

    calls: dict[str, Calls] = field(default_factory=dict)
    pageable_bytes: float = 0.0
    loader: str = ""
    loader_ms: float = 0.0
    iterator_ms: float = 0.0
    capability: tuple[int, int] | None = None
    amd: bool = False
    data_parallel: bool = False
    gloo: int = 0
    out_of_memory: int = 0
    optimizer: str = ""
    optimizer_ms: float = 0.0
    optimizer_launches: float = 0.0
    optimizer_idle_ms: float = 0.0
    optimizer_ops: float = 0.0
    optimizer_op_us: float = 0.0
    optimizer_cost: float = 0.0
    pinned_ms: float = 0.0

    def calls_of(self, *kinds: str) -> Calls:
        """The calls of some kinds combined, named after the one with the most time."""
        calls = [self.calls[kind] for kind in kinds if kind in self.calls]
        if not calls:
            return Calls()
        return Calls(
            sum(call.count for call in calls),
            sum(call.ms for call in calls),
            max(calls, key=lambda call: call.ms).name,
        )


def runtime(activity: Activity, steps: pd.DataFrame) -> Runtime:
    """The figures of a profile; `steps` is `Run.steps`."""
    runtime = Runtime()
    used = counted(steps)
    if not len(used):
        return runtime
    host = positions(activity.hosts)
    count = len(used)
    calls = activity.calls
    # Texts are numbered as tables are made, so they come after the table.
    texts = activity.texts.values.tolist()
    pairs = {
        (host[name], group)
        for name, group in zip(used["host"].tolist(), used["group"].tolist(), strict=True)
    }
    first, of_call = unique_rows(calls.host.astype(np.int64), calls.group)
    in_steps = [
        pair in pairs
        for pair in zip(calls.host[first].tolist(), calls.group[first].tolist(), strict=True)
    ]
    calls = calls.take(np.array(in_steps, np.bool_)[of_call])
    ms = (calls.end - calls.start) / 1e9
    for kind in np.unique(calls.kind).tolist():
        rows = np.flatnonzero(calls.kind == kind)
        longest = int(np.bincount(calls.name[rows], ms[rows]).argmax())
        runtime.calls[texts[kind]] = Calls(
            distinct(calls.event[rows]) / count, float(ms[rows].sum()) / count, texts[longest]
        )
    _transfers(activity, used, runtime)
    _loader(activity, used, runtime)
    names = activity.devices["name"].astype(str)
    runtime.amd = bool(names.str.contains("AMD|Radeon|Instinct").any())
    capabilities = activity.devices["compute_capability"].dropna().astype(str)
    if len(capabilities):
        major, _, minor = capabilities.iloc[0].partition(".")
        runtime.capability = (int(major), int(minor or 0))
    runtime.data_parallel = "DataParallel" in activity.traits
    runtime.gloo = _count(activity.traits, "gloo")
    runtime.out_of_memory = _count(activity.traits, "out of memory")
    _optimizer(activity, used, runtime)
    return runtime


def _within(activity: Activity, used: pd.DataFrame, rows: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Flags of the rows that begin from the first step of their host that averages use to the end
    of the last.
    """
    number = positions(activity.hosts)
    of_step = np.array([number[name] for name in used["host"].tolist()], np.int64)
    begin = used["start_ms"].to_numpy(np.float64)
    first, last = np.full(len(activity.hosts), np.inf), np.full(len(activity.hosts), -np.inf)
    np.minimum.at(first, of_step, begin * 1e9)
    np.maximum.at(last, of_step, (begin + used["step_time_ms"].to_numpy(np.float64)) * 1e9)
    host, start = rows["host"].to_numpy(np.int64), rows["start"].to_numpy(np.float64)
    return np.asarray((start >= first[host]) & (start < last[host]))


def _count(traits: set[str], name: str) -> int:
    """The number in a trait such as "gloo: 12"; 0 without it."""
    count = 0
    for trait in traits:
        key, _, number = trait.partition(": ")
        if key == name and number.isdigit():
            count += int(number)
    return count


def _optimizer(activity: Activity, used: pd.DataFrame, runtime: Runtime) -> None:
    """The optimizer with the most time in the steps that averages use, and what it launches."""
    spans = activity.optimizer_calls.frame()
    if not len(spans):
        return
    spans = spans[_within(activity, used, spans)]
    if not len(spans):
        return
    time = (spans["end"] - spans["start"]).groupby(spans["name"]).sum()
    code = time.index[int(time.to_numpy().argmax())]
    host_spans = spans[spans["name"] == code].sort_values("start", kind="stable")
    runtime.optimizer = str(activity.texts.values[int(code)])
    runtime.optimizer_ms = float(time[code]) / 1e9 / len(used)
    within = Intervals.of_rows(host_spans)
    runtime.optimizer_cost = cost_within(activity, within) / len(used)
    if not activity.has_device:
        ops = activity.torch_ops.frame()
        called = ops[ops["parent"].isin(np.flatnonzero(ops["event"].isin(host_spans["event"])))]
        runtime.optimizer_ops = len(called) / len(used)
        runtime.optimizer_op_us = (
            float((called["end"] - called["start"]).median()) / 1e6 if len(called) else 0.0
        )
        return
    kinds = [activity.texts.codes.get(kind, -1) for kind in ("launch", "graph")]
    launches = activity.calls.take(np.isin(activity.calls.kind, kinds))
    device_ops = activity.device_ops
    in_optimizer = idle = 0
    for number in host_spans["host"].unique().tolist():
        # Of calls inside others, as optimizers around optimizers have, the outer one counts.
        running = Intervals.of_rows(host_spans[host_spans["host"] == number])
        launched = launches.start[launches.host == number]
        in_optimizer += int((running.index_at(launched) >= 0).sum())
        of_host = device_ops.host == number
        busy = Intervals.union(device_ops.start[of_host], device_ops.end[of_host])
        idle += running.total() - running.overlap(busy)
    runtime.optimizer_launches = in_optimizer / len(used)
    runtime.optimizer_idle_ms = idle / 1e9 / len(used)


def _transfers(activity: Activity, used: pd.DataFrame, runtime: Runtime) -> None:
    """Copies to the device from pageable and from pinned memory."""
    transfers = activity.transfers.frame()
    if "pageable" not in transfers.columns:
        return
    to_device = transfers["kind"] == activity.texts.codes.get("H2D", -1)
    copies = transfers[to_device & _within(activity, used, transfers)]
    is_pageable = copies["pageable"].astype(bool)
    size = np.maximum(copies.loc[is_pageable, "bytes"], 0)
    runtime.pageable_bytes = float(size.sum()) / len(used)
    pinned = copies[~is_pageable]
    runtime.pinned_ms = float((pinned["end"] - pinned["start"]).sum()) / 1e9 / len(used)


def _waits_of_loop(activity: Activity, used: pd.DataFrame) -> float:
    """Return the ms per iteration that a loop waits for its items."""
    waits = activity.work.take(activity.work.cls == HOST_WAIT_INPUT)
    waits = waits.take(np.isin(waits.group, used["group"].to_numpy()))
    return Intervals.union(waits.start, waits.end).total() / 1e9 / len(used)


def _loader(activity: Activity, used: pd.DataFrame, runtime: Runtime) -> None:
    rows = activity.host_ops.frame()
    types = [activity.types.codes.get(name, -1) for name in ("iterator", "DataLoader")]
    rows = rows[_within(activity, used, rows) & rows["type"].isin(types)]
    # If steps ask for their batches themselves, the other requests are those of evaluations between
    # them.
    in_steps = begin_in_steps(rows, used, activity.hosts)
    if 2 * int(in_steps.sum()) >= len(used):
        rows = rows[in_steps]
    of_iterator = rows[rows["type"] == activity.types.codes.get("iterator", -1)]
    runtime.iterator_ms = float((of_iterator["end"] - of_iterator["start"]).sum()) / 1e9 / len(used)
    if activity.unit.kind == ITERATION:
        runtime.iterator_ms = _waits_of_loop(activity, used)
    rows = rows[rows["type"] == activity.types.codes.get("DataLoader", -1)]
    if not len(rows):
        return
    total = (rows["end"] - rows["start"]).groupby(rows["op"]).sum()
    runtime.loader = str(activity.ops.values[int(total.index[int(total.to_numpy().argmax())])])
    runtime.loader_ms = float(total.sum()) / 1e9 / len(used)

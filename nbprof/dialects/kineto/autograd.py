"""Exports of old PyTorch's `torch.autograd.profiler` without Kineto.

Events have no categories: processes called "CPU functions" and "CUDA functions" tell ops of the
host from work of a device, whose thread is the number of the device, and arrows `cpu_to_cuda` lead
from an op to its work. Device work is named as its kernel, or as its op where CUDA events timed
ops: then an op that consists of others has a span around theirs.

Source: `EventList.export_chrome_trace` of torch/autograd/profiler.py and
torch/autograd/profiler_util.py.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.receipt import Note, info
from nbprof.core.trace import INT, TEXT, ArgColumn, Int64s, Trace

HOST = "CPU functions"
_DEVICE = re.compile(r"(?!CPU\b)(\w+) functions\Z")
_SPANS = (
    "PyTorch's old profiler timed ops on the device, not kernels: the tables of kernels list the"
    " innermost ops that ran there, with the time between the events around each."
)


def is_autograd(trace: Trace) -> bool:
    """True if that profiler wrote a trace."""
    if "pid" not in trace.lanes or not (trace.lanes["pid"].astype(str) == HOST).any():
        return False
    # Arrows have a category, and no event.
    return bool((trace.text_arg("cat") < 0).all())


def adapt(trace: Trace) -> list[Note]:
    """Gives events the categories and numbers that Kineto writes; returns lines for the receipt."""
    events, lanes = trace.events, trace.lanes
    process = lanes["pid"].astype(str)
    on_host = (process == HOST).to_numpy(np.bool_)[events.lane]
    of_device = process.str.match(_DEVICE).to_numpy(np.bool_)
    work = events.of_lanes(of_device)
    ops = np.flatnonzero(on_host)
    outer = _around_others(trace, work, ops)
    first = len(trace.strings)
    trace.strings = [*trace.strings, "cpu_op", "kernel", "gpu_user_annotation"]
    category = np.full(len(events), -1, np.int64)
    category[ops] = first
    category[work] = first + 1
    category[work[outer]] = first + 2
    with_category = np.flatnonzero(category >= 0).astype(np.int32)
    device = lanes["tid"].astype(str).map(_device_number)
    number = device.to_numpy(np.int64)[events.lane]
    # CUDA is also what ROCm is called; the others are those of their makers.
    other_lanes = of_device & (process != "CUDA functions").to_numpy(np.bool_)
    for lane in np.flatnonzero(other_lanes).tolist():
        lanes.loc[lanes.index[lane], "labels"] = (
            f"{process.iloc[lane].partition(' ')[0]} {device.iloc[lane]}"
        )
    trace.args = {
        **trace.args,
        "cat": ArgColumn(with_category, TEXT, category[with_category]),
        "device": ArgColumn(work.astype(np.int32), INT, number[work]),
        **_correlations(trace, work),
    }
    if not outer.any():
        return []
    return [info("timed_ops", _SPANS)]


def _device_number(tid: str) -> int:
    """Number of a device, which is the thread of its work; 0 for other threads."""
    if tid.isdecimal() and len(tid) < 5:
        return int(tid)
    return 0


def _around_others(trace: Trace, work: Int64s, ops: Int64s) -> npt.NDArray[np.bool_]:
    """Device work that is the span of an op around its inner ops; none if kernels have names."""
    events = trace.events
    names = np.unique(events.name[ops])
    if not len(work) or not np.isin(events.name[work], names).all():
        return np.zeros(len(work), np.bool_)
    parents = np.unique(events.parent[work])
    return np.isin(work, parents[parents >= 0])


def _correlations(trace: Trace, work: Int64s) -> dict[str, ArgColumn]:
    """The number of the arrow that ends where each piece of device work begins."""
    flows, events = trace.flows, trace.events
    if flows is None or not len(flows.phase):
        return {}
    ends = np.flatnonzero((flows.phase == 2) & (flows.id >= 0))
    metadata = pd.DataFrame(
        {"lane": flows.lane[ends], "time": flows.time[ends], "id": flows.id[ends]}
    ).drop_duplicates(["lane", "time"])
    rows = pd.DataFrame({"lane": events.lane[work], "time": events.start[work], "event": work})
    linked = rows.merge(metadata, on=["lane", "time"])
    if not len(linked):
        return {}
    linked = linked.sort_values("event")
    return {
        "correlation": ArgColumn(
            linked["event"].to_numpy(np.int32), INT, linked["id"].to_numpy(np.int64)
        )
    }

"""The lanes of an Ascend trace: NPUs with streams, threads, calls into CANN, derived lanes.

Processes are recognised by the names that exporters of all versions give; their numbers are
arbitrary.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Trace
from nbprof.dialects.named_lanes import Lane, fill
from nbprof.formats.msprof.iterations import STEPS as OF_STEPS

Kinds = npt.NDArray[np.uint8]

OTHER, STREAM, COMMUNICATION, PLANE, MARKS, STEPS, CANN, PYTHON, OVERLAP, COUNTERS = range(10)

_KINDS = {
    STREAM: "device",
    COMMUNICATION: "device",
    PLANE: "derived",
    MARKS: "derived",
    OVERLAP: "derived",
    STEPS: "steps",
}
_NOUNS = {STREAM: "Stream", CANN: "Thread", PYTHON: "Thread"}
"""Names of lanes that have only a number."""
_ON_DEVICE = (STREAM, COMMUNICATION, PLANE, OVERLAP, MARKS)
_PROCESSES = frozenset(("Ascend Hardware", "CANN"))
"""Names of processes that every export has one of."""
_NPU = re.compile(r"NPU\s*(\d+)")
_LAYERS = re.compile(
    r"AI Core Freq|HBM|LLC|DDR|NPU MEM|Acc"
    r" PMU|Stars|QoS|SIO|NIC|RoCE|PCIe|HCCS|CCU|UB|Biu|Block|DPU|Fusion|Low Power"
)


def is_ascend(trace: Trace) -> bool:
    """True if one of Ascend's profilers wrote a trace."""
    if trace.tables:
        return True
    if not len(trace.lanes):
        return False
    return not _PROCESSES.isdisjoint(map(str, trace.lanes["process"].unique()))


def _device(label: str, pid: str) -> int:
    """The number of the NPU of a process, by its label or by its id."""
    npu = _NPU.search(label)
    if npu:
        return int(npu[1])
    if pid.isdigit() and int(pid) >= 1 << 10 and label.startswith("NPU"):
        return int(pid) & 31
    return 0


def name_lanes(trace: Trace) -> Kinds:
    """Fills the columns of the lanes; returns uint8[lanes], the kind of each (`STREAM`, `CANN`)."""
    lanes = trace.lanes
    kinds = np.zeros(len(lanes), np.uint8)
    named = []
    texts = lanes[["process", "thread", "labels", "pid"]].astype(str)
    for i, (process, thread, label, pid) in enumerate(texts.itertuples(index=False, name=None)):
        lane_kind = _lane_kind(process, thread)
        kinds[i] = lane_kind
        device = _device(label, pid)
        on_device = lane_kind in _ON_DEVICE or (lane_kind == COUNTERS and label.startswith("NPU"))
        number = _last_number(thread)
        if thread.isdigit():
            thread = f"{_NOUNS.get(lane_kind, '')} {thread}".strip()
        if lane_kind in (OVERLAP, PLANE, COUNTERS):
            thread = f"{process}: {thread}"
        note = "collectives" if lane_kind == COMMUNICATION else ""
        if on_device:
            rank = (*_ON_DEVICE, COUNTERS).index(lane_kind)
            group, order = f"NPU {device}", (0, device, rank, lane_kind, number, i)
        else:
            group = {STEPS: "Steps", CANN: "CANN", OTHER: process}.get(lane_kind, "Host")
            order = (1, device, 0, lane_kind, number, i)
            device = -1
        named.append(Lane(_KINDS.get(lane_kind, "host"), device, group, thread, note, order))
    fill(lanes, named)
    lanes["lane"] = np.arange(len(lanes))
    return kinds


def _last_number(thread: str) -> int:
    """The last number in the name of a thread, by which lanes are ordered; -1 without one."""
    numbers = re.findall(r"\d+", thread)
    if not numbers or len(numbers[-1]) >= 12:
        return -1
    return int(numbers[-1])


def _lane_kind(process: str, thread: str) -> int:
    if process in ("Ascend Hardware", "Step Trace"):
        if "Model ID" in thread or "Step Trace" in thread:
            return MARKS
        return STREAM
    if process in ("HCCL", "Communication", "COMMUNICATION"):
        return PLANE if thread.startswith("Plane") else COMMUNICATION
    if process == OF_STEPS:
        return STEPS
    if process == "CANN":
        return CANN
    if process == "Python":
        return PYTHON
    if process == "Overlap Analysis":
        return OVERLAP
    if thread == "counters" or _LAYERS.match(process):
        return COUNTERS
    return OTHER

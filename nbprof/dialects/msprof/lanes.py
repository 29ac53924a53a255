"""The lanes of an Ascend trace: NPUs with streams, threads, calls into CANN, derived lanes.

Processes are recognised by the names that exporters of all versions give; their numbers are
arbitrary.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Trace
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
_ON_DEVICE = (STREAM, COMMUNICATION, PLANE, OVERLAP, MARKS)
_NPU = re.compile(r"NPU\s*(\d+)")
_LAYERS = re.compile(
    r"AI Core Freq|HBM|LLC|DDR|NPU MEM|Acc"
    r" PMU|Stars|QoS|SIO|NIC|RoCE|PCIe|HCCS|CCU|UB|Biu|Block|DPU|Fusion|Low Power"
)


def is_ascend(trace: Trace) -> bool:
    """True if one of Ascend's profilers wrote a trace."""
    if trace.tables:
        return True
    processes = {str(p) for p in trace.lanes["process"].unique()} if len(trace.lanes) else set()
    return bool(processes & {"Ascend Hardware", "CANN"}) and bool(
        processes
        & {"Ascend Hardware", "Overlap Analysis", "HCCL", "Communication", "COMMUNICATION", "CANN"}
    )


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
    devices = np.full(len(lanes), -1, np.int64)
    rows = []
    columns = zip(
        *(lanes[c].astype(str).tolist() for c in ("process", "thread", "labels", "pid")),
        strict=True,
    )
    for i, (process, thread, label, pid) in enumerate(columns):
        lane_kind = _lane_kind(process, thread)
        kinds[i] = lane_kind
        device = _device(label, pid)
        on_device = lane_kind in _ON_DEVICE or (lane_kind == COUNTERS and label.startswith("NPU"))
        if on_device:
            devices[i] = device
        group = {STEPS: "Steps", CANN: "CANN", OTHER: process}.get(lane_kind, "Host")
        if on_device:
            group = f"NPU {device}"
        number = re.findall(r"\d+", thread)
        if thread.isdigit() and lane_kind in (STREAM, CANN, PYTHON):
            thread = f"{'Stream' if lane_kind == STREAM else 'Thread'} {thread}"
        name = f"{process}: {thread}" if lane_kind in (OVERLAP, PLANE, COUNTERS) else thread
        order = (
            not on_device,
            device,
            (*_ON_DEVICE, COUNTERS).index(lane_kind) if on_device else 0,
            lane_kind,
            int(number[-1]) if number and len(number[-1]) < 12 else -1,
            i,
        )
        note = "collectives" if lane_kind == COMMUNICATION else ""
        rows.append((_KINDS.get(lane_kind, "host"), group, name, note, order))
    lanes["kind"] = [row[0] for row in rows]
    lanes["device"] = devices
    lanes["process"] = [row[1] for row in rows]
    lanes["thread"] = [row[2] for row in rows]
    lanes["note"] = [row[3] for row in rows]
    position = np.empty(len(rows), np.int64)
    position[sorted(range(len(rows)), key=lambda i: rows[i][4])] = np.arange(len(rows))
    lanes["order"] = position.tolist()
    lanes["lane"] = np.arange(len(lanes))
    return kinds


def _lane_kind(process: str, thread: str) -> int:
    if process in ("Ascend Hardware", "Step Trace"):
        return MARKS if "Model ID" in thread or "Step Trace" in thread else STREAM
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
    return COUNTERS if thread == "counters" or _LAYERS.match(process) else OTHER

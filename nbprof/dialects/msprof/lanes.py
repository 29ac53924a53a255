"""The lanes of an Ascend trace: NPUs with streams, threads, calls into CANN, derived lanes.

Processes are told by their names, which the exporters gave them in all versions; their numbers are
made up.
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
        lane_kind = _what(process, thread)
        kinds[i] = lane_kind
        npu = _NPU.search(label)
        device = (
            int(npu[1])
            if npu
            else (
                int(pid) & 31
                if pid.isdigit() and int(pid) >= 1 << 10 and label.startswith("NPU")
                else 0
            )
        )
        on_device = lane_kind in (STREAM, COMMUNICATION, PLANE, MARKS, OVERLAP) or (
            lane_kind == COUNTERS and label.startswith("NPU")
        )
        if on_device:
            devices[i] = device
        kind = _KINDS.get(lane_kind, "host")
        under = (
            f"NPU {device}"
            if on_device
            else "Steps"
            if lane_kind == STEPS
            else "CANN"
            if lane_kind == CANN
            else "Host"
        )
        if lane_kind == OTHER:
            under = process
        if thread.isdigit() and lane_kind in (STREAM, CANN, PYTHON):
            thread = f"{'Stream' if lane_kind == STREAM else 'Thread'} {thread}"
        name = f"{process}: {thread}" if lane_kind in (OVERLAP, PLANE, COUNTERS) else thread
        note = "collectives" if lane_kind == COMMUNICATION else ""
        number = re.findall(r"\d+", thread)
        rank = (
            not on_device,
            device,
            (
                (STREAM, COMMUNICATION, PLANE, OVERLAP, MARKS, COUNTERS).index(lane_kind)
                if on_device
                else 0
            ),
        )
        rows.append(
            (
                kind,
                under,
                name,
                note,
                (*rank, lane_kind, int(number[-1]) if number and len(number[-1]) < 12 else -1, i),
            )
        )
    lanes["kind"] = [row[0] for row in rows]
    lanes["device"] = devices
    lanes["process"] = [row[1] for row in rows]
    lanes["thread"] = [row[2] for row in rows]
    lanes["note"] = [row[3] for row in rows]
    order = {
        i: position for position, i in enumerate(sorted(range(len(rows)), key=lambda i: rows[i][4]))
    }
    lanes["order"] = [order[i] for i in range(len(rows))]
    lanes["lane"] = np.arange(len(lanes))
    return kinds


def _what(process: str, thread: str) -> int:
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

"""The tables of rocprofv3: what their headers and their names say."""

from __future__ import annotations

import csv
import re

_SPAN = {
    "Start_Timestamp": "start",
    "End_Timestamp": "end",
    "Thread_Id": "thread",
    "Correlation_Id": "correlation",
}
_PLACE = {"Agent_Id": "agent", "Queue_Id": "queue"}
_SIZES = {
    f"{title}_Size_{axis}": f"{shape}_{axis.lower()}"
    for title, shape in (("Workgroup", "group"), ("Grid", "grid"))
    for axis in "XYZ"
}
_KERNEL = {
    **_SPAN,
    **_PLACE,
    **_SIZES,
    "Stream_Id": "stream",
    "Dispatch_Id": "dispatch",
    "Kernel_Id": "kernel",
    "Kernel_Name": "name",
    "LDS_Block_Size": "lds",
    "Group_Segment_Size": "lds",
    "Scratch_Size": "scratch",
    "Private_Segment_Size": "scratch",
    "VGPR_Count": "vgpr",
    "Accum_VGPR_Count": "accum_vgpr",
    "SGPR_Count": "sgpr",
}
TABLES: dict[str, tuple[frozenset[str], dict[str, str]]] = {
    "counters": (
        frozenset({"Counter_Name", "Counter_Value", "Dispatch_Id"}),
        {**_KERNEL, "Counter_Name": "counter", "Counter_Value": "value", "Process_Id": "pid"},
    ),
    "kernels": (
        frozenset({"Kernel_Name", "Dispatch_Id", "Start_Timestamp", "End_Timestamp"}),
        _KERNEL,
    ),
    "copies": (
        frozenset({"Direction", "Source_Agent_Id", "Start_Timestamp", "End_Timestamp"}),
        {
            **_SPAN,
            "Direction": "name",
            "Stream_Id": "stream",
            "Source_Agent_Id": "source",
            "Destination_Agent_Id": "target",
        },
    ),
    "calls": (
        frozenset({"Domain", "Function", "Start_Timestamp", "End_Timestamp"}),
        {**_SPAN, "Domain": "domain", "Function": "name", "Process_Id": "pid"},
    ),
    "allocations": (
        frozenset({"Kind", "Operation", "Agent_Id", "Start_Timestamp", "End_Timestamp"}),
        {**_SPAN, **_PLACE, "Kind": "domain", "Operation": "name", "Allocation_Size": "bytes"},
    ),
    "agents": (frozenset({"Node_Id", "Logical_Node_Id", "Agent_Type"}), {}),
    "stats": (frozenset({"Name", "Calls", "TotalDurationNs", "MinNs"}), {}),
    # Of its predecessors, rocprof and rocprofv2.
    "v1_stats": (frozenset({"Name", "Calls", "TotalDurationNs"}), {}),
    "v1": (frozenset({"KernelName", "gpu-id", "queue-id"}), {}),
}
"""By kind of table: columns that its header has, and what each column is called here. The first
that fits is it.
"""
NOT_READ = ("stats", "v1_stats", "v1")
"""Kinds of tables that are known, and that nothing is read from."""
_NAME = re.compile(
    r"(?:(.*)_)?(?:(?:kernel|memory_copy|memory_allocation|scratch_memory|hip|hsa|marker|rccl"
    r"|rocdecode|rocjpeg|kokkos|ompt)(?:_\w+?)?_trace"
    r"|counter_collection|agent_info|\w+?_stats)\.csv",
    re.IGNORECASE,
)
_LONGEST = 1 << 13
_RESULTS = re.compile(r"(?:(.*)_)?results\.(?:json|db)", re.IGNORECASE)


def kind_of(line: bytes) -> str:
    """Kind of the table with a header; '' for tables of other tools."""
    header = set(cells(line))
    return next((kind for kind, (needed, _) in TABLES.items() if needed <= header), "")


def cells(line: bytes) -> list[str]:
    """The names in a header; none where it is more than a line."""
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip()
    if len(text) > _LONGEST or any(letter in text for letter in "\n\r\0"):
        return []
    try:
        return [cell.strip() for cell in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def prefix_of(name: str) -> str:
    """Common prefix of the files of one process: `717` of `717_kernel_trace.csv` and
    `717_results.json`.
    """
    match = _NAME.fullmatch(name) or _RESULTS.fullmatch(name)
    return match[1] or "" if match else name.rpartition(".")[0] or name

"""Recordings as rocprofv3 writes them, of one made-up training run: JSON, CSV of each age, and
rocpd's database of both schemas.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EPOCH = 8_819_330_200_067_564
"""ns since the machine began, as its clock states them."""
CPU, GPU = 1, 2
KINDS = ("NONE", "HSA_CORE_API", "HIP_RUNTIME_API", "HIP_COMPILER_API", "MARKER_CORE_API", "MEMORY_COPY", "KERNEL_DISPATCH",
         "SCRATCH_MEMORY", "RCCL_API", "MEMORY_ALLOCATION")  # fmt: skip
OPERATIONS: dict[str, tuple[str, ...]] = {
    "HSA_CORE_API": ("hsa_queue_create", "hsa_signal_wait_scacquire"),
    "HIP_RUNTIME_API": ("hipLaunchKernel", "hipMemcpyAsync", "hipStreamSynchronize", "hipMalloc", "hipMemcpyWithStream"),
    "HIP_COMPILER_API": ("__hipPushCallConfiguration",),
    "MARKER_CORE_API": ("roctxMarkA", "roctxRangePushA", "roctxRangePop", "roctxGetThreadId"),
    "MEMORY_COPY": ("MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST",
                    "MEMORY_COPY_DEVICE_TO_DEVICE"),
    "KERNEL_DISPATCH": ("NONE", "ENQUEUE", "COMPLETE"),
    "SCRATCH_MEMORY": ("SCRATCH_MEMORY_NONE", "SCRATCH_MEMORY_ALLOC"),
    "RCCL_API": ("ncclAllReduce",),
    "MEMORY_ALLOCATION": ("MEMORY_ALLOCATION_NONE", "MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION_FREE"),
}  # fmt: skip
SYMBOLS: dict[int, tuple[str, int, int, int, int, int]] = {
    # kernel id: name, group segment, private segment, arch VGPRs, accumulation VGPRs, SGPRs
    1: ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SN", 16896, 0, 128, 64, 96),
    2: ("void add<float>(float*, float const*, int)", 0, 16, 8, 0, 16),
    3: ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 512, 0, 64, 0, 48),
}


@dataclass
class Agent:
    """A processor as the kernel driver lists it."""

    node: int
    logical: int
    type: int
    number: int
    name: str
    product: str
    units: int
    mhz: int
    memory: int

    @property
    def handle(self) -> int:
        """What events call it by."""
        return 0x5DB81F15 + self.node


AGENTS = [
    Agent(0, 0, CPU, 0, "AMD EPYC 9684X 96-Core Processor", "", 96, 3700, 0),
    Agent(2, 1, GPU, 0, "gfx942", "AMD Instinct MI300X", 304, 2100, 192 << 30),
    Agent(3, 2, GPU, 1, "gfx942", "AMD Instinct MI300X", 304, 2100, 192 << 30),
]
"""The second GPU of the machine, node 1, is not visible to the process."""


@dataclass
class Run:
    """What one process did; times in ns, agents by node."""

    pid: int = 717
    host: str = "gpu-node"
    agents: list[Agent] = field(default_factory=lambda: list(AGENTS))
    kernels: list[dict[str, Any]] = field(default_factory=list)
    copies: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    markers: list[dict[str, Any]] = field(default_factory=list)
    allocations: list[dict[str, Any]] = field(default_factory=list)
    scratch: list[dict[str, Any]] = field(default_factory=list)
    counters: list[tuple[int, str, float]] = field(default_factory=list)
    last: int = 0

    def ident(self) -> int:
        """The next correlation id of the process."""
        self.last += 1
        return self.last

    def call(self, kind: str, name: str, start: int, length: int, thread: int = 0) -> int:
        """Adds a call into a library; returns its correlation id."""
        ident = self.ident()
        row = {"kind": kind, "name": name, "start": start, "end": start + length}
        self.calls.append({**row, "thread": thread or self.pid, "correlation": ident})
        return ident

    def mark(self, message: str, start: int, length: int = 0, thread: int = 0) -> None:
        """Adds a range of ROCTx, or a mark."""
        name = "roctxRangePushA" if length else "roctxMarkA"
        row = {
            "kind": "MARKER_CORE_API",
            "name": name,
            "message": message,
            "start": start,
            "end": start + length,
        }
        self.markers.append({**row, "thread": thread or self.pid, "correlation": self.ident()})

    def launch(self, kernel: int, start: int, run: int, length: int, *, node: int = 2, stream: int = 1, queue: int = 1,
               grid: tuple[int, int, int] = (1024, 1000, 1), group: tuple[int, int, int] = (64, 16, 1), lds: int = -1) -> int:  # fmt: skip
        """Adds a launch and its kernel."""
        self.call("HIP_COMPILER_API", "__hipPushCallConfiguration", start - 300, 200)
        ident = self.call("HIP_RUNTIME_API", "hipLaunchKernel", start, 4_000)
        where = {
            "node": node,
            "stream": stream,
            "queue": queue,
            "thread": self.pid,
            "correlation": ident,
            "dispatch": len(self.kernels) + 1,
        }
        size = {"grid": grid, "group": group, "lds": SYMBOLS[kernel][1] if lds < 0 else lds}
        self.kernels.append({"kernel": kernel, "start": run, "end": run + length, **where, **size})
        return ident

    def copy(
        self,
        direction: str,
        start: int,
        run: int,
        length: int,
        size: int,
        source: int,
        target: int,
        call: str,
    ) -> None:
        """Adds a copy and the call that began it."""
        ident = self.call(
            "HIP_RUNTIME_API", call, start, length if call.endswith("WithStream") else 3_000
        )
        row = {
            "direction": f"MEMORY_COPY_{direction}",
            "start": run,
            "end": run + length,
            "bytes": size,
            "source": source,
            "target": target,
        }
        self.copies.append({**row, "stream": 1, "thread": self.pid, "correlation": ident})


def training(steps: int = 4, pid: int = 717, launches: int = 3) -> Run:
    """A loop of steps with ROCTx ranges: a copy to the device, products, a sum, an all-reduce, and
    the loss back to the host.
    """
    run = Run(pid)
    run.call("HIP_RUNTIME_API", "hipMalloc", EPOCH, 20_000)
    taken = {
        "name": "MEMORY_ALLOCATION_ALLOCATE",
        "node": 2,
        "bytes": 1 << 20,
        "start": EPOCH + 5_000,
        "end": EPOCH + 9_000,
        "thread": pid,
    }
    run.allocations.append({**taken, "correlation": run.last})
    scratch = {
        "name": "SCRATCH_MEMORY_ALLOC",
        "node": 2,
        "queue": 1,
        "start": EPOCH + 30_000,
        "end": EPOCH + 33_000,
        "thread": pid,
    }
    run.scratch.append(scratch)
    run.mark("loop begins", EPOCH + 40_000)
    for step in range(steps):
        at = EPOCH + 100_000 + 1_000_000 * step
        run.mark(f"step {step}", at, 900_000)
        run.mark("forward", at + 60_000, 300_000)
        run.copy(
            "HOST_TO_DEVICE", at + 10_000, at + 15_000, 40_000, 4 << 20, 0, 2, "hipMemcpyAsync"
        )
        for i in range(launches):
            run.launch(1, at + 70_000 + 20_000 * i, at + 100_000 + 90_000 * i, 80_000 + step)
        run.launch(
            2, at + 400_000, at + 480_000, 30_000, grid=(1000, 1, 1), group=(256, 1, 1), lds=1024
        )
        run.call("RCCL_API", "ncclAllReduce", at + 415_000, 9_000)
        run.launch(
            3,
            at + 430_000,
            at + 500_000,
            60_000,
            stream=2,
            queue=2,
            node=3,
            grid=(8192, 1, 1),
            group=(512, 1, 1),
        )
        run.call("HSA_CORE_API", "hsa_signal_wait_scacquire", at + 600_000, 5_000, pid + 3)
        run.copy(
            "DEVICE_TO_HOST", at + 650_000, at + 655_000, 20_000, 4, 2, 0, "hipMemcpyWithStream"
        )
        run.call("HIP_RUNTIME_API", "hipStreamSynchronize", at + 700_000, 90_000)
    for kernel in run.kernels:
        run.counters += [
            (kernel["dispatch"], "SQ_WAVES", 16.0 * kernel["dispatch"]),
            (kernel["dispatch"], "GRBM_COUNT", 100.5),
        ]
    return run


# The JSON.


def _xyz(values: Sequence[int]) -> dict[str, int]:
    return dict(zip("xyz", values, strict=True))


def _agent(agent: Agent) -> dict[str, Any]:
    return {
        "size": 304, "id": {"handle": agent.handle}, "type": agent.type, "cu_count": agent.units, "wave_front_size": 64 if agent.type == GPU else 0,
        "max_engine_clk_fcompute": agent.mhz, "gfx_target_version": 90402 if agent.type == GPU else 0, "name": agent.name,
        "vendor_name": "AMD", "product_name": agent.product, "model_name": "", "node_id": agent.node, "logical_node_id": agent.logical,
        "logical_node_type_id": agent.number, "mem_banks": [{"heap_type": 1, "size_in_bytes": agent.memory}] if agent.memory else [],
    }  # fmt: skip


def tree(run: Run) -> dict[str, Any]:
    """One process of `*_results.json`."""
    kind = KINDS.index
    handles = {agent.node: {"handle": agent.handle} for agent in run.agents}
    names = sorted({name for _, name, _ in run.counters})

    def head(name: str, operation: str, row: dict[str, Any]) -> dict[str, Any]:
        return {
            "size": 64, "kind": kind(name), "operation": OPERATIONS[name].index(operation), "thread_id": row["thread"],
            "correlation_id": {"internal": row.get("correlation", 0), "external": 0}, "start_timestamp": row["start"],
            "end_timestamp": row["end"],
        }  # fmt: skip

    def info(row: dict[str, Any]) -> dict[str, Any]:
        return {
            "size": 72, "agent_id": handles[row["node"]], "queue_id": {"handle": row["queue"]}, "kernel_id": row["kernel"],
            "dispatch_id": row["dispatch"], "private_segment_size": SYMBOLS[row["kernel"]][2], "group_segment_size": row["lds"],
            "workgroup_size": _xyz(row["group"]), "grid_size": _xyz(row["grid"]),
        }  # fmt: skip

    def calls(*starts: str) -> list[dict[str, Any]]:
        return [
            head(row["kind"], row["name"], row)
            for row in run.calls
            if row["kind"].startswith(starts)
        ]

    by_dispatch: dict[int, list[tuple[str, float]]] = {}
    for dispatch, name, value in run.counters:
        by_dispatch.setdefault(dispatch, []).append((name, value))
    return {
        "metadata": {"pid": run.pid, "init_time": EPOCH - 10**6, "fini_time": EPOCH + 10**9, "command": ["python", "train.py"]},
        "agents": [_agent(agent) for agent in run.agents],
        "counters": [{"id": {"handle": 70 + i}, "name": name, "description": "", "is_derived": 0} for i, name in enumerate(names)],
        "strings": {
            "callback_records": [],
            "buffer_records": [{"kind": name, "operations": list(OPERATIONS.get(name, ()))} for name in KINDS],
            "marker_api": [{"key": row["correlation"], "value": row["message"]} for row in run.markers],
            "correlation_id": {"external": []},
            "counters": {"dimension_ids": []},
        },
        "code_objects": [],
        "kernel_symbols": [
            {"size": 0, "kernel_id": i, "code_object_id": 1, "kernel_name": name + ".kd", "group_segment_size": lds, "private_segment_size": scratch,
             "sgpr_count": sgpr, "arch_vgpr_count": vgpr, "accum_vgpr_count": accum, "formatted_kernel_name": name}
            for i, (name, lds, scratch, vgpr, accum, sgpr) in {0: ("", 0, 0, 0, 0, 0), **SYMBOLS}.items()
        ],
        "host_functions": [],
        "callback_records": {
            "counter_collection": [
                {"thread_id": row["thread"], "dispatch_data": {"correlation_id": {"internal": row["correlation"], "external": 0},
                 "start_timestamp": row["start"], "end_timestamp": row["end"], "dispatch_info": info(row)},
                 # Each instance of a counter is a record of its own.
                 "records": [{"counter_id": {"handle": 70 + names.index(name)}, "value": half}
                             for name, value in by_dispatch[row["dispatch"]] for half in (value / 4, value * 3 / 4)]}
                for row in run.kernels if row["dispatch"] in by_dispatch
            ],
        },
        "buffer_records": {
            "kernel_dispatch": [
                {**head("KERNEL_DISPATCH", "COMPLETE", row), "dispatch_info": info(row), "stream_id": {"handle": row["stream"]}}
                for row in run.kernels
            ],
            "hip_api": calls("HIP"),
            "hsa_api": calls("HSA"),
            "marker_api": [head(row["kind"], row["name"], row) for row in run.markers],
            "rccl_api": calls("RCCL"),
            "memory_copy": [
                {**head("MEMORY_COPY", row["direction"], row), "src_agent_id": handles[row["source"]], "dst_agent_id": handles[row["target"]],
                 "bytes": row["bytes"], "stream_id": {"handle": row["stream"]}}
                for row in run.copies
            ],
            "memory_allocation": [
                {**head("MEMORY_ALLOCATION", row["name"], row), "agent_id": handles[row["node"]], "address": "0x00007ffb26354000",
                 "allocation_size": row["bytes"]}
                for row in run.allocations
            ],
            "scratch_memory": [
                {**head("SCRATCH_MEMORY", row["name"], row), "agent_id": handles[row["node"]], "queue_id": {"handle": row["queue"]}, "flags": 0}
                for row in run.scratch
            ],
        },
    }  # fmt: skip


def as_json(*runs: Run) -> bytes:
    """`*_results.json` as the profiler indents it."""
    return json.dumps({"rocprofiler-sdk-tool": [tree(run) for run in runs]}, indent=1).encode()


# The tables.


def _csv(header: Iterable[str], rows: Iterable[Iterable[object]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().encode()


def _lds(size: int) -> int:
    return -(-size // 512) * 512


_API = [
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
]
_XYZ = [f"{what}_Size_{axis}" for what in ("Workgroup", "Grid") for axis in "XYZ"]


def as_csv(run: Run, age: str = "7.0", prefix: str = "") -> dict[str, bytes]:
    """The tables of one process by name; of ROCm 6.2, which knows no streams, or of 7.0."""
    new = age >= "6.4"
    logical = {agent.node: agent.logical for agent in run.agents}
    prefix = prefix or f"{run.pid}_"

    def agent(node: int) -> object:
        return f"Agent {logical[node]}" if new else logical[node]

    kernels = [
        ["KERNEL_DISPATCH", agent(k["node"]), k["queue"], *([k["stream"]] if new else []), k["thread"], k["dispatch"], k["kernel"],
         SYMBOLS[k["kernel"]][0], k["correlation"], k["start"], k["end"],
         *([_lds(SYMBOLS[k["kernel"]][1]), SYMBOLS[k["kernel"]][2], *SYMBOLS[k["kernel"]][3:]] if new else [SYMBOLS[k["kernel"]][2], k["lds"]]),
         *k["group"], *k["grid"]]
        for k in run.kernels
    ]  # fmt: skip
    of = (
        ["LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count"]
        if new
        else ["Private_Segment_Size", "Group_Segment_Size"]
    )
    header = ["Kind", "Agent_Id", "Queue_Id", *(["Stream_Id"] if new else []), "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
              "Correlation_Id", "Start_Timestamp", "End_Timestamp", *of, *_XYZ]  # fmt: skip
    copies = [
        ["MEMORY_COPY", c["direction"] if new else c["direction"].removeprefix("MEMORY_COPY_"), *([c["stream"]] if new else []),
         agent(c["source"]), agent(c["target"]), c["correlation"] if new else 0, c["start"], c["end"]]
        for c in run.copies
    ]  # fmt: skip
    ends = [
        "Source_Agent_Id",
        "Destination_Agent_Id",
        "Correlation_Id",
        "Start_Timestamp",
        "End_Timestamp",
    ]

    def calls(*starts: str) -> bytes:
        rows = [c for c in run.calls if c["kind"].startswith(starts)]
        return _csv(
            _API,
            (
                [c["kind"], c["name"], run.pid, c["thread"], c["correlation"], c["start"], c["end"]]
                for c in rows
            ),
        )

    by_dispatch = {k["dispatch"]: k for k in run.kernels}
    counters = []
    for dispatch, name, value in run.counters:
        k = by_dispatch[dispatch]
        symbol = SYMBOLS[k["kernel"]]
        x, y, z = (a * b for a, b in ((k["grid"][0], 1), (k["grid"][1], 1), (k["grid"][2], 1)))
        counters.append(
            [k["correlation"], dispatch, agent(k["node"]), k["queue"], run.pid, k["thread"], x * y * z, k["kernel"], symbol[0],
             k["group"][0] * k["group"][1] * k["group"][2], _lds(symbol[1]), symbol[2], symbol[3], *([symbol[4]] if new else []), symbol[5],
             name, value, *([k["start"], k["end"]] if new else [])]
        )  # fmt: skip
    registers = [
        "VGPR_Count",
        *(["Accum_VGPR_Count"] if new else []),
        "SGPR_Count",
        "Counter_Name",
        "Counter_Value",
    ]
    counted = ["Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size", "Kernel_Id", "Kernel_Name",
               "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", *registers, *(["Start_Timestamp", "End_Timestamp"] if new else [])]  # fmt: skip
    agents = [
        [a.node, a.logical, "GPU" if a.type == GPU else "CPU", a.units if a.type == CPU else 0, 64, a.units if a.type == GPU else 0, a.mhz,
         90402 if a.type == GPU else 0, a.name, "AMD", a.product, ""]
        for a in run.agents
    ]  # fmt: skip
    facts = ["Node_Id", "Logical_Node_Id", "Agent_Type", "Cpu_Cores_Count", "Wave_Front_Size", "Cu_Count", "Max_Engine_Clk_Fcompute",
             "Gfx_Target_Version", "Name", "Vendor_Name", "Product_Name", "Model_Name"]  # fmt: skip
    markers = [
        [m["kind"], m["message"], run.pid, m["thread"], m["correlation"], m["start"], m["end"]]
        for m in run.markers
    ]
    allocations = [
        [
            "MEMORY_ALLOCATION",
            a["name"],
            agent(a["node"]),
            a["bytes"],
            "0x00007ffb26354000",
            a["correlation"],
            a["start"],
            a["end"],
        ]
        for a in run.allocations
    ]
    sized = [
        "Kind",
        "Operation",
        "Agent_Id",
        "Allocation_Size",
        "Address",
        "Correlation_Id",
        "Start_Timestamp",
        "End_Timestamp",
    ]
    scratch = [
        [
            "SCRATCH_MEMORY",
            s["name"],
            agent(s["node"]),
            s["queue"],
            s["thread"],
            0,
            s["start"],
            s["end"],
        ]
        for s in run.scratch
    ]
    totals: dict[str, list[int]] = {}
    for k in run.kernels:
        totals.setdefault(SYMBOLS[k["kernel"]][0], []).append(k["end"] - k["start"])
    stats = [
        [name, len(times), sum(times), sum(times) / len(times), 0.0, min(times), max(times), 0.0]
        for name, times in totals.items()
    ]
    out = {
        "agent_info": _csv(facts, agents),
        "kernel_trace": _csv(header, kernels),
        "memory_copy_trace": _csv(
            ["Kind", "Direction", *(["Stream_Id"] if new else []), *ends], copies
        ),
        "hip_api_trace": calls("HIP"),
        "hsa_api_trace": calls("HSA"),
        "rccl_api_trace": calls("RCCL"),
        "marker_api_trace": _csv(_API, markers),
        "counter_collection": _csv(counted, counters),
        "scratch_memory_trace": _csv(
            [
                "Kind",
                "Operation",
                "Agent_Id",
                "Queue_Id",
                "Thread_Id",
                "Alloc_Flags",
                "Start_Timestamp",
                "End_Timestamp",
            ],
            scratch,
        ),
        "kernel_stats": _csv(
            [
                "Name",
                "Calls",
                "TotalDurationNs",
                "AverageNs",
                "Percentage",
                "MinNs",
                "MaxNs",
                "StdDev",
            ],
            stats,
        ),
    }
    if new:
        out["memory_allocation_trace"] = _csv(sized, allocations)
    return {f"{prefix}{name}.csv": data for name, data in out.items()}


# The database.

_COMMON = {
    "metadata": "tag TEXT, value TEXT",
    "string": "guid TEXT, string TEXT",
    "info_node": "guid TEXT, hash BIGINT, machine_id TEXT, hostname TEXT",
    "info_process": "guid TEXT, nid INTEGER, ppid INTEGER, pid INTEGER, init BIGINT, fini BIGINT, command TEXT",
    "info_thread": "guid TEXT, nid INTEGER, ppid INTEGER, pid INTEGER, tid INTEGER, name TEXT",
    "info_agent": "guid TEXT, nid INTEGER, pid INTEGER, type TEXT, absolute_index INTEGER, logical_index INTEGER, type_index INTEGER, "
    "name TEXT, model_name TEXT, vendor_name TEXT, product_name TEXT, extdata JSONB",
    "info_queue": "guid TEXT, nid INTEGER, pid INTEGER, name TEXT",
    "info_stream": "guid TEXT, nid INTEGER, pid INTEGER, name TEXT",
    "info_pmc": "guid TEXT, nid INTEGER, pid INTEGER, agent_id INTEGER, name TEXT, symbol TEXT",
    "info_kernel_symbol": "guid TEXT, nid INTEGER, pid INTEGER, kernel_name TEXT, display_name TEXT, group_segment_size INTEGER, "
    "private_segment_size INTEGER, sgpr_count INTEGER, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER",
    "event": "guid TEXT, category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, correlation_id INTEGER, extdata JSONB",
    "pmc_event": "guid TEXT, event_id INTEGER, pmc_id INTEGER, value REAL",
    "track": "guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER, name_id INTEGER",
}
_WHERE = "nid INTEGER, pid INTEGER, tid INTEGER"
_SIZES = ", ".join(
    f"{what}_size_{axis} INTEGER" for what in ("workgroup", "grid") for axis in "xyz"
)
_SPAN = '"start" BIGINT, "end" BIGINT'
_OF_TRACK = "track_id INTEGER, start_id INTEGER, end_id INTEGER"
_DISPATCH = f"kernel_id INTEGER, dispatch_id INTEGER, private_segment_size INTEGER, group_segment_size INTEGER, {_SIZES}, event_id INTEGER"
_COPY = (
    "name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, event_id INTEGER"
)
_ALLOCATE = "type TEXT, level TEXT, address INTEGER, size INTEGER, event_id INTEGER"
_PLACED = "agent_id INTEGER, queue_id INTEGER, stream_id INTEGER"
_SCHEMAS: dict[int, dict[str, str]] = {
    # As ROCm 7.0 has it: times and places stand in each row.
    3: {
        "region": f"guid TEXT, {_WHERE}, {_SPAN}, name_id INTEGER, event_id INTEGER",
        "sample": "guid TEXT, track_id INTEGER, timestamp BIGINT, event_id INTEGER",
        "kernel_dispatch": f"guid TEXT, {_WHERE}, {_PLACED}, {_SPAN}, {_DISPATCH}",
        "memory_copy": f"guid TEXT, {_WHERE}, {_SPAN}, queue_id INTEGER, stream_id INTEGER, {_COPY}",
        "memory_allocate": f"guid TEXT, {_WHERE}, {_PLACED}, {_SPAN}, {_ALLOCATE}",
    },
    # Later: places are tracks, and moments rows of a table of their own.
    4: {
        "timestamp": "guid TEXT, value BIGINT, phase INTEGER, track_id INTEGER",
        "region": f"guid TEXT, {_OF_TRACK}, name_id INTEGER, event_id INTEGER",
        "sample": "guid TEXT, track_id INTEGER, name_id INTEGER, timestamp_id INTEGER, event_id INTEGER",
        "kernel_dispatch": f"guid TEXT, {_OF_TRACK}, {_DISPATCH}",
        "memory_copy": f"guid TEXT, {_OF_TRACK}, {_COPY}",
        "memory_allocate": f"guid TEXT, {_OF_TRACK}, name_id INTEGER, {_ALLOCATE}",
    },
}


class _Writer:
    """Rows of one process in tables of its own."""

    def __init__(self, base: sqlite3.Connection, run: Run, schema: int) -> None:
        self.base, self.run, self.schema = base, run, schema
        self.guid = f"0000ddb5-8903-7903-b269-{run.pid:012x}"
        self.suffix = "_" + self.guid.replace("-", "_")
        self.strings: dict[str, int] = {}
        self.tracks: dict[tuple[object, ...], int] = {}
        self.rows: dict[str, int] = {}
        for name, columns in {**_COMMON, **_SCHEMAS[schema]}.items():
            base.execute(
                f'CREATE TABLE "rocpd_{name}{self.suffix}" (id INTEGER PRIMARY KEY AUTOINCREMENT, {columns})'
            )
            base.execute(
                f'CREATE VIEW IF NOT EXISTS rocpd_{name} AS SELECT * FROM "rocpd_{name}{self.suffix}"'
            )

    def row(self, table: str, **values: object) -> int:
        """Adds a row; returns its id."""
        number = values.get("id") or self.rows.get(table, 0) + 1
        assert isinstance(number, int)
        self.rows[table] = number
        values = {"id": number, **({} if table == "metadata" else {"guid": self.guid}), **values}
        names = ", ".join(f'"{name}"' for name in values)
        self.base.execute(
            f'INSERT INTO "rocpd_{table}{self.suffix}" ({names}) VALUES ({", ".join("?" * len(values))})',
            list(values.values()),
        )
        return number

    def text(self, text: str) -> int:
        """The id of a string."""
        if text not in self.strings:
            self.strings[text] = self.row("string", string=text)
        return self.strings[text]

    def event(self, kind: str, row: dict[str, Any]) -> int:
        """The event that a row belongs to."""
        extra = json.dumps({"message": row["message"]}) if "message" in row else "{}"
        ident = row.get("correlation", 0)
        return self.row(
            "event",
            category_id=self.text(kind),
            stack_id=ident,
            parent_stack_id=ident,
            correlation_id=0,
            extdata=extra,
        )

    def place(self, row: dict[str, Any], **where: int) -> dict[str, object]:
        """When and where something was, as the schema has it."""
        at = {"nid": 5, "pid": self.run.pid, "tid": row["thread"], **where}
        if self.schema == 3:
            return {**at, "start": row["start"], "end": row["end"]}
        key = tuple(at.items())
        if key not in self.tracks:
            self.tracks[key] = self.row("track", **at)
        track = self.tracks[key]
        return {
            "track_id": track,
            "start_id": self.row("timestamp", value=row["start"], phase=1, track_id=track),
            "end_id": self.row("timestamp", value=row["end"], phase=2, track_id=track),
        }

    def write(self) -> None:
        """All of the run."""
        run, row = self.run, self.row
        row("metadata", tag="schema_version", value=str(self.schema))
        row("metadata", tag="guid", value=self.guid)
        row("info_node", id=5, hash=9, machine_id="m", hostname=run.host)
        row(
            "info_process",
            id=run.pid,
            nid=5,
            ppid=1,
            pid=run.pid,
            init=EPOCH - 10**6,
            fini=EPOCH + 10**9,
            command="python train.py",
        )
        for thread in sorted({c["thread"] for c in run.calls}):
            row("info_thread", id=thread, nid=5, ppid=1, pid=run.pid, tid=thread)
        for a in run.agents:
            kind = "GPU" if a.type == GPU else "CPU"
            row("info_agent", id=a.node or None, nid=5, pid=run.pid, type=kind, absolute_index=a.node, logical_index=a.logical,
                type_index=a.number, name=a.name, model_name="", vendor_name="AMD", product_name=a.product, extdata=json.dumps(_agent(a))
                ) if a.node else self.base.execute(
                f'INSERT INTO "rocpd_info_agent{self.suffix}" (id, guid, nid, pid, type, absolute_index, logical_index, type_index, name, '
                "extdata) VALUES (0, ?, 5, ?, ?, 0, 0, 0, ?, ?)", [self.guid, run.pid, kind, a.name, json.dumps(_agent(a))])  # fmt: skip
        for i, (name, lds, scratch, vgpr, accum, sgpr) in SYMBOLS.items():
            row("info_kernel_symbol", id=i, nid=5, pid=run.pid, kernel_name=name + ".kd", display_name=name, group_segment_size=lds,
                private_segment_size=scratch, sgpr_count=sgpr, arch_vgpr_count=vgpr, accum_vgpr_count=accum)  # fmt: skip
        names = sorted({name for _, name, _ in run.counters})
        for name in names:
            row("info_pmc", nid=5, pid=run.pid, agent_id=2, name=name, symbol=name)
        for call in run.calls:
            row(
                "region",
                **self.place(call),
                name_id=self.text(call["name"]),
                event_id=self.event(call["kind"], call),
            )
        for mark in run.markers:
            event, place = self.event(mark["kind"], mark), self.place(mark)
            if mark["start"] < mark["end"]:
                row("region", **place, name_id=self.text(mark["name"]), event_id=event)
            elif self.schema == 3:
                track = row(
                    "track", nid=5, pid=run.pid, tid=mark["thread"], name_id=self.text(mark["kind"])
                )
                row("sample", track_id=track, timestamp=mark["start"], event_id=event)
            else:
                sample = {"track_id": place["track_id"], "timestamp_id": place["start_id"]}
                row("sample", **sample, name_id=self.text(mark["name"]), event_id=event)
        events = {}
        for k in run.kernels:
            event = events[k["dispatch"]] = self.event("KERNEL_DISPATCH", k)
            sizes = {
                f"{what}_size_{axis}": k[key][i]
                for what, key in (("workgroup", "group"), ("grid", "grid"))
                for i, axis in enumerate("xyz")
            }
            where = self.place(k, agent_id=k["node"], queue_id=k["queue"], stream_id=k["stream"])
            row("kernel_dispatch", **where, **sizes, kernel_id=k["kernel"], dispatch_id=k["dispatch"], group_segment_size=k["lds"],
                private_segment_size=SYMBOLS[k["kernel"]][2], event_id=event)  # fmt: skip
        for dispatch, name, value in run.counters:
            for half in (value / 4, value * 3 / 4):
                row(
                    "pmc_event", event_id=events[dispatch], pmc_id=names.index(name) + 1, value=half
                )
        for c in run.copies:
            row("memory_copy", **self.place(c, stream_id=c["stream"]), name_id=self.text(c["direction"]), dst_agent_id=c["target"],
                src_agent_id=c["source"], size=c["bytes"], event_id=self.event("MEMORY_COPY", c))  # fmt: skip
        for a in run.allocations:
            where = self.place(a, agent_id=a["node"], queue_id=0, stream_id=0)
            event = self.event("MEMORY_ALLOCATION", a)
            row(
                "memory_allocate",
                **where,
                type="ALLOC",
                level="REAL",
                address=1,
                size=a["bytes"],
                event_id=event,
            )
        for s in run.scratch:
            where = self.place(s, agent_id=s["node"], queue_id=s["queue"], stream_id=0)
            row(
                "memory_allocate",
                **where,
                type="ALLOC",
                level="SCRATCH",
                size=0,
                event_id=self.event("SCRATCH_MEMORY", s),
            )


def as_db(*runs: Run, schema: int = 3) -> bytes:
    """`*_results.db`."""
    base = sqlite3.connect(":memory:")
    for run in runs:
        _Writer(base, run, schema).write()
    base.commit()
    return base.serialize() if hasattr(base, "serialize") else _dumped(base)


def _dumped(base: sqlite3.Connection) -> bytes:
    """The bytes of a database in memory, where Python (before 3.11) does not give them."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        with sqlite3.connect(path) as file:
            base.backup(file)
        return path.read_bytes()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Files in a folder."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder

"""The databases that Ascend's profilers write, of the same made-up run that `tests.support.msprof`
writes as CSV and JSON.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support.msprof import DATE, EPOCH_US, NONE, PMU, TENSORS, Task, moment, table

ENUMS = {
    "ENUM_API_TYPE": {
        20000: "acl",
        15000: "model",
        10000: "node",
        5500: "communication",
        5000: "runtime",
        50001: "op",
        50002: "queue",
    },
    "ENUM_MODULE": {3: "HCCL", 7: "RUNTIME"},
    "ENUM_HCCL_DATA_TYPE": {3: "FP16", 4: "FP32", 65534: "N/A"},
    "ENUM_HCCL_LINK_TYPE": {0: "ON_CHIP", 1: "HCCS"},
    "ENUM_HCCL_TRANSPORT_TYPE": {0: "SDMA", 1: "RDMA"},
    "ENUM_MEMCPY_OPERATION": {
        0: "host to host",
        1: "host to device",
        2: "device to host",
        65535: "other",
    },
    "ENUM_OVERLAP_ANALYSIS_TYPE": {
        0: "COMPUTE",
        1: "COMMUNICATION",
        2: "COMM_NOT_OVERLAP_COMP",
        3: "FREE",
    },
    "ENUM_MSTX_EVENT_TYPE": {0: "marker", 1: "push/pop", 2: "start/end"},
}
_TID = (1000 << 32) | 77
_MAIN = (1000 << 32) | 5
_WAITS, COPY = 10**9, 2 * 10**9
"""Numbers of tasks that are no operators."""
_INFO = "name globalTaskId blockNum mixBlockNum taskType opType inputFormats inputDataTypes inputShapes outputFormats outputDataTypes "
_INFO += "outputShapes attrInfo opState hf32Eligible"
_OP_MEMORY = "name size allocationTime releaseTime activeReleaseTime duration activeDuration allocationTotalAllocated "
_OP_MEMORY += "allocationTotalReserved allocationTotalActive releaseTotalAllocated releaseTotalReserved releaseTotalActive streamPtr deviceId"
_STEP = "deviceId step computing communication_not_overlapped overlapped communication free stage bubble "
_STEP += "communication_not_overlapped_and_exclude_receive preparing"
_TEXTS = {"step", "type", "hccl_op_name", "group_name", "transport_type", "op_name"}


class Writer:
    """One database; texts of other tables become ids, as they do in the original.

    Parameters
    ----------
    path : Path
    page : int
        Bytes of a page.
    """

    def __init__(self, path: Path, page: int = 4096) -> None:
        self.base = sqlite3.connect(path)
        self.base.execute(f"pragma page_size={page}")
        self.ids: dict[str, int] = {}

    def text(self, value: str) -> int:
        """The id of a text."""
        return self.ids.setdefault(value, len(self.ids))

    def table(self, name: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
        """A table; columns that are the number of the row say so, `id!`."""
        typed = [
            f"{c.removesuffix('!')} {'INTEGER PRIMARY KEY' if c.endswith('!') else self._type(name, c)}"
            for c in columns.split()
        ]
        self.base.execute(f"create table {name} ({', '.join(typed)})")
        self.base.executemany(f"insert into {name} values ({', '.join('?' * len(typed))})", rows)

    def _type(self, table: str, column: str) -> str:
        if (
            (column in _TEXTS and table.startswith(("Comm", "Step")))
            or table == "META_DATA"
            or (table.startswith("ENUM_") and column == "name")
        ):
            return "TEXT"
        return (
            "TEXT"
            if table == "PYTORCH_API" and column.endswith("Ns")
            else "NUMERIC"
            if column in ("value", "count")
            else "INTEGER"
        )

    def close(self) -> None:
        """Writes the texts, and ends."""
        self.base.execute("create table STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)")
        self.base.executemany(
            "insert into STRING_IDS values (?, ?)", [(i, text) for text, i in self.ids.items()]
        )
        self.base.commit()
        self.base.close()


def ns(value: Decimal | float, origin: Decimal = EPOCH_US) -> int:
    """A moment in µs after the begin of the run."""
    return int((origin + Decimal(value)) * 1000)


def main(
    path: Path,
    tasks: Sequence[Task],
    *,
    steps: int = 0,
    rank: int = 0,
    memory: bool = False,
    counters: bool = False,
    page: int = 4096,
    origin: Decimal = EPOCH_US,
) -> Path:
    """`msprof_*.db`, or with `steps` `ascend_pytorch_profiler_*.db`; the table of ops has its
    columns as since 2026.
    """
    out = Writer(path, page)
    device = tasks[0].device if tasks else 0
    for name, values in ENUMS.items():
        out.table(name, "id! name", values.items())
    out.table("SESSION_TIME_INFO", "startTimeNs endTimeNs", [[ns(0, origin), ns(10_000, origin)]])
    out.table("NPU_INFO", "id name", [[device, "Ascend910B4"]])
    out.table(
        "META_DATA",
        "name value",
        [["SCHEMA_VERSION", "1.0.2"], ["distributed_args", json.dumps({"world_size": 2})]],
    )
    out.table("RANK_DEVICE_MAP", "rankId deviceId", [[rank if steps else -1, device]])
    own = [(i, t) for i, t in enumerate(tasks) if t.stream is not None]
    rows: list[list[Any]] = []
    for i, t in own:
        start, end = ns(t.start, origin), ns(t.start + t.length, origin)
        rows.append(
            [
                start,
                end,
                t.device,
                i + 1,
                i + 1,
                1000,
                out.text(t.core),
                NONE,
                t.stream,
                t.task,
                t.model,
            ]
        )
        wait = ns(t.start - 8, origin)
        rows.append(
            [
                wait,
                wait + 7500,
                t.device,
                NONE,
                _WAITS + i,
                1000,
                out.text("EVENT_WAIT"),
                NONE,
                9,
                t.task,
                t.model,
            ]
        )
    copy = out.text("MEMCPY_ASYNC")
    rows.append([ns(1, origin), ns(6, origin), device, NONE, COPY, 1000, copy, NONE, 3, 5, NONE])
    out.table(
        "TASK",
        "startNs endNs deviceId connectionId globalTaskId globalPid taskType contextId streamId taskId modelId",
        rows,
    )
    out.base.execute("create index TaskIndex on TASK (startNs, globalTaskId)")
    tensors = {"Input Shapes": lambda t: t.shapes, "Input Data Types": lambda t: t.types}
    order = [
        name
        for kind in ("Input", "Output")
        for name in (f"{kind} Formats", f"{kind} Data Types", f"{kind} Shapes")
    ]
    assert sorted(order) == sorted(TENSORS)
    out.table(
        "COMPUTE_TASK_INFO",
        _INFO,
        [
            [out.text(t.name), i + 1, t.block, 0, out.text(t.core), out.text(t.type)]
            + [out.text(tensors.get(name, lambda t: "ND")(t)) for name in order]
            + [None, out.text("static"), out.text("N/A")]
            for i, t in own
        ],
    )
    out.table("MEMCPY_INFO", "globalTaskId! size memcpyOperation", [[COPY, 4096, 1]])
    out.table(
        "TASK_PMU_INFO",
        "globalTaskId name value",
        [
            [i + 1, out.text(name), float(t.mac) if name == "aic_mac_ratio" else 0.25]
            for i, t in own
            for name in PMU
            if name != "aic_mac_ratio" or t.mac != "N/A"
        ],
    )
    shared = [(i, t) for i, t in enumerate(tasks) if t.stream is None]
    group = out.text("1")
    out.table(
        "COMMUNICATION_OP",
        "opName startNs endNs connectionId groupName opId! relay retry dataType algType count opType deviceId",
        [
            [
                out.text(t.name),
                ns(t.start, origin),
                ns(t.start + t.length, origin),
                i + 1,
                group,
                i,
                0,
                0,
                4,
                out.text("MESH"),
                256,
                out.text(t.type),
                t.device,
            ]
            for i, t in shared
        ],
    )
    out.table(
        "CANN_API",
        "startNs endNs type globalTid connectionId name",
        [
            [
                ns(t.start - 9, origin),
                ns(t.start - 5, origin),
                10000,
                _TID,
                i + 1,
                out.text("launch"),
            ]
            for i, t in enumerate(tasks)
        ],
    )
    if steps:
        _program(out, tasks, steps, origin)
    if memory:
        _memory(out, device, origin)
    if counters:
        _counters(out, device, origin)
    out.close()
    return path


def _program(out: Writer, tasks: Sequence[Task], steps: int, origin: Decimal) -> None:
    each = max(t.start + t.length for t in tasks) / steps
    api, marks = [], []
    for i in range(steps):
        begin = each * i
        span = [ns(begin, origin), ns(begin, origin) + int((each - Decimal("0.5")) * 1000)]
        marks.append([i, *span])
        api.append(
            [
                *map(str, span),
                _MAIN,
                None,
                out.text(f"ProfilerStep#{i}"),
                None,
                None,
                None,
                None,
                None,
                50001,
            ]
        )
        api.append(
            [
                str(ns(begin + 2, origin)),
                str(ns(begin + 5, origin)),
                _MAIN,
                7 + i,
                out.text("aten::mm"),
                i,
                0,
                None,
                out.text("4,4;4,4"),
                1,
                50001,
            ]
        )
    columns = "startNs endNs globalTid connectionId name sequenceNumber fwdThreadId inputDtypes inputShapes callchainId type"
    out.table("PYTORCH_API", columns, api)
    out.table("STEP_TIME", "id startNs endNs", marks)
    out.table("CONNECTION_IDS", "id connectionId", [[7 + i, i + 1] for i in range(steps)])
    out.table(
        "PYTORCH_CALLCHAINS",
        "id stack stackDepth",
        [[1, out.text("train.py(9): step"), 0], [1, out.text("train.py(20): main"), 1]],
    )


def _memory(out: Writer, device: int, origin: Decimal) -> None:
    held = [
        [out.text("PTA"), ns(20 * i, origin), (i + 1) << 20, 64 << 20, (i + 1) << 20, None, device]
        for i in range(4)
    ]
    out.table(
        "MEMORY_RECORD",
        "component timestamp totalAllocated totalReserved totalActive streamPtr deviceId",
        held,
    )
    out.table("OP_MEMORY", _OP_MEMORY, [
        [out.text("aten::mm"), 2560, ns(20, origin), ns(40, origin), ns(50, origin), 20_000, 30_000, 2 << 20, 64 << 20, 2 << 20, 1 << 20, 64 << 20, 1 << 20, 187651, device],
        [out.text("aten::add"), 4096, ns(30, origin), None, None, None, None, 3 << 20, 64 << 20, 3 << 20, None, None, None, 187651, device],
    ])  # fmt: skip
    out.table(
        "NPU_MEM",
        "type ddr hbm timestampNs deviceId",
        [
            [out.text("APP"), 0, 1 << 20, ns(5, origin), device],
            [out.text("Device"), 0, 2 << 20, ns(5, origin), device],
        ],
    )
    out.table(
        "NPU_MODULE_MEM",
        "moduleId timestampNs totalReserved deviceId",
        [[3, ns(5, origin), 4096, device], [99, ns(6, origin), 8192, device]],
    )


def _counters(out: Writer, device: int, origin: Decimal) -> None:
    out.table(
        "AICORE_FREQ",
        "deviceId timestampNs freq",
        [[device, ns(5, origin), 800], [device, ns(15, origin), 1800]],
    )
    out.table(
        "HBM",
        "deviceId timestampNs bandwidth hbmId type",
        [
            [device, ns(5, origin), 1000, 0, out.text("read")],
            [device, ns(5, origin), 2000, 0, out.text("write")],
        ],
    )


def analysis(path: Path, steps: int = 2) -> Path:
    """`analysis.db` of torch_npu: times of steps in µs; of collectives in ms, MB and GB/s, each
    with its sum.
    """
    out = Writer(path)
    out.table(
        "StepTraceTime",
        _STEP,
        [[0, str(i), 100.5, 20, 5, 25, 30, 150.5, 0, 20, 1] for i in range(steps)],
    )
    name, group = "hcom_allReduce__674_0_1", "group1"
    start = float(EPOCH_US)
    out.table("CommAnalyzerTime", "hccl_op_name group_name start_timestamp elapse_time transit_time wait_time synchronization_time idle_time step type", [
        [name, group, start, 0.4, 0.25, 0.1, 0.05, 0.05, "step0", "collective"], ["Total Op Info", group, 0, 0.4, 0.25, 0.1, 0.05, 0.05, "step0", ""],
    ])  # fmt: skip
    out.table("CommAnalyzerBandwidth", "hccl_op_name group_name transport_type transit_size transit_time bandwidth large_packet_ratio package_size count total_duration step type", [
        [name, group, "SDMA", 2, 0.25, 8, 0.5, size, 4, 0.125, "step0", "collective"] for size in (0.5, 1)
    ])  # fmt: skip
    out.table("CommAnalyzerMatrix", "hccl_op_name group_name src_rank dst_rank transport_type transit_size transit_time bandwidth step type op_name", [
        ["allreduce-top1", group, "0", "1", "HCCS", 1, 0.125, 8, "step0", "collective", name],
    ])  # fmt: skip
    out.base.commit()
    out.base.close()
    return path


def prof(folder: Path, tasks: Sequence[Task], **more: Any) -> Path:
    """`PROF_*` of `msprof --type=db`."""
    device = tasks[0].device if tasks else 0
    (folder / f"device_{device}").mkdir(parents=True)
    main(folder / f"msprof_{DATE}.db", tasks, **more)
    return folder


def torch_npu(
    folder: Path, tasks: Sequence[Task], *, rank: int = 0, steps: int = 2, **more: Any
) -> Path:
    """`*_ascend_pt` of `export_type=[Db]`."""
    out = folder / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    main(out / f"ascend_pytorch_profiler_{rank}.db", tasks, rank=rank, steps=steps, **more)
    analysis(out / "analysis.db")
    return folder


def text_tables(tasks: Sequence[Task], *, steps: int = 0, memory: bool = False) -> dict[str, bytes]:
    """What text has beside operators and timeline, of the same run: `api_statistic`, memory and
    what was analysed, by module.
    """
    lengths = [Decimal(4)] * len(tasks)
    header = [
        "Device_id",
        "Level",
        "API Name",
        "Time(us)",
        "Count",
        "Avg(us)",
        "Min(us)",
        "Max(us)",
        "Variance",
    ]
    out = {
        "api_statistic": table(
            header, [["host", "node", "launch", sum(lengths), len(lengths), 4, 4, 4, 0]]
        )
    }
    if memory:
        out |= _memory_text(tasks[0].device)
    if steps:
        parts = [
            "Computing",
            "Communication(Not Overlapped)",
            "Overlapped",
            "Communication",
            "Free",
            "Stage",
            "Bubble",
        ]
        parts += ["Communication(Not Overlapped and Exclude Receive)", "Preparing"]
        out["step_trace_time"] = table(
            ["Device_id", "Step", *parts],
            [[0, i, 100.5, 20, 5, 25, 30, 150.5, 0, 20, 1] for i in range(steps)],
        )
        op, group = "hcom_allReduce__674_0_1", "group1"
        timed = {
            "Start Timestamp(us)": float(EPOCH_US),
            "Elapse Time(ms)": 0.4,
            "Transit Time(ms)": 0.25,
            "Wait Time(ms)": 0.1,
        }
        timed |= {"Synchronization Time(ms)": 0.05, "Idle Time(ms)": 0.05}
        sent = {
            "Transit Size(MB)": 2,
            "Transit Time(ms)": 0.25,
            "Bandwidth(GB/s)": 8,
            "Large Packet Ratio": 0.5,
        }
        facts = {"Communication Time Info": timed, "Communication Bandwidth Info": {"SDMA": sent}}
        out["communication"] = json.dumps(
            {"step0": {"p2p": {}, "collective": {f"{op}@{group}": facts, "Total Op Info": facts}}}
        ).encode()
        link = {
            "Transport Type": "HCCS",
            "Transit Size(MB)": 1,
            "Transit Time(ms)": 0.125,
            "Bandwidth(GB/s)": 8,
            "Op Name": op,
        }
        out["communication_matrix"] = json.dumps(
            {"step0": {"collective": {f"allreduce-top1@{group}": {"0-1": link}}}}
        ).encode()
    return out


def _memory_text(device: int) -> dict[str, bytes]:
    def at(us: int) -> str:
        return moment(Decimal(us))

    npu = f"NPU:{device}"
    totals = [
        f"{when} Total {what}(MB)"
        for when in ("Allocation", "Release")
        for what in ("Allocated", "Reserved", "Active")
    ]
    header = [
        "Name",
        "Size(KB)",
        "Allocation Time(us)",
        "Release Time(us)",
        "Active Release Time(us)",
        "Duration(us)",
        "Active Duration(us)",
    ]
    blocks = [
        ["aten::mm", 2.5, at(20), at(40), at(50), 20, 30, 2, 64, 2, 1, 64, 1, 187651, npu],
        ["aten::add", 4, at(30), "", "", "", "", 3, 64, 3, "", "", "", 187651, npu],
    ]
    record = [
        "Component",
        "Timestamp(us)",
        "Total Allocated(MB)",
        "Total Reserved(MB)",
        "Total Active(MB)",
        "Stream Ptr",
        "Device Type",
    ]
    modules = ["Device_id", "Component", "Timestamp(us)", "Total Reserved(KB)", "Device"]
    return {
        "memory_record": table(
            record, [["PTA", at(20 * i), i + 1, 64, i + 1, "", npu] for i in range(4)]
        ),
        "operator_memory": table([*header, *totals, "Stream Ptr", "Device Type"], blocks),
        "npu_mem": table(
            ["Device_id", "event", "ddr(KB)", "hbm(KB)", "memory(KB)", "timestamp(us)"],
            [[device, "APP", 0, 1024, 1024, at(5)], [device, "Device", 0, 2048, 2048, at(5)]],
        ),
        "npu_module_mem": table(
            modules, [[device, "HCCL", at(5), 4, npu], [device, "99", at(6), 8, npu]]
        ),
    }

"""Folders as Ascend's profilers write them, in each layout and each age of their tables; made up,
of a small training run.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

EPOCH_US = Decimal("1736412474000000.125")
"""A date in µs: float64 has steps of a quarter of a µs there."""
BOOT_US = Decimal("56635864652.5")
NONE = 4294967295
DATE = "20250109084754"

PMU = [
    "aicore_time(us)",
    "aic_total_cycles",
    "aic_mac_time(us)",
    "aic_mac_ratio",
    "aic_mte2_ratio",
    "aiv_vec_ratio",
    "cube_utilization(%)",
]
TENSORS = [
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
]


@dataclass
class Task:
    """A task of an NPU; times in µs after the begin of the run."""

    name: str
    type: str
    start: Decimal
    length: Decimal
    core: str = "AI_CORE"
    device: int = 0
    stream: int | None = 2
    task: int = 1
    block: int = 24
    shapes: str = '"32,64;64,32"'
    types: str = "FLOAT16;FLOAT16"
    mac: str = "0.5"
    model: int = 2


@dataclass
class Iteration:
    """An iteration of a graph; times in µs after the begin of the run."""

    number: int
    start: Decimal
    forward: Decimal
    backward: Decimal
    end: Decimal
    gap: Decimal | None
    reduces: list[tuple[Decimal, Decimal]] = field(default_factory=list)
    model: int = 2
    device: int = 0


def training(
    iterations: int = 4, device: int = 0, slow: str = "0"
) -> tuple[list[Task], list[Iteration]]:
    """An iteration waits 300 µs for its input, computes 400 + 200, reduces 100, of which 60 behind
    it; `slow` µs more of the latter.
    """
    tasks: list[Task] = []
    marks: list[Iteration] = []
    at, more = Decimal("10.25"), Decimal(slow)
    for i in range(iterations):
        gap = Decimal(300) if i else None
        forward = at + (gap or Decimal(0))
        tasks += [
            Task(
                "gradients/layer/MatMul_1",
                "MatMulV2",
                forward,
                Decimal("400.5"),
                device=device,
                task=3 * i + 1,
            ),
            Task(
                "trans_TransData_0",
                "TransData",
                forward + 401,
                Decimal("150.25"),
                "AI_VECTOR_CORE",
                device,
                task=3 * i + 2,
                mac="0",
            ),
            Task(
                "getnext/Cast",
                "Cast",
                forward + 560,
                Decimal("40"),
                "AI_CPU",
                device,
                types="INT64",
                task=3 * i + 3,
                mac="N/A",
            ),
        ]
        backward, end = forward + 600, forward + 660 + more
        tasks.append(
            Task(
                "hcom_allReduce__674_0_1",
                "hcom_allReduce_",
                forward + 560,
                100 + more,
                "COMMUNICATION",
                device,
                None,
            )
        )
        marks.append(
            Iteration(
                i + 1,
                at,
                forward,
                backward,
                end,
                gap,
                [(forward + 560, forward + 660 + more)],
                device=device,
            )
        )
        at = end
    return tasks, marks


def moment(value: Decimal, *, tab: bool = True, origin: Decimal = EPOCH_US) -> str:
    """A moment as a CSV has it."""
    return f"{origin + value:.3f}" + ("\t" if tab else "")


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, end: str = "\n", bom: bool = False
) -> bytes:
    """A CSV as the exporters write it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end)
    writer.writerow(header)
    writer.writerows(rows)
    return (b"\xef\xbb\xbf" if bom else b"") + out.getvalue().encode()


def op_summary(
    tasks: Sequence[Task], *, age: str = "2025", end: str = "\n", origin: Decimal = EPOCH_US
) -> bytes:
    """`op_summary_*.csv` of CANN of 2022, 2025 or 2026, or `kernel_details.csv` ("torch"; "level0"
    at its lowest level).
    """
    torch = age in ("torch", "level0")
    block = "Block Num" if age == "2026" else "Block Dim"
    columns: dict[str, Any] = {}
    if torch:
        columns["Step Id"] = lambda t: ""
    if age != "2022" and age != "level0":
        columns["Device_id"] = lambda t: t.device
    if age != "level0":
        columns |= {
            "Model ID": lambda t: NONE if t.stream is None else t.model,
            "Task ID": lambda t: "N/A" if t.stream is None else t.task,
            "Stream ID": lambda t: "N/A" if t.stream is None else t.stream,
        }
    columns["Name" if torch else "Op Name"] = lambda t: t.name
    columns["Type" if torch else "OP Type"] = lambda t: "N/A" if age == "level0" else t.type
    if age not in ("2022", "level0"):
        columns["OP State"] = lambda t: "N/A" if t.stream is None else "static"
    core = "Accelerator Core" if torch else "Task Type"
    columns[core] = lambda t: (
        ("HCCL" if t.stream is None else "N/A")
        if age == "level0"
        else t.core
        if age == "2026"
        else _old(t.core)
    )
    unit = "" if age == "2022" else "(us)"
    columns["Start Time(us)" if torch else f"Task Start Time{unit}"] = lambda t: moment(
        t.start, origin=origin
    )
    columns["Duration(us)" if torch else "Task Duration(us)"] = lambda t: t.length
    columns["Wait Time(us)" if torch else "Task Wait Time(us)"] = lambda t: 0
    columns[block] = lambda t: 0 if t.stream is None else t.block
    if age != "level0":
        if age != "2022":
            columns[block.replace("Block", "Mix Block")] = lambda t: 0
        tensors = {"Input Shapes": lambda t: t.shapes, "Input Data Types": lambda t: t.types}
        for name in TENSORS:
            columns[name] = lambda t, name=name: (
                "N/A" if t.stream is None else tensors.get(name, lambda t: "ND")(t)
            )
        columns["Context ID"] = lambda t: "N/A"
        for name in PMU:
            columns[name] = lambda t, name=name: (
                "N/A" if t.stream is None else t.mac if name == "aic_mac_ratio" else "0.25"
            )
    ordered = sorted(tasks, key=lambda t: (t.device, t.start))
    return table(
        list(columns), [[of(task) for of in columns.values()] for task in ordered], end=end
    )


def _old(core: str) -> str:
    return "HCCL" if core == "COMMUNICATION" else core


def op_statistic(tasks: Sequence[Task]) -> bytes:
    """`op_statistic_*.csv`: what `op_summary` sums up to."""
    groups: dict[tuple[int, str, str], list[Decimal]] = {}
    for task in tasks:
        if task.stream is not None:
            groups.setdefault((task.device, task.type, task.core), []).append(task.length)
    header = [
        "Device_id",
        "OP Type",
        "Core Type",
        "Count",
        "Total Time(us)",
        "Min Time(us)",
        "Avg Time(us)",
        "Max Time(us)",
        "Ratio(%)",
    ]
    total = {d: sum(sum(v) for (e, _, _), v in groups.items() if e == d) for d, _, _ in groups}
    rows = [
        [
            d,
            kind,
            core,
            len(v),
            sum(v),
            min(v),
            sum(v) / len(v),
            max(v),
            round(100 * sum(v) / total[d], 3),
        ]
        for (d, kind, core), v in groups.items()
    ]
    return table(header, rows)


def step_trace(
    iterations: Sequence[Iteration], *, age: str = "2025", underflow: bool = False
) -> bytes:
    """`step_trace_*.csv`. With `underflow` the first reduce of an iteration is as the C++ exporter
    writes it, and rows are ragged.
    """
    unit = "" if age == "2022" else "(us)"
    most = max(len(i.reduces) for i in iterations)
    header = [] if age == "2022" else ["Device_id"]
    header += [
        "Iteration ID",
        f"FP Start{unit}",
        f"BP End{unit}",
        f"Iteration End{unit}",
        "Iteration Time(us)",
        "FP to BP Time(us)",
    ]
    header += [
        "Grad Refresh Bound(us)" if age == "2022" else "Iteration Refresh(us)",
        "Data Aug Bound(us)",
        "Model ID",
    ]
    header += ["Reduce Start(us)", "Reduce Duration(us)"] * most
    rows = []
    for one in iterations:
        row: list[object] = [] if age == "2022" else [one.device]
        row += [
            one.number,
            moment(one.forward),
            moment(one.backward),
            moment(one.end),
            one.end - one.start - (one.gap or 0),
        ]
        row += [
            one.backward - one.forward,
            one.end - one.backward,
            "N/A" if one.gap is None else one.gap,
            one.model,
        ]
        for k, (start, stop) in enumerate(one.reduces):
            wrapped = Decimal(2**64) / 1000 - (stop - start)
            row += [moment(start), f"{wrapped:.3f}" if underflow and k == 0 else stop - start]
        row += ["N/A"] * (most - len(one.reduces))
        rows.append(row)
    return table(header, rows)


def step_trace_json(iterations: Sequence[Iteration], *, origin: Decimal = BOOT_US) -> bytes:
    """`step_trace_*.json` of CANN before 7.0: numbers, of a clock that began with the machine."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "pid": 1, "tid": 0, "args": {"name": "Step Trace"}, "ph": "M"},
        {
            "name": "thread_name",
            "pid": 1,
            "tid": 1,
            "args": {"name": f"Model ID:{iterations[0].model}"},
            "ph": "M",
        },
    ]
    for one in iterations:
        at = {"pid": 1, "tid": 1, "ph": "X"}
        ident = {"Iteration ID": one.number}
        marks = {
            "FP Start": float(origin + one.forward),
            "BP End": float(origin + one.backward),
            "Iteration End": float(origin + one.end),
        }
        events += [
            {
                "name": f"Iteration {one.number}",
                "ts": float(origin + one.start),
                "dur": float(one.end - one.start),
                "args": ident | marks,
                **at,
            },
            {
                "name": f"FP_BP Time {one.number}",
                "ts": float(origin + one.forward),
                "dur": float(one.backward - one.forward),
                "args": ident,
                **at,
            },
            {
                "name": f"Iteration Refresh {one.number}",
                "ts": float(origin + one.backward),
                "dur": float(one.end - one.backward),
                "args": ident,
                **at,
            },
            {
                "name": f"Data_aug Bound {one.number}",
                "ts": 1.0,
                "ph": "t",
                "pid": 1,
                "tid": 1,
                "args": {"Data_aug Bound(us)": float(one.gap or 0)},
            },
        ]
        for k, (start, stop) in enumerate(one.reduces):
            name = f"Reduce_{one.number}_{k}"
            events.append(
                {
                    "name": name,
                    "ts": float(origin + start),
                    "dur": float(stop - start),
                    "args": ident,
                    **at,
                }
            )
    return json.dumps(events).encode()


def timeline(
    tasks: Sequence[Task], *, origin: Decimal = EPOCH_US, texts: bool = True, torch: int = 0
) -> bytes:
    """`msprof_*.json`, or with `torch` steps `trace_view.json`: tasks with their launches, waits
    between them that are no work.
    """

    def at(value: Decimal) -> object:
        return f"{origin + value:.3f}" if texts else float(origin + value)

    device = tasks[0].device if tasks else 0
    layers = {
        "CANN": (1000 << 10) | (7 << 5) | 31,
        "Ascend Hardware": (1000 << 10) | (13 << 5) | device,
        "Communication": (1000 << 10) | (23 << 5) | device,
    }
    events: list[dict[str, Any]] = []
    for name, pid in layers.items():
        events.append(
            {"name": "process_name", "pid": pid, "tid": 0, "ph": "M", "args": {"name": name}}
        )
        events.append(
            {
                "name": "process_labels",
                "pid": pid,
                "tid": 0,
                "ph": "M",
                "args": {"labels": "CPU" if name == "CANN" else f"NPU {device}"},
            }
        )
    events.append(
        {
            "name": "thread_name",
            "pid": layers["Communication"],
            "tid": 0,
            "ph": "M",
            "args": {"name": "Group 1 Communication"},
        }
    )
    for i, task in enumerate(tasks):
        ident = {"connection_id": i + 1}
        launch = {"Mode": "launch", "level": "node", "item_id": task.name, **ident}
        events.append(
            {
                "name": "Node@launch",
                "pid": layers["CANN"],
                "tid": 77,
                "ts": at(task.start - 9),
                "dur": 4.0,
                "ph": "X",
                "args": launch,
            }
        )
        common = {"name": task.name, "ts": at(task.start), "dur": float(task.length), "ph": "X"}
        if task.stream is None:
            events.append(
                {
                    **common,
                    "pid": layers["Communication"],
                    "tid": 0,
                    "args": {**ident, "data_type": "FP32", "count": 256, "rank_size": 2},
                }
            )
        else:
            args = {
                "Model Id": task.model,
                "Task Type": task.core,
                "Physic Stream Id": task.stream,
                "Task Id": task.task,
                **ident,
            }
            events.append(
                {**common, "pid": layers["Ascend Hardware"], "tid": task.stream, "args": args}
            )
            wait = {**args, "Task Type": "EVENT_WAIT", "connection_id": NONE}
            events.append(
                {
                    **common,
                    "name": "EVENT_WAIT",
                    "ts": at(task.start - 8),
                    "dur": 7.5,
                    "pid": layers["Ascend Hardware"],
                    "tid": 9,
                    "args": wait,
                }
            )
    copy = {"Task Type": "MEMCPY_ASYNC", "operation": "host to device", "size(B)": 4096}
    events.append(
        {
            "name": "MEMCPY_ASYNC",
            "pid": layers["Ascend Hardware"],
            "tid": 3,
            "ts": at(Decimal(1)),
            "dur": 5.0,
            "ph": "X",
            "args": copy,
        }
    )
    if torch:
        events.append(
            {"name": "process_name", "pid": 1000, "tid": 0, "ph": "M", "args": {"name": "Python"}}
        )
        each = max(t.start + t.length for t in tasks) / torch
        for i in range(torch):
            begin = each * i
            events.append(
                {
                    "name": f"ProfilerStep#{i}",
                    "cat": "cpu_op",
                    "pid": 1000,
                    "tid": 5,
                    "ts": at(begin),
                    "dur": float(each) - 0.5,
                    "ph": "X",
                    "args": {},
                }
            )
            events.append(
                {
                    "name": "aten::mm",
                    "cat": "cpu_op",
                    "pid": 1000,
                    "tid": 5,
                    "ts": at(begin + 2),
                    "dur": 3.0,
                    "ph": "X",
                    "args": {},
                }
            )
    return json.dumps(events).encode()


def prof(
    folder: Path,
    tasks: Sequence[Task],
    iterations: Sequence[Iteration] = (),
    *,
    files: Sequence[str] = (),
    **more: bytes,
) -> Path:
    """`PROF_*` of CANN since 7.0; `files` chooses among op_summary, op_statistic, step_trace,
    msprof; `more` are further files by module.
    """
    out = folder / "mindstudio_profiler_output"
    out.mkdir(parents=True)
    device = tasks[0].device if tasks else 0
    (folder / f"device_{device}").mkdir()
    wanted = files or ("op_summary", "op_statistic", "step_trace", "msprof")
    if "op_summary" in wanted:
        (out / f"op_summary_{DATE}.csv").write_bytes(op_summary(tasks))
    if "op_statistic" in wanted:
        (out / f"op_statistic_{DATE}.csv").write_bytes(op_statistic(tasks))
    if "step_trace" in wanted and iterations:
        (out / f"step_trace_{DATE}.csv").write_bytes(step_trace(iterations))
    if "msprof" in wanted:
        (out / f"msprof_{DATE}.json").write_bytes(timeline(tasks))
    for module, data in more.items():
        (out / f"{module}_{DATE}.{'json' if data[:1] in b'[{' else 'csv'}").write_bytes(data)
    return folder


def older(folder: Path, tasks: Sequence[Task], iterations: Sequence[Iteration]) -> Path:
    """`PROF_*/device_<n>/summary|timeline` of CANN before 7.0, with a clock that began with the
    machine.
    """
    device = tasks[0].device
    base = folder / f"device_{device}"
    for name in ("summary", "timeline"):
        (base / name).mkdir(parents=True)
    (base / "timeline" / f"step_trace_{device}_2_1.json").write_bytes(step_trace_json(iterations))
    (base / "timeline" / f"msprof_{device}_2_1.json").write_bytes(
        timeline(tasks, origin=BOOT_US, texts=False)
    )
    (base / "summary" / f"op_summary_{device}_2_1.csv").write_bytes(
        op_summary(tasks, age="2022", origin=BOOT_US)
    )
    info = {
        "rank_id": device,
        "DeviceInfo": [{"id": device, "ai_core_num": 32, "aic_frequency": "1000"}],
    }
    (base / f"info.json.{device}").write_text(json.dumps(info))
    boot = {
        "collectionTimeBegin": str(int(EPOCH_US)),
        "clockMonotonicRaw": str(int(BOOT_US * 1000)),
    }
    (base / f"start_info.{device}").write_text(json.dumps(boot))
    return folder


def torch_npu(
    folder: Path,
    tasks: Sequence[Task],
    *,
    rank: int = 0,
    steps: int = 2,
    level: str = "torch",
    origin: Decimal = EPOCH_US,
    **more: bytes,
) -> Path:
    """`*_ascend_pt/ASCEND_PROFILER_OUTPUT`; `more` are further files by their whole stem. `origin`
    is µs of Unix time.
    """
    out = folder / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    (folder / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    (out / "kernel_details.csv").write_bytes(
        op_summary(tasks, age=level, end="\r\n", origin=origin)
    )
    (out / "op_statistic.csv").write_bytes(op_statistic(tasks))
    (out / "trace_view.json").write_bytes(timeline(tasks, torch=steps, origin=origin))
    for stem, data in more.items():
        (out / f"{stem}.{'json' if data[:1] in b'[{' else 'csv'}").write_bytes(data)
    return folder

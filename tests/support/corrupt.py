"""Recordings of TPUs and NPUs that may state other times for some of their work than it took."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from tests.support import ascend_db, msprof
from tests.support.msprof import Task
from tests.support.xspace import MS, PlaneWriter, xspace

TPU_STEPS, TPU_OPS = 8, 12
OPS_OF_TPU = (
    "%fusion.{} = f32[8,8]{{1,0}} fusion(f32[8,8]{{1,0}} %p0)",
    "%convolution.{} = bf16[8,8]{{1,0}} convolution(bf16[8,8]{{1,0}} %p0)",
)


def tpu_training(
    changed: dict[tuple[str, int], dict[str, int]] | None = None,
    *,
    measured: bool = False,
    programs: bool = True,
) -> bytes:
    """Steps of 10 ms with a program of 12 ops of 0.7 ms, the last four of them in a loop; of some
    events other times are stated, ps.
    """
    plane = PlaneWriter("/device:TPU:0")
    lines: dict[str, list[bytes]] = {"Steps": [], "XLA Modules": [], "XLA Ops": []}

    def event(line: str, name: str, start: int, duration: int, **stats: int) -> None:
        given = {"start": start, "duration": duration} | (changed or {}).get(
            (line, len(lines[line])), {}
        )
        if measured:
            stats |= {"device_offset_ps": given["start"], "device_duration_ps": given["duration"]}
        lines[line].append(plane.event(name, given["start"], given["duration"], **stats))

    for step in range(TPU_STEPS):
        begin = 10 * step * MS
        event("Steps", str(step), begin, 10 * MS, group_id=step)
        event("XLA Modules", "jit_train(1)", begin, 9 * MS, run_id=step)
        for i in range(TPU_OPS):
            at = begin + i * 7 * MS // 10
            if i == TPU_OPS - 4:
                event(
                    "XLA Ops",
                    "%while.1 = f32[8,8]{1,0} while(f32[8,8]{1,0} %p0)",
                    at,
                    4 * 7 * MS // 10,
                )
            event("XLA Ops", OPS_OF_TPU[i % 2].format(i), at, 7 * MS // 10)
    for number, (line, events) in enumerate(lines.items()):
        if programs or line != "XLA Modules":
            plane.line(line, events, line_id=number)
    return xspace(plane)


NPU_STEPS, NPU_OPS = 8, 10


def npu_tasks(length: dict[int, int] | None = None) -> list[Task]:
    """Steps of 10 tasks of 0.8 ms on one stream, the last of them beside a collective of 0.5 ms;
    some state another length, µs.
    """
    out: list[Task] = []
    for step in range(NPU_STEPS):
        for i in range(NPU_OPS):
            number = step * NPU_OPS + i
            name, kind = (f"MatMul_{i}", "MatMulV2") if i % 2 else (f"Add_{i}", "Add")
            out.append(Task(name, kind, Decimal(1000 * number + 20), Decimal(800), task=number + 1))
    for step in range(NPU_STEPS):
        start = Decimal(1000 * (step * NPU_OPS + NPU_OPS - 1) + 200)
        out.append(
            Task(
                f"hcom_allReduce__{step}_0_1",
                "hcom_allReduce_",
                start,
                Decimal(500),
                "COMMUNICATION",
                stream=None,
            )
        )
    return [
        replace(task, length=Decimal((length or {}).get(nth, int(task.length))))
        for nth, task in enumerate(out)
    ]


def npu_change_timeline(path: Path, length: dict[int, int], later: dict[int, int]) -> None:
    events = json.loads(path.read_text())
    starts = [
        event
        for event in events
        if event.get("ph") == "X" and event["name"].startswith(("MatMul_", "Add_", "hcom_"))
    ]
    for nth, event in enumerate(starts):
        event["dur"] = float(length.get(nth, event["dur"]))
        event["ts"] = f"{Decimal(event['ts']) + later.get(nth, 0):.3f}"
    path.write_text(json.dumps(events))


def npu_change_database(path: Path, length: dict[int, int], later: dict[int, int]) -> None:
    base = sqlite3.connect(path)
    for nth, us in length.items():
        nth_shared = f"opId = (select opId from COMMUNICATION_OP order by startNs limit 1 offset {nth - NPU_STEPS * NPU_OPS})"
        where = (
            ("COMMUNICATION_OP", nth_shared)
            if nth >= NPU_STEPS * NPU_OPS
            else ("TASK", f"globalTaskId = {nth + 1}")
        )
        base.execute(f"update {where[0]} set endNs = startNs + {1000 * us} where {where[1]}")
    for nth, us in later.items():
        base.execute(
            f"update TASK set startNs = startNs + {1000 * us}, endNs = endNs + {1000 * us} where globalTaskId = {nth + 1}"
        )
    base.commit()
    base.close()


def npu_torch_text(folder: Path, length: dict[int, int], later: dict[int, int]) -> Path:
    path = msprof.torch_npu(
        folder / "host_1_20250109084754_ascend_pt", npu_tasks(), steps=NPU_STEPS
    )
    npu_change_timeline(path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", length, later)
    return path


def npu_torch_text_and_tables(folder: Path, length: dict[int, int], later: dict[int, int]) -> Path:
    path = npu_torch_text(folder, length, later)
    (path / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").write_bytes(
        msprof.op_summary(npu_tasks(length), age="torch", end="\r\n")
    )
    return path


def npu_timeline(folder: Path, length: dict[int, int], later: dict[int, int]) -> Path:
    path = msprof.prof(folder / "PROF_1", npu_tasks(), files=("msprof",))
    npu_change_timeline(next(path.rglob("msprof_*.json")), length, later)
    return path


def npu_database(folder: Path, length: dict[int, int], later: dict[int, int]) -> Path:
    path = ascend_db.torch_npu(
        folder / "host_1_20250109084754_ascend_pt", npu_tasks(), steps=NPU_STEPS
    )
    npu_change_database(next(path.rglob("ascend_pytorch_profiler*.db")), length, later)
    return path

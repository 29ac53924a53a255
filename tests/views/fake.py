"""A small run out of a file made here, of numbers that can be checked by hand, with foreign names
that try to break out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any

import pandas as pd

from nbprof.activity.unit import ANY, NONE
from nbprof.core.files import RunFiles
from nbprof.run.run import Run
from tests.support.chrome import Memory
from tests.support.replaced import put
from tests.support.xspace import MS, PlaneWriter, xspace

HOSTILE = "</script><img src=x onerror=alert(1)>"
HOSTILE_ATTRIBUTE = "\" onmouseover='alert(2)' style=\"position:fixed"
HOSTILE_STYLE = "--></style><svg/onload=alert(3)>&amp;<b>"

CATEGORY_MS = {
    "device_compute": 1.5,
    "device_to_device": 0.25,
    "host_compute": 0.5,
    "kernel_launch": 0.75,
    "input": 4.0,
    "output": 0.0,
    "other": 1.0,
}
"""What each step of a run takes, in the order in which it happens where it is more than nothing;
the third waits 1.25 ms more for input.
"""
_STEP_MS = 8.0
_LATE, _LATE_MS = 2, 1.25
_THREAD = f"python3 {HOSTILE}"
_DETAILS = "regs:96 static_shared:3328 dynamic_shared:1024 grid:1,1,64 block:8,8,1 occ_pct:62.5"
_SMALL = "regs:62 static_shared:0 dynamic_shared:0 grid:1,1,1 block:1024,1,1"
_CAPACITY = 2**34
_HEAP = 6_193_152


def run(*, steps: int = 8, device: bool = True, **frames: pd.DataFrame) -> Run:
    """A run: input-bound, 8 ms per step, on one GPU or on the CPU alone; without `steps` it has the
    work of 8, no marker, and nothing in the place of steps.

    `frames` take the place of those of the run, if they have the columns and types of the schema.
    """
    out = opened(_training(steps, device), units=ANY if steps else NONE)
    for name, frame in frames.items():
        put(out, name, frame)
    return out


def opened(data: bytes, *, units: str = ANY) -> Run:
    """The run of a file."""
    file = Memory(data, "worker-0.xplane.pb")
    modified = datetime(2026, 11, 25, 9, 10, 11).timestamp()
    out = Run.read(
        RunFiles("run 7", Path("logs/plugins/profile/run-7"), (file,), modified, "xspace"),
        keep=False,
        units=units,
    )  # type: ignore[arg-type]
    out.source.bytes = 1_782_579
    return out


@cache
def _training(steps: int, device: bool) -> bytes:
    host, gpu = PlaneWriter("/host:CPU"), _gpu()
    main, pool, kernels, marks, calls = [], [], [], [], []
    at = 0.0
    for i in range(steps or 8):
        # A file without a device states no groups: they are found.
        group = {"group_id": 500 + i} if steps and device else {}
        wait = CATEGORY_MS["input"] + (_LATE_MS if i == _LATE else 0.0)
        length = _STEP_MS + wait - CATEGORY_MS["input"]

        def event(
            plane: PlaneWriter,
            name: str,
            begin: float,
            length: float,
            at: float = at,
            group: Any = group,
            **stats: Any,
        ) -> bytes:
            return plane.event(name, round((at + begin) * MS), round(length * MS), **group, **stats)

        if steps:
            main.append(event(host, "train", 0, length, step_num=500 + i, _r=1))
            marks.append(event(gpu, str(500 + i), 0, length, step_name=f"train {500 + i}"))
        main.append(event(host, "IteratorGetNext", 0, wait))
        for depth, (name, parent) in enumerate(
            (("Root", 0), ("Root::Prefetch", 11), ("Root::Prefetch::Map", 12))
        ):
            pool.append(
                event(
                    host, f"Iterator::{name}", 0, wait - depth / 2, id=11 + depth, parent_id=parent
                )
            )
        launch = wait + CATEGORY_MS["kernel_launch"]
        main.append(event(host, "ExecutorState::Process", wait, CATEGORY_MS["kernel_launch"]))
        main.append(event(host, "EagerKernelExecute", launch, CATEGORY_MS["host_compute"]))
        main.append(
            event(host, "sequential/dense/_Send:_Send", launch, CATEGORY_MS["host_compute"])
        )
        work = launch + CATEGORY_MS["host_compute"]
        # Each ms an event of the allocator.
        calls += [(call, group) for call in range(40) if at <= call < at + length]
        if not device:
            # The CPU has all of the device's work.
            main.append(
                event(host, "sequential/conv2d/Conv2D:Conv2D", work, CATEGORY_MS["device_compute"])
            )
        else:
            conv = {
                "tf_op": "gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter",
                "kernel_details": _DETAILS,
            }
            small = {"tf_op": f"scope/{HOSTILE}:max_pool", "kernel_details": _SMALL}
            kernel = f"void cudnn::detail::wgrad_alg0_engine<__half, 512>({HOSTILE})"
            kernels.append(event(gpu, kernel, work, 1.0, correlation_id=4 * i + 1, **conv))
            kernels.append(
                event(
                    gpu, "EigenMetaKernel<int>", work + 1.0, 0.25, correlation_id=4 * i + 2, **small
                )
            )
            kernels.append(
                event(
                    gpu,
                    "EigenMetaKernel<int>",
                    work + 1.25,
                    0.25,
                    correlation_id=4 * i + 3,
                    **small,
                )
            )
            kernels.append(
                event(
                    gpu,
                    "MemcpyDToD",
                    work + 1.5,
                    CATEGORY_MS["device_to_device"],
                    correlation_id=4 * i + 4,
                )
            )
            main += [
                event(host, "cuLaunchKernel", wait + k / 8, 1 / 8, correlation_id=4 * i + k)
                for k in range(1, 5)
            ]
        at += length
    host.line(_THREAD, main, line_id=1)
    host.line("tf_data", pool, line_id=2)
    host.line("allocator", _allocations(host, calls), line_id=3)
    if marks and device:
        gpu.line("Steps", marks, line_id=-559038737)
    gpu.line("Stream #19(Compute)", kernels, line_id=19)
    began = int(datetime(2026, 11, 21, 14, 2, 31).timestamp()) * 10**9
    environment = PlaneWriter(
        "Task Environment",
        {"profile_start_time": began, "profile_stop_time": began + round(at * 1e6)},
    )
    return xspace(*([gpu] if device else []), host, environment, hostname="worker-0")


def _gpu() -> PlaneWriter:
    facts = {
        "device_vendor": "Nvidia",
        "compute_cap_major": 7,
        "compute_cap_minor": 5,
        "memory_size": _CAPACITY,
        "core_count": 40,
    }
    return PlaneWriter("/device:GPU:0", {**facts, "device_type_string": "Tesla T4"})


def _allocations(host: PlaneWriter, calls: Sequence[tuple[int, dict[str, int]]]) -> list[bytes]:
    """Calls at their ms: blocks of 1 KiB that the next call frees, of which one is as large as all
    that was there before.
    """
    out = []
    for at, group in calls:
        free, size = at % 2, _HEAP if at // 2 == 10 else 1024
        heap = _HEAP + (0 if free else size)
        op = HOSTILE if size == _HEAP else "sequential/conv2d/Conv2D:Conv2D"
        out.append(
            host.event(
                "MemoryDeallocation" if free else "MemoryAllocation",
                at * MS,
                0,
                allocator_name="GPU_0_bfc",
                addr=4096 + 1024 * (at // 2),
                allocation_bytes=size,
                requested_bytes=size - 24,
                bytes_allocated=heap,
                bytes_reserved=0,
                bytes_available=_CAPACITY - heap,
                fragmentation=0.0003,
                peak_bytes_in_use=45_508_198,
                **group,
                **(
                    {"data_type": 0}
                    if free
                    else {
                        "tf_op": op,
                        "region_type": "output",
                        "data_type": 19,
                        "shape": "[64,30,30,32]",
                    }
                ),
            )
        )
    cpu = {
        "bytes_allocated": 1024,
        "bytes_reserved": 0,
        "bytes_available": _CAPACITY - 1024,
        "peak_bytes_in_use": 1024,
    }
    block = {
        "addr": 64,
        "allocation_bytes": 1024,
        "requested_bytes": 1000,
        "tf_op": "x",
        "region_type": "temp",
        "data_type": 3,
        "shape": "[]",
    }
    return [
        *out,
        host.event(
            "MemoryAllocation", 40 * MS, 0, allocator_name="cpu", fragmentation=0.0, **cpu, **block
        ),
    ]


def traced(
    steps: int = 8,
    per_step: int = 20,
    *,
    stretch: int = 1,
    longer: Sequence[int] = (),
    far: bool = False,
) -> Run:
    """A run of many events: markers of steps, a stream with kernels, a thread with calls in calls.

    `stretch` puts the events so many times as far from one another as they are in 8 ms per step;
    `longer` is added to their durations, in ps; `far` has the last one a day later.
    """
    host, gpu = PlaneWriter("/host:CPU"), _gpu()
    gpu.stated("never used")
    marks, kernels, calls = [], [], []
    gap = 6 * MS // per_step
    added = iter(longer) if longer else repeat(0)

    def event(plane: PlaneWriter, name: str, start: int, duration: int, **stats: Any) -> bytes:
        return plane.event(name, start * stretch, duration + next(added), **stats)

    for s in range(steps):
        begin = s * 8 * MS
        marks.append(event(gpu, str(s), begin, 8 * MS, group_id=s, step_name=f"train {s}"))
        calls.append(event(host, "train_function", begin, 7 * MS, group_id=s))
        for k in range(per_step):
            name = ("wgrad_alg0", HOSTILE)[k % 2]
            stats = {
                "correlation_id": s * per_step + k + 1,
                "kernel_details": _SMALL,
                "group_id": s,
            }
            kernels.append(event(gpu, name, begin + k * gap + s, gap * 2 // 3 + 1 + k, **stats))
            calls.append(event(host, "IteratorGetNext", begin + k * gap, gap // 3, group_id=s))
    if far:
        calls.append(event(host, "IteratorGetNext", 86_400 * 1000 * MS, MS))
    gpu.line("Steps", marks, line_id=-559038737)
    gpu.line("Stream #19(Compute)", kernels, line_id=19)
    host.line(_THREAD, calls, line_id=1)
    return opened(xspace(gpu, host, hostname="worker-0"))


def threaded(spans: Sequence[tuple[int, int]]) -> Run:
    """A run of one thread, whose calls begin and last so long, in ps."""
    host = PlaneWriter("/host:CPU")
    host.line(_THREAD, [host.event("train_function", begin, length) for begin, length in spans])
    return opened(xspace(host, hostname="worker-0"))

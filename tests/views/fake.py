"""A small run with the frames of FRAMES.md, made of numbers that can be checked by hand, with foreign names that try to break out."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from nbprof.activity.activity import DEVICE_OPS, HOST_OPS, MARKERS, Names, table
from nbprof.analysis.memory import modules as memory_modules
from nbprof.analysis.steps import pods, tpu_cores
from nbprof.core.trace import Events, no_counters
from nbprof.run.source import RunSource
from nbprof.schema import frames

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
    "compile": 0.0,
    "other": 1.0,
}
"""What each step of the fake run takes; collectives are not recorded."""


def run(*, steps: int = 8, device: bool = True, **changes: Any) -> Any:
    """A run: input-bound, 8 ms a step, on one GPU or on the CPU alone. `changes` replace attributes."""
    frame = _steps(steps)
    parts: dict[str, Any] = {
        "steps": frame,
        "steps_summary": _summary(frame),
        "pods": _pods(frame),
        "pods_summary": pods.summary(_pods(frame)),
        "pods_cores": tpu_cores.empty(),
        "overview": _overview(steps, device),
        "input_ops": _input_ops(),
        "input_categories": _input_categories(),
        "tf_data": SimpleNamespace(
            pipelines=_pipelines(),
            nodes=_nodes(),
            slowest=_nodes().assign(rank=0, self_ms=[0.25, 0.25, 4.8]),
            calls=pd.DataFrame({"host": "worker-0", "pipeline": "Host:0", "rank": [0], "start_ms": [3.5], "duration_us": [5300.0]}),
        ),
        "input_summary": _input_summary(steps),
        "longest_calls": pd.DataFrame({"where": ["host"], "op": ["IteratorGetNext"], "at_ms": [8.5], "for_ms": [4.25]}),
        "longest_launches": pd.DataFrame({"at_ms": [0.5, 9.0], "for_ms": [0.25, 0.125]})
        if device
        else pd.DataFrame({"at_ms": [], "for_ms": []}),
        "ops": _ops(device),
        "torch_modules": pd.DataFrame(columns=frames.names("torch_ops.modules")),
        "torch_ops_by": lambda _: pd.DataFrame(columns=frames.names("torch_ops.frame")),
        "kernels": _kernels() if device else _kernels().head(0),
        "kernel_devices": pd.DataFrame({"utilization_percent": [40.0, 60.0], "sm_efficiency_percent": [np.nan, 20.0]}).head(
            2 if device else 0
        ),
        "memory_summary": _memory_summary(),
        "memory_timeline": _timeline(),
        "memory_peak": _peak(),
        "memory_ops": _memory_ops(),
        "snapshot_pieces": (),
        "allocator": SimpleNamespace(replays=[], notes=[]),
        "device_time": SimpleNamespace(frames={"device_time": pd.DataFrame()}, missing="No GPU kernel is in this profile."),
        "programs": SimpleNamespace(
            memory_modules=memory_modules.frame({}, {}), hlo_missing="No op of a compiled XLA program ran.", compiled={}
        ),
        "ascend": SimpleNamespace(kinds=[]),
        "advice": _advice() if steps else _advice().head(0),
        "devices": _devices() if device else _devices().head(0),
        "hosts": ["worker-0"],
        "trace": trace(max(steps, 1)),
        "receipt": SimpleNamespace(
            events=1234, dropped=0, skipped={}, lines=[SimpleNamespace(level="warning", text=f"odd name {HOSTILE}")]
        ),
        "activity": SimpleNamespace(
            has_device=bool(device),
            device_extents=pd.DataFrame({"host": [0] * device, "device": range(device)}),
            name_category=np.array([0, 0, 1, 1, 6, 0], np.uint8),
            framework="TensorFlow",
            markers=table(MARKERS),
            group_names={},
            host_ops=table(HOST_OPS),
            device_ops=table(DEVICE_OPS),
            ops=Names(),
        ),
        "source": RunSource(
            path="logs/plugins/profile/run-7",
            name="run 7",
            file="worker-0.xplane.pb",
            bytes=1_782_579,
            analysed_s=0.9,
            created="2026-11-25 09:10:11",
        ),
        "capture": None,
        "persist": lambda name, compute: compute(),
    }
    idle = {"rank": pd.NA, "where": "host", "type": "IDLE", "op": "IDLE", "occurrences": 0, "total_us": 5000.0, "avg_us": np.nan}
    parts["ops_with_idle"] = pd.concat([parts["ops"], pd.DataFrame([{**idle, "self_us": 5000.0, "avg_self_us": np.nan, "eager": False}])])
    return SimpleNamespace(**{**parts, **changes})


def _steps(count: int) -> pd.DataFrame:
    number = np.arange(500, 500 + count)
    frame = pd.DataFrame({"host": "worker-0", "step": number, "name": [f"train {n}" for n in number], "start_ms": 8.0 * np.arange(count)})
    frame["group"] = number
    frame["step_time_ms"] = sum(CATEGORY_MS.values())
    for key, value in CATEGORY_MS.items():
        frame[f"{key}_ms"] = value
    frame["device_collectives_ms"] = np.nan
    if count > 2:
        frame.loc[2, ["input_ms", "step_time_ms"]] += 1.25
    return frame


def _pods(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps as those of one worker."""
    return steps.assign(worker=steps["host"], bottleneck="input", group=steps["step"])


def _summary(steps: pd.DataFrame) -> pd.DataFrame:
    rows = []
    mean = steps["step_time_ms"].mean()
    for category in ("step_time", *CATEGORY_MS):
        values = steps["step_time_ms" if category == "step_time" else f"{category}_ms"]
        facts = {"mean_ms": values.mean(), "sd_ms": values.std(), "min_ms": values.min(), "max_ms": values.max()}
        rows.append({"category": category, **facts, "percent": 100 * values.mean() / mean})
    return pd.DataFrame(rows)


def _overview(steps: int, device: bool) -> dict[str, Any]:
    top = pd.DataFrame(
        {
            "rank": [1, 2, 3],
            "op": ["gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter", f"scope/{HOSTILE}", "sequential/dense/MatMul"],
            "self_ms": [2.456, 0.888, 0.3528],
            "ms_per_step": [0.307, 0.111, 0.0441],
            "percent": [19.8, 7.1, 2.8],
            "cumulative_percent": [19.8, 26.9, 29.7],
        }
    )
    known = steps > 0
    return {
        "bound": "input" if known else None,
        "verdict": "Input-bound" if known else "Unknown",
        "verdict_text": "51% of each step waits for data" if known else "",
        "verdict_detail": "The GPU computes for 1.5 ms, then stands idle while tf.data prepares the next batch." if known else "",
        "confidence": "high" if known else "none",
        "confidence_evidence": [
            (True, f"Input is the largest part of all {steps} steps"),
            (False, "Profiling itself costs about 0.1 ms a step"),
        ],
        "step_time_ms": 8.16 if known else None,
        "step_time_sd_ms": 0.44 if known else None,
        "input_percent": 50.9 if known else None,
        "device_busy_percent": 21.4 if device else None,
        "device_idle_percent": 78.6 if device else None,
        "device_op_percent": 27.0 if device else None,
        "host_op_percent": 73.0 if device else 100.0,
        "compute_16bit_percent": 77.3 if device else None,
        "compute_32bit_percent": 22.7 if device else None,
        "eager_host_percent": 1.5,
        "eager_device_percent": 0.0 if device else None,
        "peak_memory_bytes": 45_508_198.0,
        "hosts": 1,
        "devices": 1 if device else 0,
        "device_kind": "Tesla T4" if device else None,
        "top_ops": top,
        "top_ops_where": "device" if device else "host",
        "framework": "TensorFlow 2.21",
        "checks": _checks(),
        "environment": {
            "devices": [{"name": "Tesla T4", "kind": "GPU", "compute_capability": "7.5", "memory_bytes": 2**34, "cores": 40, "count": 2}],
            "versions": {"CUDA": "12.4"},
            "start_time": datetime(2026, 11, 21, 14, 2, 31).astimezone(UTC).isoformat(),
        },
        "run_facts": [("Device", "Tesla T4"), ("Host", f"1 host {HOSTILE}"), ("Warnings", "none")],
    }


def _input_ops() -> pd.DataFrame:
    path = "Iterator::Root::Prefetch::Map"
    rows = [(path, "preprocessing", 64, 40.0, 76.9, 32.0, 61.5), (HOSTILE, "demanded_file_read", 64, 20.0, 38.5, 20.0, 38.5)]
    return pd.DataFrame(rows, columns=["op", "category", "occurrences", "total_ms", "total_percent", "self_ms", "self_percent"])


def _input_categories() -> pd.DataFrame:
    keys = ("preprocessing", "demanded_file_read", "advanced_file_read", "enqueue", "other")
    times = (32.0, 20.0, 0.0, 0.0, 0.0)
    advice = ("raise num_parallel_calls", "read ahead with prefetch", "", "", "")
    frame = pd.DataFrame({"category": keys, "label": [key.replace("_", " ") for key in keys], "time_ms": times, "advice": advice})
    return frame.assign(percent=100 * frame["time_ms"] / 52)


def _input_summary(steps: int) -> dict[str, Any]:
    if not steps:
        return {"statement": "No step time was measured.", "next_step": "Mark the steps.", "breakdown": pd.DataFrame()}
    keys = ("enqueue", "preprocessing", "demanded_file_read", "advanced_file_read", "other")
    breakdown = pd.DataFrame({"category": keys, "us_per_step": [0.0, 4000.0, 2500.0, 0.0, 0.0], "percent": [0.0, 61.5, 38.5, 0.0, 0.0]})
    return {
        "input_percent": 50.9,
        "mean_percent": 50.4,
        "sd_percent": 2.5 if steps > 1 else None,
        "min_percent": 50.0,
        "max_percent": 56.8,
        "statement": "Highly input-bound: 50.9% of step time waits for input. Reduce that first.",
        "next_step": f"See below {HOSTILE}",
        "enqueue_ratio": 0.0,
        "enqueue_ratio_from": None,
        "breakdown": breakdown,
        "copy_percent": None,
        "copy_level": None,
    }


def _checks() -> pd.DataFrame:
    rows = [
        ("input", 50.9, "high", "Highly input-bound.", "input"),
        ("precision", np.nan, "unknown", f"No device compute {HOSTILE}", "kernels"),
        ("a_new_one", 0.0, "no", "Nothing.", "trace"),
    ]
    return pd.DataFrame(rows, columns=["check", "percent", "level", "statement", "view"])


def _pipelines() -> pd.DataFrame:
    facts = {"calls": 8, "slow_calls": 7, "mean_us": 4100.0, "min_us": 30.0, "max_us": 5300.0}
    return pd.DataFrame([{"host": "worker-0", "pipeline": "Host:0", **facts, "advice": f"**Map** is the bottleneck {HOSTILE}"}])


def _nodes() -> pd.DataFrame:
    names = ("Root", "Prefetch", "Map")
    rows = []
    for i, name in enumerate(names):
        long_name = "::".join(("Iterator", *names[: i + 1]))
        facts = {"total_ms": 42.0 - i, "self_ms": (1.0, 1.0, 32.0)[i], "calls": 64, "critical": True, "bottleneck": name == "Map"}
        where = {"host": "worker-0", "pipeline": "Host:0", "id": f"n{i}", "parent": f"n{i - 1}" if i else pd.NA}
        rows.append({**where, "iterator": name, "long_name": long_name, "start_ms": 0.1 * i, **facts, "note": "1 thread" if i == 2 else ""})
    return pd.DataFrame(rows)


def _ops(device: bool) -> pd.DataFrame:
    rows = [
        (1, "device", "Conv2DBackpropFilter", "sequential/conv2d/Conv2DBackpropFilter", 8, 2456.1, 2456.1, False),
        (2, "device", "MaxPoolGrad", f"scope/{HOSTILE}", 8, 888.5, 888.5, False),
        (3, "host", "Dataset", "Iterator::Root::Prefetch::Map", 64, 40000.0, 32000.0, False),
        (4, "host", "_Send", HOSTILE_ATTRIBUTE, 8, 1068.8, 1068.8, True),
    ]
    frame = pd.DataFrame(rows, columns=["rank", "where", "type", "op", "occurrences", "total_us", "self_us", "eager"])
    frame = frame.assign(avg_us=frame["total_us"] / frame["occurrences"], avg_self_us=frame["self_us"] / frame["occurrences"])
    return frame if device else frame[frame["where"] == "host"].reset_index(drop=True)


def _kernels() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "rank": [1, 2],
            "kernel": [f"void cudnn::detail::wgrad_alg0_engine<__half, 512>({HOSTILE})", "EigenMetaKernel<int>"],
            "registers": [96, 62],
            "static_shared_bytes": [3328, 0],
            "dynamic_shared_bytes": [1024, 0],
            "block": [(8, 8, 1), (1024, 1, 1)],
            "grid": [(1, 1, 64), (1, 1, 1)],
            "occupancy_percent": [62.5, np.nan],
            "op_tensor_core_eligible": pd.array([True, False], dtype="boolean"),
            "uses_tensor_core": pd.array([False, False], dtype="boolean"),
            "op": ["sequential/conv2d/Conv2DBackpropFilter", HOSTILE_STYLE],
            "occurrences": [8, 24],
            "total_us": [3000.0, 1000.0],
            "avg_us": [375.0, 41.7],
            "min_us": [295.1, 11.1],
            "max_us": [417.9, 60.0],
        }
    )


def _memory_summary() -> pd.DataFrame:
    facts = {"allocations": 40, "deallocations": 39, "capacity_bytes": 2.0**34, "lifetime_peak_bytes": 45_508_198.0}
    peak = {"peak_bytes": 12_386_304.0, "peak_time_ms": 20.0, "peak_stack_bytes": 0.0, "peak_heap_bytes": 12_386_304.0}
    rest = {"peak_free_bytes": 2.0**34 - 12_386_304, "peak_fragmentation": 0.0003}
    small = {**facts, **peak, **rest, "memory_id": "cpu", "peak_bytes": 1024.0, "peak_heap_bytes": 1024.0}
    return pd.DataFrame([small, {"memory_id": "GPU_0_bfc", **facts, **peak, **rest}])


def _timeline() -> pd.DataFrame:
    count = 40
    heap = np.where(np.arange(count) == 20, 12_386_304, 1_000_000 + 1000 * np.arange(count)).astype(np.float64)
    frame = pd.DataFrame({"memory_id": "GPU_0_bfc", "time_ms": np.arange(count, dtype=np.float64)})
    frame["event"] = np.where(np.arange(count) % 2 == 0, "allocation", "deallocation")
    frame["requested_bytes"] = 1000.0
    frame["allocated_bytes"] = np.where(frame["event"] == "allocation", 1024.0, -1024.0)
    frame["op"] = np.where(np.arange(count) == 20, HOSTILE, "sequential/conv2d/Conv2D")
    frame["step"] = 500 + np.arange(count) // 8
    frame["region_type"], frame["data_type"], frame["shape"] = "output", "half", "[64,30,30,32]"
    frame["stack_bytes"], frame["heap_bytes"], frame["free_bytes"] = 0.0, heap, 2.0**34 - heap
    frame["fragmentation"], frame["in_use_bytes"] = 0.0003, heap
    # Each block is freed by the event behind its allocation.
    frame["address"] = 1024 * (np.arange(count) // 2)
    frame["order"] = np.arange(count)
    frame["host"] = 0
    return frame


def _memory_ops() -> pd.DataFrame:
    """Allocators and ops; more ops than a view lists on the first."""
    count = 250
    taken = np.arange(1, count + 1, dtype=np.int64)[::-1] * 1024
    return pd.DataFrame(
        {
            "memory_id": "GPU_0_bfc",
            "op": [f"op{i}" for i in range(count - 1)] + [""],
            "allocations": np.ones(count, np.int64),
            "allocated_bytes": taken,
            "deallocations": np.zeros(count, np.int64),
            "freed_bytes": np.zeros(count, np.int64),
            "increase_bytes": taken,
        }
    )


def _peak() -> pd.DataFrame:
    columns = ["memory_id", "op", "allocated_bytes", "requested_bytes", "occurrences", "region_type", "data_type", "shape"]
    rows = [
        ("GPU_0_bfc", HOSTILE, 6_193_152, 6_000_000, 1, "output", "half", "[64,30,30,32]"),
        ("cpu", "x", 1024, 1000, 1, "temp", "int32", "[]"),
    ]
    return pd.DataFrame(rows, columns=columns)


def _advice() -> pd.DataFrame:
    fix = f"-ds = ds.map(f)\n+ds = ds.map(f, num_parallel_calls=tf.data.AUTOTUNE)  # {HOSTILE}\nmodel.fit(ds)"
    facts = {"severity": "high", "title": "Run Dataset.map in parallel", "evidence": f"Map takes **32.0 ms** of **52.0 ms**. {HOSTILE}"}
    one = {"rule": "map", **facts, "gain_ms_per_step": 2.6, "fix": fix, "view": "input", "link": "Steps & input: critical path"}
    two = {**one, "rule": "fp16", "severity": "low", "title": HOSTILE, "gain_ms_per_step": np.nan, "fix": "", "view": "kernels", "link": ""}
    return pd.DataFrame([one, two])


def _devices() -> pd.DataFrame:
    return pd.DataFrame([{"host": "worker-0", "device": "GPU 0", "kind": "gpu", "name": "Tesla T4", "memory_bytes": 2.0**34}])


def trace(steps: int = 8, per_step: int = 20) -> Any:
    """Three lanes: step markers, a stream with kernels, a thread with nested calls. Times in ps."""
    rows = []
    for s in range(steps):
        begin = s * 8_000_000_000
        rows.append((0, 0, begin, 8_000_000_000))
        rows.append((2, 1, begin, 7_000_000_000))
        for k in range(per_step):
            rows.append((1, 2 + k % 2, begin + k * 300_000_000 + s, 200_000_001 + k))
            rows.append((2, 4, begin + k * 300_000_000, 100_000_000))
    rows.sort(key=lambda r: (r[0], r[2], -r[3]))
    lane, name, start, duration = (np.array(column) for column in zip(*rows, strict=True))
    events = Events(lane.astype(np.int32), name.astype(np.int32), start.astype(np.int64), duration.astype(np.int64))
    lanes = pd.DataFrame(
        {
            "lane": [0, 1, 2],
            "host": "worker-0",
            "process": ["/device:GPU:0", "/device:GPU:0", "/host:CPU"],
            "thread": ["Steps", "Stream 19", f"python3 {HOSTILE}"],
            "kind": ["steps", "device", "host"],
            "device": ["GPU 0", "GPU 0", ""],
            "events": np.bincount(events.lane, minlength=3),
            "note": ["", "compute", "main"],
            "order": [0, 1, 2],
        }
    )
    names = np.array(["train", "train_function", "wgrad_alg0", HOSTILE, "IteratorGetNext", "never used"], dtype=object)
    return SimpleNamespace(
        events=events, names=names, display=names, lanes=lanes, counters=no_counters(), args={}, name_args={}, flows=None, strings=[]
    )

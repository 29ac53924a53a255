"""The device side of an XSpace file: kernels, copies, device ops and device step markers."""

from __future__ import annotations

import contextlib
import re
from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof import activity as act
from nbprof.dialects import opnames
from nbprof.dialects.grouping import Groups
from nbprof.trace import Trace

LAUNCH_SHAPE = ("registers", "static_shared_bytes", "dynamic_shared_bytes", "block", "grid")
_ARCHITECTURE = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell"}


def device_activity(trace: Trace, groups: Groups, host: npt.NDArray[np.int32], out: act.Activity) -> None:
    """Fills devices, device markers, work, kernels and device ops of the activity."""
    planes = _devices(trace, out)
    if not planes:
        return
    out.has_device = True
    events = trace.events
    lanes = trace.lanes
    kind = lanes["kind"].to_numpy()
    raw = (kind == "device")[events.lane] & (lanes["plane"].isin(planes).to_numpy())[events.lane]
    device = lanes["device"].to_numpy(np.int32)[events.lane]
    _markers(trace, groups, host, device, kind, out)
    _work(trace, groups, host, device, raw, out)
    rows = np.flatnonzero(raw)
    if len(rows):
        spans = pd.DataFrame({"host": host[rows], "device": device[rows], "start": events.start[rows], "end": events.end[rows]})
        out.device_extents = spans.groupby(["host", "device"], as_index=False).agg({"start": "min", "end": "max"})
    _kernels(trace, host, device, raw, out)


def _devices(trace: Trace, out: act.Activity) -> list[int]:
    """One row a device plane; returns the planes of GPUs."""
    rows: list[dict[str, object]] = []
    gpus: list[int] = []
    for number, plane in enumerate(trace.planes):
        found = re.match(r"/device:(GPU|TPU):(\d+)\Z", plane.name)
        if not found:
            continue
        s = plane.stats
        kind = found.group(1)
        if kind == "GPU":
            gpus.append(number)
        rows.append(
            {
                "host": plane.host,
                "device": int(found.group(2)),
                "kind": kind,
                "name": device_name(kind, s),
                "compute_capability": f"{s['compute_cap_major']}.{s['compute_cap_minor']}"
                if {"compute_cap_major", "compute_cap_minor"} <= s.keys()
                else None,
                "memory_bytes": s.get("memory_size"),
                "memory_bytes_per_second": s.get("memory_bandwidth"),
                "cores": s.get("core_count"),
                "clock_khz": s.get("clock_rate"),
            }
        )
    out.devices = pd.DataFrame(rows, columns=act.DEVICES)
    return gpus


def device_name(kind: str, stats: dict[str, object]) -> str:
    """What the device is called: model where known, else vendor and architecture."""
    model = stats.get("gpu_device_name") or stats.get("device_type_string")
    if model:
        return str(model)
    major = stats.get("compute_cap_major")
    if stats.get("device_vendor") == "AMD" and isinstance(major, int):
        return f"AMD GPU (gfx{major}{stats.get('compute_cap_minor', 0)}x)"
    if kind != "GPU" or not isinstance(major, int):
        return kind
    minor = stats.get("compute_cap_minor")
    name = _ARCHITECTURE.get(major, "")
    if major == 7:
        name = "Turing" if minor == 5 else "Volta"
    if major == 8:
        name = "Ada Lovelace" if minor == 9 else "Ampere"
    return f"{name} GPU (sm_{major}{minor})" if name else "GPU"


def _markers(
    trace: Trace,
    groups: Groups,
    host: npt.NDArray[np.int32],
    device: npt.NDArray[np.int32],
    kind: npt.NDArray[np.object_],
    out: act.Activity,
) -> None:
    events = trace.events
    rows = np.flatnonzero((kind == "steps")[events.lane] & (groups.group >= 0))
    out.markers = act.spans(events, rows, host, groups.group, device).astype(act.MARKERS)
    if not len(rows):
        _derived_markers(groups, host, device, kind == "device", trace, out)
    for row, text in zip(rows.tolist(), trace.texts(trace.text_arg("step_name")[rows]), strict=True):
        if text:
            out.group_names[(int(host[row]), int(groups.group[row]))] = text


def _derived_markers(
    groups: Groups,
    host: npt.NDArray[np.int32],
    device: npt.NDArray[np.int32],
    raw: npt.NDArray[np.bool_],
    trace: Trace,
    out: act.Activity,
) -> None:
    """Device steps of a file without a Steps line: from the first to the last device event of each group."""
    events = trace.events
    rows = np.flatnonzero(raw[events.lane] & (groups.group >= 0))
    if not len(rows):
        return
    spans = act.spans(events, rows, host, groups.group, device)
    each = spans.groupby(["host", "group", "device"], as_index=False).agg({"event": "first", "start": "min", "end": "max"})
    out.markers = each[list(act.MARKERS)].astype(act.MARKERS)


def classify(name: str, shape: str) -> int:
    """The step class of one device event.

    Copies are recognised by both generations of names. (TensorFlow Profiler of the 2.3/2.4 era counted its own `MemcpyH2D` as compute.)
    """
    upper = name[:16].upper()
    if upper.startswith(("MEMCPYHTOD", "MEMCPYH2D")):
        return act.HOST_TO_DEVICE
    if upper.startswith(("MEMCPYDTOH", "MEMCPYD2H")):
        return act.DEVICE_TO_HOST
    if upper.startswith(("MEMCPYDTOD", "MEMCPYD2D", "MEMCPYPTOP", "MEMCPYP2P")):
        return act.DEVICE_TO_DEVICE
    if upper.startswith(("NCCL", "RCCL")):
        return act.DEVICE_COLLECTIVES
    if shape:
        return act.DEVICE_COMPUTE_16 if "half" in shape or "bf16" in shape or "bfloat16" in shape else act.DEVICE_COMPUTE_32
    half = "half" in name or "fp16" in name or "bf16" in name or "bfloat16" in name
    return act.DEVICE_COMPUTE_16 if half else act.DEVICE_COMPUTE_32


def _work(
    trace: Trace,
    groups: Groups,
    host: npt.NDArray[np.int32],
    device: npt.NDArray[np.int32],
    raw: npt.NDArray[np.bool_],
    out: act.Activity,
) -> None:
    events = trace.events
    rows = np.flatnonzero(raw & (groups.group >= 0) & (trace.arg("correlation_id") >= 0))
    shape = trace.text_arg("shape")[rows]
    pairs = np.stack([events.name[rows].astype(np.int64), shape], 1)
    distinct, code = np.unique(pairs, axis=0, return_inverse=True)
    table = np.array([classify(trace.names[n], trace.strings[s] if s >= 0 else "") for n, s in distinct.tolist()], np.int16)
    out.work = act.spans(events, rows, host, groups.group, device).assign(
        cls=table[code.reshape(-1)] if len(rows) else np.zeros(0, np.int16)
    )


def launch_details(text: str) -> dict[str, object]:
    """Registers, shared memory, grid, block and occupancy out of a `kernel_details` text of any generation."""
    found: dict[str, str] = {}
    for token in text.split():
        key, _, value = token.partition(":")
        found[key] = value

    def number(*keys: str) -> int | None:
        for key in keys:
            if found.get(key, "").isdigit():
                return int(found[key])
        return None

    static = number("static_shared", "static_shared_memory", "shm", "shared")
    dynamic = number("dynamic_shared", "dynamic_shared_memory")
    occupancy = None
    with contextlib.suppress(KeyError, ValueError):
        occupancy = float(found["occ_pct"])
    return {
        "registers": number("regs", "registers"),
        "static_shared_bytes": static,
        "dynamic_shared_bytes": 0 if dynamic is None and static is not None else dynamic,
        "block": found.get("block", ""),
        "grid": found.get("grid", ""),
        "occupancy_percent": occupancy,
    }


def _kernels(
    trace: Trace,
    host: npt.NDArray[np.int32],
    device: npt.NDArray[np.int32],
    raw: npt.NDArray[np.bool_],
    out: act.Activity,
) -> None:
    events = trace.events
    details = trace.text_arg("kernel_details")
    # An XLA kernel is an HLO op; its `tf_op` only says that it is some XLA module.
    op_text = trace.text_arg("hlo_op")
    for other in (trace.text_arg("tf_op"), trace.text_arg("level 0")):
        op_text = np.where((op_text < 0) & (other >= 0), other, op_text)
    _device_ops(trace, host, device, raw, op_text, out)
    rows = np.flatnonzero(raw & (details >= 0) & (events.duration >= 1000))
    rows = rows[[bool(trace.strings[d]) for d in details[rows].tolist()]] if len(rows) else rows
    distinct, code = np.unique(details[rows], return_inverse=True)
    parsed = [launch_details(trace.strings[d]) for d in distinct.tolist()]
    stated_occupancy = np.array([_number(d["occupancy_percent"]) for d in parsed] or [0.0])
    # Occupancy is no part of a launch shape: texts that differ in it alone are one shape.
    shapes: dict[tuple[object, ...], int] = {}
    shape_of = [shapes.setdefault(tuple(d[k] for k in LAUNCH_SHAPE), len(shapes)) for d in parsed]
    out.launches = [dict(zip(LAUNCH_SHAPE, shape, strict=True)) for shape in shapes]
    ops = {c: opnames.parse(trace.strings[c]).name if c >= 0 else "" for c in np.unique(op_text[rows]).tolist()}
    equation = trace.text_arg("equation")[rows]
    vendors = {(i, p.name): str(p.stats.get("device_vendor", "")) for i, p in enumerate(trace.planes)}
    plane = trace.lanes["plane"].to_numpy()[events.lane[rows]]
    triples = pd.DataFrame({"name": events.name[rows], "op": op_text[rows], "plane": plane, "equation": equation})
    kernel_code = np.empty(len(rows), np.int32)
    op_code = np.empty(len(rows), np.int32)
    eligible = np.empty(len(rows), np.bool_)
    tensor = np.empty(len(rows), np.bool_)
    for key, at in triples.groupby(["name", "op", "plane", "equation"], sort=False).indices.items():
        name, op, where, formula = cast("tuple[int, int, int, int]", key)
        kernel = str(trace.names[name])
        vendor = vendors[(where, trace.planes[where].name)]
        op_name = ops[op]
        uses = opnames.uses_tensor_core(kernel, vendor)
        kernel_code[at] = out.kernel_names.code(kernel)
        op_code[at] = out.ops.code(op_name)
        einsum = formula >= 0 and _einsum_of_two(trace.strings[formula])
        eligible[at] = op >= 0 and (uses or einsum or opnames.tensor_core_eligible(op_name))
        tensor[at] = uses
    occupancy = stated_occupancy[code] if len(rows) else np.zeros(0)
    theoretical = trace.args.get("theoretical_occupancy_pct")
    if theoretical is not None:
        stated = np.full(len(events), np.nan)
        stated[theoretical.event] = theoretical.floats()
        occupancy = np.where(np.isnan(stated[rows]), occupancy, stated[rows])
    out.kernels = pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "device": device[rows],
            "duration": events.duration[rows],
            "kernel": kernel_code,
            "op": op_code,
            "details": np.array(shape_of, np.int32)[code] if len(rows) else np.zeros(0, np.int32),
            "eligible": eligible,
            "tensor_core": tensor,
            "occupancy": occupancy,
        }
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _einsum_of_two(equation: str) -> bool:
    left, arrow, _ = equation.partition("->")
    return bool(arrow) and equation.count("->") == 1 and left.count(",") == 1


def _device_ops(
    trace: Trace,
    host: npt.NDArray[np.int32],
    device: npt.NDArray[np.int32],
    raw: npt.NDArray[np.bool_],
    op_text: npt.NDArray[np.int64],
    out: act.Activity,
) -> None:
    """Runs of framework ops on a device: each kernel counts for the op that its annotation names."""
    events = trace.events
    rows = np.flatnonzero(raw & (op_text >= 0))
    rows = rows[[bool(trace.strings[c]) for c in op_text[rows].tolist()]] if len(rows) else rows
    distinct, code = np.unique(op_text[rows], return_inverse=True)
    parsed = [opnames.parse(trace.strings[c]) for c in distinct.tolist()]
    op = np.array([out.ops.code(p.name) for p in parsed], np.int32)
    kind = np.array([out.types.code(p.type or "Unknown") for p in parsed], np.int32)
    out.device_ops = pd.DataFrame(
        {
            "event": rows,
            "host": host[rows],
            "device": device[rows],
            "start": events.start[rows],
            "end": events.end[rows],
            "op": op[code] if len(rows) else np.zeros(0, np.int32),
            "type": kind[code] if len(rows) else np.zeros(0, np.int32),
            "eager": trace.arg("is_eager", 0)[rows] > 0,
        }
    )

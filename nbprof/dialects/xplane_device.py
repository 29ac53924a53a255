"""The device side of an XSpace file: kernels, copies, device ops and device step markers."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof import activity as act
from nbprof.dialects import opnames
from nbprof.dialects.placed import Placed
from nbprof.trace import Trace, distinct

LAUNCH_SHAPE = ("registers", "static_shared_bytes", "dynamic_shared_bytes", "block", "grid")
_ARCHITECTURE = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell"}


def device_activity(placed: Placed, out: act.Activity) -> None:
    """States how device extents, kernels and device ops are made."""
    out.later("device_extents", lambda: _extents(placed))
    out.later("device_ops", lambda: _device_ops(placed, out))
    out.later(("kernels", "launch_shapes"), lambda: _kernels(placed, out))
    out.later("transfers", lambda: _transfers(placed, out))
    out.later("collectives", lambda: _collectives(placed, out))


def _extents(placed: Placed) -> pd.DataFrame:
    events = placed.trace.events
    lanes = placed.trace.lanes
    at = np.flatnonzero(
        (placed.lane_kind == "device") & lanes["plane"].isin(placed.gpu_planes).to_numpy() & (lanes["events"] > 0).to_numpy()
    )
    if not len(at):
        return act.table(act.EXTENTS)
    # Events are sorted by lane and start, so that a lane is a stretch that begins with its first event.
    first = np.searchsorted(events.lane, at)
    stop = np.searchsorted(events.lane, at, side="right")
    spans = pd.DataFrame(
        {
            "host": placed.host[first],
            "device": placed.device[first],
            "start": events.start[first],
            "end": [int((events.start[a:b] + events.duration[a:b]).max()) for a, b in zip(first.tolist(), stop.tolist(), strict=True)],
        }
    )
    return spans.groupby(["host", "device"], as_index=False).agg({"start": "min", "end": "max"})


def devices(trace: Trace, out: act.Activity) -> list[int]:
    """Fills `devices` of the activity, one row a device plane; returns the planes of GPUs."""
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


def device_markers(placed: Placed, names: dict[tuple[int, int], str]) -> pd.DataFrame:
    """Device steps; the names that they state go into `names`, by (host, group)."""
    trace, groups, host = placed.trace, placed.groups, placed.host
    events = trace.events
    rows = np.flatnonzero((placed.lane_kind == "steps")[events.lane] & (groups.group >= 0))
    for row, text in zip(rows.tolist(), trace.texts(trace.text_arg("step_name")[rows]), strict=True):
        if text:
            names[(int(host[row]), int(groups.group[row]))] = text
    if len(rows):
        return act.spans(events, rows, host, groups.group, placed.device).astype(act.MARKERS)
    # A file without a Steps line: from the first to the last device event of each group.
    rows = np.flatnonzero((placed.lane_kind == "device")[events.lane] & (groups.group >= 0))
    if not len(rows):
        return act.table(act.MARKERS)
    spans = act.spans(events, rows, host, groups.group, placed.device)
    each = spans.groupby(["host", "group", "device"], as_index=False).agg({"event": "first", "start": "min", "end": "max"})
    return each[list(act.MARKERS)].astype(act.MARKERS)


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


def device_work(placed: Placed) -> pd.DataFrame:
    """Spans of GPUs by step class."""
    trace, groups = placed.trace, placed.groups
    events = trace.events
    rows = np.flatnonzero(placed.on_gpu & (groups.group >= 0) & (trace.arg("correlation_id") >= 0))
    if not len(rows):
        return act.table(act.WORK)
    shape = trace.text_arg("shape")[rows]
    pair = events.name[rows].astype(np.int64) * (len(trace.strings) + 1) + shape + 1
    code, seen = pd.factorize(pair)
    table = np.empty(len(seen), np.int16)
    for i, key in enumerate(seen.tolist()):
        name, text = divmod(key, len(trace.strings) + 1)
        table[i] = classify(trace.names[name], trace.strings[text - 1] if text else "")
    return act.spans(events, rows, placed.host, groups.group, placed.device).assign(cls=table[code])


_COPY_KIND = {act.HOST_TO_DEVICE: "H2D", act.DEVICE_TO_HOST: "D2H", act.DEVICE_TO_DEVICE: "D2D"}


def _transfers(placed: Placed, out: act.Activity) -> pd.DataFrame:
    trace = placed.trace
    events = trace.events
    kind = np.full(len(trace.names), -1, np.int32)
    for at, name in enumerate(trace.names):
        upper = name[:10].upper()
        if upper.startswith(("MEMCPYPTOP", "MEMCPYP2P")):
            kind[at] = out.texts.code("P2P")
        elif upper.startswith("MEMCPY"):
            copied = _COPY_KIND.get(classify(name, ""))
            kind[at] = out.texts.code(copied) if copied else -1
        elif upper.startswith("MEMSET"):
            kind[at] = out.texts.code("memset")
    rows = np.flatnonzero((kind >= 0)[events.name] & placed.on_gpu)
    moved = np.full(len(rows), -1, np.int64)
    details = trace.args.get("memcpy_details") or trace.args.get("memset_details")
    if details is not None:
        moved = _copied_bytes(trace, rows)
    return pd.DataFrame(
        {
            "event": rows,
            "host": placed.host[rows],
            "device": placed.device[rows],
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
            "kind": kind[events.name[rows]],
            "bytes": moved,
        }
    )


def _copied_bytes(trace: Trace, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The size in `memcpy_details` and `memset_details`, as in `kind:HtoD size:4096 dest:0 async:1`; -1 where none is given."""
    out = np.full(len(rows), -1, np.int64)
    for key in ("memcpy_details", "memset_details"):
        codes = trace.text_arg(key)[rows]
        used, back = distinct(codes, len(trace.strings))
        sizes = np.array([_size(trace.strings[c]) if c >= 0 else -1 for c in used.tolist()], np.int64)
        out = np.where(codes >= 0, sizes[back], out)
    return out


def _size(details: str) -> int:
    found = re.search(r"(?:^|\s)(?:size|num_bytes):(\d+)", details)
    return int(found.group(1)) if found else -1


def _collectives(placed: Placed, out: act.Activity) -> pd.DataFrame:
    trace = placed.trace
    events = trace.events
    rows = np.flatnonzero(placed.named("nccl", "NCCL", "rccl", "RCCL")[events.name] & placed.on_gpu)
    return pd.DataFrame(
        {
            "event": rows,
            "host": placed.host[rows],
            "device": placed.device[rows],
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
            "name": np.array([out.texts.code(n) for n in trace.names[events.name[rows]]], np.int32),
            "bytes": np.full(len(rows), -1, np.int64),
            "group_size": np.full(len(rows), -1, np.int32),
        }
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


class _OpTexts:
    """The text that names the op of each device event, as codes: what the event states, else the op whose call launched it."""

    def __init__(self, placed: Placed, out: act.Activity) -> None:
        trace = placed.trace
        self.trace = trace
        # An XLA kernel is an HLO op; its `tf_op` only says that it is some XLA module.
        codes = trace.text_arg("hlo_op")
        for key in ("tf_op", "level 0"):
            if key in trace.args:
                other = trace.text_arg(key)
                codes = np.where(codes < 0, other, codes)
        used, back = distinct(codes, len(trace.strings))
        empty = np.array([c >= 0 and not trace.strings[c] for c in used.tolist()], np.bool_)
        if empty.any():
            codes[empty[back]] = -1
        self.codes = codes
        bare = placed.on_gpu & (codes < 0) & (trace.text_arg("kernel_details") >= 0)
        if bare.any():
            launches = out.launches
            known = launches[(launches["target"] >= 0) & (launches["op"] >= 0)]
            target = known["target"].to_numpy(np.int64)
            fits = bare[target]
            # Codes behind those of the strings stand for names of events.
            codes[target[fits]] = len(trace.strings) + trace.events.name[known["op"].to_numpy(np.int64)[fits]]

    def text(self, code: int) -> str:
        """The text of a code."""
        count = len(self.trace.strings)
        return self.trace.strings[code] if code < count else str(self.trace.names[code - count])


def _stated(trace: Trace, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where a string code stands for a text that is not empty."""
    used, back = distinct(codes, len(trace.strings))
    return np.array([c >= 0 and bool(trace.strings[c]) for c in used.tolist()], np.bool_)[back]


def _kernels(placed: Placed, out: act.Activity) -> tuple[pd.DataFrame, list[dict[str, object]]]:
    """Executions of kernels, and their launch shapes."""
    trace, raw = placed.trace, placed.on_gpu
    events = trace.events
    details = trace.text_arg("kernel_details")
    rows = np.flatnonzero(raw & (details >= 0) & (events.duration >= 1000))
    if len(rows):
        rows = rows[_stated(trace, details[rows])]
    if not len(rows):
        return act.table(act.KERNELS), []
    used, code = distinct(details[rows], len(trace.strings))
    parsed = [launch_details(trace.strings[d]) for d in used.tolist()]
    stated_occupancy = np.array([_number(d["occupancy_percent"]) for d in parsed])
    # Occupancy is no part of a launch shape: texts that differ in it alone are one shape.
    shapes: dict[tuple[object, ...], int] = {}
    shape_of = [shapes.setdefault(tuple(d[k] for k in LAUNCH_SHAPE), len(shapes)) for d in parsed]
    ops = _OpTexts(placed, out)
    op_text = ops.codes[rows]
    equation = trace.text_arg("equation")[rows]
    plane = trace.lanes["plane"].to_numpy()[events.lane[rows]]
    # What is said of a kernel depends on its name, its op, the vendor of its plane and its equation alone.
    key = pd.MultiIndex.from_arrays([events.name[rows], op_text, plane, equation])
    back, seen = pd.factorize(key)
    kernel_code, op_code, eligible, tensor = [], [], [], []
    for name, op, where, formula in seen.tolist():
        kernel = str(trace.names[name])
        op_name = opnames.parse(ops.text(op)).name if op >= 0 else ""
        uses = opnames.uses_tensor_core(kernel, str(trace.planes[where].stats.get("device_vendor", "")))
        einsum = formula >= 0 and _einsum_of_two(trace.strings[formula])
        kernel_code.append(out.kernel_names.code(kernel))
        op_code.append(out.ops.code(op_name))
        eligible.append(op >= 0 and (uses or einsum or opnames.tensor_core_eligible(op_name)))
        tensor.append(uses)
    occupancy = stated_occupancy[code]
    theoretical = trace.args.get("theoretical_occupancy_pct")
    if theoretical is not None:
        stated = np.full(len(events), np.nan)
        stated[theoretical.event] = theoretical.floats()
        occupancy = np.where(np.isnan(stated[rows]), occupancy, stated[rows])
    table = pd.DataFrame(
        {
            "event": rows,
            "host": placed.host[rows],
            "device": placed.device[rows],
            "duration": events.duration[rows],
            "kernel": np.array(kernel_code, np.int32)[back],
            "op": np.array(op_code, np.int32)[back],
            "details": np.array(shape_of, np.int32)[code],
            "eligible": np.array(eligible, np.bool_)[back],
            "tensor_core": np.array(tensor, np.bool_)[back],
            "occupancy": occupancy,
        }
    )
    return table, [dict(zip(LAUNCH_SHAPE, shape, strict=True)) for shape in shapes]


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _einsum_of_two(equation: str) -> bool:
    left, arrow, _ = equation.partition("->")
    return bool(arrow) and equation.count("->") == 1 and left.count(",") == 1


def _device_ops(placed: Placed, out: act.Activity) -> pd.DataFrame:
    """Runs of framework ops on a device: each kernel counts for the op that its annotation names."""
    trace = placed.trace
    events = trace.events
    ops = _OpTexts(placed, out)
    rows = np.flatnonzero((ops.codes >= 0) & placed.on_gpu)
    if not len(rows):
        return act.table(act.DEVICE_OPS)
    used, code = distinct(ops.codes[rows], len(trace.strings) + len(trace.names))
    parsed = [opnames.parse(ops.text(c)) for c in used.tolist()]
    op = np.array([out.ops.code(p.name) for p in parsed], np.int32)
    kind = np.array([out.types.code(p.type or "Unknown") for p in parsed], np.int32)
    return pd.DataFrame(
        {
            "event": rows,
            "host": placed.host[rows],
            "device": placed.device[rows],
            "start": events.start[rows],
            "end": events.start[rows] + events.duration[rows],
            "op": op[code],
            "type": kind[code],
            "eager": trace.arg("is_eager", 0)[rows] > 0,
        }
    )

"""The device side of an XSpace file: kernels, copies, device ops and device step markers."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity import copies
from nbprof.activity.tables import Collectives, Extents, Transfers, extents, located
from nbprof.core.factorize import used_codes
from nbprof.core.receipt import Note
from nbprof.core.trace import Plane, Trace
from nbprof.dialects.device_peaks import (
    on_chip_bytes_per_second,
    peak_bytes_per_second,
    peak_flops_per_second,
)
from nbprof.dialects.xplane import kernels as xplane_kernels
from nbprof.dialects.xplane import notes
from nbprof.dialects.xplane.host_ops import python_calls
from nbprof.dialects.xplane.ops import OpTexts, device_ops
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.steps import classify as classify
from nbprof.dialects.xplane.tpu_cores import position
from nbprof.hlo.programs import Programs

_ARCHITECTURE = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell"}


def device_activity(placed: Placed, activity: act.Activity) -> None:
    """States how device extents, kernels and device ops are made."""
    programs = Programs(placed.trace.modules, placed.trace.hosts)
    # Ops and kernels both need the op of each event.
    activity.later("programs", lambda: programs)
    texts = cache(lambda: OpTexts(placed, activity, programs))
    activity.later("device_extents", lambda: _extents(placed))
    activity.later(("device_ops", "op_parts"), lambda: device_ops(placed, activity, texts()))
    activity.later("program_notes", lambda: _program_notes(activity, programs))
    activity.later(
        ("kernels", "launch_shapes"), lambda: xplane_kernels.kernels(placed, texts(), activity)
    )
    activity.later(
        ("xprof_kernels", "xprof_launch_shapes"),
        lambda: xplane_kernels.kernels_in_xprof(placed, texts(), activity),
    )
    activity.later("python_calls", lambda: python_calls(placed, activity, programs))
    activity.later("transfers", lambda: _transfers(placed, activity))
    activity.later("collectives", lambda: _collectives(placed, activity))


def _program_notes(activity: act.Activity, programs: Programs) -> list[Note]:
    # The ops must be named first: they decide on the programs.
    _ = activity.device_ops
    return programs.notes()


def _extents(placed: Placed) -> Extents:
    events = placed.trace.events
    lanes = placed.trace.lanes
    lane_rows = np.flatnonzero(
        (placed.lane_kind == "device")
        & lanes["plane"].isin(placed.gpu_planes).to_numpy()
        & (lanes["events"] > 0).to_numpy()
    )
    if not len(lane_rows):
        return Extents.empty()
    # Events are sorted by lane and start: each lane begins with its first event.
    first = np.searchsorted(events.lane, lane_rows)
    rows = np.flatnonzero(np.isin(events.lane, lane_rows))
    end = np.maximum.reduceat(events.end[rows], np.searchsorted(rows, first))
    return extents(placed.host[first], placed.device[first], events.start[first], end)


def devices(trace: Trace, activity: act.Activity) -> list[int]:
    """Fills `devices` of the activity, one row per device plane; returns the planes of GPUs."""
    rows: dict[tuple[str, int], dict[str, object]] = {}
    gpus: list[int] = []
    for number, plane in enumerate(trace.planes):
        match = re.match(r"/device:(GPU|TPU):(\d+)\Z", plane.name)
        if not match:
            continue
        kind, device = match.group(1), int(match.group(2))
        if kind == "GPU":
            gpus.append(number)
        if (plane.host, device) in rows:
            trace.receipt.add(notes.repeated_device(plane.host, match.group(2)))
            continue
        rows[plane.host, device] = _device(trace, plane, kind, device)
    activity.devices = pd.DataFrame(list(rows.values()), columns=act.DEVICES)
    # XProf's peak of main memory: the bandwidth that all GPUs state alike.
    bandwidths = {trace.planes[number].stats.get("memory_bandwidth") for number in gpus} - {None}
    if len(bandwidths) == 1 and isinstance(only := bandwidths.pop(), (int, float)):
        activity.xprof_bytes_per_second = float(only)
    return gpus


def _device(trace: Trace, plane: Plane, kind: str, device: int) -> dict[str, object]:
    """The row of a device by the facts that its plane states."""
    facts = plane.stats
    capability = None
    if {"compute_cap_major", "compute_cap_minor"} <= facts.keys():
        capability = f"{facts['compute_cap_major']}.{facts['compute_cap_minor']}"
    sparse_cores = 0
    for other in trace.planes:
        if other.host == plane.host and other.name.startswith(f"{plane.name} SparseCore "):
            sparse_cores += 1
    row = {
        "host": plane.host,
        "device": device,
        "kind": kind,
        "name": device_name(kind, facts),
        "compute_capability": capability,
        "memory_bytes": facts.get("memory_size"),
        "memory_bytes_per_second": peak_bytes_per_second(facts),
        "cores": facts.get("core_count"),
        "clock_khz": facts.get("clock_rate"),
        "peak_flops_per_second": peak_flops_per_second(facts),
        "chip": position(facts).chip,
        "chip_core": position(facts).core,
        "megacore": None,
        "sparse_cores": sparse_cores or None,
    }
    if "has_megacore" in facts:
        row["megacore"] = bool(facts["has_megacore"])
    for level, peak in on_chip_bytes_per_second(facts).items():
        row[f"{level}_bytes_per_second"] = peak
    return row


def device_name(kind: str, stats: dict[str, object]) -> str:
    """The name of the device: its model if known, else vendor and architecture."""
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
    if not name:
        return "GPU"
    return f"{name} GPU (sm_{major}{minor})"


def _transfers(placed: Placed, activity: act.Activity) -> Transfers:
    trace = placed.trace
    events = trace.events
    kind = np.full(len(trace.names), -1, np.int32)
    for code in np.flatnonzero(placed.named("M", "m", "C", "c", "F", "f")).tolist():
        copied = copies.kind(str(trace.names[code]))
        if copied:
            kind[code] = activity.texts.code(copied)
    rows = np.flatnonzero((kind >= 0)[events.name] & placed.on_gpu)
    moved = np.full(len(rows), -1, np.int64)
    details = trace.args.get("memcpy_details") or trace.args.get("memset_details")
    if details is not None:
        moved = _copied_bytes(trace, rows)
    return Transfers(
        **located(events, rows, placed.host[rows], device=placed.device[rows]),
        kind=kind[events.name[rows]],
        bytes=moved,
    )


def _copied_bytes(trace: Trace, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes in `memcpy_details` (`kind:HtoD size:4096 dest:0 async:1`), -1 for none."""
    sizes_of_rows = np.full(len(rows), -1, np.int64)
    for key in ("memcpy_details", "memset_details"):
        codes = trace.text_arg(key, rows)
        used, back = used_codes(codes, len(trace.strings))
        sizes = np.array(list(map(_size, trace.texts(used))), np.int64)
        sizes_of_rows = np.where(codes >= 0, sizes[back], sizes_of_rows)
    return sizes_of_rows


def _size(details: str) -> int:
    match = re.search(r"(?:^|\s)(?:size|num_bytes):(\d+)", details)
    if match is None:
        return -1
    return int(match.group(1))


def _collectives(placed: Placed, activity: act.Activity) -> Collectives:
    trace = placed.trace
    events = trace.events
    rows = np.flatnonzero(placed.named("nccl", "NCCL", "rccl", "RCCL")[events.name] & placed.on_gpu)
    return Collectives(
        **located(events, rows, placed.host[rows], device=placed.device[rows]),
        name=activity.texts.encode(trace.names[events.name[rows]]),
        bytes=np.full(len(rows), -1, np.int64),
        group_size=np.full(len(rows), -1, np.int32),
    )

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
from nbprof.core.trace import Trace
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
    # Events are sorted by lane and start, so that a lane is a stretch that begins with its first
    # event.
    first = np.searchsorted(events.lane, lane_rows)
    stop = np.searchsorted(events.lane, lane_rows, side="right")
    end = [
        int((events.start[a:b] + events.duration[a:b]).max())
        for a, b in zip(first.tolist(), stop.tolist(), strict=True)
    ]
    return extents(
        placed.host[first], placed.device[first], events.start[first], np.array(end, np.int64)
    )


def devices(trace: Trace, activity: act.Activity) -> list[int]:
    """Fills `devices` of the activity, one row per device plane; returns the planes of GPUs."""
    rows: list[dict[str, object]] = []
    gpus: list[int] = []
    for number, plane in enumerate(trace.planes):
        match = re.match(r"/device:(GPU|TPU):(\d+)\Z", plane.name)
        if not match:
            continue
        s = plane.stats
        kind = match.group(1)
        if kind == "GPU":
            gpus.append(number)
        if any((row["host"], row["device"]) == (plane.host, int(match.group(2))) for row in rows):
            trace.receipt.add(notes.repeated_device(plane.host, match.group(2)))
            continue
        rows.append(
            {
                "host": plane.host,
                "device": int(match.group(2)),
                "kind": kind,
                "name": device_name(kind, s),
                "compute_capability": (
                    f"{s['compute_cap_major']}.{s['compute_cap_minor']}"
                    if {"compute_cap_major", "compute_cap_minor"} <= s.keys()
                    else None
                ),
                "memory_bytes": s.get("memory_size"),
                "memory_bytes_per_second": peak_bytes_per_second(s),
                "cores": s.get("core_count"),
                "clock_khz": s.get("clock_rate"),
                "peak_flops_per_second": peak_flops_per_second(s),
                **{
                    f"{level}_bytes_per_second": peak
                    for level, peak in on_chip_bytes_per_second(s).items()
                },
                "chip": position(s).chip,
                "chip_core": position(s).core,
                "megacore": bool(s["has_megacore"]) if "has_megacore" in s else None,
                "sparse_cores": (
                    sum(
                        p.name.startswith(f"{plane.name} SparseCore ") and p.host == plane.host
                        for p in trace.planes
                    )
                    or None
                ),
            }
        )
    activity.devices = pd.DataFrame(rows, columns=act.DEVICES)
    # XProf's peak of main memory: the bandwidth that all GPUs state alike.
    bandwidths = {trace.planes[number].stats.get("memory_bandwidth") for number in gpus} - {None}
    if len(bandwidths) == 1 and isinstance(only := bandwidths.pop(), (int, float)):
        activity.xprof_bytes_per_second = float(only)
    return gpus


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
    return f"{name} GPU (sm_{major}{minor})" if name else "GPU"


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
        sizes = np.array(
            [_size(trace.strings[c]) if c >= 0 else -1 for c in used.tolist()], np.int64
        )
        sizes_of_rows = np.where(codes >= 0, sizes[back], sizes_of_rows)
    return sizes_of_rows


def _size(details: str) -> int:
    match = re.search(r"(?:^|\s)(?:size|num_bytes):(\d+)", details)
    return int(match.group(1)) if match else -1


def _collectives(placed: Placed, activity: act.Activity) -> Collectives:
    trace = placed.trace
    events = trace.events
    rows = np.flatnonzero(placed.named("nccl", "NCCL", "rccl", "RCCL")[events.name] & placed.on_gpu)
    return Collectives(
        **located(events, rows, placed.host[rows], device=placed.device[rows]),
        name=np.array([activity.texts.code(n) for n in trace.names[events.name[rows]]], np.int32),
        bytes=np.full(len(rows), -1, np.int64),
        group_size=np.full(len(rows), -1, np.int32),
    )

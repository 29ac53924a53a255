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
from nbprof.core.trace import Note, Trace
from nbprof.dialects.device_peaks import (
    on_chip_bytes_per_second,
    peak_bytes_per_second,
    peak_flops_per_second,
)
from nbprof.dialects.xplane import kernels as xplane_kernels
from nbprof.dialects.xplane.host_ops import python_calls
from nbprof.dialects.xplane.ops import OpTexts, device_ops
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.steps import classify as classify
from nbprof.dialects.xplane.tpu_cores import place
from nbprof.hlo.programs import Programs

_ARCHITECTURE = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell"}


def device_activity(placed: Placed, out: act.Activity) -> None:
    """States how device extents, kernels and device ops are made."""
    programs = Programs(placed.trace.modules, placed.trace.hosts)
    # Ops and kernels are both told by the op of each event.
    out.later("programs", lambda: programs)
    texts = cache(lambda: OpTexts(placed, out, programs))
    out.later("device_extents", lambda: _extents(placed))
    out.later(("device_ops", "op_parts"), lambda: device_ops(placed, out, texts()))
    out.later("program_notes", lambda: _program_notes(out, programs))
    out.later(("kernels", "launch_shapes"), lambda: xplane_kernels.kernels(placed, texts(), out))
    out.later(
        ("xprof_kernels", "xprof_launch_shapes"),
        lambda: xplane_kernels.kernels_in_xprof(placed, texts(), out),
    )
    out.later("python_calls", lambda: python_calls(placed, out, programs))
    out.later("transfers", lambda: _transfers(placed, out))
    out.later("collectives", lambda: _collectives(placed, out))


def _program_notes(out: act.Activity, programs: Programs) -> list[Note]:
    # Which programs are asked for is known when the ops have been named.
    _ = out.device_ops
    return programs.notes()


def _extents(placed: Placed) -> Extents:
    events = placed.trace.events
    lanes = placed.trace.lanes
    at = np.flatnonzero(
        (placed.lane_kind == "device")
        & lanes["plane"].isin(placed.gpu_planes).to_numpy()
        & (lanes["events"] > 0).to_numpy()
    )
    if not len(at):
        return Extents.empty()
    # Events are sorted by lane and start, so that a lane is a stretch that begins with its first
    # event.
    first = np.searchsorted(events.lane, at)
    stop = np.searchsorted(events.lane, at, side="right")
    end = [
        int((events.start[a:b] + events.duration[a:b]).max())
        for a, b in zip(first.tolist(), stop.tolist(), strict=True)
    ]
    return extents(
        placed.host[first], placed.device[first], events.start[first], np.array(end, np.int64)
    )


def devices(trace: Trace, out: act.Activity) -> list[int]:
    """Fills `devices` of the activity, one row per device plane; returns the planes of GPUs."""
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
        if any((row["host"], row["device"]) == (plane.host, int(found.group(2))) for row in rows):
            trace.receipt.warn(
                f"{plane.host} has several planes of device {found.group(2)}; its facts are those"
                " of the first."
            )
            continue
        rows.append(
            {
                "host": plane.host,
                "device": int(found.group(2)),
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
                "chip": place(s).chip,
                "chip_core": place(s).core,
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
    out.devices = pd.DataFrame(rows, columns=act.DEVICES)
    # What XProf takes for the peak of main memory: what all GPUs that state it state alike.
    stated = {trace.planes[number].stats.get("memory_bandwidth") for number in gpus} - {None}
    if len(stated) == 1 and isinstance(only := stated.pop(), (int, float)):
        out.xprof_bytes_per_second = float(only)
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


def _transfers(placed: Placed, out: act.Activity) -> Transfers:
    trace = placed.trace
    events = trace.events
    kind = np.full(len(trace.names), -1, np.int32)
    for at in np.flatnonzero(placed.named("M", "m", "C", "c", "F", "f")).tolist():
        copied = copies.kind(str(trace.names[at]))
        if copied:
            kind[at] = out.texts.code(copied)
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
    """The size in `memcpy_details` and `memset_details`, as in `kind:HtoD size:4096 dest:0
    async:1`; -1 where none is given.
    """
    out = np.full(len(rows), -1, np.int64)
    for key in ("memcpy_details", "memset_details"):
        codes = trace.text_arg(key, rows)
        used, back = used_codes(codes, len(trace.strings))
        sizes = np.array(
            [_size(trace.strings[c]) if c >= 0 else -1 for c in used.tolist()], np.int64
        )
        out = np.where(codes >= 0, sizes[back], out)
    return out


def _size(details: str) -> int:
    found = re.search(r"(?:^|\s)(?:size|num_bytes):(\d+)", details)
    return int(found.group(1)) if found else -1


def _collectives(placed: Placed, out: act.Activity) -> Collectives:
    trace = placed.trace
    events = trace.events
    rows = np.flatnonzero(placed.named("nccl", "NCCL", "rccl", "RCCL")[events.name] & placed.on_gpu)
    return Collectives(
        **located(events, rows, placed.host[rows], device=placed.device[rows]),
        name=np.array([out.texts.code(n) for n in trace.names[events.name[rows]]], np.int32),
        bytes=np.full(len(rows), -1, np.int64),
        group_size=np.full(len(rows), -1, np.int32),
    )

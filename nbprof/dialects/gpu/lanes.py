"""Splits the lanes of a Kineto trace into host and device sides, and names them.

The category decides, never the process: device 0 and a process 0 of a container share their rows in
the file, and what the GPU shows of the program's annotations lies on the same row as the kernels.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import copies
from nbprof.core import nesting
from nbprof.core.trace import Events, Int32s, Int64s, Trace
from nbprof.dialects import around, sides, torchnames

Kinds = npt.NDArray[np.uint8]

(
    UNKNOWN,
    OP,
    ANNOTATION,
    PYTHON,
    CALL,
    KERNEL,
    COPY,
    FILL,
    DEVICE_NOTE,
    SYNC,
    MEMORY,
    OVERHEAD,
    WINDOW,
    SAMPLED,
) = range(14)

_CATEGORY = {
    "cpu_op": OP,
    "operator": OP,
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "runtime": CALL,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "memcpy": COPY,
    "gpu_memset": FILL,
    "memset": FILL,
    "mtia_ccp_events": KERNEL,
    "gpu_user_annotation": DEVICE_NOTE,
    "cuda_sync": SYNC,
    "cuda_event": SYNC,
    "overhead": OVERHEAD,
    "trace": WINDOW,
    "cpu_sample": SAMPLED,
    "on_cpu": SAMPLED,
}
_RUNTIME = re.compile(r"\w+_(?:runtime|driver)\Z")
# Device work of other vendors by the end of the category; everything else is a kernel.
_OTHER_VENDORS = (
    (re.compile(r"memcpy\Z"), COPY),
    (re.compile(r"memset\Z"), FILL),
    (re.compile(r"annotation\Z"), DEVICE_NOTE),
    (re.compile(r"sync\Z"), SYNC),
)
_DEVICE = re.compile(r"(?!CPU\b)([A-Z][A-Z\d]*) \d+")

_NO_STREAMS = ("Queue ", "Copies ")

HOST, STREAM, NOTES, SYNCS, AROUND = range(5)
_SIDE = np.zeros(14, np.uint8)
_SIDE[[KERNEL, COPY, FILL]] = STREAM
_SIDE[DEVICE_NOTE] = NOTES
_SIDE[SYNC] = SYNCS

# Recorders write an annotation's image on the device 1 ns early and 2 ns longer, and round ends: a
# child may run past its parent.
SLACK_PS = 1_000_000


def category(cat: str) -> int:
    """The kind of event of a category; UNKNOWN for one that PyTorch does not write."""
    low = cat.lower()
    return CALL if _RUNTIME.match(low) else _CATEGORY.get(low, UNKNOWN)


def launches_work(name: str) -> bool:
    """True for the name of a call that launches a kernel or a graph."""
    return torchnames.call_kind(name) in (torchnames.LAUNCH, torchnames.GRAPH)


def kinds(trace: Trace) -> Kinds:
    """uint8[events]: OP, KERNEL, ... by category; by name for annotations in old files."""
    codes = trace.text_arg("cat")
    seen = pd.unique(codes)
    table = np.zeros(int(seen.max(initial=-1)) + 2, np.uint8)
    for code in seen.tolist():
        table[code] = category(trace.strings[code]) if code >= 0 else UNKNOWN
    kind = table[codes]
    by_name = np.fromiter(
        (torchnames.is_annotation(n) for n in trace.names), np.bool_, len(trace.names)
    )
    if by_name.any():
        kind[(kind == OP) & by_name[trace.events.name]] = ANNOTATION
    moved = np.flatnonzero([n == torchnames.MTIA_COPY for n in trace.names])
    if len(moved):
        kind[(kind == KERNEL) & np.isin(trace.events.name, moved)] = COPY
    launching = np.flatnonzero([launches_work(str(n)) for n in trace.names])
    if len(launching):
        # On the device it stands for all that the call launched; it is not a kernel.
        kind[(kind == KERNEL) & np.isin(trace.events.name, launching)] = DEVICE_NOTE
    if (kind > UNKNOWN).any():
        _of_other_vendors(trace, codes, kind)
    memory = np.flatnonzero([n in ("[memory]", "[OutOfMemory]") for n in trace.names])
    if len(memory):
        kind[np.isin(trace.events.name, memory)] = MEMORY
    return kind


def _of_other_vendors(trace: Trace, codes: Int64s, kind: Kinds) -> None:
    """Finds device work of unlisted categories: in a device's process, or with a stated stream."""
    lanes = trace.lanes
    on_device = np.array(
        [bool(_DEVICE.match(label)) for label in _texts(lanes, "labels")], np.bool_
    )[trace.events.lane]
    on_device |= (trace.arg("device") >= 0) & (trace.arg("stream") >= 0)
    rows = np.flatnonzero(
        on_device & (kind == UNKNOWN) & (codes >= 0) & (trace.events.duration > 0)
    )
    for code in pd.unique(codes[rows]).tolist():
        of_category = rows[codes[rows] == code]
        cat = trace.strings[code].lower()
        kind_by_category = next(
            (vendor_kind for pattern, vendor_kind in _OTHER_VENDORS if pattern.search(cat)), None
        )
        for name in pd.unique(trace.events.name[of_category]).tolist():
            moves = copies.kind(str(trace.names[name]))
            kind[of_category[trace.events.name[of_category] == name]] = kind_by_category or (
                FILL if moves == copies.FILL else COPY if moves else KERNEL
            )


class Nested(Events):
    """Events of which one may run up to 1 µs past the one that includes it."""

    @cached_property
    def parent(self) -> Int32s:
        """The innermost event on the same lane that contains each event, or -1."""
        return nesting.parents(self.lane, self.start, self.duration, SLACK_PS)

    @cached_property
    def self_time(self) -> Int64s:
        """Each event's duration without the parts of its direct children inside it, ps."""
        child = np.flatnonzero(self.parent >= 0)
        above = self.parent[child]
        past = np.maximum(self.end[child] - self.end[above], 0)
        self_time = self.duration.copy()
        np.subtract.at(self_time, above, self.duration[child] - past)
        return np.maximum(self_time, 0, out=self_time)


def split(trace: Trace, kind: Kinds) -> Kinds:
    """Splits each row into a lane per side, names the lanes and returns the reordered kinds.

    Adds to `trace.lanes`: `row` (the lane that flows mean), `side` and `aside`.
    """
    side = _SIDE[kind]
    leads, aside = around.find(trace, kind == PYTHON, around.KINETO, SLACK_PS)
    side[leads] = AROUND
    order = sides.split(trace, side, Nested)
    if order is not None:
        kind = kind[order]
    trace.lanes["aside"] = aside[trace.lanes["row"]]
    name_lanes(trace, kind)
    return kind


def _main_kind(trace: Trace, kind: Kinds) -> Int64s:
    """int64[lanes]: the kind that most events of each lane have; -1 for a lane without events."""
    width = 16
    counts = np.bincount(
        trace.events.lane.astype(np.int64) * width + kind, minlength=len(trace.lanes) * width
    ).reshape(-1, width)
    return np.where(counts.sum(axis=1) > 0, counts.argmax(axis=1), -1)


def name_lanes(trace: Trace, kind: Kinds) -> None:
    """Fills `kind device process thread note order` of the lanes: GPUs first, then threads."""
    lanes = trace.lanes
    main = _main_kind(trace, kind)
    first = np.searchsorted(trace.events.lane, np.arange(len(lanes)))
    device_arg = trace.arg("device")
    side_of = lanes["side"].tolist()
    # Python frames may lie under a process number of their own, 0; the program is where ops,
    # annotations and calls are.
    working = (lanes["side"] == HOST).to_numpy() & np.isin(main, (OP, ANNOTATION, CALL))
    programs = set(
        zip(lanes["host"][working], np.array(_texts(lanes, "pid"), object)[working], strict=True)
    )
    rows: list[tuple[str, int, str, str, str, tuple[int, ...]]] = []
    threads = zip(
        lanes["host"],
        _texts(lanes, "pid"),
        _texts(lanes, "tid"),
        _texts(lanes, "thread"),
        _texts(lanes, "labels"),
        strict=True,
    )
    for i, (host, pid, tid, thread, label) in enumerate(threads):
        side = side_of[i]
        if side == HOST:
            note = ""
            if main[i] == SAMPLED:
                # Samples of a thread are not work besides the thread's own events.
                main_one = tid.startswith("main thread") and (
                    (host, pid) in programs or not programs
                )
                name = tid if main_one else tid.replace("main thread", f"thread {pid}")
                rows.append(("derived", -1, pid, name, "", (1, 0, 0 if main_one else 1, i)))
                continue
            program = main[i] in (OP, ANNOTATION, PYTHON, CALL, MEMORY)
            if main[i] in (OVERHEAD, WINDOW, -1) or not (program or pid.lstrip("-").isdigit()):
                process, name, rank = "Profiler", _profiler(int(main[i])), (2, 0, 0, i)
            else:
                process, name, note = (
                    pid,
                    *_thread(pid if (host, pid) in programs or not programs else "", tid, thread),
                )
                rank = (1, 0, 0 if name == "main thread" else 1, i)
            rows.append(("host", -1, process, name, note, rank))
            continue
        if side == AROUND:
            name, _ = _thread(pid, tid, thread)
            rows.append(
                (
                    "derived",
                    -1,
                    pid,
                    name,
                    around.NOTE,
                    (1, 0, 0 if name == "main thread" else 1, i),
                )
            )
            continue
        device = (
            int(device_arg[first[i]])
            if first[i] < len(device_arg) and device_arg[first[i]] >= 0
            else _number(pid)
        )
        family = _DEVICE.match(label)
        stream = _number(re.sub(r"\D", "", tid))
        # Threads of an MTIA are no streams by number: "Stream 1 FW", "DMA_REQUEST". Recorders below
        # HIP know queues.
        thread_name = (
            thread
            if (family and family.group(1) == "MTIA") or thread.startswith(_NO_STREAMS)
            else ""
        )
        name = {
            STREAM: thread_name or f"Stream {stream}",
            NOTES: f"Annotations of stream {stream}",
            SYNCS: f"Waits of stream {stream}",
        }[side]
        unnamed = "GPU" if category(_text_at(trace, "cat", first[i])) else "Device"
        lane_kind = "device" if side == STREAM else "derived"
        order = (0, device, stream, (NOTES, STREAM, SYNCS).index(side), i)
        note = ""
        if side == STREAM and first[i] < len(device_arg):
            kernels = main[i] == KERNEL
            collective = kernels and torchnames.is_collective(
                str(trace.names[trace.events.name[first[i]]])
            )
            note = "collectives" if collective else "compute" if kernels else "copies"
        rows.append(
            (
                lane_kind,
                device,
                f"{family.group(1) if family else unnamed} {device}",
                name,
                note,
                order,
            )
        )
    several = len({pid for _, pid in programs}) > 1 and len(programs) > len(trace.hosts)
    lanes["kind"] = [r[0] for r in rows]
    lanes["device"] = np.array([r[1] for r in rows], np.int64)
    lanes["process"] = [
        (f"Process {r[2]}" if several else "Host") if r[1] < 0 and r[2] != "Profiler" else r[2]
        for r in rows
    ]
    lanes["thread"] = [r[3] for r in rows]
    lanes["note"] = [r[4] for r in rows]
    position = {i: n for n, i in enumerate(sorted(range(len(rows)), key=lambda i: rows[i][5]))}
    lanes["order"] = [position[i] for i in range(len(rows))]


def _texts(lanes: pd.DataFrame, column: str) -> list[str]:
    return (
        [str(v) if isinstance(v, (str, int)) else "" for v in lanes[column]]
        if column in lanes.columns
        else [""] * len(lanes)
    )


def _text_at(trace: Trace, arg: str, row: int) -> str:
    """The text of an arg of one event; empty where it has none."""
    return (
        "".join(trace.texts(trace.text_arg(arg, np.array([row], np.int64))))
        if row < len(trace.events)
        else ""
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _thread(pid: str, tid: str, thread: str) -> tuple[str, str]:
    """Name and note of a thread: ("main thread", "python3"), ("thread 108", "pt_autograd_0")."""
    match = re.match(r"thread -?\d+ \((.*)\)\s*\Z", thread)
    name = "main thread" if pid == tid else f"thread {tid}" if tid.lstrip("-").isdigit() else tid
    return name, match.group(1) if match else ""


def _profiler(main: int) -> str:
    if main == OVERHEAD:
        return "overhead"
    if main == WINDOW:
        return "recording"
    return "marks"

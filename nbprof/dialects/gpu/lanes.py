"""Splits the lanes of a Kineto trace into host and device sides, and names them.

The category decides, never the process: device 0 and a process 0 of a container share their rows in
the file, and a GPU's images of the program's annotations are on the same row as the kernels.
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
from nbprof.dialects.lookups import names_that
from nbprof.dialects.named_lanes import Lane, fill

Kinds = npt.NDArray[np.uint8]

UNKNOWN, OP, ANNOTATION, PYTHON, CALL, KERNEL, COPY, FILL = range(8)
DEVICE_NOTE, SYNC, MEMORY, OVERHEAD, WINDOW, SAMPLED = range(8, 14)

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
    if _RUNTIME.match(low):
        return CALL
    return _CATEGORY.get(low, UNKNOWN)


def kinds(trace: Trace) -> Kinds:
    """uint8[events]: OP, KERNEL, ... by category; by name for annotations in old files."""
    codes = trace.text_arg("cat")
    seen = pd.unique(codes)
    table = np.zeros(int(seen.max(initial=-1)) + 2, np.uint8)
    for code in seen[seen >= 0].tolist():
        table[code] = category(trace.strings[code])
    kind = table[codes]
    by_name = names_that(torchnames.is_annotation, trace.names)
    if by_name.any():
        kind[(kind == OP) & by_name[trace.events.name]] = ANNOTATION
    moves = names_that(torchnames.MTIA_COPY.__eq__, trace.names)
    if moves.any():
        kind[(kind == KERNEL) & moves[trace.events.name]] = COPY
    launching = names_that(torchnames.launches_work, trace.names)
    if launching.any():
        # On the device it stands for all that the call launched; it is not a kernel.
        kind[(kind == KERNEL) & launching[trace.events.name]] = DEVICE_NOTE
    if (kind > UNKNOWN).any():
        _of_other_vendors(trace, codes, kind)
    memory = names_that(("[memory]", "[OutOfMemory]").__contains__, trace.names)
    if memory.any():
        kind[memory[trace.events.name]] = MEMORY
    return kind


def _of_other_vendors(trace: Trace, codes: Int64s, kind: Kinds) -> None:
    """Finds device work of unlisted categories: in a device's process, or with a stated stream."""
    lanes = trace.lanes
    on_device = names_that(_DEVICE.match, _texts(lanes, "labels"))[trace.events.lane]
    on_device |= (trace.arg("device") >= 0) & (trace.arg("stream") >= 0)
    rows = np.flatnonzero(
        on_device & (kind == UNKNOWN) & (codes >= 0) & (trace.events.duration > 0)
    )
    for code in pd.unique(codes[rows]).tolist():
        of_category = rows[codes[rows] == code]
        kind_of_category = _kind_of_category(trace.strings[code].lower())
        for name in pd.unique(trace.events.name[of_category]).tolist():
            named = of_category[trace.events.name[of_category] == name]
            kind[named] = kind_of_category or _kind_of_name(str(trace.names[name]))


def _kind_of_category(cat: str) -> int:
    """The kind of device work that the end of a category states; UNKNOWN for none."""
    for pattern, kind in _OTHER_VENDORS:
        if pattern.search(cat):
            return kind
    return UNKNOWN


def _kind_of_name(name: str) -> int:
    moves = copies.kind(name)
    if moves == copies.FILL:
        return FILL
    return COPY if moves else KERNEL


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


class _Naming:
    """Kinds and names of the lanes of a trace."""

    def __init__(self, trace: Trace, kind: Kinds) -> None:
        lanes = trace.lanes
        self.trace = trace
        self.main = _main_kind(trace, kind)
        self.first = np.searchsorted(trace.events.lane, np.arange(len(lanes)))
        self.device = trace.arg("device")
        self.side = lanes["side"].tolist()
        self.host = lanes["host"].tolist()
        self.pid, self.tid = _texts(lanes, "pid"), _texts(lanes, "tid")
        self.thread, self.label = _texts(lanes, "thread"), _texts(lanes, "labels")
        # Python frames may have a separate process number, 0; the program is where ops,
        # annotations and calls are.
        working = (lanes["side"] == HOST).to_numpy() & np.isin(self.main, (OP, ANNOTATION, CALL))
        self.programs = {(self.host[i], self.pid[i]) for i in np.flatnonzero(working).tolist()}

    def lane(self, i: int) -> Lane:
        """The columns of the lane with a number."""
        if self.side[i] == AROUND:
            name, _ = _thread(self.pid[i], self.tid[i], self.thread[i])
            return Lane("derived", -1, self.pid[i], name, around.NOTE, _host_order(name, i))
        if self.side[i] != HOST:
            return self._of_device(i)
        if self.main[i] == SAMPLED:
            return self._sampled(i)
        return self._of_host(i)

    def _in_program(self, i: int) -> bool:
        return not self.programs or (self.host[i], self.pid[i]) in self.programs

    def _sampled(self, i: int) -> Lane:
        """Samples of a thread are not work besides the thread's own events."""
        name = self.tid[i]
        is_main = name.startswith("main thread") and self._in_program(i)
        if not is_main:
            name = name.replace("main thread", f"thread {self.pid[i]}")
        return Lane("derived", -1, self.pid[i], name, "", (1, 0, int(not is_main), i))

    def _of_host(self, i: int) -> Lane:
        pid, main = self.pid[i], int(self.main[i])
        program = main in (OP, ANNOTATION, PYTHON, CALL, MEMORY)
        if main in (OVERHEAD, WINDOW, -1) or not (program or pid.lstrip("-").isdigit()):
            return Lane("host", -1, "Profiler", _profiler(main), "", (2, 0, 0, i))
        name, note = _thread(pid if self._in_program(i) else "", self.tid[i], self.thread[i])
        return Lane("host", -1, pid, name, note, _host_order(name, i))

    def _of_device(self, i: int) -> Lane:
        side, first = self.side[i], self.first[i]
        has_events = first < len(self.device)
        device = _number(self.pid[i])
        if has_events and self.device[first] >= 0:
            device = int(self.device[first])
        family = self._family(i)
        stream = _number(re.sub(r"\D", "", self.tid[i]))
        name = {
            STREAM: f"Stream {stream}",
            NOTES: f"Annotations of stream {stream}",
            SYNCS: f"Waits of stream {stream}",
        }[side]
        # Threads of an MTIA are not streams by number: "Stream 1 FW", "DMA_REQUEST". Recorders
        # below HIP know queues.
        named = family == "MTIA" or self.thread[i].startswith(_NO_STREAMS)
        if side == STREAM and named:
            name = self.thread[i] or name
        order = (0, device, stream, (NOTES, STREAM, SYNCS).index(side), i)
        process = f"{family} {device}"
        if side != STREAM:
            return Lane("derived", device, process, name, "", order)
        note = self._work(i) if has_events else ""
        return Lane("device", device, process, name, note, order)

    def _family(self, i: int) -> str:
        """The name of a kind of device: GPU, MTIA, ..., or Device."""
        match = _DEVICE.match(self.label[i])
        if match:
            return match.group(1)
        if category(_text_at(self.trace, "cat", self.first[i])):
            return "GPU"
        return "Device"

    def _work(self, i: int) -> str:
        """The note on the work of a stream."""
        if self.main[i] != KERNEL:
            return "copies"
        first = str(self.trace.names[self.trace.events.name[self.first[i]]])
        if torchnames.is_collective(first):
            return "collectives"
        return "compute"


def _host_order(thread: str, i: int) -> tuple[int, ...]:
    return 1, 0, int(thread != "main thread"), i


def name_lanes(trace: Trace, kind: Kinds) -> None:
    """Fills `kind device process thread note order` of the lanes: GPUs first, then threads."""
    lanes = trace.lanes
    naming = _Naming(trace, kind)
    rows = list(map(naming.lane, range(len(lanes))))
    pids = {pid for _, pid in naming.programs}
    several = len(pids) > 1 and len(naming.programs) > len(trace.hosts)

    def process(row: Lane) -> str:
        if row.device >= 0 or row.process == "Profiler":
            return row.process
        return f"Process {row.process}" if several else "Host"

    fill(lanes, [row._replace(process=process(row)) for row in rows])


def _texts(lanes: pd.DataFrame, column: str) -> list[str]:
    if column not in lanes.columns:
        return [""] * len(lanes)
    return [str(v) if isinstance(v, (str, int)) else "" for v in lanes[column]]


def _text_at(trace: Trace, arg: str, row: int) -> str:
    """The text of an arg of one event; empty if it has none."""
    if row >= len(trace.events):
        return ""
    return "".join(trace.texts(trace.text_arg(arg, np.array([row], np.int64))))


def _number(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else 0


def _thread(pid: str, tid: str, thread: str) -> tuple[str, str]:
    """Name and note of a thread: ("main thread", "python3"), ("thread 108", "pt_autograd_0")."""
    match = re.match(r"thread -?\d+ \((.*)\)\s*\Z", thread)
    note = match.group(1) if match else ""
    if pid == tid:
        return "main thread", note
    if tid.lstrip("-").isdigit():
        return f"thread {tid}", note
    return tid, note


def _profiler(main: int) -> str:
    if main == OVERHEAD:
        return "overhead"
    if main == WINDOW:
        return "recording"
    return "marks"

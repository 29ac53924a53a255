"""The derived lanes of GPUs in an XSpace file without them, from the args of kernels.

Source: section "Derived GPU lines" of TensorFlow Profiler's behaviour: only kernels take part; a
kernel without the arg that a line is made of changes nothing on that line; a new module ends
the scopes and HLO ops before it, a new outermost scope the framework op.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nbprof.core.factorize import lookup, unique_rows
from nbprof.core.trace import TEXT, Events, Int64s, Trace
from nbprof.timeline.derived import (
    HLO,
    MODULES,
    OPS,
    SCOPES,
    STEPS,
    DerivedLines,
    Line,
    chains,
    runs,
    stream_title,
)
from nbprof.timeline.lanes import heading, section, step_names

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

_RECORDED = {
    "Steps": STEPS,
    "XLA Modules": MODULES,
    "XLA Ops": HLO,
    "Framework Ops": OPS,
    "TensorFlow Ops": OPS,
    "Framework Name Scope": SCOPES,
    "TensorFlow Name Scope": SCOPES,
}
_TEXTS = {
    STEPS: "steps",
    SCOPES: "name scope",
    OPS: "framework ops",
    MODULES: "XLA modules",
    HLO: "XLA ops",
}
"""Lines in a sentence."""
# Types of ops that no framework's op has.
_NO_OP = ("", "Unknown", "Dataset")


def add(run: Drawable, derived: DerivedLines, hosts: int) -> None:
    """Adds the lines that the GPUs of a run lack."""
    trace = run.trace
    lanes = trace.lanes
    if "plane" not in lanes or not (lanes["kind"] == "device").any():
        return
    plane, kind = lanes["plane"].to_numpy(np.int64), lanes["kind"].to_numpy(object)
    thread = lanes["thread"].astype(str).tolist()
    totals = np.diff(np.searchsorted(trace.events.lane, np.arange(len(lanes) + 1)))
    lines = {STEPS, SCOPES, OPS}
    for line, key in ((MODULES, "hlo_module"), (HLO, "hlo_op")):
        if key in trace.args:
            lines.add(line)
    gpus = []
    for number, trace_plane in enumerate(trace.planes):
        if not re.match(r"/device:GPU:\d+\Z", trace_plane.name):
            continue
        plane_lanes = np.flatnonzero(plane == number)
        streams: list[int] = []
        has: set[str] = set()
        for lane in plane_lanes[totals[plane_lanes] > 0].tolist():
            if kind[lane] == "device":
                streams.append(lane)
            else:
                title = re.split(r" - from #| #\d+\Z", thread[lane])[0]
                has.add(_RECORDED.get(title, ""))
        if streams and not lines <= has:
            first = lanes.iloc[plane_lanes[0]]
            gpus.append(Gpu(number, streams, has, str(first["host"]), int(first["device"])))
    if gpus:
        _Gpus(run, derived, gpus, hosts).add()


@dataclass
class Gpu:
    """A device: its plane, the lanes of its streams, and its recorded lines."""

    plane: int
    streams: list[int]
    has: set[str]
    host: str
    device: int


class _Gpus:
    """The devices of a run, and the ops of their kernels."""

    def __init__(self, run: Drawable, derived: DerivedLines, gpus: list[Gpu], hosts: int) -> None:
        self.run, self.derived, self.gpus, self.hosts = run, derived, gpus, hosts
        self.trace: Trace = run.trace
        self.events: Events = run.trace.events
        self.lines: set[str] = set()

    def add(self) -> None:
        steps = self._steps()
        kernels = self._kernels()
        paths = self._paths(kernels)
        for gpu in self.gpus:
            process = heading(gpu.host, section(self.trace.planes[gpu.plane].name), self.hosts)
            start, end, names = steps[gpu.host, gpu.device]
            if STEPS not in gpu.has:
                ident = (gpu.host, str(gpu.device))
                self._line(Line(process, STEPS, "", "steps", *ident, names, start, end))
            self._streams(gpu, process, start, kernels, paths)
        if self.lines:
            missing = ", ".join(text for line, text in _TEXTS.items() if line in self.lines)
            self.derived.notes.append(
                f"Not recorded, but derived from each GPU's kernels: {missing}."
            )

    def _line(self, line: Line) -> None:
        if len(line.name):
            self.lines.add(line.title.partition(" · ")[0])
            self.derived.add(line)

    def _steps(self) -> dict[tuple[str, int], tuple[Int64s, Int64s, Int64s]]:
        """Start, end and name of the steps of each device, in time order."""
        run = self.run
        markers, names = run.activity.markers, step_names(run)
        rows = np.flatnonzero(markers.device >= 0)
        rows = rows[np.argsort(markers.start[rows], kind="stable")]
        host, device, group = markers.host[rows], markers.device[rows], markers.group[rows]
        start, end = markers.start[rows], markers.end[rows]
        coded = np.zeros(len(rows), np.int64)
        for i, key in enumerate(zip(host.tolist(), group.tolist(), strict=True)):
            coded[i] = self.derived.code(names.get(key, str(key[1])))
        result = {}
        for gpu in self.gpus:
            gpu_rows = np.flatnonzero((host == run.hosts.index(gpu.host)) & (device == gpu.device))
            result[gpu.host, gpu.device] = start[gpu_rows], end[gpu_rows], coded[gpu_rows]
        return result

    def _kernels(self) -> Int64s:
        """Events with a launch shape, and runs of CUDA graphs, on the devices; ascending."""
        selected = np.zeros(len(self.trace.lanes), np.bool_)
        for gpu in self.gpus:
            selected[gpu.streams] = True
        kernels = np.zeros(0, np.int64)
        details = self.trace.args.get("kernel_details")
        if details is not None:
            event, codes = details.of(TEXT)
            empty = [code for code in np.unique(codes).tolist() if not self.trace.strings[code]]
            kernels = event[~np.isin(codes, empty)].astype(np.int64)
        graphs = self.trace.args.get("cuda_graph_exec_id")
        if graphs is not None:
            kernels = np.union1d(kernels, graphs.event)
        return kernels[selected[self.events.lane[kernels]]]

    def _paths(self, kernels: Int64s) -> dict[str, tuple[list[Int64s], Int64s]]:
        """By line, the levels of each kernel (see `runs`), and the name code of each number on
        them.
        """
        derived, trace = self.derived, self.trace
        result: dict[str, tuple[list[Int64s], Int64s]] = {}
        program = _numbers(trace, "program_id", kernels)
        module, hlo = _texts(trace, "hlo_module", kernels), _texts(trace, "hlo_op", kernels)

        def modules(text: int, ident: int) -> list[int]:
            if text < 0 or not trace.strings[text]:
                return []
            name = full = trace.strings[text]
            if ident != -1:
                full = f"{name}({ident & (1 << 64) - 1})"
            return [derived.code(name, full)]

        # Ops are distinct by program too: two programs may both have a `dot.3`.
        op_codes: dict[tuple[int, str], int] = {}

        def hlo_ops(text: int, ident: int) -> list[int]:
            if text < 0 or not trace.strings[text]:
                return []
            parts = trace.strings[text].split("::")
            return [op_codes.setdefault((ident, part), len(op_codes)) for part in parts]

        result[MODULES] = _levels_of(module, program, modules)
        levels, numbers = _levels_of(hlo, program, hlo_ops)
        texts = np.array([derived.code(part) for _, part in op_codes], np.int64)
        result[HLO] = levels, texts[numbers] if len(numbers) else numbers
        op, kind = self._framework_ops(kernels)
        names, types = self.run.activity.ops.values, self.run.activity.types.values

        def scopes(op: int, kind: int) -> list[int]:
            if op < 0 or types[kind] in _NO_OP:
                return []
            return [derived.code(part) for part in str(names[op]).split("/")[:-1]]

        def ops(op: int, kind: int) -> list[int]:
            if op < 0 or types[kind] in _NO_OP:
                return []
            return [derived.code(str(types[kind]), f"{names[op]}:{types[kind]}")]

        result[SCOPES] = _levels_of(op, kind, scopes)
        result[OPS] = _levels_of(op, kind, ops)
        return result

    def _framework_ops(self, kernels: Int64s) -> tuple[Int64s, Int64s]:
        """Codes of the op of each kernel and of its type, -1 where it has none."""
        table = self.run.activity.device_ops
        op = lookup(table.event, table.op.astype(np.int64), kernels)
        return op, lookup(table.event, table.type.astype(np.int64), kernels)

    def _streams(
        self,
        gpu: Gpu,
        process: str,
        steps: Int64s,
        kernels: Int64s,
        paths: dict[str, tuple[list[Int64s], Int64s]],
    ) -> None:
        lanes = self.events.lane[kernels]
        streams = np.array(gpu.streams, lanes.dtype)
        begins = np.searchsorted(lanes, streams).tolist()
        ends = np.searchsorted(lanes, streams, side="right").tolist()
        rows_of: dict[int, slice] = {}
        for lane, begin, stop in zip(gpu.streams, begins, ends, strict=True):
            if stop > begin:
                rows_of[lane] = slice(begin, stop)
        busy = sorted(rows_of.items(), key=lambda item: item[1].start - item[1].stop)
        threads, lines = self.trace.lanes["thread"].tolist(), []
        for rank, (lane, rows) in enumerate(busy):
            start = self.events.start[kernels[rows]]
            end = start + self.events.duration[kernels[rows]]
            step = np.searchsorted(steps, start, side="right")
            levels = {}
            for title, (level_codes, _) in paths.items():
                levels[title] = [codes[rows] for codes in level_codes]
            for title, (codes, first, last) in _lines_of_stream(levels, start, end, step).items():
                if title in gpu.has:
                    continue
                name, note = stream_title(title, str(threads[lane]), rank, len(busy))
                line = Line(
                    process,
                    name,
                    note,
                    "device",
                    gpu.host,
                    str(gpu.device),
                    paths[title][1][codes],
                    first,
                    last,
                    folded=rank > 0,
                )
                lines.append(line)
        for line in lines:
            self._line(line)


def _levels_of(
    a: Int64s, b: Int64s, path: Callable[[int, int], list[int]]
) -> tuple[list[Int64s], Int64s]:
    """Levels and names of the path of each pair of numbers; see `chains`."""
    first, code = unique_rows(a, pd.factorize(b)[0])
    levels, names = chains([path(int(a[row]), int(b[row])) for row in first.tolist()])
    return [level[code] for level in levels], names


def _lines_of_stream(
    levels: dict[str, list[Int64s]], start: Int64s, end: Int64s, step: Int64s
) -> dict[str, tuple[Int64s, Int64s, Int64s]]:
    """The lines of one stream, in the order of drawing: code, start and end of their events."""
    module, opened = _line(levels[MODULES], start, end, step)
    scope, outermost = _line(levels[SCOPES], start, end, step, opened)
    op, _ = _line(levels[OPS], start, end, step, outermost)
    hlo_op, _ = _line(levels[HLO], start, end, step, opened)
    return {SCOPES: scope, OPS: op, MODULES: module, HLO: hlo_op}


def _line(
    levels: list[Int64s], start: Int64s, end: Int64s, step: Int64s, ended: Int64s | None = None
) -> tuple[tuple[Int64s, Int64s, Int64s], Int64s]:
    """The line of the rows with a code, and by row the number of outermost slices begun so far.

    The slices of the line end where `ended` or `step` changes.
    """
    if not levels:
        none = np.zeros(0, np.int64)
        return (none, none, none), np.zeros(len(start), np.int64)
    rows = np.flatnonzero(levels[0] >= 0)
    group = step[rows]
    if ended is not None:
        group = group * (int(ended.max(initial=0)) + 1) + ended[rows]
    row_levels = [level[rows] for level in levels]
    codes, first, last, begins = runs(row_levels, start[rows], end[rows], group)
    opened = np.zeros(len(start), np.int64)
    opened[rows] = begins[0]
    return (codes, first, last), np.cumsum(opened)


def _texts(trace: Trace, key: str, rows: Int64s) -> Int64s:
    """String codes of an arg of some events, ascending; -1 where they have none."""
    column = trace.args.get(key)
    if column is None:
        return np.full(len(rows), -1, np.int64)
    return lookup(*column.of(TEXT), rows)


def _numbers(trace: Trace, key: str, rows: Int64s) -> Int64s:
    column = trace.args.get(key)
    if column is None:
        return np.full(len(rows), -1, np.int64)
    return lookup(column.event, column.values, rows)

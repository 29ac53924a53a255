"""Runs of ops on the TPUs of an XSpace file: the `XLA Ops` line of each core.

The facts on an op are stated once with its name: the framework's op (`tf_op`), its category, FLOPs
and bytes of one run. Ops of control flow contain those that they run.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity import tables
from nbprof.activity.tables import DeviceOps, Extents, OpParts
from nbprof.core import nesting, wire
from nbprof.core.errors import ReadError
from nbprof.core.trace import Int32s, Int64s, Trace
from nbprof.dialects.corrupt import RECORDED
from nbprof.dialects.xplane import opnames
from nbprof.dialects.xplane.opnames import OpName
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.tpu import core_planes as core_planes

_MAIN_MEMORY, _WRITE = 1, 2
_ON_CHIP = {2: "cmem", 3: "vmem"}
OPS_LINE = "XLA Ops"
_STEPS_LINE = "Steps"
_EXPRESSION = re.compile(r"%?([\w.\-]+) = ")


def _rows(placed: Placed, *lines: str) -> Int64s:
    """The events of some lines of TPU cores."""
    trace = placed.trace
    lanes = trace.lanes
    chosen = lanes["plane"].isin(core_planes(trace)) & lanes["line"].astype(str).isin(lines)
    return np.flatnonzero(chosen.to_numpy(np.bool_)[trace.events.lane] & ~placed.unusable)


def _spans(trace: Trace, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Start and duration of events, ps: as the device measured them, else on the host's clock."""
    offset = trace.arg("device_offset_ps", rows=rows)
    lasted = trace.arg("device_duration_ps", rows=rows)
    measured = (offset >= 0) & (lasted >= 0)
    replaced = trace.args.get(RECORDED)
    if replaced is not None:
        # If the duration is impossible, so is the measurement of the device.
        measured &= ~np.isin(rows, replaced.event)
    start = np.where(measured, offset, trace.events.start[rows])
    return start, np.where(measured, lasted, trace.events.duration[rows])


def extents(placed: Placed) -> Extents:
    """First start and last end of the steps and ops of each core."""
    trace = placed.trace
    rows = _rows(placed, OPS_LINE, _STEPS_LINE)
    start, duration = _spans(trace, rows)
    return tables.extents(placed.host[rows], placed.device[rows], start, start + duration)


class _Facts(NamedTuple):
    """Facts on an op of a compiled program that its name states."""

    program: int
    name: str
    category: str
    source: str
    framework_op: str
    duplicate: str
    expression: str
    hlo: bool
    xprof: bool


def device_ops(placed: Placed, activity: act.Activity) -> tuple[DeviceOps, OpParts]:
    """The tables `device_ops` and `op_parts` of TPUs; a part is an op of a compiled program."""
    trace = placed.trace
    events = trace.events
    rows = _rows(placed, OPS_LINE)
    if not len(rows):
        return DeviceOps.empty(), OpParts.empty()
    start, duration = _spans(trace, rows)
    lane = events.lane[rows]
    order = np.lexsort((-duration, start, lane))
    rows, start, duration, lane = rows[order], start[order], duration[order], lane[order]
    self_time = np.maximum(nesting.self_times(nesting.parents(lane, start, duration), duration), 0)
    name, seen = pd.factorize(events.name[rows].astype(np.int64))
    parts: dict[tuple[object, ...], int] = {}
    facts: list[_Facts] = []
    part, op, kind = np.zeros((3, len(seen)), np.int32)
    for i, code in enumerate(seen.tolist()):
        program, symbol = _number(trace, "program_id", code), _number(trace, "symbol_id", code)
        hlo = _hlo_name(trace, code)
        parsed = _framework_op(trace, code) or OpName("", hlo, "")
        op[i] = activity.ops.code(parsed.name)
        kind[i] = activity.types.code(parsed.type or "Unknown")
        # The same program has other name codes on each core.
        key = (program, hlo if symbol is None else symbol, parsed.name)
        part[i] = parts.setdefault(key, len(parts))
        if part[i] == len(facts):
            facts.append(_facts(trace, code, program, hlo))
    table = DeviceOps(
        event=rows,
        host=placed.host[rows],
        device=placed.device[rows],
        start=start,
        end=start + duration,
        op=op[name],
        type=kind[name],
        eager=np.zeros(len(rows), np.bool_),
        own=self_time,
        part=part[name],
        tensor_core=np.full(len(rows), -1, np.int8),
    )
    frame = pd.DataFrame(facts, columns=_Facts._fields).assign(module="")
    frame["program"] = list(map(_signed, frame["program"].tolist()))
    frame["host"] = placed.host[rows[np.unique(part[name], return_index=True)[1]]]
    _add_costs(trace, frame, rows, name, seen, part)
    _count_custom_calls(frame, activity)
    frame["xprof_flops"] = frame["flops"]
    return table, OpParts.of(frame)


def _facts(trace: Trace, code: int, program: int | None, hlo: str) -> _Facts:
    def text(key: str) -> str:
        return str(_fact(trace, key, code) or "")

    expression = str(trace.names[code])
    if not _EXPRESSION.match(expression):
        expression = ""
    return _Facts(
        program=-1 if program is None else program,
        name=hlo,
        category=text("hlo_category"),
        source=text("source"),
        framework_op=text("tf_op"),
        duplicate=text("deduplicated_name"),
        expression=expression,
        hlo=program is not None,
        xprof=True,
    )


def _add_costs(
    trace: Trace, frame: pd.DataFrame, rows: Int64s, name: Int64s, seen: Int64s, part: Int32s
) -> None:
    """Adds the runs, FLOPs and bytes of all runs to the parts.

    `name` are the names of `rows` as indices into the codes `seen`; `part` is by these indices.
    """
    part_of_row, count = part[name], len(frame)
    for column, stat in (("flops", "flops"), ("bytes", "bytes_accessed")):
        values = _per_run(trace, stat, rows, name, seen)
        frame[column] = np.bincount(part_of_row, values, count)
    frame["normalized_flops"] = frame["flops"]
    # XProf 2.24 counts only the FLOPs that are stated with the name.
    named = np.nan_to_num(_per_run(trace, "flops", rows, name, seen, of_events=False))
    frame["xprof_runs"] = np.divide(
        np.bincount(part_of_row, named, count),
        frame["flops"],
        out=np.ones(count),
        where=frame["flops"].to_numpy(np.float64) > 0,
    )
    for column, per_run in _by_memory(trace, seen).items():
        frame[column] = np.bincount(part_of_row, per_run[name], count)
    frame["runs"] = np.bincount(part_of_row, minlength=count).astype(np.float64)


def _count_custom_calls(parts: pd.DataFrame, activity: act.Activity) -> None:
    """Fills in uncounted operations and bytes of custom calls from their program, else NaN.

    Every kernel reads or writes something: if a custom call states 0 bytes, its FLOPs are not
    counted either.
    """
    rows = np.flatnonzero((parts["category"] == "custom-call") & (parts["bytes"] == 0))
    columns = ("flops", "normalized_flops", "bytes", "memory_bytes")
    counted = parts[[*columns, "xprof_runs"]].to_numpy(np.float64, copy=True)
    keys = parts[["host", "program", "name", "runs"]].iloc[rows].itertuples(index=False, name=None)
    for row, (host, program, name, runs) in zip(rows.tolist(), keys, strict=True):
        cost = activity.programs.cost(host, program, name)
        counted[row] = np.nan
        if cost is not None:
            counted[row, :-1] = [getattr(cost, column) * runs for column in columns]
        counted[row, -1] = 0.0
    parts[[*columns, "xprof_runs"]] = counted


def _by_memory(trace: Trace, seen: Int64s) -> dict[str, npt.NDArray[np.float64]]:
    """Bytes that a run of each name moved per memory; NaN if not stated.

    Source: OpMetrics.MemoryAccessed of XProf's op_metrics.proto (operation_type, memory_space,
    bytes_accessed), the content of `memory_access_breakdown`.
    """
    breakdowns = trace.name_args.get("memory_access_breakdown", {})
    columns = ("memory_bytes", "cmem_read", "cmem_write", "vmem_read", "vmem_write")
    bytes_by_column = {column: np.full(len(seen), np.nan) for column in columns}
    for i, code in enumerate(seen.tolist()):
        data = breakdowns.get(code)
        if not isinstance(data, bytes):
            continue
        sums = dict.fromkeys(columns, 0.0)
        try:
            for number, kind, start, end in wire.fields(data, 0, len(data)):
                if number == 1 and kind == wire.LENGTH:
                    column, size = _accessed(data, start, end)
                    if column in sums:
                        sums[column] += size
        except ReadError:
            continue
        for column, moved in sums.items():
            bytes_by_column[column][i] = moved
    return bytes_by_column


def _accessed(data: bytes, start: int, end: int) -> tuple[str, int]:
    """The column of a MemoryAccessed message, and its bytes."""
    fields: dict[int, int] = {}
    for number, kind, value, _ in wire.fields(data, start, end, 1):
        if kind == wire.VARINT:
            fields[number] = value
    size, space = fields.get(3, 0), fields.get(2, 0)
    if space == _MAIN_MEMORY:
        return "memory_bytes", size
    way = "write" if fields.get(1, 0) == _WRITE else "read"
    return f"{_ON_CHIP.get(space, '')}_{way}", size


def _per_run(
    trace: Trace, stat: str, rows: Int64s, name: Int64s, seen: Int64s, *, of_events: bool = True
) -> npt.NDArray[np.float64]:
    """A number per run: stated by the event (custom calls), else with its name; else NaN."""
    of_name = trace.name_args.get(stat, {})
    of_code = np.full(len(seen), np.nan)
    for i, code in enumerate(seen.tolist()):
        value = of_name.get(code)
        if isinstance(value, (int, float)):
            of_code[i] = float(value)
    values = of_code[name]
    column = trace.args.get(stat)
    if column is not None and of_events:
        of_event = np.full(len(trace.events), np.nan)
        of_event[column.event] = column.floats()
        values = np.where(np.isnan(of_event[rows]), values, of_event[rows])
    return np.asarray(values, np.float64)


def _fact(trace: Trace, key: str, code: int) -> object:
    return trace.name_args.get(key, {}).get(code)


def _number(trace: Trace, key: str, code: int) -> int | None:
    value = _fact(trace, key, code)
    return value if isinstance(value, int) else None


def _signed(ident: int) -> int:
    return ident - (1 << 64) if ident >= 1 << 63 else ident


def _framework_op(trace: Trace, code: int) -> OpName | None:
    text = _fact(trace, "tf_op", code)
    if not isinstance(text, str) or not text:
        return None
    return opnames.parse(text)


def _hlo_name(trace: Trace, code: int) -> str:
    """The op's name in its program: short name of the event, or left side of its expression."""
    full, short = str(trace.names[code]), str(trace.display[code])
    if short and short != full:
        return short
    match = _EXPRESSION.match(full)
    if match is None:
        return full
    return match.group(1)

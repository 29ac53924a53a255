"""Runs of ops of XLA programs that were compiled for the CPU, on threads of the host.

XLA's runtime for CPUs notes each op that it runs on the thread that runs it, with the op's name as
the name of the event. On a host that drives a GPU the events with `hlo_op` have other names: they
are the launches of kernels.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import DeviceOps, OpParts
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s
from nbprof.dialects.lookups import text_of
from nbprof.dialects.xplane import opnames
from nbprof.dialects.xplane.placed import Placed
from nbprof.hlo.programs import Programs

_IDENT = re.compile(r"\((-?\d+)\)\Z")
_UNSIGNED = (1 << 64) - 1
_NONE = -1


_COSTS = ("flops", "normalized_flops", "bytes", "memory_bytes")


class _Facts(NamedTuple):
    """Facts on an op of a compiled program; the costs are those of one run, NaN if unknown."""

    program: int
    name: str
    category: str
    source: str
    duplicate: str
    module: str
    framework_op: str
    host: int
    flops: float = np.nan
    normalized_flops: float = np.nan
    bytes: float = np.nan
    memory_bytes: float = np.nan


class _ProgramOfRow(NamedTuple):
    """The program of each run of an op: its ident, a dense code, and a host that has it, or -1."""

    ident: Int64s
    code: Int64s
    home: Int64s


def _programs(placed: Placed, programs: Programs, rows: Int64s) -> _ProgramOfRow:
    trace = placed.trace
    host = placed.host[rows].astype(np.int64)
    module = trace.text_arg("hlo_module", rows)
    ident = trace.arg("program_id", _NONE, rows)
    find = _Finder(placed)
    first, program = unique_rows(host, pd.factorize(ident)[0], module)
    idents, homes = [], []
    for row in first.tolist():
        name = text_of(trace.strings, module[row])
        number = find(int(host[row]), name, int(ident[row]))
        idents.append(number)
        homes.append(programs.home(int(host[row]), number))
    numbers = np.array(idents, np.int64)
    return _ProgramOfRow(
        numbers[program],
        pd.factorize(numbers)[0][program],
        np.array(homes, np.int64)[program],
    )


def _facts(programs: Programs, host: int, program: int, module: str, name: str) -> _Facts:
    instruction = programs.find(host, program, name)
    source, duplicate, framework_op = "", "", ""
    if instruction:
        duplicate, framework_op = instruction.duplicate, instruction.framework_op
        if instruction.source_file:
            source = f"{instruction.source_file}:{instruction.source_line}"
    category = programs.category(host, program, name)
    facts = _Facts(program, name, category, source, duplicate, module, framework_op, host)
    cost = programs.cost(host, program, name)
    if cost is None:
        return facts
    return facts._replace(
        flops=cost.flops,
        normalized_flops=cost.normalized_flops,
        bytes=cost.bytes,
        memory_bytes=cost.memory_bytes,
    )


def cpu_ops(placed: Placed, activity: act.Activity) -> tuple[DeviceOps, OpParts]:
    """The tables `cpu_ops` and `cpu_parts`, as `device_ops`; `device` is JAX's number."""
    trace = placed.trace
    events = trace.events
    rows = run_rows(placed)
    if not len(rows):
        return DeviceOps.empty(), OpParts.empty()
    hlo_op, module = trace.text_arg("hlo_op", rows), trace.text_arg("hlo_module", rows)
    host = placed.host[rows].astype(np.int64)
    programs: Programs = activity.programs
    program = _programs(placed, programs, rows)
    # An op of one program is the same on all machines.
    home = np.where(program.home < 0, host, program.home)
    first, part = unique_rows(home, program.code, module, hlo_op)
    lane, start, duration = events.lane[rows], events.start[rows], events.duration[rows]
    self_time = np.maximum(nesting.self_times(nesting.parents(lane, start, duration), duration), 0)
    runs = np.bincount(part)
    facts: list[_Facts] = []
    op, kind = np.zeros(len(first), np.int32), np.zeros(len(first), np.int32)
    for i, row in enumerate(first.tolist()):
        name = trace.strings[int(hlo_op[row])].rpartition("::")[2]
        module_name = text_of(trace.strings, module[row])
        facts.append(_facts(programs, int(host[row]), int(program.ident[row]), module_name, name))
        framework_op = facts[-1].framework_op
        parsed = opnames.OpName("", name, "")
        if framework_op:
            parsed = opnames.parse(framework_op)
        op[i] = activity.ops.code(parsed.name)
        kind[i] = activity.types.code(parsed.type or "Unknown")
    parts = pd.DataFrame(facts, columns=_Facts._fields)
    for column in _COSTS:
        parts[column] *= runs
    # XProf counts nothing here.
    parts = parts.assign(
        expression="",
        hlo=True,
        xprof=False,
        xprof_runs=0.0,
        xprof_flops=parts["flops"],
        runs=runs.astype(np.float64),
    )
    table = DeviceOps(
        event=rows,
        host=host,
        device=trace.arg("device_ordinal", rows=rows),
        start=start,
        end=start + duration,
        op=op[part],
        type=kind[part],
        eager=np.zeros(len(rows), np.bool_),
        own=self_time,
        part=part,
        tensor_core=np.full(len(rows), -1, np.int8),
    )
    return table, OpParts.of(parts)


def run_rows(placed: Placed) -> Int64s:
    """The events that are runs of ops: called what their `hlo_op` says."""
    trace = placed.trace
    if "hlo_op" not in trace.args:
        return np.zeros(0, np.int64)
    hlo_op = trace.text_arg("hlo_op")
    rows = np.flatnonzero((hlo_op >= 0) & placed.on_host & (trace.events.duration > 0))
    if not len(rows):
        return rows
    stated_op, name = hlo_op[rows], trace.events.name[rows].astype(np.int64)
    first, pair = unique_rows(stated_op, name)
    texts = np.array(trace.texts(stated_op[first]), object)
    called = name[first]
    same = (texts == trace.names[called]) | (texts == trace.display[called])
    return rows[np.asarray(same, np.bool_)[pair]]


class _Finder:
    """Finds the ident under which the file has the program that an event names."""

    def __init__(self, placed: Placed) -> None:
        self._called: dict[tuple[int, int], str] = {}
        self._by_name: dict[tuple[int, str], set[int]] = {}
        for module in placed.trace.modules:
            bare = _IDENT.sub("", module.name)
            # A name that ends in a number says itself which program it is: not the one of the
            # number that the file happens to give it.
            ident = _IDENT.search(module.name)
            if ident is None or int(ident[1]) & _UNSIGNED == module.ident & _UNSIGNED:
                self._called[module.host, module.ident] = bare
            for name in {module.name, bare}:
                self._by_name.setdefault((module.host, name), set()).add(module.ident)

    def __call__(self, host: int, called: str, ident: int) -> int:
        # Files number their programs anew, from 1 on; the names of programs end in the number that
        # events state. Of events that state none the name has to do, where no other program has it.
        if self._called.get((host, ident)) == called:
            return ident
        named = self._by_name.get((host, f"{called}({ident})"), set())
        if len(named) == 1:
            return next(iter(named))
        alike = self._by_name.get((host, called), set())
        if len(alike) == 1:
            return next(iter(alike))
        return ident

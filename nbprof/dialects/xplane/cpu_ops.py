"""Runs of ops of XLA programs that were compiled for the CPU, on threads of the host.

XLA's runtime for CPUs notes each op that it runs on the thread that runs it, with the op's name as
the name of the event. On a host that drives a GPU the events with `hlo_op` have other names: they
are the launches of kernels.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import DeviceOps, OpParts
from nbprof.core import nesting
from nbprof.core.factorize import unique_rows
from nbprof.core.trace import Int64s
from nbprof.dialects.xplane import opnames
from nbprof.dialects.xplane.placed import Placed
from nbprof.hlo.programs import Programs

_IDENT = re.compile(r"\((-?\d+)\)\Z")
_UNSIGNED = (1 << 64) - 1
_NONE = -1


def cpu_ops(placed: Placed, activity: act.Activity) -> tuple[DeviceOps, OpParts]:
    """The tables `cpu_ops` and `cpu_parts`, as `device_ops`; `device` is JAX's number."""
    trace = placed.trace
    events = trace.events
    rows = run_rows(placed)
    if not len(rows):
        return DeviceOps.empty(), OpParts.empty()
    hlo_op = trace.text_arg("hlo_op", rows)
    module = trace.text_arg("hlo_module", rows)
    ident = trace.arg("program_id", _NONE, rows)
    host = placed.host[rows].astype(np.int64)
    find = _Finder(placed)
    programs: Programs = activity.programs
    # An op of one program is the same on all machines.
    begins, program = unique_rows(host, pd.factorize(ident)[0], module)
    seen = zip(host[begins].tolist(), ident[begins].tolist(), module[begins].tolist(), strict=True)
    loaded = [(on, trace.strings[text] if text >= 0 else "", number) for on, number, text in seen]
    numbers = [find(*key) for key in loaded]
    homes = np.array(
        [programs.home(on, number) for (on, _, _), number in zip(loaded, numbers, strict=True)],
        np.int64,
    )[program]
    first, part = unique_rows(
        np.where(homes < 0, host, homes),
        pd.factorize(np.array(numbers, np.int64))[0][program],
        module,
        hlo_op,
    )
    lane, start, duration = events.lane[rows], events.start[rows], events.duration[rows]
    self_time = np.maximum(nesting.self_times(nesting.parents(lane, start, duration), duration), 0)
    runs = np.bincount(part)
    facts = []
    op, kind = np.zeros(len(first), np.int32), np.zeros(len(first), np.int32)
    for i, index in enumerate(first.tolist()):
        on, called = (
            int(host[index]),
            trace.strings[int(module[index])] if module[index] >= 0 else "",
        )
        number = numbers[program[index]]
        name = trace.strings[int(hlo_op[index])].rpartition("::")[2]
        instruction = programs.find(on, number, name)
        framework = instruction.framework_op if instruction else ""
        parsed = opnames.parse(framework) if framework else opnames.OpName("", name, "")
        op[i], kind[i] = (
            activity.ops.code(parsed.name),
            activity.types.code(parsed.type or "Unknown"),
        )
        source = ""
        if instruction and instruction.source_file:
            source = f"{instruction.source_file}:{instruction.source_line}"
        cost = programs.cost(on, number, name)
        if cost is None:
            costs = (np.nan,) * 4
        else:
            costs = (cost.flops, cost.normalized_flops, cost.bytes, cost.memory_bytes)
        facts.append(
            (
                number,
                name,
                programs.category(on, number, name),
                source,
                instruction.duplicate if instruction else "",
                called,
                framework,
                on,
                *costs,
            )
        )
    parts = pd.DataFrame(
        facts,
        columns=[
            *(
                "program",
                "name",
                "category",
                "source",
                "duplicate",
                "module",
                "framework_op",
                "host",
            ),
            *("flops", "normalized_flops", "bytes", "memory_bytes"),
        ],
    )
    for column in ("flops", "normalized_flops", "bytes", "memory_bytes"):
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
    seen = zip(stated_op[first].tolist(), name[first].tolist(), strict=True)
    same = np.array(
        [
            trace.strings[text] in (trace.names[called], trace.display[called])
            for text, called in seen
        ],
        np.bool_,
    )
    return rows[same[pair]]


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
        return next(iter(alike)) if len(alike) == 1 else ident

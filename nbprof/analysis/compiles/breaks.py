"""`p.graph_breaks`: where functions of `torch.compile` break into several graphs, and what that
costs in each step.

Dynamo opens a region in the trace for each graph that it calls, the next one inside the one before
it. From the end of the compiled code of one to the begin of that of the next, Python runs: the
statement that breaks the graph, op by op, and the guards of the next graph.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import TORCH_OP, Activity
from nbprof.analysis.compiles import causes, table
from nbprof.analysis.input.workers import location
from nbprof.analysis.steps.step_rows import step_rows_ps
from nbprof.core.compile_times import BACKWARD, Compilation, Compilations
from nbprof.core.trace import Int64s, Trace
from nbprof.frameworks.register import PYTORCH
from nbprof.schema import frames

_FRAME = "graph_breaks"
_REGION = "Torch-Compiled Region: "
_COMPILED = re.compile(r"CompiledFunction\Z|## Call CompiledFxGraph|Call CompiledFxGraph")
"""The compiled code of a graph, inside its region."""
_OWN = re.compile(
    r"Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|Compiled|##|.*dynamo_timed"
)
"""Events of the compiler itself, which are no ops of the program."""
_COMPILES = "(dynamo_timed)"

_IS_RESUMED = re.compile(r":torch_dynamo_resume_in_.*_at_\d+\Z")

Flags = npt.NDArray[np.bool_]


class _Gaps(NamedTuple):
    """Times between the compiled code of two graphs of one call, by lane and time.

    Attributes
    ----------
    start, end : int64[n]
        In ps.
    lane : int32[n]
    following : list of str
        The number of the compilation whose region begins at its end, or at that of the next gap of
        the same call that ends in a graph behind a break.
    """

    start: Int64s
    end: Int64s
    lane: Int64s
    following: list[str]


def frame(
    recorded: Compilations,
    cells: Mapping[str, int],
    activity: Activity | None,
    trace: Trace | None,
    steps: pd.DataFrame,
) -> pd.DataFrame:
    """One row per line at which a graph breaks, the costliest first.

    Parameters
    ----------
    recorded : Compilations
    cells : mapping
        Execution counts by the stem of a cell's file.
    activity, trace : Activity and Trace, optional
        Of one process; without them costs are unknown.
    steps : DataFrame
        The rows of `p.steps.frame` that averages include.
    """
    by_key = _breaks(recorded)
    if not by_key:
        return frames.empty(_FRAME)
    costs: dict[str, dict[str, float]] = {}
    if activity is not None and trace is not None and len(steps):
        costs = _costs(activity, trace, steps, _resumed(recorded))
    rows = []
    for key, (row, reason) in by_key.items():
        resumed = causes.RESUMED.match(row.function)
        assert resumed is not None
        rows.append(
            {
                "function": resumed["function"],
                "where": location(row.file, int(resumed["line"]), cells),
                "reason": reason,
                **costs.get(key, {}),
            }
        )
    table_rows = pd.DataFrame(rows, columns=frames.names(_FRAME)).sort_values(
        "ms_per_step", ascending=False, kind="stable", ignore_index=True
    )
    return frames.shaped(_FRAME, table_rows)


class Breaks(NamedTuple):
    """Breaks of functions in each step, of which the costs are known.

    Attributes
    ----------
    lines : int
        At so many lines.
    ms, ops, kernels : float
        Per step, of all of them; kernels are NaN without a device.
    function, where, reason : str
        Of the costliest.
    costliest_ms : float
        Its time per step.
    """

    lines: int
    ms: float
    ops: float
    kernels: float
    function: str
    where: str
    reason: str
    costliest_ms: float


def in_steps(rows: pd.DataFrame) -> Breaks | None:
    """The breaks with known costs among the rows of `p.graph_breaks`; None if there are none."""
    rows = rows[rows["ms_per_step"].notna()]
    if not len(rows):
        return None
    costliest = rows.iloc[0]
    return Breaks(
        len(rows),
        float(rows["ms_per_step"].sum()),
        float(rows["ops_per_step"].sum()),
        float(rows["kernels_per_step"].sum(min_count=1)),
        str(costliest["function"]),
        # The file without its folders.
        PurePath(str(costliest["where"])).name,
        str(costliest["reason"]),
        float(costliest["ms_per_step"]),
    )


def _key(row: Compilation) -> str:
    return f"{row.file}:{row.function}"


def _breaks(recorded: Compilations) -> dict[str, tuple[Compilation, str]]:
    """The first compilation behind each break, and the reason of the break; "" if unknown."""
    breaks: dict[str, tuple[Compilation, str]] = {}
    for row, cause in table.with_causes(recorded):
        if row.framework == PYTORCH.name and causes.RESUMED.match(row.function):
            reason = cause.why.partition(": ")[2] if cause.kind == causes.GRAPH_BREAK else ""
            first, earlier_reason = breaks.get(_key(row), (row, ""))
            breaks[_key(row)] = first, earlier_reason or reason
    return breaks


def _resumed(recorded: Compilations) -> dict[str, str]:
    """By number of a compilation behind a break, the key of the break."""
    keys: dict[str, set[str]] = {}
    for row in recorded.rows:
        if row.number and not row.function.endswith(BACKWARD):
            keys.setdefault(row.number, set()).add(_key(row))
    # After `torch._dynamo.reset` numbers begin anew: those of several functions tell nothing.
    unique = {number: names.pop() for number, names in keys.items() if len(names) == 1}
    return {number: key for number, key in unique.items() if _IS_RESUMED.search(key)}


def _costs(
    activity: Activity, trace: Trace, steps: pd.DataFrame, resumed: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """By key of a break: its occurrences, ops, kernels and time, per step."""
    gaps = _gaps(trace, resumed)
    if not len(gaps.start):
        return {}
    host = np.zeros(len(gaps.start), np.int64)
    in_step = step_rows_ps(steps, activity.hosts, gaps.start, host) >= 0
    code, keys = pd.factorize(np.array([resumed[each] for each in gaps.following], object))
    counted = np.flatnonzero(in_step & ~_compiling(trace, gaps))
    ops = _in_gaps(gaps, *_eager_ops(activity, trace))
    kernels = None
    if activity.has_device:
        launched = activity.launches.event[activity.launches.target >= 0]
        kernels = _in_gaps(gaps, trace.events.start[launched], trace.events.lane[launched])
    costs: dict[str, dict[str, Any]] = {}
    for index, key in enumerate(keys.tolist()):
        rows = counted[code[counted] == index]
        if not len(rows):
            continue
        costs[key] = {
            "per_step": len(rows) / len(steps),
            "ops_per_step": ops[rows].sum() / len(steps),
            "ms_per_step": (gaps.end - gaps.start)[rows].sum() / 1e9 / len(steps),
        }
        if kernels is not None:
            costs[key]["kernels_per_step"] = kernels[rows].sum() / len(steps)
    return costs


def _named(trace: Trace, pattern: re.Pattern[str]) -> Flags:
    """bool[events]: the name of an event begins so."""
    matching = np.array([bool(pattern.match(name)) for name in trace.names], np.bool_)
    return matching[trace.events.name]


def _gaps(trace: Trace, resumed: Mapping[str, str]) -> _Gaps:
    """The gaps of calls that go on behind a break which is known."""
    events = trace.events
    is_region = _named(trace, re.compile(re.escape(_REGION)))
    is_compiled = _named(trace, _COMPILED)
    graphs = np.flatnonzero(is_compiled)
    innermost, outermost, nested = _around(events.parent, graphs, is_region, is_compiled)
    selected = np.flatnonzero((innermost >= 0) & ~nested)
    lanes = events.lane[graphs[selected]].astype(np.int64)
    selected = selected[np.lexsort((events.start[graphs[selected]], lanes))]
    graph, inner, outer = graphs[selected], innermost[selected], outermost[selected]
    # Several graphs of one region are no break: a backend may split one.
    pairs = np.flatnonzero((outer[1:] == outer[:-1]) & (inner[1:] != inner[:-1]))
    before, behind = graph[pairs], graph[pairs + 1]
    numbers = [
        trace.names[code].removeprefix(_REGION) for code in events.name[inner[pairs + 1]].tolist()
    ]
    following: list[str] = []
    next_call, next_number = -1, ""
    # Graphs of a function that the statement calls belong to the break behind which the program
    # goes on.
    for call, number in zip(outer[pairs][::-1].tolist(), reversed(numbers), strict=True):
        if call != next_call:
            next_call, next_number = call, ""
        if number in resumed:
            next_number = number
        following.append(next_number)
    following.reverse()
    behind_break = np.array([bool(number) for number in following], np.bool_)
    return _Gaps(
        (events.start + events.duration)[before][behind_break],
        events.start[behind][behind_break],
        events.lane[behind][behind_break].astype(np.int64),
        [number for number in following if number],
    )


def _around(
    parent: npt.NDArray[np.integer], graphs: Int64s, is_region: Flags, is_compiled: Flags
) -> tuple[Int64s, Int64s, Flags]:
    """Innermost and outermost region around each graph, -1 for none, and whether other compiled
    code lies between it and its region.
    """
    innermost = np.full(len(graphs), -1, np.int64)
    outermost, nested = innermost.copy(), np.zeros(len(graphs), np.bool_)
    above = parent[graphs].astype(np.int64)
    while (above >= 0).any():
        there = np.flatnonzero(above >= 0)
        event = above[there]
        nested[there] |= is_compiled[event] & (innermost[there] < 0)
        regions = there[is_region[event]]
        outermost[regions] = above[regions]
        first = regions[innermost[regions] < 0]
        innermost[first] = above[first]
        above[there] = parent[event]
    return innermost, outermost, nested


def _compiling(trace: Trace, gaps: _Gaps) -> Flags:
    """bool[gaps]: those in which a function is compiled, which is a cost of its own."""
    compiles = np.array([name.endswith(_COMPILES) for name in trace.names], np.bool_)
    rows = np.flatnonzero(compiles[trace.events.name])
    compiling: Flags = _in_gaps(gaps, trace.events.start[rows], trace.events.lane[rows]) > 0
    return compiling


def _eager_ops(activity: Activity, trace: Trace) -> tuple[Int64s, npt.NDArray[np.integer]]:
    """Start and lane of the outermost ops, of which none is the compiler's."""
    ops = activity.torch_ops
    is_op = (ops.kind == TORCH_OP) & ~_named(trace, _OWN)[ops.event]
    outermost = is_op & ~np.where(ops.parent >= 0, is_op[ops.parent], False)
    return ops.start[outermost], trace.events.lane[ops.event[outermost]]


def _in_gaps(gaps: _Gaps, start: Int64s, lane: npt.NDArray[np.integer]) -> Int64s:
    """int64[gaps]: how many events begin in each."""
    count = np.zeros(len(gaps.start), np.int64)
    for each in np.unique(gaps.lane).tolist():
        of_lane = np.flatnonzero(gaps.lane == each)
        begins = np.sort(start[lane == each])
        low, high = (
            np.searchsorted(begins, edge[of_lane], side="left") for edge in (gaps.start, gaps.end)
        )
        count[of_lane] = high - low
    return count

"""Costs of graph breaks in each step, by the regions that Dynamo opens in a trace.

Dynamo opens a region for each function that it has compiled, and one for the rest of a function
behind a break, inside that of the part before it. From the end of the compiled code of the one to
the start of that of the other, Python runs: the statement that breaks the graph, op by op, and
guards. A function that the statement calls has a region there as well, with breaks of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import TORCH_OP, Activity
from nbprof.analysis.steps.step_rows import step_rows_ps
from nbprof.core.trace import Int64s, Trace

_REGION = "Torch-Compiled Region: "
_IS_REGION = re.compile(re.escape(_REGION))
_COMPILED = re.compile(r"CompiledFunction\Z|## Call CompiledFxGraph|Call CompiledFxGraph")
"""The compiled code of a graph, inside its region."""
_BEFORE_GRAPH = re.compile(r"Pregraph bytecode\Z")
"""Code of Dynamo in a region that calls a graph, whichever backend has compiled it."""
_OWN = re.compile(
    r"Torch-Compiled Region|TorchDynamo|Pregraph bytecode|AOTDispatcher|Compiled|##|.*dynamo_timed"
)
"""Events of the compiler itself, which are no ops of the program."""
_COMPILES = re.compile(r".*\(dynamo_timed\)\Z")

NOT_SEEN = "No run of it is found in the trace."
NOT_COUNTED = "It ran in no step that averages include."
COMPILING = "Something was compiled there each time."
NO_GRAPH = "The trace lacks the end of the graph before it, or the start of the one behind it."
"""Why the cost of a break is unknown."""

Flags = npt.NDArray[np.bool_]


class _Spans(NamedTuple):
    """Times in ps, by lane; -1 for an unknown start or end."""

    start: Int64s
    end: Int64s
    lane: Int64s


class _Passes(NamedTuple):
    """Passes from one graph of a function to the next, behind a break.

    Attributes
    ----------
    number : list of str
        The compilation behind the break.
    gap : _Spans
        From graph to graph.
    is_known : ndarray of bool
        False where the trace does not have the end of the one graph, or the start of the other.
    around : _Spans
        From the start of the region before the break, or the graph's end, to the region behind it.
    """

    number: list[str]
    gap: _Spans
    is_known: Flags
    around: _Spans


def numbers(trace: Trace) -> set[str]:
    """The numbers of the compilations that a trace has regions of."""
    return {name.removeprefix(_REGION) for name in trace.names if name.startswith(_REGION)}


def costs(
    activity: Activity, trace: Trace, steps: pd.DataFrame, resumed: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Passes, ops, kernels and time of breaks per step, as far as they are known; else the reason.

    Parameters
    ----------
    activity, trace : Activity and Trace
        Of one process.
    steps : DataFrame
        The steps that averages include.
    resumed : mapping
        By number of a compilation behind a break, the key of the break.

    Returns
    -------
    dict
        By key, values of columns of `p.graph_breaks`.
    """
    graphs = _direct(trace, _COMPILED)
    passes = _passes(trace, graphs, resumed)
    if not len(passes.number):
        return {}
    host = np.zeros(len(passes.number), np.int64)
    in_step = step_rows_ps(steps, activity.hosts, passes.around.end, host) >= 0
    # Compilations there are a cost of their own.
    compiles = np.flatnonzero(_named(trace, _COMPILES))
    is_compiling = _begin_in(passes.around, trace, trace.events.start[compiles], compiles) > 0
    code, keys = pd.factorize(np.array([resumed[each] for each in passes.number], object))
    spans, count = _with_graphs(trace, passes.gap, graphs), len(passes.number)
    nesting = _Nesting(spans)
    amounts = {
        "ms_per_step": nesting.exclusive(spans.end - spans.start)[:count] / 1e9,
        "ops_per_step": nesting.exclusive(_begin_in(spans, trace, *_eager_ops(activity, trace)))[
            :count
        ],
    }
    if activity.has_device:
        launched = activity.launches.event[activity.launches.target >= 0]
        begun = _begin_in(spans, trace, trace.events.start[launched], launched)
        amounts["kernels_per_step"] = nesting.exclusive(begun)[:count]
    per_key: dict[str, dict[str, Any]] = {}
    for index, key in enumerate(keys.tolist()):
        counted = (code == index) & in_step
        rows = np.flatnonzero(counted & ~is_compiling)
        if not len(rows):
            per_key[key] = {"cost_reason": COMPILING if counted.any() else NOT_COUNTED}
            continue
        per_key[key] = {"per_step": len(rows) / len(steps), "cost_reason": NO_GRAPH}
        if passes.is_known[rows].all():
            per_step = {name: amount[rows].sum() / len(steps) for name, amount in amounts.items()}
            per_key[key] |= {**per_step, "cost_reason": ""}
    return per_key


class _Direct(NamedTuple):
    """Events of one kind, directly in a region, and that region."""

    event: Int64s
    region: Int64s


def _named(trace: Trace, pattern: re.Pattern[str]) -> Flags:
    """bool[events]: the name of an event begins so."""
    matching = np.array([bool(pattern.match(name)) for name in trace.names], np.bool_)
    return matching[trace.events.name]


def _direct(trace: Trace, pattern: re.Pattern[str]) -> _Direct:
    """Events with a name, in their innermost regions, outside of compiled code."""
    events, is_region = trace.events, _named(trace, _IS_REGION)
    is_compiled = _named(trace, _COMPILED)
    rows = np.flatnonzero(_named(trace, pattern))
    region, above = np.full(len(rows), -1, np.int64), events.parent[rows].astype(np.int64)
    while (above >= 0).any():
        there = np.flatnonzero(above >= 0)
        event = above[there]
        hit = is_region[event]
        region[there[hit]] = event[hit]
        above[there] = np.where(hit | is_compiled[event], -1, events.parent[event])
    return _Direct(rows[region >= 0], region[region >= 0])


def _passes(trace: Trace, graphs: _Direct, resumed: Mapping[str, str]) -> _Passes:
    """The passes behind known breaks."""
    events = trace.events
    end = events.start + events.duration
    before_graph = _direct(trace, _BEFORE_GRAPH)
    # A region without a graph: Python runs in all of it. Older versions do not mark it.
    is_marked = len(before_graph.event) > 0
    calls_graph = np.zeros(len(events.start), np.bool_)
    calls_graph[before_graph.region] = True
    begin = np.full(len(events.start), np.iinfo(np.int64).max)
    finish = np.full(len(events.start), -1, np.int64)
    np.minimum.at(begin, graphs.region, events.start[graphs.event])
    np.maximum.at(finish, graphs.region, end[graphs.event])
    has_code = finish >= 0
    is_seen = has_code | (is_marked & ~calls_graph)

    inner = _direct(trace, _IS_REGION)
    number = [trace.names[code].removeprefix(_REGION) for code in events.name[inner.event]]
    rows = np.flatnonzero([each in resumed for each in number])
    behind, before = inner.event[rows], inner.region[rows]
    start = np.where(has_code[before], finish[before], events.start[before])
    until = np.where(has_code[behind], begin[behind], events.start[behind])
    lane = events.lane[behind].astype(np.int64)
    gap = _Spans(start, until, lane)
    is_known = is_seen[before] & is_seen[behind] & (start <= until)
    # Graphs that a called function runs there are to be seen, too.
    unseen = np.flatnonzero(_named(trace, _IS_REGION) & ~is_seen)
    is_known &= _begin_in(gap, trace, events.start[unseen], unseen) == 0
    around = _Spans(start, events.start[behind], lane)
    return _Passes([number[row] for row in rows.tolist()], gap, is_known, around)


def _with_graphs(trace: Trace, gaps: _Spans, graphs: _Direct) -> _Spans:
    """Gaps, and behind them the compiled code of all graphs."""
    events, rows = trace.events, graphs.event
    return _Spans(
        np.concatenate([gaps.start, events.start[rows]]),
        np.concatenate([gaps.end, (events.start + events.duration)[rows]]),
        np.concatenate([gaps.lane, events.lane[rows].astype(np.int64)]),
    )


class _Nesting:
    """Spans that lie in each other."""

    def __init__(self, spans: _Spans) -> None:
        self._parent = np.full(len(spans.start), -1, np.int64)
        above: list[int] = []
        for row in np.lexsort((-spans.end, spans.start, spans.lane)).tolist():
            while above and not _is_in(spans, row, above[-1]):
                above.pop()
            if above:
                self._parent[row] = above[-1]
            above.append(row)

    def exclusive(self, amount: Int64s) -> Int64s:
        """The amounts of spans without those of the spans in them."""
        exclusive = amount.copy()
        nested = self._parent >= 0
        np.subtract.at(exclusive, self._parent[nested], amount[nested])
        return exclusive


def _is_in(spans: _Spans, row: int, other: int) -> bool:
    same = bool(spans.lane[row] == spans.lane[other])
    return same and bool(spans.start[row] < spans.end[other])


def _eager_ops(activity: Activity, trace: Trace) -> tuple[Int64s, Int64s]:
    """Start and event of the outermost ops, of which none is the compiler's."""
    ops = activity.torch_ops
    is_op = (ops.kind == TORCH_OP) & ~_named(trace, _OWN)[ops.event]
    outermost = is_op & ~np.where(ops.parent >= 0, is_op[ops.parent], False)
    return ops.start[outermost], ops.event[outermost].astype(np.int64)


def _begin_in(spans: _Spans, trace: Trace, start: Int64s, event: Int64s) -> Int64s:
    """int64[spans]: how many of some events begin in each, by the starts of the events."""
    count = np.zeros(len(spans.start), np.int64)
    lane = trace.events.lane[event]
    for each in np.unique(spans.lane).tolist():
        of_lane = np.flatnonzero(spans.lane == each)
        begins = np.sort(start[lane == each])
        low, high = (
            np.searchsorted(begins, edge[of_lane], side="left") for edge in (spans.start, spans.end)
        )
        count[of_lane] = high - low
    return count

"""The lines of the program at which blocks were allocated.

By the changes of the line that were recorded; else by a stack that was sampled while the op around
the allocation ran; else by the calls that PyTorch's profiler recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import TorchOps
from nbprof.core import nesting
from nbprof.core.trace import Events, Int64s

if TYPE_CHECKING:
    from nbprof.analysis.python import Python
    from nbprof.core.line_times import LineTimes

RECORDED = "recorded lines"
SAMPLED = "sampled stacks"
CALLS = "recorded calls: first line of the function"
NOT_RECORDED = "unknown: lines were not recorded"
NOT_SAMPLED = "unknown: no stack was sampled meanwhile"
SEVERAL = "unknown: sampled at several lines"
OTHER_THREAD = "unknown: allocated on another thread"
NO_LINE = "unknown: no line of a cell ran"
NO_MORE_LINES = "unknown: lines were recorded for a part of the cell"
NO_CALL = "unknown: no call of your code was recorded around it"
_CLOCKS_NS = 20_000
"""By so much the clocks of PyTorch's profiler and of Python may differ."""
_OPTIMIZER, _BACKWARD = "Optimizer.step#", "autograd::engine::evaluate_function"
Texts = npt.NDArray[np.object_]


class Code(NamedTuple):
    """Lines of the program in a recording.

    Attributes
    ----------
    times : LineTimes, optional
        The line that ran at each moment.
    python : Python, optional
        Sampled stacks.
    cells : mapping
        Execution counts by the stem of a cell's file.
    origin_ns : int
        Moment 0 of the trace, in ns since 1970; 0 where the file has no clock.
    """

    times: LineTimes | None
    python: Python | None
    cells: Mapping[str, int]
    origin_ns: int


NO_CODE = Code(None, None, {}, 0)
"""Nothing."""


class Allocations(NamedTuple):
    """Allocations whose lines are wanted.

    Attributes
    ----------
    event : int64[n]
        Index into the events of the trace.
    op : int64[n]
        Row of the innermost of `Activity.torch_ops` around it, -1 for none.
    kind : int64[n]
        Equal numbers for allocations that are alike: of one role, by one op in one module.
    """

    event: Int64s
    op: Int64s
    kind: Int64s


class Lines(NamedTuple):
    """By allocation, where it was.

    Attributes
    ----------
    line : object[n]
        `Cell [3]:12` or `train.py:12`, the innermost line of the person's code; empty if unknown.
    source : object[n]
        How it is known, or why it is not.
    """

    line: Texts
    source: Texts


def lines(code: Code, activity: act.Activity, events: Events, allocations: Allocations) -> Lines:
    """The line of each allocation.

    Recorded and sampled lines are those of the cell's thread, so allocations of other threads have
    none, but for the backward pass, for which the cell's thread waits. A line that was sampled is
    that of all allocations of a kind if those during which a stack was sampled were at no other.
    """
    spans = _Spans(activity, events, allocations)
    if code.times is not None and _same_clock(code, events):
        located = _recorded(code, code.times, spans)
    elif code.python is not None and code.origin_ns:
        located = _sampled(code, code.python, spans, allocations.kind)
    else:
        count = len(allocations.event)
        located = Lines(np.full(count, "", object), np.full(count, NOT_RECORDED, object))
    located.source[
        (located.line == "") & ~spans.is_waited_for & (located.source != NOT_RECORDED)
    ] = OTHER_THREAD
    _by_calls(activity, allocations.op, code.cells, located)
    return located


def _same_clock(code: Code, events: Events) -> bool:
    """True if the lines were recorded during the events."""
    if code.times is None or not code.origin_ns or not len(events.start):
        return False
    changed = code.times.times - code.origin_ns
    return bool(
        changed[0] <= events.end.max() // 1000 and changed[-1] >= events.start.min() // 1000
    )


class _Spans:
    """The time around each allocation in which the cell's thread was at one line.

    Attributes
    ----------
    start, end : int64[n]
        Of the widest op around it, ps; of none, the time of the allocation.
    is_waited_for : bool[n]
        The allocation is of the thread of the steps, or of the backward pass.
    """

    def __init__(self, activity: act.Activity, events: Events, allocations: Allocations) -> None:
        ops = activity.torch_ops
        widest = np.append(_widest(ops), -1)[allocations.op]
        time = events.start[allocations.event]
        self.start: Int64s = np.where(widest >= 0, np.append(ops.start, 0)[widest], time)
        self.end: Int64s = np.where(widest >= 0, np.append(ops.end, 0)[widest], time)
        on_thread = np.isin(events.lane[allocations.event], _lanes_of_steps(activity, events))
        is_backward = np.append((ops.forward >= 0) | _begins(activity, _BACKWARD), False)[widest]
        self.is_waited_for: npt.NDArray[np.bool_] = on_thread | is_backward


def _widest(ops: TorchOps) -> Int64s:
    """By op, the row of the outermost op around it, without annotations and runtime calls."""
    widest = np.arange(len(ops))
    is_op = ops.kind == act.TORCH_OP
    for level in nesting.levels(ops.parent.astype(np.int32))[1:]:
        nested = level[is_op[level] & is_op[ops.parent[level]]]
        widest[nested] = widest[ops.parent[nested]]
    return widest


def _lanes_of_steps(activity: act.Activity, events: Events) -> Int64s:
    """Lanes of the threads that mark steps, or call an optimizer."""
    markers = activity.markers
    marks = markers.event[(markers.event >= 0) & (markers.device < 0)]
    calls = activity.torch_ops.event[_begins(activity, _OPTIMIZER)]
    return np.unique(events.lane[np.concatenate([marks, calls])]).astype(np.int64)


def _begins(activity: act.Activity, prefix: str) -> npt.NDArray[np.bool_]:
    """By op, whether its name begins so."""
    op = activity.torch_ops.op
    names = activity.ops.values
    return np.isin(op, [code for code in np.unique(op) if str(names[code]).startswith(prefix)])


def _recorded(code: Code, times: LineTimes, spans: _Spans) -> Lines:
    """By the line that ran in the middle of the op, which holds though the clocks are some µs
    apart.
    """
    from nbprof.analysis.input.workers import location

    middle = (spans.start + (spans.end - spans.start) // 2) // 1000 + code.origin_ns
    running = np.where(spans.is_waited_for, times.running(middle), -1)
    texts = [location(_file(cell), line, code.cells) for cell, line in times.lines]
    line = np.array([*texts, ""], object)[running]
    source = np.where(running >= 0, RECORDED, NO_LINE).astype(object)
    if times.truncated:
        source[middle > times.times[-1]] = NO_MORE_LINES
    return Lines(line, source)


def _file(cell: str) -> str:
    """A file name that stands for the cell of a stem."""
    return f"ipykernel_0/{cell}.py"


def _sampled(code: Code, python: Python, spans: _Spans, kind: Int64s) -> Lines:
    """By the stacks that were sampled while the ops ran."""
    moment, texts = python.person_lines()
    line = np.full(len(kind), "", object)
    source = np.full(len(kind), NOT_SAMPLED, object)
    if not len(moment):
        return Lines(line, source)
    start = spans.start // 1000 + code.origin_ns + _CLOCKS_NS
    end = spans.end // 1000 + code.origin_ns - _CLOCKS_NS
    sample = np.minimum(np.searchsorted(moment, start), len(moment) - 1)
    is_met = spans.is_waited_for & (moment[sample] >= start) & (moment[sample] <= end)
    rows = pd.DataFrame({"kind": kind[is_met], "line": texts[sample[is_met]]}).drop_duplicates()
    for of_kind, sampled in rows.groupby("kind", sort=False)["line"]:
        alike = (kind == of_kind) & spans.is_waited_for
        if len(sampled) == 1:
            line[alike], source[alike] = sampled.iloc[0], SAMPLED
        else:
            source[alike] = SEVERAL
    return Lines(line, source)


def _by_calls(activity: act.Activity, op: Int64s, cells: Mapping[str, int], located: Lines) -> None:
    """Fill in the lines that are unknown by the calls that PyTorch's profiler recorded around an
    op, or around the forward op that one of the backward pass belongs to.
    """
    from nbprof.analysis.input.workers import location
    from nbprof.analysis.lines import person_calls

    stacks, ops = activity.torch_stacks, activity.torch_ops
    unknown = np.flatnonzero(located.line == "")
    if stacks is None or not len(stacks.frame) or not len(unknown):
        return
    places = person_calls(stacks)
    texts = [""] * (len(places) + 1)
    for code, call in enumerate(places):
        if call is not None:
            cell, line = call
            texts[code] = location(_file(cell) if cell.isdigit() else cell, line, cells, short=True)
    stack = np.append(np.where(ops.forward >= 0, ops.stack[ops.forward], ops.stack), -1)
    line_of_call = np.array(texts, object)[stack[op[unknown]]]
    located.line[unknown] = line_of_call
    is_known = line_of_call != ""
    located.source[unknown[is_known]] = CALLS
    never = (located.source == NOT_RECORDED) & (located.line == "")
    located.source[never] = NO_CALL

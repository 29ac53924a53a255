"""Iterations of inference engines: what marks them on a host, and when it began and ended each."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from nbprof.core.intervals import ends_before
from nbprof.core.trace import Int64s
from nbprof.dialects import torchnames
from nbprof.dialects.gpu.engines import DECODE, IDLE, PREFILL, Iteration, annotated
from nbprof.dialects.gpu.lanes import ANNOTATION, CALL, OP, PYTHON
from nbprof.dialects.gpu.links import Links
from nbprof.dialects.lookups import names_that

_RUN_BATCH = re.compile(r"(?:.*\bscheduler\.py\(\d+\): |scheduler\.)?run_batch\Z")
_FORWARD = re.compile(r"(?:.*\bmodel_runner\.py\(\d+\): )?forward_(extend|decode|idle)\Z")
_MODES_OF_FORWARD = {"extend": PREFILL, "decode": DECODE, "idle": IDLE}
_SCOPE = "gpu_model_runner: forward"


class Found(NamedTuple):
    """The iterations of a host: marks, descriptions, begin and end on the host (ps), and a noun."""

    marks: Int64s
    iterations: list[Iteration]
    begun: Int64s
    done: Int64s
    noun: str


def find(links: Links, host: int) -> Found | None:
    """The iterations of a host in time order; None without marks or for a program that trains."""
    trace, events = links.trace, links.trace.events
    names = list(map(str, trace.names))
    by_code: dict[int, Iteration] = {}
    batches: set[int] = set()
    scopes: set[int] = set()
    for code, name in enumerate(names):
        iteration = annotated(name)
        if iteration is not None:
            by_code[code] = iteration
        if name.endswith("run_batch") and _RUN_BATCH.match(name):
            batches.add(code)
        if name == _SCOPE:
            scopes.add(code)
    for codes, noun in (
        (set(by_code), "annotations"),
        (batches, "calls of run_batch"),
        (scopes, f"annotations {_SCOPE!r}"),
    ):
        if not codes:
            continue
        rows = links.rows(ANNOTATION)
        rows = rows[np.isin(events.name[rows], list(codes)) & (links.host[rows] == host)]
        if codes is batches and not len(rows):
            rows = links.rows(PYTHON)
            rows = rows[np.isin(events.name[rows], list(codes)) & (links.host[rows] == host)]
        marks = _one_thread(links, rows)
        if not len(marks) or _training(links, host, marks):
            continue
        if codes is batches:
            read = _by_forward(links, marks)
        else:
            read = [by_code.get(code, Iteration()) for code in events.name[marks].tolist()]
        ahead = codes is not scopes and not names[int(events.name[marks[0]])].startswith("execute_")
        return Found(marks, read, *_bounds(links, host, marks, ahead), noun)
    return None


def _one_thread(links: Links, rows: Int64s) -> Int64s:
    """Those of the lane with most of them, without those inside another one."""
    events = links.trace.events
    if not len(rows):
        return rows
    lanes, counts = np.unique(events.lane[rows], return_counts=True)
    rows = rows[events.lane[rows] == lanes[counts.argmax()]]
    return rows[events.start[rows] >= ends_before(events.end[rows])]


def _training(links: Links, host: int, marks: Int64s) -> bool:
    """True if iterations are parts of steps, as of a trainer with an engine in its process."""
    trace, events = links.trace, links.trace.events
    rows = links.rows(ANNOTATION)
    rows = rows[links.host[rows] == host]
    if names_that(torchnames.OPTIMIZER.match, trace.names)[events.name[rows]].any():
        return True
    steps = rows[names_that(torchnames.STEP.match, trace.names)[events.name[rows]]]
    begun = events.start[marks]
    inner = np.searchsorted(begun, events.end[steps]) - np.searchsorted(begun, events.start[steps])
    # vLLM calls the profiler's step() once an iteration.
    return bool((inner > 1).any())


def _by_forward(links: Links, marks: Int64s) -> list[Iteration]:
    """The kinds of batches by the pass that runs in each: the first of its thread."""
    trace, events = links.trace, links.trace.events
    modes: dict[int, str] = {}
    for code, name in enumerate(trace.names):
        match = _FORWARD.match(str(name))
        if match:
            modes[code] = _MODES_OF_FORWARD[match[1]]
    rows = links.rows(ANNOTATION, PYTHON)
    rows = rows[
        (events.lane[rows] == events.lane[marks[0]]) & np.isin(events.name[rows], list(modes))
    ]
    first = np.searchsorted(events.start[rows], events.start[marks])
    kinds = []
    for first_row, end in zip(first.tolist(), events.end[marks].tolist(), strict=True):
        has_row = first_row < len(rows) and events.start[rows[first_row]] < end
        kinds.append(Iteration(modes[int(events.name[rows[first_row]])] if has_row else ""))
    return kinds


def _bounds(links: Links, host: int, marks: Int64s, ahead: bool) -> tuple[Int64s, Int64s]:
    """When the host began and ended each iteration, with what it launched between two annotations.

    Sampling comes after the annotation: what is launched up to the next one belongs to the
    iteration before. Where the host prepares a batch before its annotation (`ahead`), that holds up
    to the longest pause; what comes after it belongs to the iteration that follows. Without a
    device, ops of the thread stand for launches.
    """
    events = links.trace.events
    begun, done = events.start[marks].copy(), events.end[marks].copy()
    launches = np.unique(links.launch[(links.launch >= 0) & (links.host[links.work] == host)])
    if not len(launches):
        launches = links.rows(OP, CALL)
        launches = launches[events.lane[launches] == events.lane[marks[0]]]
    launches = launches[np.argsort(events.start[launches], kind="stable")]
    start, end = events.start[launches], events.end[launches]
    low = np.searchsorted(start, done)
    high = np.append(np.searchsorted(start, begun[1:]), len(start))
    for i in np.flatnonzero(low < high).tolist():
        first, last = int(low[i]), int(high[i])
        if ahead and i + 1 < len(marks):
            pauses = np.append(start[first:last], begun[i + 1]) - np.append(
                done[i], np.maximum.accumulate(end[first:last])
            )
            last = first + int(pauses.argmax())
            if last < int(high[i]):
                begun[i + 1] = start[last]
        if first < last:
            done[i] = end[first:last].max()
            if i + 1 < len(marks):
                done[i] = min(done[i], begun[i + 1])
    return begun, done

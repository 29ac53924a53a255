"""The steps of an Ascend profile: iterations of the training graph, or torch_npu's marks.

An iteration lasts from the end of the previous one to the end of its work, so it includes the wait
for its input; the first has no recorded wait, and is not averaged.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.unit import ANY, ITERATION, MARKED, NONE, RECORDING, Unit
from nbprof.core.intervals import one_at_a_time
from nbprof.core.trace import Int64s, Table, Trace
from nbprof.dialects import repeats
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import names_that, of_host
from nbprof.dialects.msprof import lanes as on
from nbprof.dialects.msprof import notes
from nbprof.dialects.msprof.work import Work
from nbprof.formats.msprof.iterations import spans as spans_of

MARK = re.compile(r"ProfilerStep#(\d+)\Z")

HOW = (
    "This profile has no steps, so step time is unknown: msprof records only iterations of graphs"
    " (training_trace on; a run of single ops has none), and torch_npu.profiler marks steps if"
    " prof.step() is called at the end of each and a schedule is given."
)


def find(trace: Trace, work: Work, launch: Int64s) -> Steps:
    """The steps of all hosts; `launch` is the call that started each piece of `work`, -1."""
    parts = []
    for host in range(len(trace.hosts)):
        part = _iterations(trace, host)
        if part is None:
            part = _marked(trace, work, launch, host)
        if part is None:
            part = _numbered(trace, host)
        if part is not None:
            parts.append(part)
    return Steps.joined(parts)


def found_or_estimated(trace: Trace, work: Work, launch: Int64s) -> tuple[Steps, Unit]:
    """The steps of all hosts, else repeats of the kernels of a stream, else the recordings.

    `launch` is the call that started each piece of `work`, -1 if unknown.
    """
    steps = find(trace, work, launch)
    if len(steps.host) or trace.units == NONE:
        return steps, MARKED
    host_of_work = work.host(work.rows)
    hosts = np.unique(host_of_work).tolist()
    if len(hosts) == 1 and trace.units == ANY:
        estimated = _repeats(trace, hosts[0], work.rows)
        if estimated is not None:
            return estimated
    how = "No steps are marked and nothing repeats, so figures are for the whole recording."
    parts = [_recording(trace, host, work.rows[host_of_work == host]) for host in hosts]
    return Steps.joined(parts), Unit(RECORDING, how)


def _repeats(trace: Trace, host: int, rows: Int64s) -> tuple[Steps, Unit] | None:
    events = trace.events
    kernels = repeats.on_busiest_lane(events, rows)
    repeated = repeats.find(np.unique(events.name[kernels], return_inverse=True)[1].reshape(-1))
    if repeated is None:
        return None
    first = kernels[repeated.first]
    start = events.start[first]
    end = np.append(start[1:], events.end[kernels[repeated.end - 1]])
    recorded = events.end[rows].max() - events.start[rows].min()
    if (end <= start).any() or end[-1] - start[0] < repeats.MOST_OF * recorded:
        return None
    names = [f"{ITERATION} {number}" for number in range(len(first))]
    how = (
        "No steps are marked. Iterations are repeats of the sequence of kernels on the busiest"
        f" stream: an estimate that fits {100 * repeated.agreement:.0f}% of the events."
    )
    return _steps(host, first, start, end, names), Unit(ITERATION, how, repeated.agreement)


def _recording(trace: Trace, host: int, rows: Int64s) -> Steps:
    events = trace.events
    first = rows[np.argmin(events.start[rows])]
    start, end = np.array([events.start[first]]), np.array([events.end[rows].max()])
    return _steps(host, np.array([first]), start, end, [RECORDING])


def _steps(host: int, event: Int64s, start: Int64s, end: Int64s, names: list[str]) -> Steps:
    order = np.argsort(start, kind="stable")
    group = np.arange(len(order))
    start, end = start[order], end[order]
    return Steps(
        np.full(len(order), host),
        group,
        event[order],
        start,
        end,
        start,
        end,
        [names[i] for i in order.tolist()],
    )


def iterations(trace: Trace, host: int) -> pd.DataFrame | None:
    """Iterations of the graph with most of them (then most time) on a host, in order; or None."""
    best: pd.DataFrame | None = None
    best_size = (0, 0)
    for table in _step_traces(trace, host):
        frame = table.frame[(table.frame["event"] >= 0).to_numpy(np.bool_)]
        keys = [_numbers(frame, "model_id"), _numbers(frame, "device_id")]
        for _, part in frame.groupby(keys, sort=True):
            events = part["event"].to_numpy(np.int64)
            size = (len(part), int(trace.events.duration[events].sum()))
            if size > best_size:
                best, best_size = part, size
    if best is None:
        return None
    return best.sort_values("iteration_end_ps", kind="stable")


def _step_traces(trace: Trace, host: int) -> list[Table]:
    tables = trace.tables.get("step_trace", [])
    return [table for table in tables if table.host == host and len(table)]


def _numbers(frame: pd.DataFrame, column: str) -> Int64s:
    """A column of numbers; -1 where none is stated."""
    if column not in frame:
        return np.full(len(frame), -1)
    return frame[column].fillna(-1).to_numpy(np.int64)


def _iterations(trace: Trace, host: int) -> Steps | None:
    frame = iterations(trace, host)
    if frame is None:
        return None
    events = frame["event"].to_numpy(np.int64)
    start = trace.events.start[events]
    names = list(map(str, trace.names[trace.events.name[events]]))
    steps = _steps(host, events, start, trace.events.end[events], names)
    suffix = of_host(trace, host)
    if len(events) > 1:
        steps.truncated = {(host, 0)}
        steps.notes.append(notes.startup_iterations(suffix, len(events)))
    other_rows = sum(map(len, _step_traces(trace, host))) - len(events)
    if other_rows > 0:
        source = "one device"
        if "model_id" in frame and not pd.isna(frame["model_id"].iloc[0]):
            source = f"model {frame['model_id'].iloc[0]}"
        steps.notes.append(notes.other_iterations(suffix, source, other_rows))
    return steps


class Gaps(NamedTuple):
    """Waits for input: the event of the iteration that waits, its host, start and end (ps)."""

    event: Int64s
    host: Int64s
    start: Int64s
    end: Int64s


def gaps(trace: Trace, steps: Steps) -> Gaps:
    """Waits for input, from the previous iteration to the first forward op."""
    parts = [np.zeros((4, 0), np.int64)]
    for host in np.unique(steps.host).tolist():
        frame = iterations(trace, host)
        if frame is None or not {"fp_start_ps", "data_aug_bound_us"} & set(frame.columns):
            continue
        begin, end = spans_of(frame)
        first = np.full(len(frame), -1)
        if "data_aug_bound_us" in frame:
            # Files without a mark of the forward pass state the wait.
            wait = frame["data_aug_bound_us"].to_numpy(np.float64)
            is_stated = (wait > 0) & (wait * 1e6 <= end - begin)
            wait_ps = np.rint(wait[is_stated] * 1e6).astype(np.int64)
            first[is_stated] = begin[is_stated] + wait_ps
        if "fp_start_ps" in frame:
            forward = _numbers(frame, "fp_start_ps")
            has_forward = frame["fp_start_ps"].notna().to_numpy(np.bool_)
            first[has_forward] = forward[has_forward]
        good = (first > begin) & (begin >= 0) & (np.arange(len(frame)) > 0)
        event = frame["event"].to_numpy(np.int64)
        columns = np.stack([event, np.full(len(event), host), begin, first])
        parts.append(columns[:, good])
    return Gaps(*np.concatenate(parts, axis=1))


def _marked(trace: Trace, work: Work, launch: Int64s, host: int) -> Steps | None:
    """Steps that the program marked, extended over the device work launched in them."""
    events = trace.events
    marks = names_that(MARK.match, trace.names)
    if not marks.any():
        return None
    rows = np.flatnonzero(marks[events.name])
    rows = rows[(work.host(rows) == host) & (work.lane_kinds[events.lane[rows]] == on.PYTHON)]
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    if not len(rows):
        return None
    start, last = events.start[rows], events.end[rows].copy()
    host_work = np.flatnonzero(work.host(work.rows) == host)
    # Work without a launch counts from its own start.
    begun_by = np.where(launch >= 0, launch, work.rows)[host_work]
    begun = events.start[begun_by]
    step = np.searchsorted(start, begun, side="right") - 1
    within = (step >= 0) & (begun < events.end[rows][step])
    np.maximum.at(last, step[within], events.end[work.rows[host_work[within]]])
    first, last = one_at_a_time(start, last)
    names = list(map(str, trace.names[events.name[rows]]))
    return _steps(host, rows, first, last, names)


def _numbered(trace: Trace, host: int) -> Steps | None:
    """Steps by the stated number of each kernel, from the first kernel to that of the next step."""
    for table in trace.tables.get("op_summary", []):
        frame = table.frame
        if table.host != host or "step_id" not in frame:
            continue
        numbered = frame[(frame["step_id"].notna() & (frame["event"] >= 0)).to_numpy(np.bool_)]
        if not len(numbered):
            continue
        events = numbered["event"].to_numpy(np.int64)
        start, end = trace.events.start[events], trace.events.end[events]
        spans = pd.DataFrame(
            {
                "step": numbered["step_id"].to_numpy(np.int64),
                "start": start,
                "end": end,
                "event": events,
            }
        )
        # The first event of each stands for it.
        steps = (
            spans.sort_values("start")
            .groupby("step")
            .agg({"start": "min", "end": "max", "event": "first"})
            .sort_values("start")
        )
        start = steps["start"].to_numpy(np.int64)
        end = np.maximum(np.append(start[1:], steps["end"].iloc[-1]), start + 1)
        result = _steps(
            host,
            steps["event"].to_numpy(np.int64),
            start,
            end,
            [f"step {n}" for n in steps.index.tolist()],
        )
        result.notes.append(notes.steps_by_kernels())
        return result
    return None

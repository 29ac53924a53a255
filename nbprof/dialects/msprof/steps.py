"""The steps of an Ascend profile: iterations of the training graph, or torch_npu's marks.

An iteration lasts from the end of the previous one to the end of its work, so it includes the wait
for its input; the first has no recorded wait, and is not averaged.

An iteration lasts from the end of the one before to its own end, so that the wait for its input
counts for it; of the first that wait is not recorded, and it is not averaged.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.activity.unit import ANY, ITERATION, MARKED, NONE, RECORDING, Unit
from nbprof.core.intervals import one_at_a_time
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects import repeats
from nbprof.dialects.gpu.steps import Steps
from nbprof.dialects.lookups import of_host
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
        part = _marked(trace, work, launch, host) if part is None else part
        part = _numbered(trace, host) if part is None else part
        if part is not None:
            parts.append(part)
    return Steps.joined(parts)


def found_or_estimated(trace: Trace, work: Work, launch: Int64s) -> tuple[Steps, Unit]:
    """The steps of all hosts, else repeats of the kernels of a stream, else the recordings.

    `launch` is the call that started each piece of `work`, -1 if unknown.

    `launch` is the call that started each piece of `work`, -1 where it is not known.
    """
    steps = find(trace, work, launch)
    if len(steps.host) or trace.units == NONE:
        return steps, MARKED
    of_host = work.host(work.rows)
    hosts = [(host, work.rows[of_host == host]) for host in range(len(trace.hosts))]
    hosts = [(host, rows) for host, rows in hosts if len(rows)]
    repeats_found = _repeats(trace, *hosts[0]) if len(hosts) == 1 and trace.units == ANY else None
    if repeats_found is not None:
        repeated, agreement = repeats_found
        share = f"an estimate that fits {100 * agreement:.0f}% of the events"
        how = (
            "No steps are marked. Iterations are repeats of the sequence of kernels on the busiest"
            f" stream: {share}."
        )
        return repeated, Unit(ITERATION, how, agreement)
    how = "No steps are marked and nothing repeats, so figures are for the whole recording."
    return Steps.joined([_recording(trace, host, rows) for host, rows in hosts]), Unit(
        RECORDING, how
    )


def _repeats(trace: Trace, host: int, rows: Int64s) -> tuple[Steps, float] | None:
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
    return (
        _steps(host, first, start, end, [f"{ITERATION} {number}" for number in range(len(first))]),
        repeated.agreement,
    )


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
    candidates = []
    for table in trace.tables.get("step_trace", []):
        if table.host == host and len(table):
            frame = table.frame[(table.frame["event"] >= 0).to_numpy(np.bool_)]
            keys = [
                frame[c].fillna(-1).to_numpy(np.int64) if c in frame else np.full(len(frame), -1)
                for c in ("model_id", "device_id")
            ]
            for _, part in frame.groupby(keys, sort=True):
                events = part["event"].to_numpy(np.int64)
                candidates.append((len(part), int(trace.events.duration[events].sum()), part))
    if not candidates:
        return None
    best: pd.DataFrame = max(candidates, key=lambda candidate: candidate[:2])[2]
    return best.sort_values("iteration_end_ps", kind="stable")


def _iterations(trace: Trace, host: int) -> Steps | None:
    frame = iterations(trace, host)
    if frame is None:
        return None
    events = frame["event"].to_numpy(np.int64)
    start = trace.events.start[events]
    names = [str(trace.names[c]) for c in trace.events.name[events].tolist()]
    steps = _steps(host, events, start, trace.events.end[events], names)
    suffix = of_host(trace, host)
    if len(events) > 1:
        steps.truncated = {(host, 0)}
        steps.notes.append(notes.startup_iterations(suffix, len(events)))
    other_rows = sum(
        len(t.frame) for t in trace.tables.get("step_trace", []) if t.host == host
    ) - len(events)
    if other_rows > 0:
        model = frame["model_id"].iloc[0] if "model_id" in frame else None
        source = "one device" if model is None or pd.isna(model) else f"model {model}"
        steps.notes.append(notes.other_iterations(suffix, source, other_rows))
    return steps


def gaps(trace: Trace, steps: Steps) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Waits for input, from the previous iteration to the first forward op.

    Returns event, host, start and end (ps).
    """
    event: list[Int64s] = []
    spans: list[tuple[Int64s, Int64s, Int64s]] = []
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
            first = np.where(
                is_stated, begin + np.rint(np.where(is_stated, wait, 0) * 1e6).astype(np.int64), -1
            )
        if "fp_start_ps" in frame:
            first = np.where(
                frame["fp_start_ps"].notna().to_numpy(np.bool_),
                frame["fp_start_ps"].fillna(-1).to_numpy(np.int64),
                first,
            )
        good = (first > begin) & (begin >= 0) & (np.arange(len(frame)) > 0)
        event.append(frame["event"].to_numpy(np.int64)[good])
        spans.append((np.full(int(good.sum()), host), begin[good], first[good]))
    nothing = np.zeros(0, np.int64)
    if not event:
        return nothing, nothing, nothing, nothing
    hosts, start, end = (np.concatenate(column) for column in zip(*spans, strict=True))
    return np.concatenate(event), hosts, start, end


def _marked(trace: Trace, work: Work, launch: Int64s, host: int) -> Steps | None:
    """Steps that the program marked, extended over the device work launched in them."""
    events = trace.events
    codes = np.flatnonzero([MARK.match(str(name)) is not None for name in trace.names])
    rows = np.flatnonzero(np.isin(events.name, codes)) if len(codes) else np.zeros(0, np.int64)
    rows = rows[(work.host(rows) == host) & (work.lane_kinds[events.lane[rows]] == on.PYTHON)]
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    if not len(rows):
        return None
    start, last = events.start[rows], events.end[rows].copy()
    host_work = np.flatnonzero(work.host(work.rows) == host)
    begun = np.where(
        launch[host_work] >= 0, events.start[launch[host_work]], events.start[work.rows[host_work]]
    )
    step = np.searchsorted(start, begun, side="right") - 1
    within = (step >= 0) & (begun < events.end[rows][step])
    np.maximum.at(last, step[within], events.end[work.rows[host_work[within]]])
    first, last = one_at_a_time(start, last)
    names = [str(trace.names[c]) for c in events.name[rows].tolist()]
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

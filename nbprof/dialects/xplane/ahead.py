"""Steps that a program marks, but only dispatches: JAX returns before the work is done.

Where nothing waits for the result, a marked step on the CPU takes microseconds until the runtime's
queue is full; its programs run later. Such a step lasts until the programs that it dispatched have
run, and begins where the one before it ended, as the steps of a device do. The mean is then what
the loop takes; `as_xprof()` has the marks as they are, as XProf does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.factorize import heads, starting
from nbprof.core.intervals import one_at_a_time
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects.xplane import notes
from nbprof.dialects.xplane.grouping import Groups, nearest
from nbprof.dialects.xplane.programs import (
    LAUNCH,
    ProgramSteps,
    called,
    function_of,
    plain,
    runs_of_programs,
)


def find(
    trace: Trace, groups: Groups, host: npt.NDArray[np.integer], lane_kind: npt.NDArray[np.object_]
) -> ProgramSteps | None:
    """Steps of hosts without a device whose marks end before most of their work; or None."""
    if "hlo_module" not in trace.args or not groups.roots:
        return None
    with_device = set(np.unique(host[(lane_kind == "device")[trace.events.lane]]).tolist())
    hosts = sorted({host_index for host_index, _ in groups.roots} - with_device)
    runs, _ = runs_of_programs(trace, host, lane_kind, hosts)
    launches = _calls(trace)
    parts = []
    for host_index in hosts:
        host_runs = runs[runs["host"] == host_index]
        host_launches = launches[host[launches] == host_index]
        steps = _of_host(trace, groups, host_index, host_runs, host_launches)
        if steps is not None:
            parts.append(steps)
    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    ran = runs.loc[runs["host"].isin(table["host"]), ["host", "module", "start", "end"]]
    return ProgramSteps(
        table, [notes.steps_dispatched_ahead()], runs=ran, marked=frozenset(table["host"].tolist())
    )


def _calls(trace: Trace) -> Int64s:
    """Calls of compiled functions, each once: JAX records some within themselves."""
    events = trace.events
    calls = starting(heads(trace.names), LAUNCH)[events.name]
    rows = np.flatnonzero(calls)
    around = nearest(events.parent, events.parent[rows].astype(np.int64), calls)
    return np.asarray(rows[(around < 0) | (events.name[around] != events.name[rows])], np.int64)


def _of_host(
    trace: Trace, groups: Groups, host_index: int, runs: pd.DataFrame, launches: Int64s
) -> pd.DataFrame | None:
    """The steps of one host in time order; None if they are as marked, or their work is unknown."""
    events = trace.events
    marks = []
    for (mark_host, number), mark in groups.roots.items():
        if mark_host == host_index and not groups.names[mark_host, number].isdigit():
            marks.append((number, mark))
    if not marks or not len(runs):
        return None
    group, root = np.array(marks, np.int64).T
    order = np.argsort(events.start[root], kind="stable")
    group, root = group[order], root[order]
    begin, end = events.start[root], events.end[root]
    ran, event = _last_runs(trace, groups, group, runs, launches)
    has_run = ran >= 0
    if not has_run.any() or 2 * int((ran > end)[has_run].sum()) <= int(has_run.sum()):
        return None
    begin, end = one_at_a_time(begin, np.maximum(end, ran))
    if (end <= begin).any():
        # A step that dispatched nothing while others ran has no time.
        return None
    names = [groups.names[host_index, number] for number in group.tolist()]
    return pd.DataFrame(
        {
            "host": host_index,
            "group": group,
            "event": event,
            "begin": begin,
            "end": end,
            "name": names,
        }
    )


def _last_runs(
    trace: Trace, groups: Groups, group: Int64s, runs: pd.DataFrame, launches: Int64s
) -> tuple[Int64s, Int64s]:
    """By step: end of the last run that it dispatched (-1: unknown), and an event of that run.

    The n-th call of a function is the n-th run of its program, where there are as many of the one
    as of the other.
    """
    events = trace.events
    ended, event = np.full(len(group), -1, np.int64), np.full(len(group), -1, np.int64)
    order = np.argsort(group)
    module, seen = pd.factorize(runs["module"])
    function = np.array([plain(function_of(name)) for name in seen], object)[module]
    launches = launches[np.argsort(events.start[launches], kind="stable")]
    for code in np.unique(events.name[launches]).tolist():
        calls = launches[events.name[launches] == code]
        program_runs = runs[function == called(str(trace.names[code]))].sort_values(
            "start", kind="stable"
        )
        if len(program_runs) != len(calls):
            continue
        step = np.searchsorted(group, groups.group[calls], sorter=order)
        in_step = (step < len(group)) & (
            group[order[np.minimum(step, len(group) - 1)]] == groups.group[calls]
        )
        of_step, last = order[step[in_step]], program_runs["end"].to_numpy(np.int64)[in_step]
        later = last > ended[of_step]
        np.maximum.at(ended, of_step, last)
        event[of_step[later]] = program_runs["event"].to_numpy(np.int64)[in_step][later]
    return ended, event

"""The unit of a recording without steps and repeating programs: iterations, repeats, or all.

In this order: iterations of the loop of a recorded cell; calls of one compiled function, if the
calls between their begins repeat; the repeating sequence of kernels of the busiest stream; that of
the outermost events of the busiest thread; else all of the recording, from its first to its last
event of work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work
from nbprof.activity.unit import ANY, CALL, ITERATION, NAMED, RECORDING, Unit
from nbprof.core.factorize import heads, starting
from nbprof.core.trace import Int64s, Trace
from nbprof.dialects import repeats
from nbprof.dialects.iterations import Placed, first_events
from nbprof.dialects.xplane.grouping import Groups
from nbprof.dialects.xplane.programs import ProgramSteps

CHOOSE = "`for batch in nbprof.steps(batches):` marks the steps of another loop."
_PROFILER = (
    "ProfilerSession", "StartProfile", "StopProfile", "TraceMe::", "ThreadpoolListener::", "$",
    "end: ", "PythonRefManager::",
)  # fmt: skip
"""Events of the recorder, of thread pools, and calls of Python: no work of the program."""

_DEEPEST = 3


@dataclass(frozen=True)
class Found:
    """The units of one host: kind, first event, begin and end (ps)."""

    kind: str
    how: str
    agreement: float | None
    event: Int64s
    begin: Int64s
    end: Int64s


def find(
    trace: Trace, groups: Groups, host: npt.NDArray[np.integer], lane_kind: npt.NDArray[np.object_]
) -> tuple[ProgramSteps | None, Unit]:
    """The units of all hosts with work as steps, and their kind; None without work.

    Of several hosts they are their recordings.

    Parameters
    ----------
    trace : Trace
    groups : Groups
        What the marks in the file say: groups of eager ops keep their numbers.
    host : int[events]
    lane_kind : object[lanes]
    """
    work = _work(trace, lane_kind)
    if not len(work):
        return None, Unit(RECORDING, "The recording contains no work.")
    hosts = np.unique(host[work]).tolist()
    searches = {ANY: (_by_functions, _by_kernels, _by_thread), NAMED: (_by_functions,)}
    if len(hosts) == 1:
        for search in searches.get(trace.units, ()):
            candidate = search(trace, work, lane_kind)
            if candidate is not None and _covers(trace, work, candidate):
                return _steps(groups, host, {hosts[0]: candidate}), _unit(candidate)
    recordings = {number: _recording(trace, work[host[work] == number]) for number in hosts}
    how = (
        f"No steps are marked and nothing repeats, so figures are for the whole recording. {CHOOSE}"
    )
    return _steps(groups, host, recordings), Unit(RECORDING, how)


def of_iterations(trace: Trace, groups: Groups, iterations: Placed) -> ProgramSteps:
    """Iterations of a notebook's loop as steps that are found by time."""
    rows = np.arange(len(trace.events))
    above = int(groups.group.max(initial=-1)) + 1
    columns = {
        "host": np.zeros(len(iterations.start), np.int64),
        "group": above + np.arange(len(iterations.start)),
        "event": first_events(trace, rows, iterations.start),
        "begin": iterations.start,
        "end": iterations.end,
        "name": iterations.names,
    }
    return ProgramSteps(pd.DataFrame(columns), complete=True)


def waits(steps: ProgramSteps, iterations: Placed) -> Work:
    """Rows of the `work` table: the time that iterations wait for their items."""
    table = steps.table
    return Work(
        event=table["event"],
        host=table["host"],
        group=table["group"],
        device=-1,
        start=iterations.start,
        end=iterations.item,
        cls=act.HOST_WAIT_INPUT,
    )


def _covers(trace: Trace, rows: Int64s, units: Found) -> bool:
    """True if units take most of the time in which a host worked."""
    events = trace.events
    recorded = events.end[rows].max() - events.start[rows].min()
    return bool((units.end - units.begin).sum() >= repeats.MOST_OF * recorded)


def _work(trace: Trace, lane_kind: npt.NDArray[np.object_]) -> Int64s:
    """Events of the program on devices and threads of the host."""
    events = trace.events
    of_lane = np.isin(lane_kind, ("device", "host"))
    left_out = starting(heads(trace.names), *_PROFILER)
    aside = np.zeros(len(trace.lanes), np.bool_)
    if "aside" in trace.lanes:
        aside = trace.lanes["aside"].to_numpy(np.bool_)
    return np.flatnonzero((of_lane & ~aside)[events.lane] & ~left_out[events.name])


def _steps(groups: Groups, host: npt.NDArray[np.integer], units: dict[int, Found]) -> ProgramSteps:
    tables = []
    for number, host_units in units.items():
        above = int(groups.group[host == number].max(initial=-1)) + 1
        count = len(host_units.begin)
        if host_units.kind == RECORDING:
            names = [RECORDING]
        else:
            names = [f"{host_units.kind} {index}" for index in range(count)]
        group = above + np.arange(count)
        columns = {
            "host": number,
            "group": group,
            "event": host_units.event,
            "begin": host_units.begin,
            "end": host_units.end,
            "name": names,
        }
        tables.append(pd.DataFrame(columns))
    return ProgramSteps(pd.concat(tables, ignore_index=True), complete=True)


def _unit(units: Found) -> Unit:
    if units.agreement is None:
        return Unit(units.kind, f"No steps are marked. The {units.how}. {CHOOSE}")
    share = f"{100 * units.agreement:.0f}%"
    how = (
        f"No steps are marked. The {units.how}: an estimate that fits {share} of the events."
        f" {CHOOSE}"
    )
    return Unit(units.kind, how, units.agreement)


def _recording(trace: Trace, rows: Int64s) -> Found:
    events = trace.events
    first = rows[np.argmin(events.start[rows])]
    return Found(
        RECORDING,
        "",
        None,
        np.array([first]),
        np.array([events.start[first]]),
        np.array([events.end[rows].max()]),
    )


def _by_kernels(trace: Trace, rows: Int64s, lane_kind: npt.NDArray[np.object_]) -> Found | None:
    """The repeating sequence of kernels of the busiest stream of a device."""
    return _repeating(
        trace, rows[(lane_kind == "device")[trace.events.lane[rows]]], "kernel", "stream"
    )


def _by_functions(trace: Trace, rows: Int64s, lane_kind: npt.NDArray[np.object_]) -> Found | None:
    """Outermost calls of the tf.function that takes most time."""
    if "tf_function_call" not in trace.args:
        return None
    events = trace.events
    calls = rows[
        trace.above("tf_function_call", -1, text=True)[rows]
        & (lane_kind == "host")[events.lane[rows]]
    ]
    outermost = events.parent[calls] < 0
    if outermost.any():
        calls = calls[outermost]
    if len(calls) < repeats.FEWEST:
        return None
    took = np.bincount(events.name[calls], events.duration[calls].astype(np.float64))
    calls = calls[events.name[calls] == took.argmax()]
    calls = calls[events.lane[calls] == np.bincount(events.lane[calls]).argmax()]
    calls = calls[np.argsort(events.start[calls], kind="stable")]
    begin, end = events.start[calls], events.end[calls]
    if len(calls) < repeats.FEWEST or (begin[1:] < end[:-1]).any():
        return None
    name = str(trace.names[events.name[calls[0]]])
    return Found(
        CALL,
        f"units are the {len(calls):,} calls of the tf.function {name}",
        None,
        calls,
        begin,
        end,
    )


def _signatures(trace: Trace, rows: Int64s) -> Int64s:
    """A code per event by its name and its first children's: wrappers of all ops share a name."""
    events = trace.events
    code = events.name[rows].astype(np.int64)
    inner = rows
    for _ in range(_DEEPEST):
        child = np.minimum(inner + 1, len(events) - 1)
        in_inner = events.parent[child] == inner
        inner = np.where(in_inner, child, inner)
        name = np.where(in_inner, events.name[child].astype(np.int64) + 1, 0)
        code = np.unique(code * (len(trace.names) + 1) + name, return_inverse=True)[1].reshape(-1)
    return code


def _by_thread(trace: Trace, rows: Int64s, lane_kind: npt.NDArray[np.object_]) -> Found | None:
    """The repeating sequence of outermost events of the busiest thread."""
    events = trace.events
    outer = rows[(lane_kind == "host")[events.lane[rows]] & (events.parent[rows] < 0)]
    of_python = trace.lanes["thread"].astype(str).str.startswith("python").to_numpy()
    python = of_python[events.lane[outer]]
    if int(python.sum()) >= repeats.FEWEST:
        # Calls of the program; threads of a pool run pieces of them.
        outer = outer[python]
    return _repeating(trace, outer, "event", "thread")


def _repeating(trace: Trace, rows: Int64s, event_kind: str, lane: str) -> Found | None:
    events = trace.events
    rows = rows[events.duration[rows] > 0]
    if not len(rows):
        return None
    rows = repeats.on_busiest_lane(events, rows)
    repeated = repeats.find(_signatures(trace, rows))
    if repeated is None:
        return None
    first = rows[repeated.first]
    begin = events.start[first]
    end = np.append(begin[1:], events.end[rows[repeated.end - 1]])
    if (end <= begin).any():
        return None
    if repeated.length == 1:
        sequence = f"a single {event_kind}"
    else:
        sequence = f"the sequence of {repeated.length:,} {event_kind}s"
    how = f"{len(first):,} iterations are repeats of {sequence} on the busiest {lane}"
    return Found(ITERATION, how, repeated.agreement, first, begin, end)

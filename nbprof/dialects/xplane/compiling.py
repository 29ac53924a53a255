"""Compilation that a step found by runs of programs waits for.

JAX dispatches ahead: while the device still works on steps, the host may be at another program, and
compile it. That holds up no step. And what a loop compiles once on its way, as an evaluation
between two steps, says nothing of its steps. So compiling is a step's own where the program is one
that steps of its kind run, and while no program runs; elsewhere it is work of the host like any
other.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work
from nbprof.core.factorize import heads, starting
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Events, Int64s
from nbprof.dialects.xplane.grouping import nearest
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.programs import LAUNCH, PART_OF_STEP, ProgramSteps, function_of

COMPILES = (
    "XlaCompile",
    "TfrtCpuClient::Compile",
    "PjRtCpuClient::Compile",
    "PjRtStreamExecutorClient::Comp",
    "PJRT_Client_Compile",
    "backend_compile",
)
"""What XLA's compiling of a program is called, in TensorFlow and in JAX; its parts lie inside."""


def waited(placed: Placed, work: pd.DataFrame) -> pd.DataFrame:
    """Work with a row per step; compiling that the step does not wait for becomes host work."""
    steps = placed.program_steps
    if steps is None:
        return work
    rows = np.flatnonzero(
        (work["cls"].to_numpy() == act.HOST_COMPILE) & work["host"].isin(steps.hosts).to_numpy()
    )
    if not len(rows):
        return work
    cls = work["cls"].to_numpy().copy()
    cls[rows] = act.HOST_COMPUTE
    of_host = work.assign(cls=cls)
    piece = work.iloc[rows].merge(
        steps.table[["host", "group", "begin", "end", "name"]],
        on=["host", "group"],
        suffixes=("", "_step"),
    )
    called = _functions(placed, piece["event"].to_numpy(np.int64))
    compiled = {
        (host, kind): names
        for host in steps.hosts.tolist()
        for kind, names in _of_steps(steps, host).items()
    }
    kinds = piece["name"].str.rpartition(" ")[0]
    by_name = [
        not name or name in compiled[key]
        for name, key in zip(called, zip(piece["host"].tolist(), kinds, strict=True), strict=True)
    ]
    # A mark says itself what its step compiled.
    in_mark = placed.groups.group[piece["event"].to_numpy(np.int64)] >= 0
    piece = piece[
        np.where(piece["host"].isin(list(steps.marked)), in_mark, np.array(by_name, np.bool_))
    ]
    piece = piece.assign(
        start=piece[["start", "begin"]].max(axis=1), end=piece[["end", "end_step"]].min(axis=1)
    )
    parts = [
        _busy(steps, int(str(host))).rows_outside(rows)
        for host, rows in piece.groupby("host", sort=False)
    ]
    return (
        Work.of(of_host, *(part[list(work.columns)] for part in parts)).frame()
        if any(map(len, parts))
        else of_host
    )


def _functions(placed: Placed, rows: Int64s) -> list[str]:
    """The function that some events compile, "" if unknown.

    The call of the function is around the event; what a thread of the compiler's pool does lies in
    the time of one that is.
    """
    trace = placed.trace
    events = trace.events
    calls = starting(heads(trace.names), LAUNCH)[events.name]
    # The innermost call: in a function that is being traced, another may be called.
    compilations = np.flatnonzero(placed.named(*COMPILES)[events.name])
    compilations = compilations[np.argsort(events.start[compilations], kind="stable")]
    of_known, of_row = (
        _name_of(events, nearest(events.parent, events_, calls)) for events_ in (compilations, rows)
    )
    compilations, of_known = compilations[of_known >= 0], of_known[of_known >= 0]
    for index in np.flatnonzero(of_row < 0).tolist():
        row = rows[index]
        around = compilations[
            : np.searchsorted(events.start[compilations], events.start[row], side="right")
        ]
        end = events.start[around] + events.duration[around]
        around = np.flatnonzero(
            (placed.host[around] == placed.host[row])
            & (end >= events.start[row] + events.duration[row])
        )
        if len(around):
            of_row[index] = of_known[around[-1]]
    # A lambda's name is that of any other, so it is nobody's own.
    return [str(trace.names[row])[len(LAUNCH) : -1] if row >= 0 else "" for row in of_row.tolist()]


def _name_of(events: Events, rows: Int64s) -> Int64s:
    return np.where(rows >= 0, events.name[rows], -1).astype(np.int64)


def _of_steps(steps: ProgramSteps, host: int) -> dict[str, set[str]]:
    """The functions whose programs at least half of the steps run, by kind of step."""
    host_steps = steps.table[steps.table["host"] == host]
    kind = host_steps["name"].str.rpartition(" ")[0].to_numpy(object)
    runs = steps.runs[steps.runs["host"] == host]
    step = np.searchsorted(
        host_steps["end"].to_numpy(np.int64), runs["end"].to_numpy(np.int64), side="left"
    )
    has_step = step < len(host_steps)
    module, names = pd.factorize(runs["module"])
    function = np.array([function_of(name) for name in names], object)[module[has_step]]
    in_step = pd.DataFrame(
        {"kind": kind[step[has_step]], "function": function, "step": step[has_step]}
    ).drop_duplicates()
    many = pd.Series(kind).value_counts()
    equal_names: dict[str, set[str]] = {str(name): {str(name)} for name in many.index}
    ran = in_step.groupby(["kind", "function"], as_index=False).size()
    for name, function_name, count in zip(
        *(ran[column].tolist() for column in ("kind", "function", "size")), strict=True
    ):
        if count >= PART_OF_STEP * many[name]:
            equal_names[name].add(function_name)
    return equal_names


def _busy(steps: ProgramSteps, host: int) -> Intervals:
    """When a program ran on a host; touching runs are merged."""
    return Intervals.of_rows(steps.runs[steps.runs["host"] == host])

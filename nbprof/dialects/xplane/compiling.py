"""Compilation that a step found by runs of programs waits for.

JAX dispatches ahead: while the device still works on steps, the host may compile another program,
which delays no step. A program that a loop compiles once on its way, as an evaluation between two
steps, does not belong to its steps either. So compiling counts for a step if steps of its kind run
the program, and while no program runs; otherwise it is work of the host like any other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity import activity as act
from nbprof.activity.tables import Work
from nbprof.core.factorize import heads, starting
from nbprof.core.intervals import Intervals
from nbprof.core.trace import Events, Int64s
from nbprof.dialects.lookups import text_of
from nbprof.dialects.xplane.grouping import nearest
from nbprof.dialects.xplane.placed import Placed
from nbprof.dialects.xplane.programs import (
    LAUNCH,
    PART_OF_STEP,
    ProgramSteps,
    called,
    function_of,
    plain,
)
from nbprof.dialects.xplane.work_spans import outside

COMPILES = (
    "XlaCompile",
    "TfrtCpuClient::Compile",
    "PjRtCpuClient::Compile",
    "PjRtStreamExecutorClient::Comp",
    "PJRT_Client_Compile",
    "backend_compile",
)
"""Names of XLA's compiling of a program in TensorFlow and in JAX; its parts are inside."""
_LAMBDA = plain("<lambda>")
"""The name of all lambdas: the program of another one may be compiled while a step runs."""


def waited(placed: Placed, work: Work) -> Work:
    """Work with a row per step; compiling that the step does not wait for becomes host work."""
    steps = placed.program_steps
    if steps is None:
        return work
    compiling = (work.cls == act.HOST_COMPILE) & np.isin(work.host, steps.hosts)
    if not compiling.any():
        return work
    piece = (
        work.take(compiling)
        .frame()
        .merge(
            steps.table[["host", "group", "begin", "end", "name"]],
            on=["host", "group"],
            suffixes=("", "_step"),
        )
    )
    functions = _functions(placed, piece["event"].to_numpy(np.int64))
    compiled = {host: _of_steps(steps, host) for host in steps.hosts.tolist()}
    kinds = piece["name"].str.rpartition(" ")[0].tolist()
    # Compiling inside a mark belongs to its step.
    waited_for = placed.groups.group[piece["event"].to_numpy(np.int64)] >= 0
    for i, host in enumerate(piece["host"].tolist()):
        if host not in steps.marked:
            waited_for[i] = not functions[i] or functions[i] in compiled[host][kinds[i]]
    is_lambda = np.array([function == _LAMBDA for function in functions], np.bool_)
    is_lambda &= ~piece["host"].isin(steps.marked).to_numpy(np.bool_)
    piece, is_lambda = piece[waited_for], is_lambda[waited_for]
    piece = piece.assign(
        start=piece[["start", "begin"]].max(axis=1), end=piece[["end", "end_step"]].min(axis=1)
    )
    piece = piece[~is_lambda | _mostly_idle(steps, piece)]
    waits = Work.of(piece)
    parts = [work.with_(cls=np.where(compiling, act.HOST_COMPUTE, work.cls))]
    for host in pd.unique(waits.host).tolist():
        parts.append(outside(_busy(steps, host), waits.take(waits.host == host)))
    return Work.concat(parts)


def _mostly_idle(steps: ProgramSteps, piece: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """By row: whether programs run in less than half of its time."""
    idle = np.ones(len(piece), np.bool_)
    host = piece["host"].to_numpy(np.int64)
    start, end = (piece[bound].to_numpy(np.int64) for bound in ("start", "end"))
    for each in np.unique(host).tolist():
        busy, rows = _busy(steps, each), host == each
        covered = busy.covered_until(end[rows]) - busy.covered_until(start[rows])
        idle[rows] = 2 * covered < end[rows] - start[rows]
    return idle


def _functions(placed: Placed, rows: Int64s) -> list[str]:
    """The function that some events compile, "" if unknown.

    The call of the function is around the event; work of a thread of the compiler's pool is during
    an event in such a call.
    """
    trace = placed.trace
    events = trace.events
    calls = starting(heads(trace.names), LAUNCH)[events.name]
    # The innermost call: in a function that is being traced, another may be called.
    compilations = np.flatnonzero(placed.named(*COMPILES)[events.name])
    compilations = compilations[np.argsort(events.start[compilations], kind="stable")]
    of_known = _name_of(events, nearest(events.parent, compilations, calls))
    of_row = _name_of(events, nearest(events.parent, rows, calls))
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
    return [called(text_of(trace.names, row)) for row in of_row.tolist()]


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
    functions = [plain(function_of(name)) for name in names]
    function = np.array(functions, object)[module[has_step]]
    in_step = pd.DataFrame(
        {"kind": kind[step[has_step]], "function": function, "step": step[has_step]}
    ).drop_duplicates()
    many = pd.Series(kind).value_counts()
    equal_names: dict[str, set[str]] = {str(name): {plain(str(name))} for name in many.index}
    ran = in_step.groupby(["kind", "function"], as_index=False).size()
    for name, function_name, count in ran[["kind", "function", "size"]].itertuples(index=False):
        if count >= PART_OF_STEP * many[name]:
            equal_names[name].add(function_name)
    return equal_names


def _busy(steps: ProgramSteps, host: int) -> Intervals:
    """Times at which a program ran on a host; touching runs are merged."""
    return Intervals.of_rows(steps.runs[steps.runs["host"] == host])

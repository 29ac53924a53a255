"""`p.graph_breaks`: where functions of `torch.compile` break into several graphs, and what that
costs in each step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from pathlib import PurePath
from typing import Any, NamedTuple

import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.compiles import causes, regions, table
from nbprof.analysis.input.workers import location
from nbprof.core.compile_times import BACKWARD, Compilation, Compilations
from nbprof.core.trace import Trace
from nbprof.frameworks.register import PYTORCH
from nbprof.schema import frames

_FRAME = "graph_breaks"
_NO_TRACE = "Costs are known in the trace of a single process alone."
_NO_STEPS = "No step counts in averages."
_IS_RESUMED = re.compile(r":torch_dynamo_resume_in_.*_at_\d+\Z")


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
    if trace is not None:
        for key, earlier in _earlier(recorded, regions.numbers(trace)).items():
            _, reason = by_key.get(key, earlier)
            if not reason or key not in by_key:
                by_key[key] = earlier
    if not by_key:
        return frames.empty(_FRAME)
    costs: dict[str, dict[str, Any]] = {}
    if activity is None or trace is None:
        reason_of_all = _NO_TRACE
    elif not len(steps):
        reason_of_all = _NO_STEPS
    else:
        reason_of_all = regions.NOT_SEEN
        costs = regions.costs(activity, trace, steps, _resumed(recorded))
    rows = []
    for key, (row, reason) in by_key.items():
        resumed = causes.RESUMED.match(row.function)
        assert resumed is not None
        rows.append(
            {
                "function": resumed["function"],
                "where": location(row.file, int(resumed["line"]), cells),
                "reason": reason,
                **costs.get(key, {"cost_reason": reason_of_all}),
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


def _earlier(recorded: Compilations, ran: Set[str]) -> dict[str, tuple[Compilation, str]]:
    """As `_breaks`, those of what was compiled before and ran in the recording."""
    breaks: dict[str, tuple[Compilation, str]] = {}
    resumed = _resumed(recorded)
    for row in recorded.earlier:
        key = _key(row)
        if (
            row.number in ran
            and resumed.get(row.number) == key
            and causes.RESUMED.match(row.function)
        ):
            location_of_break = f"{row.file}:{row.line}: "
            breaks[key] = row, row.breaks.removeprefix(location_of_break)
    return breaks


def _resumed(recorded: Compilations) -> dict[str, str]:
    """By number of a compilation behind a break, the key of the break."""
    keys: dict[str, set[str]] = {}
    for row in (*recorded.rows, *recorded.earlier):
        if row.number and not row.function.endswith(BACKWARD):
            keys.setdefault(row.number, set()).add(_key(row))
    # After `torch._dynamo.reset` numbers begin anew: those of several functions tell nothing.
    unique = {number: names.pop() for number, names in keys.items() if len(names) == 1}
    return {number: key for number, key in unique.items() if _IS_RESUMED.search(key)}

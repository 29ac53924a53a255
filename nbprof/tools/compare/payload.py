"""The payload of the tab Compare: runs side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.activity import CATEGORIES as KEYS
from nbprof.activity.unit import STEP, Unit
from nbprof.analysis.compare import compare as analysis
from nbprof.analysis.compare import findings as compare_findings
from nbprof.analysis.compare import memory
from nbprof.analysis.compare import verdict as compare_verdict
from nbprof.analysis.compare.compare import Side
from nbprof.core.units import scale_bytes
from nbprof.display import wording
from nbprof.display.codec import short
from nbprof.schema import frames
from nbprof.tools import dashboard, header
from nbprof.tools.common import bar
from nbprof.tools.compare import text as compare_text
from nbprof.tools.compare.parts import (
    Compare,
    ComparedCalls,
    ComparedCategory,
    ComparedFigure,
    ComparedFinding,
    ComparedMemory,
    ComparedRun,
    Pair,
    SmallChanges,
)
from nbprof.tools.names import COMPARE
from nbprof.tools.overview import payload as overview
from nbprof.tools.parts import Column, Evidence, TabHead, Table, UnitWords
from nbprof.tools.payloads import Payload
from nbprof.tools.tables import column, head, table

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_ROWS = 1000
"""Of ops, and of kernels, of each pair: those that changed most."""
MOST_STACKS = 200
"""Of each pair: those that changed most."""
MOST_FRAMES = 1000
"""Of each tree of calls: those that take longest before or after."""
LEAST = 0.001
"""Share of the time of both below which a call is not drawn."""
_LONGEST = 800
_SMALL = 500
"""Ops that changed by less than this part of the largest change are not shown at first."""
_OPS = (
    "where",
    "type",
    "op",
    "state",
    "before_op",
    "before_us",
    "after_us",
    "change_us",
    "before_calls",
    "after_calls",
)
_CALLS = (
    "name",
    "file",
    "line",
    "state",
    "before_self_ms",
    "after_self_ms",
    "self_change_ms",
    "self_margin_ms",
    "before_total_ms",
    "after_total_ms",
    "change_ms",
    "margin_ms",
)
_KERNELS = ("kernel", "state", "before_us", "after_us", "change_us", "before_calls", "after_calls")
_MOMENTS = {
    analysis.PEAK: "at the peak",
    analysis.SNAPSHOT: "at the snapshot",
    analysis.PLAN: "as the compiler planned it",
}
_ROLES = ("role", "before_bytes", "after_bytes", "change_bytes")
_STACKS = (
    "device",
    "location",
    "state",
    "before_bytes",
    "after_bytes",
    "change_bytes",
    "before_blocks",
    "after_blocks",
    "stack",
    "before_stack",
)
_FIGURES = {
    "bare_step_time": "Step, unrecorded",
    "input": "Waiting for input",
    "device_busy": "Device busy",
    "ops_on_device": "Op time on device",
    "examples_per_second": "Examples / s",
    "peak_memory": "Peak memory",
}


def payload(runs: Sequence[Run], sides: Sequence[Side], home: int) -> Compare:
    """Each run once, and each pair in both directions.

    Parameters
    ----------
    runs, sides : sequence of Run, Side
    home : int
        The run of the dashboard, into whose views the links lead.
    """
    pairs = sorted(permutations(range(len(runs)), 2), key=lambda pair: pair != (0, 1))
    return Compare(
        home=home,
        runs=[_run(run, side) for run, side in zip(runs, sides, strict=True)],
        pairs=[pair(sides, before, after) for before, after in pairs],
    )


def attach(payload: Payload, part: Compare) -> Payload:
    """A dashboard with the tab Compare, which opens first."""
    meta = payload.meta
    note = f"{len(part.runs)} runs"
    if len(part.runs) == 2:
        note = part.runs[1 - part.home].label
    tab = TabHead(id=COMPARE.id, label=COMPARE.label, count=None, flag=None, note=note)
    return replace(
        payload, meta=replace(meta, tabs=[*meta.tabs, tab], tab=COMPARE.id), compare=part
    )


def only(payload: Payload, views: Sequence[str]) -> Payload:
    """A dashboard of Compare and these views, without the data of the others."""
    tab = payload.meta.tabs[-1]
    less = dashboard.select(payload, views or ["overview"])
    tabs = [tab]
    if views:
        tabs = [*less.meta.tabs, tab]
    return replace(less, meta=replace(less.meta, tabs=tabs))


def pair(sides: Sequence[Side], first: int, second: int) -> Pair:
    """The sides of two runs: verdict, evidence, figures, categories, ops, kernels."""
    before, after = sides[first], sides[second]
    categories = analysis.categories(before, after)
    verdict = compare_verdict.verdict(before, after, categories)
    findings = compare_findings.findings(before, after)
    ops, kernels = analysis.ops(before, after), analysis.kernels(before, after)
    steps = analysis.compared(before, after)
    digits = compare_verdict.digits_of(before.times, after.times)
    unit = analysis.unit_of(before, after)
    part = Pair(
        before=first,
        after=second,
        kind=verdict.kind,
        title=unit.reword(compare_verdict.TITLES[verdict.kind]),
        headline=verdict.headline,
        detail=verdict.detail,
        evidence=[Evidence(ok=ok, text=wording.one_line(text)) for ok, text in verdict.evidence],
        bare=steps.is_bare,
        digits=digits,
        figures=[
            _figure(row, after, digits, unit, bare=steps.is_bare)
            for row in analysis.figures(before, after).to_dict("records")
        ],
        categories=[_category(row) for row in categories.to_dict("records")],
        findings=[_finding(row) for row in findings.to_dict("records")],
        findings_text=compare_findings.sentence(findings, verdict, before, after),
        per_step=analysis.per_step(before, after),
        unit=None if unit.kind == STEP else UnitWords(**unit.words),
        ops=_table(ops, "ops", _OPS),
        ops_left_out=max(0, len(ops) - MOST_ROWS),
        kernels=_table(kernels, "kernels", _KERNELS),
        kernels_left_out=max(0, len(kernels) - MOST_ROWS),
        small_us=SmallChanges(ops=small(ops), kernels=small(kernels)),
        calls=_calls(before, after),
        calls_reason=_why_no_python(before, after),
        memory=_memory(before, after),
        markdown="",
    )
    return replace(part, markdown=compare_text.markdown(part))


def _run(run: Run, side: Side) -> ComparedRun:
    overview_part = overview.payload(run)
    return ComparedRun(
        label=wording.one_line(side.label),
        facts=header.facts(run),
        created=header.created(run),
        times_ms=short(side.times),
        bare_ms=short(side.bare.durations_ms),
        advice=overview_part.advice[:1],
        no_advice=overview_part.no_advice,
    )


def _finding(row: dict[Any, Any]) -> ComparedFinding:
    return ComparedFinding(
        title=str(row["title"]),
        state=str(row["state"]),
        gain_is=str(row["gain_is"]),
        before_ms=wording.real(row["before_ms"]),
        after_ms=wording.real(row["after_ms"]),
    )


def _category(row: dict[Any, Any]) -> ComparedCategory:
    return ComparedCategory(
        key=row["category"],
        before_ms=wording.real(row["before_ms"]),
        after_ms=wording.real(row["after_ms"]),
        change_ms=wording.real(row["change_ms"]),
        margin_ms=wording.real(row["margin_ms"]),
        change_percent=wording.real(row["change_percent"]),
        real=None if row["real"] is pd.NA else bool(row["real"]),
    )


def _figure(
    row: dict[Any, Any], after: Side, digits: int, unit_of_work: Unit, *, bare: bool
) -> ComparedFigure:
    """One figure as drawn: bytes of both runs in one unit, shares with the bar of the second."""
    before_value, after_value = wording.real(row["before"]), wording.real(row["after"])
    name = str(row["figure"])
    values = [value for value in (before_value, after_value) if value is not None]
    look = _look(row["unit"], values, digits)
    note = _change_note(row, before_value, after_value)
    if name == "examples_per_second":
        size = analysis.batch_size(after)
        if size > 0:
            note += f", batch {size:g}"
    names = {
        **_FIGURES,
        "step_time": unit_of_work.average,
        "steps_per_second": f"{unit_of_work.plural.capitalize()} / s",
    }
    if bare:
        names["step_time"] = "Step, recorded"
    second_bar = None
    if row["unit"] == "percent":
        category = {"input": "input"}.get(name, "device_compute")
        second_bar = bar((category, after_value))
    return ComparedFigure(
        label=names[name],
        before=look.scaled(before_value),
        after=look.scaled(after_value),
        unit=look.unit,
        digits=look.digits,
        note=note,
        bar=second_bar,
    )


class _Look(NamedTuple):
    """The unit and decimals of a figure, and the factor of its values."""

    unit: str
    digits: int
    scale: float

    def scaled(self, value: float | None) -> float | None:
        """A value in the unit."""
        return None if value is None else value * self.scale


def _look(unit: str, values: list[float], digits: int) -> _Look:
    """The same for both runs."""
    largest = max(values, default=0.0)
    if unit == "bytes" and largest:
        scaled, text, decimals = scale_bytes(largest)
        return _Look(text, decimals, scaled / largest)
    if unit == "bytes":
        _, text, decimals = scale_bytes(0)
        return _Look(text, decimals, 1.0)
    if unit == "ms":
        text, size = wording.time_unit(min(values))
        if size > 1:
            digits = 2
        return _Look(text, digits, 1 / size)
    if unit == "percent":
        return _Look("%", 1, 1.0)
    if unit == "1/s" and largest >= 100:
        return _Look("", 0, 1.0)
    return _Look("", 1, 1.0)


def _change_note(row: dict[Any, Any], before: float | None, after: float | None) -> str:
    """The change, in points for a share."""
    if before is None:
        return "not recorded before"
    if after is None:
        return "not recorded after"
    if row["unit"] == "percent":
        return f"{compare_verdict.signed(wording.real(row['change']) or 0.0, 1)} points"
    percent = wording.real(row["change_percent"])
    if percent is None:
        return ""
    return f"{compare_verdict.signed(percent, 1)}%"


def small(frame: pd.DataFrame) -> float:
    """The change in µs below which rows are hidden at first: 1, 2 or 5 × 10ⁿ.

    It is at most a 500th of the largest change; 0 without any.
    """
    largest = float(frame["change_us"].abs().max())
    # NaN without rows.
    if not largest > 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(largest / _SMALL))
    limit = largest / _SMALL * (1 + 1e-9)
    return float(max(step for step in (1, 2, 5) if step * power <= limit) * power)


def _table(frame: pd.DataFrame, name: str, keys: Sequence[str]) -> Table:
    """The rows that changed most, with the hidden `_category`, an index into all categories."""
    rows = frame.head(MOST_ROWS)
    heads = [_head(name, key) for key in keys]
    data = {each.key: column(rows, each.key, each.kind) for each in heads}
    categories = [KEYS.index(each) for each in rows["category"]]
    data["_category"] = pd.Series(categories, dtype="uint8").to_numpy()
    return Table(columns=heads, data=data, rows=len(rows))


def _calls(before: Side, after: Side) -> list[ComparedCalls]:
    """The trees that there is something to compare in."""
    per_step = analysis.per_step(before, after)
    trees = [
        (
            "python",
            "Python",
            analysis.python_per_step(before, after),
            analysis.python(before, after),
        ),
        ("device", "Ops on device", per_step, analysis.op_calls(before, after, "device")),
        ("host", "Ops on host", per_step, analysis.op_calls(before, after, "host")),
    ]
    return [_tree(*tree) for tree in trees if len(tree[-1])]


def _tree(key: str, label: str, per_step: bool, calls: pd.DataFrame) -> ComparedCalls:
    drawn = largest(calls)
    real = drawn["self_real"]
    # Of ops no change has an interval; of functions, those seen too rarely have none.
    chance = pd.Series(key == "python", drawn.index) & ~real.fillna(False)
    return ComparedCalls(
        id=key,
        label=label,
        per_step=per_step,
        calls=table(drawn, "comparison.python", _CALLS).with_columns(
            {"_parent": drawn["parent"].to_numpy(np.int32), "_chance": chance.to_numpy(np.uint8)}
        ),
        left_out=len(calls) - len(drawn),
    )


def largest(calls: pd.DataFrame) -> pd.DataFrame:
    """The frames that can be seen in a drawing, with their callers."""
    time = calls[["before_total_ms", "after_total_ms"]].max(axis=1).to_numpy(np.float64)
    least = LEAST * float(time[calls["parent"].to_numpy() < 0].sum())
    # A caller takes as long as its longest call, and comes before it.
    rows = np.sort(np.argsort(-time, kind="stable")[:MOST_FRAMES])
    rows = rows[time[rows] >= least]
    number = np.full(len(calls) + 1, -1, np.int64)
    number[rows] = np.arange(len(rows))
    drawn = calls.iloc[rows]
    return drawn.assign(parent=number[drawn["parent"].to_numpy()]).reset_index(drop=True)


def _why_no_python(before: Side, after: Side) -> str:
    """The reason where one of the runs was sampled."""
    reasons = [side.python(False).reason for side in (before, after)]
    if all(reasons):
        return ""
    return analysis.why_no_python(before, after)


def _memory(before: Side, after: Side) -> ComparedMemory:
    """Memory by role and by stack; tables without rows where neither run has any."""
    first, second = before.memory(), after.memory()
    roles, stacks = memory.roles(first, second), memory.stacks(first, second)
    reason, stacks_reason = memory.missing(first, second), memory.missing_snapshot(first, second)
    if stacks_reason == reason:
        stacks_reason = ""
    moment = ""
    if len(roles):
        moment = _MOMENTS[roles["moment"].iloc[0]]
    largest = stacks.head(MOST_STACKS)
    texts = {key: largest[key].map(_shortened) for key in ("location", "stack", "before_stack")}
    return ComparedMemory(
        roles=table(roles, "comparison.memory", _ROLES),
        moment=moment,
        reason=reason,
        stacks=table(largest.assign(**texts), "comparison.allocator", _STACKS),
        stacks_left_out=len(stacks) - len(largest),
        stacks_reason=stacks_reason,
    )


def _shortened(text: str) -> str:
    return wording.shortened(text, _LONGEST)


def _head(name: str, key: str) -> Column:
    col = frames.column(f"comparison.{name}", key)
    return replace(head(col), help=col.help)

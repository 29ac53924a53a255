"""Measurements of Ascend's profiler in plain HTML: mean iteration, findings, types of ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nbprof.display import markup, wording
from nbprof.tools.ascend.parts import AscendSection, Iterations
from nbprof.tools.parts import Column, Table

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS, _MOST_GROUPS = 5, 4


def html(payload: Payload) -> str:
    """Nothing without tables of Ascend."""
    part = payload.ascend
    if part.empty or not part.sections:
        return ""
    verdict = part.verdict
    fact = f"{verdict.word}: {verdict.text}" if verdict.text else verdict.word
    parts = [
        markup.paragraph(f"<b>On the NPU: {markup.text(fact)}.</b> {markup.text(verdict.detail)}")
    ]
    parts += [_iterations(group) for group in part.iterations[:_MOST_GROUPS]]
    findings = [rule for rule in part.rules if rule.state == "found"][:_ROWS]
    rows = [
        list(map(markup.text, (rule.severity.capitalize(), rule.title, rule.evidence, rule.fix)))
        for rule in findings
    ]
    parts.append(
        markup.table(
            "Rules of Ascend's tools",
            "what they find",
            ["", "What to do", "Evidence", "How"],
            rows,
            "llll",
        )
    )
    types = next((section for section in part.sections if section.id == "op_types"), None)
    if types is None:
        # A table that was opened by itself.
        return "".join([parts[0], *(_plain(section) for section in part.sections)])
    return "".join([*parts, _types(types)])


def _plain(section: AscendSection) -> str:
    table = section.table
    rows = []
    for row in range(min(table.rows, 2 * _ROWS)):
        rows.append([markup.text(_cell(table, head, row)) for head in table.columns])
    sides = "".join("l" if head.kind == "text" else "r" for head in table.columns)
    return markup.table(
        section.title,
        section.scope,
        [markup.text(head.label) for head in table.columns],
        rows,
        sides,
    )


def _cell(table: Table, head: Column, row: int) -> str:
    value = table.cell(head.key, row)
    if head.kind == "text":
        return str(value)
    if head.kind == "bytes":
        return wording.size(value)
    return wording.number(value, head.digits or 0)


def _iterations(group: Iterations) -> str:
    steps = group.steps
    counted = np.asarray(steps.warmup) == 0
    times = np.asarray(steps.step_time_ms, np.float64)[counted]
    if not np.isfinite(times).any():
        return ""
    mean = float(np.nanmean(times))
    rows = [["<b>End to end</b>", wording.number(mean, 2), wording.percent(100)]]
    for key, label in (steps.labels or {}).items():
        values = np.asarray(steps.categories[key], np.float64)[counted]
        part = float(np.nanmean(values)) if np.isfinite(values).any() else None
        percent = 100 * part / mean if part is not None and mean > 0 else None
        rows.append([markup.text(label), wording.number(part, 2), wording.percent(percent)])
    scope = f"{group.label}, mean of {wording.plural(int(counted.sum()), 'iteration')}"
    return markup.table("Where an iteration goes", scope, ["Part", "ms", "%"], rows, "lrr")


def _types(section: AscendSection) -> str:
    table = section.table
    rows = []
    for row in range(min(table.rows, 2 * _ROWS)):
        # Columns without a value are left out of the table.
        op_type, core, tasks, time_us, percent = (
            table.cell(key, row) if key in table.data else None
            for key in ("op_type", "core", "tasks", "total_us", "fraction")
        )
        ms = None if time_us is None else time_us / 1000
        numbers = (wording.number(tasks), wording.number(ms, 2), wording.percent(percent))
        rows.append([markup.text(op_type or ""), markup.text(core or ""), *numbers])
    return markup.table(
        "NPU ops by type", section.scope, ["Type", "Runs on", "Count", "ms", "%"], rows, "llrrr"
    )

"""The answer in a few lines of plain text: verdict, average step with its largest parts, top op,
figures, the first advice.
"""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nbprof.activity.unit import Unit
from nbprof.display import wording
from nbprof.display.categories import CATEGORIES, Category
from nbprof.tools.overview.parts import Advice, Overview
from nbprof.tools.overview.ranges import SCOPES_TITLE
from nbprof.tools.parts import Figure, Table

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_BAR = 30
_RANGES = 4
_PART = 90
"""Characters of the name of a part."""


def lines(payload: Payload, limit: int) -> list[str]:
    """So many lines at most: as many parts of the step as there is room for."""
    notice, overview = payload.meta.notice, payload.overview
    if overview.only == "advice":
        return _findings(overview)[:limit]
    if overview.plain:
        return [
            verdict(overview),
            overview.verdict.detail,
            *(_line(label, value) for label, value in overview.run),
        ][:limit]
    head = [verdict(overview)]
    if notice and notice.kind != "no_steps":
        head.append(f"Note: {notice.title} {notice.text}")
    tail = [*_ranges(overview), *_top_op(overview), _figures(overview), *_advice(overview)]
    return [*head, _average(overview), *_parts(payload, limit - len(head) - len(tail) - 1), *tail]


def verdict(overview: Overview) -> str:
    """`Input-bound: 61% of step time is spent waiting for data (confidence high)`."""
    word, text = overview.verdict.word, overview.verdict.text
    level = overview.confidence.level
    if not text:
        return word
    if level == "none":
        return f"{word}: {text}"
    return f"{word}: {text} (confidence {level})"


class CategoryMean(NamedTuple):
    """The mean time of a category per step, and its percentage of the step."""

    category: Category
    ms: float
    percent: float


def means(payload: Payload) -> list[CategoryMean]:
    """The recorded categories, largest first; without warm-up steps."""
    steps = payload.steps
    counted = np.ones(len(steps.step), np.bool_) if steps.warmup is None else steps.warmup == 0
    total = float(np.nansum(steps.step_time_ms[counted]))
    if not total > 0:
        return []
    rows = []
    for category in CATEGORIES:
        if category.key in steps.categories:
            part = float(np.nansum(steps.categories[category.key][counted]))
            rows.append(CategoryMean(category, part / int(counted.sum()), 100 * part / total))
    return sorted(rows, key=lambda row: -row.ms)


class Row(NamedTuple):
    """A row of the breakdown: a category, or a part of the one above it.

    Attributes
    ----------
    label, colour : str
    ms, percent : float
        Per unit.
    part : bool
    bare_ms : float or None
        Without a profiler, if known.
    """

    label: str
    colour: str
    ms: float
    percent: float
    part: bool
    bare_ms: float | None = None


def breakdown(payload: Payload) -> list[Row]:
    """The categories, largest first, each followed by the parts of the host's time in it that are
    known.
    """
    labels, bare = payload.steps.labels or {}, payload.overview.bare
    bare_ms = {time.category: time.ms for time in bare.categories} if bare else {}
    rows = []
    for category, ms, percent in means(payload):
        label = labels.get(category.key, category.label)
        rows.append(
            Row(label, category.colour, ms, percent, part=False, bare_ms=bare_ms.get(category.key))
        )
        for part in payload.overview.host_parts:
            if part.category == category.key:
                rows.append(Row(part.text, category.colour, part.ms, part.percent, part=True))
    return rows


def _line(label: str, text: str) -> str:
    """A line of the summary: its label in a column, then the text."""
    return f"{label:<19} {text}"


def where_it_goes(unit: Unit) -> str:
    """The heading of the breakdown: "Where a step goes"."""
    if unit.is_recording:
        return "Where the time goes"
    return f"Where {unit.a} goes"


def figure_text(figure: Figure) -> str:
    """`6.20 ms ± 0.38` or `61.0%` or `–`."""
    value = wording.number(figure.value, figure.digits)
    if figure.value is not None and figure.unit == "%":
        value += "%"
    elif figure.value is not None and figure.unit:
        value += f" {figure.unit}"
    if figure.spread:
        value += f" {figure.spread}"
    return value


def _average(overview: Overview) -> str:
    average = overview.figures[0]
    clauses = filter(None, [figure_text(average), average.note])
    return _line(average.label, ", ".join(clauses))


def _parts(payload: Payload, limit: int) -> list[str]:
    rows = [row for row in breakdown(payload) if row.ms > 0]
    return [_row(row) for row in rows[: max(limit, 0)]]


def _row(row: Row) -> str:
    percent = f"{wording.percent(row.percent):>7}"
    if row.part:
        return f"    {percent}  {shorten(row.label, _PART, placeholder='…')}"
    bar = "█" * round(row.percent * _BAR / 100)
    if row.bare_ms is not None:
        bar = f"{bar}  without recording {wording.millis(row.bare_ms)}".strip()
    return f"  {row.label:<18}{wording.number(row.ms, 2):>9} ms {percent}  {bar}".rstrip()


def _ranges(overview: Overview) -> list[str]:
    """The outermost ranges of the program with the most time, in one line."""
    ranges = overview.ranges
    # Scopes of ops are layers of nearly every model: what is set in the program itself comes first.
    if not ranges or ranges.groups[0].title == SCOPES_TITLE:
        return []
    table = ranges.table
    end = table.rows
    if len(ranges.groups) > 1:
        end = ranges.groups[1].row
    outer = [
        row
        for row in range(end)
        if table.cell("_depth", row) == 0
        and not table.cell("name", row).startswith("Optimizer.")  # PyTorch sets it
    ]
    for side in ("host", "device"):
        largest = _largest_ranges(table, outer, f"{side}_ms_per_step")
        if largest:
            return [_line(f"Your ranges, {side}", ", ".join(largest))]
    return []


def _largest_ranges(table: Table, rows: list[int], key: str) -> list[str]:
    """The rows with the most time and that time; none where the column is not there."""
    if key not in table.data:
        return []
    times = {row: table.cell(key, row) for row in rows if table.cell(key, row) > 0}
    largest = sorted(times, key=lambda row: -times[row])[:_RANGES]
    return [
        f"{wording.tail(table.cell('name', row), 30)} {wording.millis(times[row])}"
        for row in largest
    ]


def _top_op(overview: Overview) -> list[str]:
    table, side = overview.top_ops, overview.top_ops_where
    if not table.rows:
        return []
    op, share = wording.tail(table.cell("op", 0), 60), wording.percent(table.cell("percent", 0))
    return [_line(f"Top op on {side}", f"{op}, {share} of {side} time")]


def _figures(overview: Overview) -> str:
    return ", ".join(f"{figure.label} {figure_text(figure)}" for figure in overview.figures[1:])


def _notes(overview: Overview) -> list[str]:
    """That other processes ran beside the recording, and the result of a probe."""
    notes = []
    if overview.contention:
        notes.append(overview.contention)
    if overview.probe and overview.probe.text:
        notes.append(overview.probe.text)
    return notes


def _advice(overview: Overview) -> list[str]:
    lines = [_line("Note", text) for text in _notes(overview)]
    if overview.advice:
        lines.append(_line("Do first", _finding(overview.advice[0])))
    if overview.compiles is not None:
        lines.append(_line("Compiled", overview.compiles.notes[0]))
    lines += [_line("Tried", text) for text in _tried(overview)]
    return lines


def _findings(overview: Overview) -> list[str]:
    """All of them, a line each."""
    findings = [f"{advice.severity.capitalize()}: {_finding(advice)}" for advice in overview.advice]
    tried = [f"Tried: {text}" for text in _tried(overview)]
    return _notes(overview) + (findings or [overview.no_advice]) + tried


def _tried(overview: Overview) -> list[str]:
    """Results of experiments with their verdicts, a line each."""
    if overview.tried is None:
        return []
    text, table = overview.tried.text, overview.tried.table
    lines = []
    if text:
        lines.append(text)
    for row in range(table.rows):
        gain = wording.real(table.cell("gain_ms", row))
        saved = ""
        if gain is not None:
            saved = (
                f" saves {wording.number(gain, 2)} ms per step"
                f" [{wording.number(table.cell('gain_low_ms', row), 2)},"
                f" {wording.number(table.cell('gain_high_ms', row), 2)}]"
            )
        verdict = "recommended" if table.cell("recommended", row) == 1 else "not recommended"
        lines.append(f"{table.cell('title', row)}{saved}: {verdict}, {table.cell('why', row)}")
    return lines


def _finding(advice: Advice) -> str:
    if gain := gain_text(advice):
        return f"{advice.title} ({gain})"
    return advice.title


def gain_text(advice: Advice) -> str:
    """`up to −1.20 ms per step`."""
    return wording.gain(advice.gain_ms, advice.gain_is, advice.per, advice.gain_percent)

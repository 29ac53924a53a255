"""The answer in plain HTML: verdict, figures, breakdown, what to do next, top ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nbprof.activity.unit import Unit
from nbprof.display import markup, wording
from nbprof.display.categories import BY_KEY, OF_SIDE
from nbprof.schema import frames
from nbprof.tools.common import unit_in
from nbprof.tools.overview.parts import Advice, Code, Compiles, GraphBreaks, Overview, Ranges
from nbprof.tools.overview.text import Row, breakdown, figure_text, gain_text, where_it_goes
from nbprof.tools.parts import Column, Figure, Table

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def lead(payload: Payload) -> str:
    """The part above the picture."""
    if payload.overview.only:
        return ""
    return _verdict(payload.overview)


def html(payload: Payload) -> str:
    """The part below it."""
    overview = payload.overview
    if overview.only == "advice":
        return advice(overview)
    if overview.plain:
        rows = [list(map(markup.text, fact)) for fact in overview.run]
        return markup.table("Run", "", ["", ""], rows, "ll")
    parts = [
        _figures(overview.figures),
        _breakdown(payload),
        _ranges(overview.ranges, unit_in(payload.meta)),
        advice(overview),
        _compiler("Compilation", overview.compiles),
        _compiler("Graph breaks", overview.graph_breaks),
    ]
    return "".join([*parts, _code(overview.code), _top_ops(overview)])


def _verdict(overview: Overview) -> str:
    verdict = overview.verdict
    word = markup.text(verdict.word)
    if verdict.text:
        word += ":"
    if overview.bound:
        word = markup.swatch(BY_KEY[overview.bound].colour) + word
    html = markup.headline(f"{word} {markup.text(verdict.text)}")
    if verdict.detail:
        html += markup.paragraph(markup.text(verdict.detail))
    level = overview.confidence.level
    if level == "none":
        return html
    marks = {True: "✓", False: "–"}
    evidence = [f"{marks[item.ok]} {item.text}" for item in overview.confidence.evidence]
    soft = _soft(" · ".join(evidence))
    return html + markup.paragraph(f"<b>Confidence: {markup.text(level)}</b> {soft}")


def _soft(text: str) -> str:
    """A text in a softer colour."""
    return f'<span style="{markup.SOFT}">{markup.text(text)}</span>'


def _figures(figures: list[Figure]) -> str:
    rows = []
    for figure in figures:
        value = f"<b>{markup.text(figure_text(figure))}</b>"
        rows.append([markup.text(figure.label), value, markup.text(figure.note)])
    return markup.table("Key figures", "", ["Figure", "Value", ""], rows, "lrl")


def _breakdown(payload: Payload) -> str:
    bare = payload.overview.bare
    rows = [_breakdown_row(row) for row in breakdown(payload)]
    unit = unit_in(payload.meta)
    scope = ""
    if not unit.is_recording:
        scope = f"mean of all {unit.plural}"
    heads, align = ["Category", "ms", "", unit.reword("% of step")], "lrlr"
    if not bare:
        return markup.table(where_it_goes(unit), scope, heads, rows, align)
    label = frames.column("steps.bare", "bare_ms").label
    for cells, row in zip(rows, breakdown(payload), strict=True):
        cells.append("" if row.bare_ms is None else wording.number(row.bare_ms, 2))
    table = markup.table(where_it_goes(unit), scope, [*heads, label], rows, f"{align}r")
    return table + markup.paragraph(markup.text(bare.note))


def _breakdown_row(row: Row) -> list[str]:
    name = markup.text(row.label)
    numbers = [wording.number(row.ms, 2), "", wording.percent(row.percent)]
    if row.part:
        return [f'<span style="{markup.SOFT}">{markup.indented(name, 1)}</span>', *numbers]
    numbers[1] = markup.bar(row.percent, row.colour)
    return [markup.swatch(row.colour) + name, *numbers]


def _ranges(ranges: Ranges | None, unit: Unit) -> str:
    """Ranges of the program as a tree, with their time on the host and on devices."""
    if not ranges:
        return ""
    table = ranges.table
    columns = table.columns
    titles = {}
    if len(ranges.groups) > 1:
        titles = {group.row: group.title for group in ranges.groups}
    rows = []
    for row in range(table.rows):
        if row in titles:
            rows.append([f"<b>{markup.text(titles[row])}</b>", *[""] * (len(columns) - 1)])
        rows.append([_range_cell(table, head, row) for head in columns])
    scope = ""
    if not unit.is_recording:
        scope = f"mean {unit.per}"
    sides = {"name": "l", "top": "l"}
    align = "".join(sides.get(head.key, "r") for head in columns)
    html = markup.table("Your ranges", scope, [head.label for head in columns], rows, align)
    for note in ranges.notes:
        html += markup.paragraph(markup.text(note))
    return html


def _compiler(title: str, part: Compiles | GraphBreaks | None) -> str:
    """A table of what a compiler did."""
    if part is None:
        return ""
    columns = part.table.columns
    rows, sides = [], ""
    for row in range(part.table.rows):
        rows.append([_compiler_cell(part.table, head, row) for head in columns])
    for head in columns:
        sides += "r" if head.kind == "number" else "l"
    html = markup.table(title, "", [head.label for head in columns], rows, sides)
    return html + "".join(markup.paragraph(markup.text(note)) for note in part.notes)


def _compiler_cell(table: Table, head: Column, row: int) -> str:
    value = table.cell(head.key, row)
    if head.kind == "number" and np.isnan(value):
        return ""
    if head.kind == "number":
        return wording.number(value, head.digits or 0)
    if head.key in ("function", "where"):
        return markup.name(value, 60)
    return markup.text(value)


def _range_cell(table: Table, head: Column, row: int) -> str:
    key = head.key
    value = table.cell(key, row)
    if key == "name":
        return markup.indented(markup.name(value, 60), int(table.cell("_depth", row)))
    if key == "top":
        return value and markup.name(value, 60)
    if np.isnan(value):
        return ""
    digits = head.digits
    if digits is None:
        digits = 2
    return wording.number(value, digits)


def advice(overview: Overview) -> str:
    """Recommended changes with their evidence and code."""
    scope = ""
    if overview.advice:
        scope = "largest expected gain first; gains do not add up"
    html = markup.heading("Next steps", scope)
    if overview.contention:
        html += markup.paragraph(f"<b>{markup.text(overview.contention)}</b>")
    if probe := overview.probe:
        text = f"<b>{markup.text(probe.text)}</b>"
        if probe.detail:
            text += f"<br>{_soft(probe.detail)}"
        html += markup.paragraph(text)
    if not overview.advice:
        html += markup.paragraph(markup.text(overview.no_advice))
    return html + findings(overview.advice) + tried(overview)


def tried(overview: Overview) -> str:
    """Results of experiments."""
    if overview.tried is None:
        return ""
    text, table = overview.tried.text, overview.tried.table
    html = markup.heading("Tried", "with the change and without in turn, without a profiler")
    if text:
        html += markup.paragraph(markup.text(text))
    if not table.rows:
        return html
    rows, sides = [], ""
    for row in range(table.rows):
        rows.append([_tried_cell(table, head, row) for head in table.columns])
    for head in table.columns:
        sides += "r" if head.kind == "number" else "l"
    html += markup.table("", "", [head.label for head in table.columns], rows, sides)
    for change in overview.tried.changes:
        title = table.cell("title", change.row)
        html += markup.paragraph(f"{markup.text(title)}, in the cell:")
        html += markup.diff(change.lines)
    return html + markup.diff(overview.tried.code)


def _tried_cell(table: Table, head: Column, row: int) -> str:
    value = table.cell(head.key, row)
    if head.kind == "bool":
        return "<b>yes</b>" if value == 1 else "no"
    if head.kind == "number":
        return wording.number(value, head.digits or 0)
    return markup.text(value)


def findings(advice: list[Advice]) -> str:
    """Findings with their evidence and the code."""
    return "".join(_finding(item) + markup.diff(item.fix) for item in advice)


def _finding(item: Advice) -> str:
    text = f"<b>{markup.text(item.severity.capitalize())}: {markup.text(item.title)}</b>"
    if gain := gain_text(item):
        text += f" {_soft(gain)}"
    text += f"<br>{markup.marked(item.evidence)}"
    if item.certainty:
        text += f"<br>{_soft(certainty(item))}"
    return markup.paragraph(text)


def certainty(item: Advice) -> str:
    """`Measured. Wrong if the step takes as long …`."""
    text = f"{item.certainty.capitalize()}."
    if item.refuted_by:
        text += f" Wrong if {item.refuted_by}."
    return text


def _top_ops(overview: Overview) -> str:
    table, side = overview.top_ops, overview.top_ops_where
    colour = OF_SIDE[side]
    rows = []
    for row in range(min(table.rows, _ROWS)):
        percent = table.cell("percent", row)
        rows.append(
            [
                markup.name(table.cell("op", row), 90),
                markup.name(table.cell("type", row), 40),
                wording.number(table.cell("ms_per_step", row), 3),
                markup.bar(percent, colour),
                wording.percent(percent),
            ]
        )
    type_head, time_head = table.head("type").label, table.head("ms_per_step").label
    heads = ["Operation", type_head, time_head, "", f"% of {side}"]
    return markup.table(f"Top ops on {side}", "self time, idle excluded", heads, rows, "llrlr")


class _Line(NamedTuple):
    """A line of a cell."""

    title: str
    table: Table
    row: int

    def time(self, keys: Sequence[str]) -> float:
        """The largest of some times."""
        times = [self.table.cell(key, self.row) for key in keys]
        return float(np.nanmax([0.0, *times]))


def _code(code: Code | None) -> str:
    """The lines with the most time, in the order of the cells."""
    if not code or not code.cells:
        return ""
    first = code.cells[0].table
    keys = [key for key in ("host_ms", "device_ms", "program_ms") if key in first.data]
    timed = []
    for cell in code.cells:
        lines = [_Line(cell.title, cell.table, row) for row in range(cell.table.rows)]
        timed += [line for line in lines if line.time(keys) > 0]
    scope, listed = "time of each line", list(range(len(timed)))
    if len(timed) > _ROWS:
        scope = "the lines with the most time"
        by_time = sorted(listed, key=lambda index: -timed[index].time(keys))
        listed = sorted(by_time[:_ROWS])
    rows = []
    for title, table, row in map(timed.__getitem__, listed):
        times = [wording.number(table.cell(key, row), 2) for key in keys]
        name = markup.name(table.cell("code", row).strip(), 90)
        rows.append([*times, f"{markup.text(title)}:{table.cell('line', row):g}", name])
    heads = [*(first.head(key).label for key in keys), "Line", "Code"]
    return markup.table("Your code", scope, heads, rows, "r" * len(keys) + "ll")

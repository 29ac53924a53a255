"""The answer in plain HTML: verdict, figures, breakdown, what to do next, top ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nbprof.activity.unit import Unit
from nbprof.display import markup, wording
from nbprof.display.categories import BY_KEY, DEVICE, HOST
from nbprof.tools.common import unit_in
from nbprof.tools.overview.parts import Advice, Code, Overview, Ranges
from nbprof.tools.overview.text import Row, breakdown, figure_text, gain_text, where_it_goes
from nbprof.tools.parts import Column, Figure, Table

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def lead(payload: Payload) -> str:
    """The part above the picture."""
    return "" if payload.overview.only else _verdict(payload.overview)


def html(payload: Payload) -> str:
    """The part below it."""
    overview = payload.overview
    if overview.only == "advice":
        return advice(overview)
    if overview.plain:
        return markup.table(
            "Run",
            "",
            ["", ""],
            [[markup.text(label), markup.text(value)] for label, value in overview.run],
            "ll",
        )
    parts = [
        _figures(overview.figures),
        _breakdown(payload),
        _ranges(overview.ranges, unit_in(payload.meta)),
        advice(overview),
    ]
    return "".join([*parts, _code(overview.code), _top_ops(overview)])


def _verdict(overview: Overview) -> str:
    verdict = overview.verdict
    colour = f";color:{BY_KEY[overview.bound].colour}" if overview.bound else ""
    colon = ":" if verdict.text else ""
    word = f'<span style="font-weight:600{colour}">{markup.text(verdict.word)}{colon}</span>'
    html = (
        f'<p style="font-size:20px;line-height:28px;font-weight:600;margin:0 0 4px">{word}'
        f" {markup.text(verdict.text)}</p>"
    )
    if verdict.detail:
        html += markup.paragraph(markup.text(verdict.detail))
    level = overview.confidence.level
    if level == "none":
        return html
    evidence = " · ".join(
        ("✓ " if item.ok else "– ") + item.text for item in overview.confidence.evidence
    )
    return html + markup.paragraph(f"<b>Confidence: {markup.text(level)}</b> {_soft(evidence)}")


def _soft(text: str) -> str:
    """A text in a softer colour."""
    return f'<span style="{markup.SOFT}">{markup.text(text)}</span>'


def _figures(figures: list[Figure]) -> str:
    rows = [
        [markup.text(f.label), f"<b>{markup.text(figure_text(f))}</b>", markup.text(f.note)]
        for f in figures
    ]
    return markup.table("Key figures", "", ["Figure", "Value", ""], rows, "lrl")


def _breakdown(payload: Payload) -> str:
    rows = [_breakdown_row(row) for row in breakdown(payload)]
    unit = unit_in(payload.meta)
    scope = "" if unit.is_recording else f"mean of all {unit.plural}"
    return markup.table(
        where_it_goes(unit), scope, ["Category", "ms", "", unit.reword("% of step")], rows, "lrlr"
    )


def _breakdown_row(row: Row) -> list[str]:
    name = markup.text(row.label)
    numbers = [wording.number(row.ms, 2), "", wording.percent(row.percent)]
    if row.part:
        return [f'<span style="padding-left:18px;{markup.SOFT}">{name}</span>', *numbers]
    numbers[1] = markup.bar(row.percent, row.colour)
    return [markup.swatch(row.colour) + name, *numbers]


def _ranges(ranges: Ranges | None, unit: Unit) -> str:
    """Ranges of the program as a tree, with their time on the host and on devices."""
    if not ranges:
        return ""
    table = ranges.table
    columns = table.columns
    titles = {group.row: group.title for group in ranges.groups if len(ranges.groups) > 1}
    rows = []
    for row in range(table.rows):
        if row in titles:
            rows.append([f"<b>{markup.text(titles[row])}</b>", *[""] * (len(columns) - 1)])
        rows.append([_range_cell(table, head, row) for head in columns])
    align = "".join("l" if head.key in ("name", "top") else "r" for head in columns)
    html = markup.table(
        "Your ranges",
        "" if unit.is_recording else f"mean {unit.per}",
        [head.label for head in columns],
        rows,
        align,
    )
    return html + "".join(markup.paragraph(markup.text(note)) for note in ranges.notes)


def _range_cell(table: Table, head: Column, row: int) -> str:
    key = head.key
    value = table.cell(key, row)
    if key == "name":
        indent = 18 * int(table.cell("_depth", row))
        name = markup.name(value, 60)
        return f'<span style="padding-left:{indent}px">{name}</span>' if indent else name
    if key == "top":
        return markup.name(value, 60) if value else ""
    if np.isnan(value):
        return ""
    return wording.number(value, 2 if head.digits is None else head.digits)


def advice(overview: Overview) -> str:
    """Recommended changes with their evidence and code."""
    scope = "largest expected gain first; gains do not add up" if overview.advice else ""
    html = markup.heading("Next steps", scope)
    if overview.contention:
        html += markup.paragraph(f"<b>{markup.text(overview.contention)}</b>")
    if probe := overview.probe:
        text = f"<b>{markup.text(probe.text)}</b>"
        if probe.detail:
            text += f"<br>{_soft(probe.detail)}"
        html += markup.paragraph(text)
    if not overview.advice:
        return html + markup.paragraph(markup.text(overview.no_advice))
    return html + findings(overview.advice)


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
    return f"{text} Wrong if {item.refuted_by}." if item.refuted_by else text


def _top_ops(overview: Overview) -> str:
    table, side = overview.top_ops, overview.top_ops_where
    colour = DEVICE if side == "device" else HOST
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
        return max(
            (float(np.nan_to_num(self.table.cell(key, self.row))) for key in keys), default=0.0
        )


def _code(code: Code | None) -> str:
    """The lines with the most time, in the order of the cells."""
    if not code or not code.cells:
        return ""
    first = code.cells[0].table
    keys = [key for key in ("host_ms", "device_ms", "program_ms") if key in first.data]
    lines = [
        _Line(cell.title, cell.table, row) for cell in code.cells for row in range(cell.table.rows)
    ]
    timed = [(index, line) for index, line in enumerate(lines) if line.time(keys) > 0]
    largest = {index for index, _ in sorted(timed, key=lambda item: -item[1].time(keys))[:_ROWS]}
    rows = []
    for index, (title, table, row) in timed:
        if index in largest:
            times = [wording.number(table.cell(key, row), 2) for key in keys]
            name = markup.name(table.cell("code", row).strip(), 90)
            rows.append([*times, f"{markup.text(title)}:{table.cell('line', row):g}", name])
    scope = "the lines with the most time" if len(timed) > len(rows) else "time of each line"
    heads = [*(first.head(key).label for key in keys), "Line", "Code"]
    return markup.table("Your code", scope, heads, rows, "r" * len(keys) + "ll")

"""Ops of compiled programs in plain HTML, and how near each comes to the roof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.display.categories import DEVICE
from nbprof.tools.parts import Table

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """The ops with the most time and how close each comes to the roof; if the tab was requested
    and is empty, the reason.
    """
    part = payload.hlo
    if part.empty:
        requested = any(tab.id == "hlo" for tab in payload.meta.tabs)
        return markup.paragraph(markup.text(part.empty.text)) if requested else ""
    table = part.table
    rows = [_row(table, row) for row in range(min(table.rows, _ROWS))]
    heads = ["Op", "Category", "Self µs", "", "% of ops", "Bound by", "Of roof"]
    title = "Top ops of compiled programs"
    if "input_shapes" in table.data:
        title = "Top ops under the roofline"
    html = markup.table(title, part.device, heads, rows, "llrlrlr")
    if part.missing and rows:
        html += markup.paragraph(markup.text(part.missing)) + markup.code_block(part.code)
    return html


def _row(table: Table, row: int) -> list[str]:
    percent = table.cell("self_percent", row)
    return [
        markup.name(table.cell("op", row), 60),
        markup.text(table.cell("category", row)),
        wording.number(table.cell("self_us", row), 1),
        markup.bar(percent, DEVICE),
        wording.percent(percent),
        markup.text(table.cell("bound", row)) or wording.MISSING,
        wording.percent(table.cell("roof_percent", row)),
    ]

"""Ops of compiled programs in plain HTML, and how near each comes to the roof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.display.categories import DEVICE

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """Ops of compiled programs, and how near each comes to the roof; where the tab was asked for
    and is empty, why.
    """
    part = payload.hlo
    table = part.table
    if part.empty:
        asked = any(tab.id == "hlo" for tab in payload.meta.tabs)
        return markup.paragraph(markup.text(part.empty.text)) if asked else ""
    rows = []
    for i in range(min(table.rows, _ROWS)):
        percent = table.cell("self_percent", i)
        bound = markup.text(table.cell("bound", i)) or "–"
        numbers = [
            wording.number(table.cell("self_us", i), 1),
            markup.bar(percent, DEVICE),
            wording.percent(percent),
        ]
        names = [markup.name(table.cell("op", i), 60), markup.text(table.cell("category", i))]
        rows.append([*names, *numbers, bound, wording.percent(table.cell("roof_percent", i))])
    heads = ["Op", "Category", "Self µs", "", "% of ops", "Bound by", "Of roof"]
    note = (
        markup.paragraph(markup.text(part.missing)) + markup.code_block(part.code)
        if part.missing and rows
        else ""
    )
    title = (
        "Top ops under the roofline"
        if "input_shapes" in table.data
        else "Top ops of compiled programs"
    )
    return markup.table(title, part.device, heads, rows, "llrlrlr") + note

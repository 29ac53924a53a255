"""Ops of compiled programs in plain HTML, and how near each comes to the roof."""

from __future__ import annotations

from typing import Any

from nbprof.display import markup, wording
from nbprof.display.categories import DEVICE

_ROWS = 10


def html(payload: dict[str, Any]) -> str:
    """Ops of compiled programs, and how near each comes to the roof; where the tab was asked for and is empty, why."""
    part = payload["hlo"]
    table = part["table"]
    if part["empty"]:
        asked = any(tab["id"] == "hlo" for tab in payload["meta"]["tabs"])
        return markup.paragraph(markup.text(part["empty"]["text"])) if asked else ""
    rows = []
    for i in range(min(table["rows"], _ROWS)):
        percent = markup.cell(table, "self_percent", i)
        bound = markup.text(markup.cell(table, "bound", i)) or "–"
        numbers = [wording.number(markup.cell(table, "self_us", i), 1), markup.bar(percent, DEVICE), wording.percent(percent)]
        names = [markup.name(markup.cell(table, "op", i), 60), markup.text(markup.cell(table, "category", i))]
        rows.append([*names, *numbers, bound, wording.percent(markup.cell(table, "roof_percent", i))])
    heads = ["Op", "Category", "Self µs", "", "% of ops", "Bound by", "Of roof"]
    note = markup.paragraph(markup.text(part["missing"])) + markup.code_block(part["code"]) if part["missing"] and rows else ""
    title = "Top ops under the roofline" if "input_shapes" in table["data"] else "Top ops of compiled programs"
    return markup.table(title, part["device"], heads, rows, "llrlrlr") + note

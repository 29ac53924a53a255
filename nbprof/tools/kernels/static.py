"""Kernels in plain HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """Those with most time."""
    table = payload.kernels.table
    rows = []
    for i in range(min(table.rows, _ROWS)):
        figures = (("total_us", 1), ("occurrences", 0), ("avg_us", 1))
        numbers = [wording.number(table.cell(key, i), digits) for key, digits in figures]
        rows.append([markup.kernel(table.cell("kernel", i)), *numbers])
    title = f"Top {markup.text(payload.kernels.chip or 'GPU')} kernels"
    return markup.table(title, "", ["Kernel", "Total µs", "Count", "Avg µs"], rows, "lrrr")

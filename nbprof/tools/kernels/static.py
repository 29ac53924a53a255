"""Kernels in plain HTML."""

from __future__ import annotations

from typing import Any

from nbprof.display import markup, wording

_ROWS = 10


def html(payload: dict[str, Any]) -> str:
    """Those with most time."""
    kernels = payload["kernels"]
    table = kernels["table"]
    rows = []
    for i in range(min(table["rows"], _ROWS)):
        figures = (("total_us", 1), ("occurrences", 0), ("avg_us", 1))
        numbers = [wording.number(markup.cell(table, key, i), digits) for key, digits in figures]
        rows.append([markup.kernel(markup.cell(table, "kernel", i)), *numbers])
    title = f"Top {markup.text(kernels.get('chip') or 'GPU')} kernels"
    return markup.table(title, "", ["Kernel", "Total µs", "Count", "Avg µs"], rows, "lrrr")

"""Memory in plain HTML: peaks, and what was alive at the largest."""

from __future__ import annotations

from typing import Any

from nbprof.display import markup, wording
from nbprof.display.categories import HEAP

_ROWS = 10


def html(payload: dict[str, Any]) -> str:
    """A row an allocator, and the blocks of the first."""
    memory = payload["memory"]
    rows = [
        [
            markup.name(one["memory_id"], 60),
            wording.size(one["peak_bytes"]),
            wording.size(one["capacity_bytes"]),
            wording.number(one["peak_time_ms"], 1),
        ]
        for one in memory["ids"][:_ROWS]
    ]
    if (peaks := memory["peaks"]) is not None:
        rows = [
            [
                markup.name(markup.cell(peaks, "memory_id", i), 60),
                *(wording.size(markup.cell(peaks, key, i)) for key in ("peak_bytes", "capacity_bytes")),
                wording.number(markup.cell(peaks, "peak_time_ms", i), 1),
            ]
            for i in range(min(peaks["rows"], _ROWS))
        ]
    html = markup.table("Peak memory", "", ["Memory", "Peak", "Capacity", "At ms"], rows, "lrrr")
    if not memory["ids"]:
        return html
    first = memory["ids"][0]
    table = first["peak"]
    alive = [
        [
            markup.name(markup.cell(table, "op", i), 80),
            markup.text(markup.cell(table, "shape", i)),
            wording.size(markup.cell(table, "allocated_bytes", i)),
            markup.bar(markup.cell(table, "percent", i), HEAP),
            wording.percent(markup.cell(table, "percent", i)),
        ]
        for i in range(min(table["rows"], _ROWS))
    ]
    return html + markup.table("Live at the peak", first["memory_id"], ["Op", "Shape", "Allocated", "", "% of peak"], alive, "llrlr")

"""Memory in plain HTML: peaks, and what was alive at the largest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.display.categories import HEAP

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """A row an allocator, and the blocks of the first."""
    memory = payload.memory
    rows = [
        [
            markup.name(allocator.memory_id, 60),
            wording.size(allocator.peak_bytes),
            wording.size(allocator.capacity_bytes),
            wording.number(allocator.peak_time_ms, 1),
        ]
        for allocator in memory.ids[:_ROWS]
    ]
    if (peaks := memory.peaks) is not None:
        rows = [
            [
                markup.name(peaks.cell("memory_id", i), 60),
                *(wording.size(peaks.cell(key, i)) for key in ("peak_bytes", "capacity_bytes")),
                wording.number(peaks.cell("peak_time_ms", i), 1),
            ]
            for i in range(min(peaks.rows, _ROWS))
        ]
    html = markup.table("Peak memory", "", ["Memory", "Peak", "Capacity", "At ms"], rows, "lrrr")
    if not memory.ids:
        return html
    first = memory.ids[0]
    table = first.peak
    alive = [
        [
            markup.name(table.cell("op", i), 80),
            markup.text(table.cell("shape", i)),
            wording.size(table.cell("allocated_bytes", i)),
            markup.bar(table.cell("percent", i), HEAP),
            wording.percent(table.cell("percent", i)),
        ]
        for i in range(min(table.rows, _ROWS))
    ]
    return html + markup.table(
        "Live at the peak",
        first.memory_id,
        ["Op", "Shape", "Allocated", "", "% of peak"],
        alive,
        "llrlr",
    )

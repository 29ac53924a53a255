"""Memory in plain HTML: peaks, and what was alive at the largest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbprof.display import markup, wording
from nbprof.display.categories import HEAP
from nbprof.tools.parts import Table

if TYPE_CHECKING:
    from nbprof.tools.memory.parts import Memory
    from nbprof.tools.payloads import Payload

_ROWS = 10
_SIZES = ("first_bytes", "peak_bytes", "last_bytes", "growth_bytes_per_step")


def html(payload: Payload) -> str:
    """A row an allocator, and the blocks of the first."""
    memory = payload.memory
    rows = []
    if memory.peaks is not None:
        for row in range(min(memory.peaks.rows, _ROWS)):
            keys = ("memory_id", "peak_bytes", "capacity_bytes", "peak_time_ms")
            rows.append(_row(*(memory.peaks.cell(key, row) for key in keys)))
    else:
        for each in memory.ids[:_ROWS]:
            rows.append(
                _row(each.memory_id, each.peak_bytes, each.capacity_bytes, each.peak_time_ms)
            )
    html = markup.table("Peak memory", "", ["Memory", "Peak", "Capacity", "At ms"], rows, "lrrr")
    html += _host(memory)
    if not memory.ids:
        return html
    roles = memory.ids[0].roles
    if roles is not None:
        by_role = [_role(roles.peak, row) for row in range(roles.peak.rows)]
        html += markup.table(
            "By role at the peak",
            memory.ids[0].memory_id,
            ["Role", "Bytes", "", "% in use"],
            by_role,
            "lrlr",
        )
    table = memory.ids[0].peak
    blocks = [_block(table, row) for row in range(min(table.rows, _ROWS))]
    heads = ["Op", "Shape", "Allocated", "", "% of peak"]
    return html + markup.table("Live at the peak", memory.ids[0].memory_id, heads, blocks, "llrlr")


def _host(memory: Memory) -> str:
    """Host memory, a row a process; "" where it is unknown."""
    if memory.host is None:
        return ""
    table = memory.host.processes
    rows = []
    for row in range(min(table.rows, _ROWS)):
        sizes = [table.cell(key, row) for key in _SIZES]
        rows.append([markup.text(table.cell("name", row)), *map(wording.size, sizes)])
    heads = [table.head(key).label for key in ("name", *_SIZES)]
    return markup.table("Host memory over the cell", "", heads, rows, "l" + "r" * len(_SIZES))


def _row(memory_id: str, peak: Any, capacity: Any, time_ms: Any) -> list[str]:
    """An allocator."""
    return [
        markup.name(memory_id, 60),
        wording.size(peak),
        wording.size(capacity),
        wording.number(time_ms, 1),
    ]


def _role(table: Table, row: int) -> list[str]:
    """A role and its memory."""
    percent = table.cell("percent", row)
    return [
        markup.text(table.cell("role", row)),
        wording.size(table.cell("bytes", row)),
        markup.bar(percent, HEAP),
        wording.percent(percent),
    ]


def _block(table: Table, row: int) -> list[str]:
    """A block that was live at the peak."""
    percent = table.cell("percent", row)
    return [
        markup.name(table.cell("op", row), 80),
        markup.text(table.cell("shape", row)),
        wording.size(table.cell("allocated_bytes", row)),
        markup.bar(percent, HEAP),
        wording.percent(percent),
    ]

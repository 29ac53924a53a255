"""PyTorch's allocator in the part of a report that needs nothing: why memory ran out, and what keeps free memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbprof.display import wording

_ROWS = 5
Table = Callable[[str, str, list[str], list[list[str]], str], str]


def html(part: dict[str, Any], table: Table, paragraph: Callable[[str], str], text: Callable[[object], str]) -> str:
    """A line and a table for each device; nothing without a snapshot. The callables write what the rest of the report looks like."""
    return "".join(_device(one, table, paragraph, text) for one in part["devices"])


def _device(one: dict[str, Any], table: Table, paragraph: Callable[[str], str], text: Callable[[object], str]) -> str:
    oom = "".join(
        paragraph(f"<b>Out of memory {text(each['when'])}:</b> {text(each['text'])} {text(each['remedy'])}") for each in one["ooms"][:1]
    )
    figures = "; ".join(f"{fig['label']} {wording.number(fig['value'], fig['digits'])} {fig['unit']}".strip() for fig in one["figures"])
    said = paragraph(f"GPU {one['device']}, {text(one['when'])}: {text(figures)}.")
    stranded = one["stranded"]["data"]
    rows = [
        [
            text(wording.tail(stranded["location"]["values"][int(stranded["location"]["codes"][i])], 80)),
            wording.size(stranded["pinned_bytes"][i]),
            wording.size(stranded["alone_bytes"][i]),
            wording.number(stranded["blocks"][i]),
            wording.size(stranded["bytes"][i]),
        ]
        for i in range(min(one["stranded"]["rows"], _ROWS))
    ]
    heads = ["Allocated at", "Keeps free", "Alone", "Blocks", "Their size"]
    return oom + said + table("What keeps free memory", f"GPU {one['device']}", heads, rows, "lrrrr")

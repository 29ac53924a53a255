"""PyTorch's allocator in plain HTML: why memory ran out, and what keeps free memory."""

from __future__ import annotations

from typing import Any

from nbprof.display import markup, wording
from nbprof.tools.allocator.payload import only

_ROWS = 5


def html(payload: dict[str, Any]) -> str:
    """A line and a table for each device, or that a snapshot is empty; nothing without one."""
    if only(payload) and (empty := payload["allocator"]["empty"]):
        return markup.paragraph(f"{markup.text(empty['title'])}. {markup.text(empty['text'])}")
    return "".join(_device(one) for one in payload["allocator"]["devices"])


def _device(one: dict[str, Any]) -> str:
    oom = ""
    for each in one["ooms"][:1]:
        title = f"<b>Out of memory {markup.text(each['when'])}:</b>"
        oom += markup.paragraph(f"{title} {markup.text(each['text'])} {markup.text(each['remedy'])}")
    figures = "; ".join(f"{fig['label']} {wording.number(fig['value'], fig['digits'])} {fig['unit']}".strip() for fig in one["figures"])
    said = markup.paragraph(f"{markup.text(one['name'])}, {markup.text(one['when'])}: {markup.text(figures)}.")
    stranded = one["stranded"]["data"]
    rows = [
        [
            markup.text(wording.tail(stranded["location"]["values"][int(stranded["location"]["codes"][i])], 80)),
            wording.size(stranded["pinned_bytes"][i]),
            wording.size(stranded["alone_bytes"][i]),
            wording.number(stranded["blocks"][i]),
            wording.size(stranded["bytes"][i]),
        ]
        for i in range(min(one["stranded"]["rows"], _ROWS))
    ]
    heads = ["Allocated at", "Keeps free", "Alone", "Blocks", "Their size"]
    return oom + said + markup.table("What strands free memory", one["name"], heads, rows, "lrrrr")

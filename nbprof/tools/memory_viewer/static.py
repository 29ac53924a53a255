"""Memory of compiled programs in plain HTML."""

from __future__ import annotations

from typing import Any

from nbprof.display import markup, wording
from nbprof.display.categories import HEAP

_ROWS = 10


def html(payload: dict[str, Any]) -> str:
    """A row a program, and the buffers of the one that is opened."""
    viewer = payload["memory_viewer"]
    rows = []
    for one in viewer["modules"][:_ROWS]:
        main = one["spaces"][0]
        padding = 100 * (1 - main["unpadded_bytes"] / main["peak_bytes"]) if main["peak_bytes"] else None
        sizes = [wording.size(main[key]) for key in ("peak_bytes", "unpadded_bytes", "throughout_bytes")]
        rows.append([markup.name(one["name"], 80), *sizes[:2], wording.percent(padding), sizes[2]])
    heads = ["Program", "Peak", "Without padding", "Padding", "Live throughout"]
    html = markup.table("Memory of compiled programs", "as the compiler planned it", heads, rows, "lrrrr")
    if not rows:
        return ""
    module, space = viewer.get("chosen") or (0, 0)
    first = viewer["modules"][module]
    table = first["spaces"][space]["buffers"]
    most = max((markup.cell(table, "size_bytes", i) for i in range(table["rows"])), default=0.0)
    order = sorted(range(table["rows"]), key=lambda i: -markup.cell(table, "size_bytes", i))[:_ROWS]
    alive = [
        [
            markup.name(markup.cell(table, "framework_op", i) or markup.cell(table, "buffer", i), 70),
            markup.text(markup.cell(table, "category", i)),
            markup.text(wording.one_line(markup.cell(table, "shape", i))[:60]),
            wording.size(markup.cell(table, "size_bytes", i)),
            markup.bar(100 * markup.cell(table, "size_bytes", i) / most if most else 0.0, HEAP),
            wording.number(markup.cell(table, "padding_ratio", i), 2),
        ]
        for i in order
    ]
    heads = ["Buffer", "", "Shape", "Size", "", "Expansion"]
    return html + markup.table("Live at the peak", first["name"], heads, alive, "lllrlr")

"""Memory of compiled programs in plain HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.display.categories import HEAP
from nbprof.tools.common import share

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """A row a program, and the buffers of the one that is opened."""
    viewer = payload.memory_viewer
    rows = []
    for program in viewer.modules[:_ROWS]:
        main = program.spaces[0]
        padding = share(main.peak_bytes - main.unpadded_bytes, main.peak_bytes)
        cells = [
            markup.name(program.name, 80),
            wording.size(main.peak_bytes),
            wording.size(main.unpadded_bytes),
            wording.percent(padding),
            wording.size(main.throughout_bytes),
        ]
        rows.append(cells)
    heads = ["Program", "Peak", "Without padding", "Padding", "Live throughout"]
    html = markup.table(
        "Memory of compiled programs", "as the compiler planned it", heads, rows, "lrrrr"
    )
    if not rows:
        return ""
    module, space = viewer.chosen or (0, 0)
    first = viewer.modules[module]
    table = first.spaces[space].buffers
    order = sorted(range(table.rows), key=lambda i: -table.cell("size_bytes", i))[:_ROWS]
    alive = []
    for i in order:
        size = table.cell("size_bytes", i)
        percent = share(size, table.cell("size_bytes", order[0])) or 0.0
        cells = [
            markup.name(table.cell("framework_op", i) or table.cell("buffer", i), 70),
            markup.text(table.cell("category", i)),
            markup.text(wording.one_line(table.cell("shape", i))[:60]),
            wording.size(size),
            markup.bar(percent, HEAP),
            wording.number(table.cell("padding_ratio", i), 2),
        ]
        alive.append(cells)
    heads = ["Buffer", "", "Shape", "Size", "", "Expansion"]
    return html + markup.table("Live at the peak", first.name, heads, alive, "lllrlr")

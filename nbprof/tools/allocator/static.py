"""PyTorch's allocator in plain HTML: why memory ran out, and what keeps free memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.tools.allocator.parts import AllocatorDevice
from nbprof.tools.allocator.payload import figure_texts, only

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 5


def html(payload: Payload) -> str:
    """A line and a table for each device, or that a snapshot is empty; nothing without one."""
    if only(payload) and (empty := payload.allocator.empty):
        return markup.paragraph(f"{markup.text(empty.title)}. {markup.text(empty.text)}")
    return "".join(_device(device) for device in payload.allocator.devices)


def _device(device: AllocatorDevice) -> str:
    text = ""
    for oom in device.ooms[:1]:
        title = f"<b>Out of memory {markup.text(oom.when)}:</b>"
        text += markup.paragraph(f"{title} {markup.text(oom.text)} {markup.text(oom.remedy)}")
    figures = "; ".join(figure.strip() for figure in figure_texts(device))
    text += markup.paragraph(
        f"{markup.text(device.name)}, {markup.text(device.when)}: {markup.text(figures)}."
    )
    stranded = device.stranded
    rows = []
    for row in range(min(stranded.rows, _ROWS)):
        location = markup.text(wording.tail(stranded.cell("location", row), 80))
        pinned = wording.size(stranded.cell("pinned_bytes", row))
        alone = wording.size(stranded.cell("alone_bytes", row))
        blocks = wording.number(stranded.cell("blocks", row))
        rows.append([location, pinned, alone, blocks, wording.size(stranded.cell("bytes", row))])
    heads = ["Allocated at", "Keeps free", "Alone", "Blocks", "Their size"]
    return text + markup.table("What strands free memory", device.name, heads, rows, "lrrrr")

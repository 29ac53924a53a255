"""How devices spent their time, in plain HTML, in percent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nbprof.display import markup, wording

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """What the devices did, in percent of their time, and the sentence on why they stood still."""
    part = payload.device_time
    devices = part.devices[:_ROWS]
    if not devices:
        return ""
    rows = []
    for name, times in zip(
        devices, np.asarray(part.parts_ms, np.float64).reshape(-1, 4), strict=False
    ):
        total = float(np.nansum(times))
        rows.append(
            [
                markup.text(name),
                *(wording.percent(100 * float(ms) / total) if total else "–" for ms in times),
            ]
        )
    more = len(part.devices) - len(devices)
    scope = "percent of their time" + (f"; {more:,} more devices" if more else "")
    statement = markup.paragraph(markup.marked(part.statement))
    return statement + markup.table(
        "Device time",
        scope,
        ["Device", "Compute", "Communication", "Memory", "Idle"],
        rows,
        "lrrrr",
    )

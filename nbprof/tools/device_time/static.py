"""Time of devices in plain HTML, in percent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nbprof.display import markup, wording

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload

_ROWS = 10


def html(payload: Payload) -> str:
    """Percentages of device time by class, and the sentence on idle time."""
    part = payload.device_time
    devices = part.devices[:_ROWS]
    if not devices:
        return ""
    times = np.asarray(part.parts_ms, np.float64).reshape(-1, 4)
    # The first window is the whole recording.
    rows = [_row(name, times_ms) for name, times_ms in zip(devices, times, strict=False)]
    more = len(part.devices) - len(devices)
    scope = "percent of their time"
    if more:
        scope += f"; {more:,} more devices"
    statement = markup.paragraph(markup.marked(part.statement))
    heads = ["Device", "Compute", "Communication", "Memory", "Idle"]
    return statement + markup.table("Device time", scope, heads, rows, "lrrrr")


def _row(name: str, times_ms: npt.NDArray[np.float64]) -> list[str]:
    total = float(np.nansum(times_ms))
    if not total:
        return [markup.text(name), *[wording.MISSING] * len(times_ms)]
    return [markup.text(name), *(wording.percent(100 * float(ms) / total) for ms in times_ms)]

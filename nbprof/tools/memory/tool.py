"""The tab Memory: what allocators held over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.common import by_torch
from nbprof.tools.header import out_of_memory
from nbprof.tools.memory import figure, host, payload, static
from nbprof.tools.tool import Tool, Top, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _has(run: Run) -> bool:
    """Not where nothing can be asked for that records it: of the CPU only PyTorch has memory events
    that are left out unless asked for. Host memory is sampled in cells of any framework.
    """
    return (
        by_torch(run)
        or not run.devices.empty
        or not run.memory_summary.empty
        or host.is_drawn(run)
        or out_of_memory(run)
    )


TOOL = Tool(
    payload=cached_part("memory", payload.payload),
    nothing=payload.nothing,
    has=_has,
    # After memory ran out, its contents are what to look at first.
    first=out_of_memory,
    static=static.html,
    figures={"memory": figure.memory},
    brief=(
        Top(
            "Peak memory",
            "memory.summary",
            "memory_id",
            ("peak_bytes", "capacity_bytes", "peak_fragmentation"),
            largest="peak_bytes",
        ),
    ),
)

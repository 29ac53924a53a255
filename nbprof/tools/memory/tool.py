"""The tab Memory: what allocators held over time."""

from __future__ import annotations

from nbprof.tools.header import out_of_memory
from nbprof.tools.memory import figure, payload, static
from nbprof.tools.tool import Tool, Top, kept

TOOL = Tool(
    payload=kept("memory", payload.payload),
    nothing=payload.nothing,
    # What has to be looked at is what stood in the memory.
    first=out_of_memory,
    static=static.html,
    figures={"memory": figure.memory},
    brief=(
        Top("Peak memory", "memory.summary", "memory_id", ("peak_bytes", "capacity_bytes", "peak_fragmentation"), largest="peak_bytes"),
    ),
)

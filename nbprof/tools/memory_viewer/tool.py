"""The tab Program memory: how the compiler planned the memory of programs."""

from __future__ import annotations

from nbprof.tools.memory_viewer import payload, static
from nbprof.tools.tool import Tool, cached_part

TOOL = Tool(
    payload=cached_part("memory_viewer", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    static=static.html,
)

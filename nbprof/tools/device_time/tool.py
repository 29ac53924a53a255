"""The tab Device time: how devices spent their time, and what they waited for."""

from __future__ import annotations

from nbprof.tools.device_time import figures, payload, static
from nbprof.tools.tool import Tool, kept

TOOL = Tool(
    payload=kept("device_time", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    static=static.html,
    figures={"device_time": figures.figure},
)

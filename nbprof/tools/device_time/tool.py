"""The tab Device time: how devices spent their time, and what they waited for."""

from __future__ import annotations

from nbprof.tools.device_time import figures, payload, static
from nbprof.tools.tool import Tool, Top, cached_part

TOOL = Tool(
    payload=cached_part("device_time", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    static=static.html,
    figures={"device_time": figures.figure},
    brief=(
        Top(
            "Devices were idle, by what they waited for",
            "device_time.idle",
            "category",
            ("device", "idle_ms", "percent"),
            query="stream == '' and idle_ms > 0",
            largest="idle_ms",
        ),
        Top(
            "While a device waited for its next launch, the host was",
            "device_time.idle_causes",
            "cause",
            ("device", "idle_ms", "percent"),
            largest="idle_ms",
        ),
        Top(
            "Collectives",
            "device_time.collectives",
            "collective",
            ("time_ms", "wait_percent", "bus_gb_per_second"),
            largest="time_ms",
            late=True,
        ),
    ),
)

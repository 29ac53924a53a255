"""The tab Overview: the answer first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.overview import payload, static, text
from nbprof.tools.tool import Tool, Top

if TYPE_CHECKING:
    from nbprof.tools.payloads import Payload


def _png(dashboard: Payload) -> bytes:
    # Imported here, as below: plain text needs no Pillow.
    from nbprof.tools.overview import picture

    return picture.png(dashboard)


def _steps_png(dashboard: Payload) -> bytes | None:
    from nbprof.tools.overview import picture

    return picture.steps_png(dashboard)


TOOL = Tool(
    payload=lambda run, _events: payload.payload(run),
    nothing=payload.nothing,
    fallback=payload.fallback,
    always=True,
    text=text.lines,
    picture=_png,
    chart=_steps_png,
    lead=static.lead,
    static=static.html,
    brief=(
        Top(
            "Ops, self time in the whole profile",
            "overview.top_ops",
            "op",
            ("self_ms", "percent"),
            most=5,
        ),
        Top(
            "Ranges of the program",
            "ranges.frame",
            "range",
            ("host_ms_per_step", "percent", "device_ms_per_step"),
            most=5,
            largest="host_ms_per_step",
        ),
        Top(
            "Lines of your Python code, sampled",
            "python.lines",
            "file",
            ("user_code_ms", "total_ms"),
            query="user_code_ms > 0",
            largest="user_code_ms",
            line="line",
        ),
        Top(
            "Lines of compiled programs",
            "lines.frame",
            "file",
            ("program_us",),
            query="program_us > 0",
            largest="program_us",
            line="line",
        ),
    ),
)

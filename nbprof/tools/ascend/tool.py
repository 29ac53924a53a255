"""The tab Ascend: what Ascend's profiler measured on an NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.ascend import figures, payload, static
from nbprof.tools.tool import Alone, Tool, Top, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _alone(run: Run) -> Alone | None:
    tabs = payload.only(run)
    return Alone(tabs, []) if tabs else None


TOOL = Tool(
    payload=cached_part("ascend", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    alone=_alone,
    static=static.html,
    figures={"iterations": figures.iterations, "op_types": figures.op_types, "pmu": figures.pmu},
    brief=(
        Top(
            "Checks over their limit",
            "ascend.rules.frame",
            "title",
            ("value", "limit", "unit", "share"),
            query="state == 'found'",
        ),
        Top(
            "NPU ops",
            "ascend.op_types.frame",
            "op_type",
            ("total_us", "fraction", "tasks"),
            largest="total_us",
        ),
    ),
)

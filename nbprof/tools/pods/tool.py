"""The tab Pods: the workers of a job side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.pods import figure, findings, payload, static
from nbprof.tools.tool import Tool, Top, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _count(run: Run) -> int:
    frame = run.pods if payload.several(run) else run.pods_cores
    return int(frame["worker"].nunique())


TOOL = Tool(
    payload=cached_part("pods", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    count=_count,
    text=findings.text,
    static=static.html,
    figures={"pods": figure.pods},
    brief=(
        Top(
            "Stragglers",
            "pods.stragglers",
            "host",
            ("cost_ms", "saved_ms", "chance", "why"),
            query="straggler == True",
        ),
        Top(
            "Out of line with other hosts",
            "pods.outliers",
            "name",
            ("host", "time_ms", "median_ms", "excess_ms"),
            late=True,
        ),
        Top("Hosts that are missing", "pods.missing", "host", ("reason",)),
    ),
)

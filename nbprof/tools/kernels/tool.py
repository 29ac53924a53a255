"""The tab GPU kernels: what ran on the accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.core.receipt import Note, info
from nbprof.tools.common import chip, may_have_kernels
from nbprof.tools.kernels import figure, payload, static
from nbprof.tools.names import NAMES
from nbprof.tools.tool import Tool, Top, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _omissions(run: Run, _events: int) -> list[Note]:
    count = len(run.kernels) - payload.MOST_ROWS
    if count <= 0:
        return []
    text = f"The table of kernels omits the {count:,} with the least time; p.kernels.frame has all."
    return [info("omitted_kernels", text)]


TOOL = Tool(
    payload=cached_part("kernels", payload.payload),
    nothing=payload.nothing,
    has=may_have_kernels,
    label=lambda run: NAMES["kernels"].label.replace("GPU", chip(run)),
    # Kernels that were not recorded have no count, not 0.
    count=lambda run: run.kernels["kernel"].nunique() or None,
    follows=lambda run, bound: bound == "device_compute" and not run.kernels.empty,
    omissions=_omissions,
    static=static.html,
    figures={"kernels": figure.kernels},
    brief=(
        Top(
            "Kernels",
            "kernels.by_name()",
            "kernel",
            ("total_us", "percent", "occurrences", "tensor_core_percent"),
            most=5,
        ),
    ),
)

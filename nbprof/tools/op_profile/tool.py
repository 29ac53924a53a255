"""The tab Op profile: the time of compiled programs as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.core.receipt import Note, info
from nbprof.display import wording
from nbprof.tools.op_profile import payload, static
from nbprof.tools.tool import Tool, Top, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _omissions(run: Run, _events: int) -> list[Note]:
    count = payload.left_out(run)
    if not count:
        return []
    ops = wording.plural(count, "op")
    text = f"The op profile sums up the {ops} with the least self time; p.op_profile.frame has all."
    return [info("omitted_profile_ops", text)]


def _follows(run: Run, bound: str) -> bool:
    """On the CPU, compiled programs are the host's work."""
    category = "device_compute" if run.activity.has_device else "host_compute"
    return bound == category and run.kernels.empty


TOOL = Tool(
    payload=cached_part("op_profile", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    follows=_follows,
    omissions=_omissions,
    static=static.html,
    brief=(
        Top(
            "Categories of compiled ops",
            "op_profile.frame",
            "path",
            ("time_us", "time_fraction", "flops_utilization", "bandwidth_utilization", "wasted_us"),
            query="kind == 'category'",
            largest="time_us",
        ),
    ),
)

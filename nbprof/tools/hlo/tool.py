"""The tab HLO & roofline: ops of compiled programs, and how close each comes to what the device can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.tools.hlo import figures, payload, static
from nbprof.tools.tool import Tool, Top, kept

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _omissions(run: Run, _events: int) -> list[str]:
    count = len(run.programs.hlo) - payload.MOST_ROWS if payload.has(run) else 0
    return [f"The table of HLO ops omits the {count:,} with the least self time; p.hlo.frame has all."] if count > 0 else []


TOOL = Tool(
    payload=kept("hlo", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    omissions=_omissions,
    static=static.html,
    figures={"hlo": figures.hlo},
    brief=(Top("Compiled ops", "roofline.frame", "op", ("self_us", "self_fraction", "bound_by", "roof_fraction"), late=True),),
)

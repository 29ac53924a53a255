"""The tab HLO & roofline: ops of compiled programs, and how close each comes to what the device can
do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.core.receipt import Note, info
from nbprof.tools.hlo import figures, payload, static
from nbprof.tools.tool import Tool, Top, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _omissions(run: Run, _events: int) -> list[Note]:
    if not payload.has(run):
        return []
    if run.programs.eager:
        ops, noun, accessor = run.programs.roofline[0], "ops under the roofline", "p.roofline.frame"
    else:
        ops, noun, accessor = run.programs.hlo, "HLO ops", "p.hlo.frame"
    count = len(ops) - payload.MOST_ROWS
    if count <= 0:
        return []
    text = f"The table of {noun} omits the {count:,} with the least self time; {accessor} has all."
    return [info("omitted_compiled_ops", text)]


TOOL = Tool(
    payload=cached_part("hlo", payload.payload),
    nothing=payload.nothing,
    has=payload.has,
    label=lambda run: "Roofline" if run.programs.eager else None,
    omissions=_omissions,
    static=static.html,
    figures={"hlo": figures.hlo},
    brief=(
        Top(
            "Ops under the roofline",
            "roofline.frame",
            "op",
            ("self_us", "self_fraction", "bound", "roof_fraction", "wasted_us"),
            late=True,
        ),
    ),
)

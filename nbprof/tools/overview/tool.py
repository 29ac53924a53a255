"""The tab Overview: the answer first."""

from __future__ import annotations

from nbprof.tools.overview import payload, picture, static, text
from nbprof.tools.tool import Tool, Top

TOOL = Tool(
    payload=lambda run, _events: payload.payload(run),
    nothing=dict,
    always=True,
    text=text.lines,
    picture=picture.png,
    chart=picture.steps_png,
    lead=static.lead,
    static=static.html,
    brief=(Top("Ops", "overview.top_ops", "op", ("self_ms", "percent"), most=5),),
)

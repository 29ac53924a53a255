"""The tab Overview: the answer first."""

from __future__ import annotations

from nbprof.tools.overview import payload, picture, static, text
from nbprof.tools.tool import Tool

TOOL = Tool(
    payload=lambda run, _events: payload.payload(run),
    nothing=dict,
    always=True,
    text=text.lines,
    picture=picture.png,
    chart=picture.steps_png,
    lead=static.lead,
    static=static.html,
)

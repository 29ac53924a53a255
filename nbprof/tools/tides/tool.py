"""The tab Tides: how far the time of a step rises and falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.display import markup, wording
from nbprof.tools.tool import Part, Tool, kept

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _nothing() -> Part:
    return {"empty": None, "high_ms": None, "low_ms": None}


def _payload(run: Run) -> Part:
    if run.steps.empty:
        return {**_nothing(), "empty": {"title": "No tides", "text": "There are no steps that could rise and fall."}}
    times = run.steps["step_time_ms"]
    return {"empty": None, "high_ms": float(times.max()), "low_ms": float(times.min())}


def _static(payload: Part) -> str:
    part = payload["tides"]
    if part["high_ms"] is None:
        return ""
    return markup.paragraph(f"Steps take {wording.number(part['low_ms'], 2)} to {wording.number(part['high_ms'], 2)} ms.")


TOOL = Tool(payload=kept("tides", _payload), nothing=_nothing, has=lambda run: not run.steps.empty, static=_static)

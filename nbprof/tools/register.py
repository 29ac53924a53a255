"""The tools by the ids of their tabs, in the order of `names.json`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from nbprof.tools.names import NAMES
from nbprof.tools.tool import Alone, Tool, ask

if TYPE_CHECKING:
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload


def tool(tab: str) -> Tool:
    """The tool of a tab: its folder is imported when it is needed."""
    result: Tool = import_module(f"nbprof.tools.{tab}.tool").TOOL
    return result


def tools() -> dict[str, Tool]:
    """The tools of all tabs."""
    return {tab: tool(tab) for tab in NAMES}


def alone(run: Run) -> Alone | None:
    """The tabs and facts of a run whose data is that of a single tool; None for any other."""
    answers = [ask(tool.alone, run, otherwise=None) for tool in tools().values()]
    # One with facts has neither steps nor events.
    return max(filter(None, answers), key=lambda alone: bool(alone.facts), default=None)


def followed(run: Run, bound: str) -> str | None:
    """The tab of a run where a verdict is followed up: the first that shows this category of the
    step; None where none does.
    """
    for tab, tool in tools().items():
        if ask(tool.has, run, otherwise=False) and ask(tool.follows, run, bound, otherwise=False):
            return tab
    return None


def only(payload: Payload) -> Tool | None:
    """The tool that a payload is shown as the only one of; None of any other."""
    return next((tool for tool in tools().values() if tool.only(payload)), None)


def picture(payload: Payload) -> bytes | None:
    """The run as a PNG; None for a payload of a single tool."""
    if only(payload):
        return None
    return next((tool.picture(payload) for tool in tools().values() if tool.picture), None)


def chart(payload: Payload) -> bytes | None:
    """The picture between the sentences of static HTML, as a PNG; None for a payload of a single
    tool.
    """
    if only(payload):
        return None
    return next(filter(None, (tool.chart(payload) for tool in tools().values())), None)

"""The tools by the ids of their tabs, in the order of `names.json`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from nbprof.tools.names import NAMES
from nbprof.tools.tool import Alone, Tool, asked

if TYPE_CHECKING:
    from nbprof.run.run import Run
    from nbprof.tools.payloads import Payload


def tool(tab: str) -> Tool:
    """The tool of a tab: its folder is imported when it is needed."""
    result: Tool = import_module(f"nbprof.tools.{tab}.tool").TOOL
    return result


def tools() -> dict[str, Tool]:
    """All of them."""
    return {tab: tool(tab) for tab in NAMES}


def alone(run: Run) -> Alone | None:
    """How to show a run whose data is that of a single tool; None for any other."""
    found = [
        alone for each in tools().values() if (alone := asked(each.alone, run, otherwise=None))
    ]
    # What has facts of its own has neither steps nor events.
    return max(found, key=lambda alone: bool(alone.facts), default=None)


def followed(run: Run, bound: str) -> str | None:
    """The tab of a run where a verdict is followed up: the first that shows this category of the
    step; None where none does.
    """
    return next(
        (
            tab
            for tab, each in tools().items()
            if asked(lambda of: of.has(run) and of.follows(run, bound), each, otherwise=False)
        ),
        None,
    )


def only(payload: Payload) -> Tool | None:
    """The tool that a payload is shown as the only one of; None of any other."""
    return next((each for each in tools().values() if each.only(payload)), None)


def picture(payload: Payload) -> bytes | None:
    """The run as a PNG; None of a payload that is shown as that of one tool."""
    if only(payload):
        return None
    return next((each.picture(payload) for each in tools().values() if each.picture), None)


def chart(payload: Payload) -> bytes | None:
    """The picture between the sentences of static HTML, as a PNG; None for a payload of a single
    tool.
    """
    if only(payload):
        return None
    return next((found for each in tools().values() if (found := each.chart(payload))), None)

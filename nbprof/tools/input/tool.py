"""The tab Steps & input: what a step consists of, and whether it waits for data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbprof.core.guard import guarded
from nbprof.tools.input import payload
from nbprof.tools.steps import figure
from nbprof.tools.steps import payload as steps
from nbprof.tools.steps.parts import Steps
from nbprof.tools.tool import Tool, Top, cached, cached_part

if TYPE_CHECKING:
    from nbprof.run.run import Run


def _steps(run: Run) -> dict[str, Steps]:
    def failed(sentence: str) -> Steps:
        return steps.nothing("The steps could not be drawn", sentence)

    return {
        "steps": guarded(
            "The chart of the steps", lambda: cached(run, "steps", steps.payload), failed
        )
    }


TOOL = Tool(
    payload=cached_part("input", payload.payload),
    nothing=payload.nothing,
    # The summary of every report stands on the steps.
    extra_parts=_steps,
    follows=lambda _run, bound: bound == "input",
    figures={"steps": figure.steps},
    brief=(
        Top(
            "Pipelines",
            "tf_data.pipelines",
            "pipeline",
            ("mean_us", "slow_calls", "bottleneck", "bottleneck_us"),
            late=True,
        ),
    ),
)

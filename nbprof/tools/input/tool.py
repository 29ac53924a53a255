"""The tab Steps & input: what a step consists of, and whether it waits for data."""

from __future__ import annotations

from nbprof.tools.input import payload
from nbprof.tools.steps import figure
from nbprof.tools.steps import payload as steps
from nbprof.tools.tool import Tool, Top, kept, stored

TOOL = Tool(
    payload=kept("input", payload.payload),
    nothing=payload.nothing,
    # The summary of every report stands on the steps.
    beside=lambda run: {"steps": stored(run, "steps", steps.payload)},
    follows=lambda _run, bound: bound == "input",
    figures={"steps": figure.steps},
    brief=(Top("Pipelines", "tf_data.pipelines", "pipeline", ("mean_us", "slow_calls", "bottleneck", "bottleneck_us"), late=True),),
)

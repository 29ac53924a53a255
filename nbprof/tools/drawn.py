"""Heads of the small tables that the page draws row by row: labels and tooltips of the schema."""

from __future__ import annotations

from nbprof.schema import frames
from nbprof.schema.columns import Col, ms, percent, text
from nbprof.tools.parts import Column
from nbprof.tools.tables import DERIVED, head

_CATEGORY = text(
    "category",
    "Category",
    "Step-time category: what the step spends its time on. Each instant counts once.",
)
_FRAMES = (
    "steps.summary",
    "overview.checks",
    "input_pipeline.categories",
    "ascend.rules.frame",
    "comparison.categories",
    "comparison.findings",
)
_LEFT = "The change as a bar: to the left if the second run takes less"
_BAR = text("bar", "", f"{_LEFT}. Faint if the change may be noise.")
_TABLES = {
    "overview.step": [
        _CATEGORY,
        ms("mean_ms", "ms", "Mean time per step."),
        percent("percent", "% of step", "Share of step time."),
        *(col for col in frames.SCHEMA["steps.bare"] if col.name == "bare_ms"),
    ],
    "ascend.iterations": [
        _CATEGORY,
        ms("mean_ms", "mean", "Mean over the iterations."),
        ms("sd_ms", "sd", "Sample standard deviation (n - 1)."),
        ms("median_ms", "median", "Median over the iterations."),
        ms(
            "p95_ms",
            "p95",
            "95 % of the iterations take no longer; of fewer than 20 it is the longest.",
        ),
        ms("min_ms", "min", "Smallest iteration."),
        ms("max_ms", "max", "Largest iteration."),
        percent("percent", "%", "Share of the time of the iterations."),
    ],
}
"""Tables that are not frames."""
_ADDED: dict[str, list[Col]] = {
    "input_pipeline.categories": [
        DERIVED["per_step_ms"]._replace(
            help="Time per step, scaled where part of it is enqueuing."
        ),
    ],
    "comparison.categories": [_BAR],
    "comparison.memory": [_BAR._replace(help=f"{_LEFT} memory.")],
    "comparison.ops": [
        _BAR._replace(
            help=(
                "The change as a bar: to the left if the second run is faster, in the colour of the"
                " category."
            )
        )
    ],
}
"""Columns that a frame has only on the page."""


def heads() -> dict[str, list[Column]]:
    """The heads by the frame that a table shows, or by its own name if it shows none."""
    columns = {name: list(frames.SCHEMA[name]) for name in _FRAMES} | _TABLES
    for name, added in _ADDED.items():
        columns[name] = [*columns.get(name, []), *added]
    return {name: list(map(head, cols)) for name, cols in columns.items()}

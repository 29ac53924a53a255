"""Steps as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nbprof.activity.unit import Unit
from nbprof.analysis.steps.boundaries import boundaries
from nbprof.core.errors import NbprofError
from nbprof.tools.common import unit_of
from nbprof.tools.plot import (
    bokeh,
    hover_times,
    legend_right,
    number_bars,
    stacked_columns,
    style,
)
from nbprof.tools.steps.payload import recorded
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run


def _head(unit: Unit) -> list[tuple[str, str]]:
    """The first lines of the hover card."""
    if unit.is_recording:
        return [("Recording", "@total{custom}")]
    return [(unit.noun.capitalize(), "@step"), (unit.time.capitalize(), "@total{custom}")]


def steps(run: Run, *, width: int = 900, height: int = 280, **options: Any) -> Figure:
    """A bar a step, stacked by category in ms, with a hover card.

    Parameters
    ----------
    run : Run
    width, height : int
        Pixels.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or the run has no steps.
    """
    plotting, models = bokeh()
    frame = run.steps
    if frame.empty:
        raise NbprofError(
            "this run has no steps, so there is no step graph; mark steps with `with"
            " nbprof.step():`"
        )
    categories = recorded(frame)
    # Several hosts record the same step numbers: positions keep their bars apart.
    data: dict[str, object] = {
        "x": np.arange(len(frame)),
        "step": frame["step"].to_numpy(),
        "total": floats(frame["step_time_ms"]),
    }
    columns, card_columns = stacked_columns({c.key: floats(frame[c.column]) for c in categories})
    data |= columns
    plot: Any = plotting.figure(
        **{
            "width": width,
            "height": height,
            "tools": "xpan,xbox_zoom,xwheel_zoom,reset,save",
            "toolbar_location": "right",
        }
        | options
    )
    source = models.ColumnDataSource(data)
    plot.vbar_stack(
        [c.key for c in categories],
        x="x",
        width=0.86,
        color=[c.colour for c in categories],
        source=source,
        legend_label=[c.label for c in categories],
    )
    rows = [(c.label, f"@{card_columns[c.key]}{{custom}}") for c in reversed(categories)]
    formatters = hover_times(models, "total", *card_columns.values())
    plot.add_tools(models.HoverTool(tooltips=[*_head(unit_of(run)), *rows], formatters=formatters))
    unit = unit_of(run)
    for border in boundaries(
        frame, run.capture.boundaries if run.capture is not None else [], unit
    ):
        plot.add_layout(
            models.Span(
                location=border.row - 0.5, dimension="height", line_dash="dashed", line_width=1
            )
        )
    style(plot, "recording" if unit.is_recording else f"{unit.noun} number", "ms")
    plot.y_range.start = 0
    number_bars(plot, models, frame["host" if unit.is_recording else "step"].astype(str).tolist())
    if plot.legend:
        plot.legend[0].items = plot.legend[0].items[::-1]
    legend_right(plot)
    return cast("Figure", plot)

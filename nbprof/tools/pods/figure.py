"""Workers of a step as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.tools.plot import bokeh, style
from nbprof.tools.steps.payload import recorded
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run


def pods(run: Run, step: int | None = None, *, width: int = 900, height: int = 0, **options: Any) -> Figure:
    """A bar a worker for one step, stacked by category in ms, with a hover card.

    Parameters
    ----------
    run : Run
    step : int, optional
        Step number; the step whose workers differ most when left out.
    width, height : int
        Pixels; 0 for a height that suits the number of workers.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, the run has no steps, or there is no such step.
    """
    plotting, models = bokeh()
    if run.pods.empty:
        raise NbprofError("this run has no steps, so workers cannot be compared; mark steps with `with nbprof.step():`")
    if step is None:
        spread = floats(run.pods_summary["spread_percent"])
        step = int(run.pods_summary["step"].iloc[int(np.nan_to_num(spread).argmax())])
    frame = run.pods[run.pods["step"] == step]
    if frame.empty:
        raise NbprofError(f"there is no step {step} in this run; it has {run.pods['step'].min()} to {run.pods['step'].max()}")
    categories = recorded(frame)
    names = [wording.one_line(str(name)) for name in sorted(frame["worker"], key=wording.natural)]
    data: dict[str, Any] = {"worker": [wording.one_line(str(name)) for name in frame["worker"]], "total": floats(frame["step_time_ms"])}
    data |= {c.key: np.nan_to_num(floats(frame[c.column])) for c in categories}
    defaults = {"width": width, "height": height or 90 + 24 * len(frame), "y_range": names[::-1], "title": f"Step {step}"}
    plot: Any = plotting.figure(**defaults | {"tools": "save", "toolbar_location": "right"} | options)
    plot.hbar_stack(
        [c.key for c in categories],
        y="worker",
        height=0.72,
        color=[c.colour for c in categories],
        source=models.ColumnDataSource(data),
        legend_label=[c.label for c in categories],
    )
    tips = [("Worker", "@worker"), ("Step time", "@total{0.00} ms"), *((c.label, f"@{c.key}{{0.00}} ms") for c in categories)]
    plot.add_tools(models.HoverTool(tooltips=tips))
    style(plot, "ms", None)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    if plot.legend:
        plot.add_layout(plot.legend[0], "right")
        plot.legend[0].border_line_color = None
    return cast("Figure", plot)

"""Workers of a step, or of all steps, as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import BY_KEY, MIDDLE, OVER, UNDER, Category, mix
from nbprof.tools.common import unit_of
from nbprof.tools.plot import RowLook, bokeh, stacked_rows, style
from nbprof.tools.pods.grid import Grid
from nbprof.tools.pods.heat import binned, limit
from nbprof.tools.steps.payload import recorded
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run


_CELLS = 1 << 15
_NAMES = 40
"""Names listed beside the rows of a heat map."""


def pods(
    run: Run,
    step: int | None = None,
    *,
    heat: str = "",
    width: int = 900,
    height: int = 0,
    **options: Any,
) -> Figure:
    """A bar a worker for one step, stacked by category in ms; or a heat map of all workers and
    steps. Both with a hover card.

    Parameters
    ----------
    run : Run
    step : int, optional
        Step number; the step whose workers differ most when left out.
    heat : str
        "step_time" or a category, such as "input": a row a worker, the slowest at the top, a column
        a step, coloured by the distance from the median worker in percent of the step time. Long
        runs have several steps in a column, of which a cell is the slowest.
    width, height : int
        Pixels; 0 for a height that suits the number of workers.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, the run has no steps, or no such step or category exists.
    """
    plotting, models = bokeh()
    if run.pods.empty:
        raise NbprofError(
            "this run has no steps, so workers cannot be compared; mark steps with `with"
            " nbprof.step():`"
        )
    if heat:
        return _heat(run, heat, width, height, options)
    if step is None:
        step = _widest_step(run)
    frame = run.pods[run.pods["step"] == step]
    if frame.empty:
        first, last = run.pods["step"].min(), run.pods["step"].max()
        raise NbprofError(f"there is no step {step} in this run; it has {first} to {last}")
    unit = unit_of(run)
    categories = recorded(frame)
    names = [wording.one_line(str(name)) for name in sorted(frame["worker"], key=wording.natural)]
    data = _bars(frame, categories)
    defaults = {
        "width": width,
        "height": height or 90 + 24 * len(frame),
        "y_range": names[::-1],
        "title": "Recordings" if unit.is_recording else f"{unit.noun.capitalize()} {step}",
    }
    plot: Any = plotting.figure(
        **defaults | {"tools": "save", "toolbar_location": "right"} | options
    )
    stacked_rows(plot, models, categories, data, RowLook("Worker", height=0.72, digits=2))
    return cast("Figure", plot)


def _widest_step(run: Run) -> int:
    """The step whose workers differ most."""
    spread = floats(run.pods_summary["spread_percent"])
    return int(run.pods_summary["step"].iloc[int(np.nan_to_num(spread).argmax())])


def _bars(frame: pd.DataFrame, categories: list[Category]) -> dict[str, object]:
    data: dict[str, object] = {
        "worker": [wording.one_line(str(name)) for name in frame["worker"]],
        "total": floats(frame["step_time_ms"]),
    }
    return data | {c.key: floats(frame[c.column]) for c in categories}


def _heat(run: Run, key: str, width: int, height: int, options: dict[str, Any]) -> Figure:
    plotting, models = bokeh()
    grid = Grid(run)
    keys = ["step_time", *(category.key for category in grid.categories)]
    if key not in keys:
        raise NbprofError(f'there is no category "{key}" in this run; it has {", ".join(keys)}')
    cells = binned(grid, _CELLS)
    over = cells.over(None if key == "step_time" else keys.index(key) - 1)
    mean = cells.mean(over)
    rows = np.argsort(np.nan_to_num(mean, nan=-np.inf), kind="stable")
    names = [wording.one_line(grid.workers[worker]) for worker in cells.rows[rows].tolist()]
    count, columns = over.shape
    unit = unit_of(run)
    several = f", columns of {cells.per:,} {unit.plural}" if cells.per > 1 else ""
    label = unit.time.capitalize() if key == "step_time" else BY_KEY[key].label
    defaults = {
        "width": width,
        "height": height or min(600, 110 + 18 * count),
        "x_range": (0, columns),
        "y_range": (0, count),
        "title": f"{label}, from the median worker, % of {unit.the}{several}",
    }
    plot: Any = plotting.figure(
        **defaults | {"tools": "save", "toolbar_location": "right"} | options
    )
    colour_limit = limit(cells, over)
    palette = [
        *(mix(UNDER, p, MIDDLE) for p in range(100, 0, -1)),
        *(mix(OVER, p, MIDDLE) for p in range(101)),
    ]
    colours = models.LinearColorMapper(
        palette=palette, low=-colour_limit, high=colour_limit, nan_color="#FFFFFF00"
    )
    plot.image(image=[over[rows]], x=0, y=0, dw=columns, dh=count, color_mapper=colours)
    plot.add_tools(models.HoverTool(tooltips=[("From the median", "@image{+0.0} %")]))
    plot.add_layout(models.ColorBar(color_mapper=colours, width=8), "right")
    style(plot, "step", None)
    every = -(-count // _NAMES)
    labelled = list(range(count - 1, -1, -every))
    plot.yaxis.ticker = [i + 0.5 for i in labelled]
    plot.yaxis.major_label_overrides = {i + 0.5: names[i] for i in labelled}
    marked = list(range(0, columns, -(-columns // 12)))
    plot.xaxis.ticker = [i + 0.5 for i in marked]
    plot.xaxis.major_label_overrides = {i + 0.5: str(grid.steps[cells.first[i]]) for i in marked}
    plot.grid.visible = False
    return cast("Figure", plot)

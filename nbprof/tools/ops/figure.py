"""Time by op as Bokeh figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import DEVICE, HOST, OTHER, ranked
from nbprof.tools.plot import bokeh, hover_times
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.models import GridPlot
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run

_IDLE = "#C9CCD0"


def ops(run: Run, *, include_idle: bool = False, size: int = 260, top: int = 5) -> GridPlot:
    """Pies of self time: device and host, by op and by type; a side that was not recorded has none.

    Parameters
    ----------
    run : Run
    include_idle : bool
        Whether idle time is a slice, always the last.
    size : int
        Width and height of one pie in px.
    top : int
        Slices with a name; the rest is one grey slice.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or the run has no ops.
    """
    _, _ = bokeh()
    from bokeh.layouts import gridplot

    frame = run.ops_with_idle if include_idle else run.ops
    rows: list[Any] = []
    for side_name, colour in (("device", DEVICE), ("host", HOST)):
        side = frame[frame["where"] == side_name] if len(frame) else frame
        if len(side) and floats(side["self_us"]).sum() > 0:
            rows.append(
                [
                    _pie(side, key, f"{side_name.capitalize()}, by {key}", colour, size, top)
                    for key in ("op", "type")
                ]
            )
    if not rows:
        raise NbprofError("this run has no ops, so there is nothing to plot")
    return gridplot(rows, toolbar_location=None)


def _pie(side: pd.DataFrame, key: str, title: str, colour: str, size: int, top: int) -> Figure:
    plotting, models = bokeh()
    idle = side["type"] == "IDLE"
    work = (
        side[~idle]
        .assign(self_us=floats(side.loc[~idle, "self_us"]))
        .groupby(key, sort=False)["self_us"]
        .sum()
        .sort_values(ascending=False, kind="stable")
    )
    head, rest = work.head(top), work.iloc[top:]
    slices = [
        (str(name), float(time), shade)
        for (name, time), shade in zip(head.items(), ranked(colour, len(head)), strict=True)
    ]
    if len(rest):
        slices.append((wording.plural(len(rest), "other"), float(rest.sum()), OTHER))
    if idle.any():
        slices.append(("Idle", float(floats(side.loc[idle, "self_us"]).sum()), _IDLE))
    total = sum(time for _, time, _ in slices) or 1.0
    ends = np.cumsum([time for _, time, _ in slices]) / total * 2 * np.pi
    source = models.ColumnDataSource(
        {
            "name": [name for name, _, _ in slices],
            "ms": [time / 1000 for _, time, _ in slices],
            "part": [100 * time / total for _, time, _ in slices],
            "colour": [shade for _, _, shade in slices],
            # From twelve o'clock, clockwise.
            "start": np.pi / 2 - np.concatenate(([0.0], ends[:-1])),
            "end": np.pi / 2 - ends,
            "pattern": ["/" if name == "Idle" else " " for name, _, _ in slices],
        }
    )
    plot: Any = plotting.figure(
        width=size,
        height=size,
        title=title,
        x_range=(-1.1, 1.1),
        y_range=(-1.1, 1.1),
        tools="",
        toolbar_location=None,
    )
    wedge = {
        "x": 0,
        "y": 0,
        "inner_radius": 0.6,
        "outer_radius": 1,
        "start_angle": "start",
        "end_angle": "end",
        "direction": "clock",
    }
    plot.annular_wedge(
        **wedge,
        fill_color="colour",
        line_color="white",
        hatch_pattern="pattern",
        hatch_color="#8F959C",
        hatch_alpha=0.5,
        source=source,
    )
    tips = [("", "@name"), ("Self time", "@ms{custom}"), ("Part", "@part{0.0}%")]
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=hover_times(models, "ms")))
    plot.axis.visible, plot.grid.visible, plot.outline_line_color = False, False, None
    return cast("Figure", plot)

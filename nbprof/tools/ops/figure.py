"""Time by op as Bokeh figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
            pies = []
            for key in ("op", "type"):
                title = f"{side_name.capitalize()}, by {key}"
                pies.append(_pie(_slices(side, key, colour, top), title, size))
            rows.append(pies)
    if not rows:
        raise NbprofError("this run has no ops, so there is nothing to plot")
    return gridplot(rows, toolbar_location=None)


class _Slice(NamedTuple):
    name: str
    self_us: float
    colour: str


def _slices(side: pd.DataFrame, key: str, colour: str, top: int) -> list[_Slice]:
    """The slices of a pie: the largest groups, the others as one, idle time."""
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
        _Slice(str(name), float(time), shade)
        for (name, time), shade in zip(head.items(), ranked(colour, len(head)), strict=True)
    ]
    if len(rest):
        slices.append(_Slice(wording.plural(len(rest), "other"), float(rest.sum()), OTHER))
    if idle.any():
        slices.append(_Slice("Idle", float(floats(side.loc[idle, "self_us"]).sum()), _IDLE))
    return slices


def _pie(slices: list[_Slice], title: str, size: int) -> Figure:
    plotting, models = bokeh()
    times = [part.self_us for part in slices]
    total = sum(times) or 1.0
    ends = np.cumsum(times) / total * 2 * np.pi
    source = models.ColumnDataSource(
        {
            "name": [part.name for part in slices],
            "ms": [time / 1000 for time in times],
            "part": [100 * time / total for time in times],
            "colour": [part.colour for part in slices],
            # From twelve o'clock, clockwise.
            "start": np.pi / 2 - np.concatenate(([0.0], ends[:-1])),
            "end": np.pi / 2 - ends,
            "pattern": ["/" if part.name == "Idle" else " " for part in slices],
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

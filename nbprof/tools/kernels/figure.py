"""Kernels as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import DEVICE
from nbprof.tools.plot import bokeh, hover_times, style
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run


def kernels(
    run: Run, *, top: int = 10, width: int = 900, height: int = 0, **options: Any
) -> Figure:
    """A bar for each of the kernels with most time, in ms.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or nothing ran on a device.
    """
    plotting, models = bokeh()
    frame = run.kernels.head(top)
    if frame.empty:
        raise NbprofError("no kernel ran on a device in this run")
    total = float(floats(run.kernels["total_us"]).sum())
    times = floats(frame["total_us"])
    names = [f"{i + 1}  {wording.kernel(str(name), 50)}" for i, name in enumerate(frame["kernel"])]
    source = models.ColumnDataSource(
        {
            "label": names,
            "kernel": frame["kernel"].astype(str).to_list(),
            "op": frame["op"].astype(str).to_list(),
            "count": floats(frame["occurrences"]),
            "ms": times / 1000,
            "avg": floats(frame["avg_us"]),
            "part": 100 * times / total if total else np.zeros(len(frame)),
        }
    )
    defaults = {
        "width": width,
        "height": height or 70 + 26 * len(frame),
        "y_range": names[::-1],
        "tools": "save",
        "toolbar_location": "right",
    }
    plot: Any = plotting.figure(**defaults | options)
    plot.hbar(y="label", right="ms", height=0.7, color=DEVICE, source=source)
    tips = [
        ("Kernel", "@kernel"),
        ("Op", "@op"),
        ("Total", "@ms{custom} (@part{0.0}%)"),
        ("Launches", "@count{0,0}"),
        ("Average", "@avg{custom}"),
    ]
    formatters = hover_times(models, "ms", digits=3) | hover_times(models, "avg", unit="us")
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=formatters))
    style(plot, "ms", None)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    return cast("Figure", plot)

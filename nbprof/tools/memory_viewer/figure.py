"""The memory of a compiled program as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import HEAP, STACK
from nbprof.tools.common import sample
from nbprof.tools.plot import bokeh, staircase, style

if TYPE_CHECKING:
    from bokeh.models import GridPlot

    from nbprof.analysis.memory.viewer import View

_MIB = 2.0**20


def figure(
    module: str, seen: View, *, width: int = 900, height: int = 280, most: int = 20, **options: Any
) -> GridPlot:
    """The working set over program points with its padding and its peak; below it the lifetimes of
    the largest buffers of the peak.

    Parameters
    ----------
    module : str
    seen : View
    width, height : int
        Pixels, of the upper part.
    most : int
        Buffers in the lower part.
    **options
        Passed to `bokeh.plotting.figure`, of the upper part.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or the program has no temporary buffers, so that there is nothing to
        draw over its points.
    """
    plotting, models = bokeh()
    if seen.timeline.empty:
        raise NbprofError(
            f"{module} has no temporary buffers, so its memory stays constant:"
            f" {wording.size(seen.peak_bytes)} throughout"
        )
    from bokeh.layouts import gridplot

    sampled = sample(seen.timeline["allocated_bytes"].to_numpy(np.int64), [seen.peak_position + 1])
    rows = seen.timeline.iloc[sampled]
    data = {
        "position": rows["position"].to_numpy(np.float64),
        "values": rows["unpadded_bytes"].to_numpy(np.float64) / _MIB,
        "memory": rows["allocated_bytes"].to_numpy(np.float64) / _MIB,
    }
    tools = "xpan,xbox_zoom,xwheel_zoom,reset,save"
    plot: Any = plotting.figure(
        **{"width": width, "height": height, "tools": tools, "title": wording.one_line(module)}
        | options
    )
    area = models.ColumnDataSource(
        {key: staircase(values, shift=key != "position") for key, values in data.items()}
    )
    area.add(np.zeros(len(area.data["position"])), "base")
    plot.varea("position", "base", "values", color=HEAP, source=area, legend_label="Values")
    plot.varea("position", "values", "memory", color=STACK, source=area, legend_label="Padding")
    points = models.ColumnDataSource(
        {**data, "instruction": [wording.one_line(name) for name in rows["instruction"]]}
    )
    marks = plot.scatter(
        "position", "memory", size=6, alpha=0, hover_alpha=1, color=STACK, source=points
    )
    tips = [
        ("Point", "@position{0,0}"),
        ("Instruction", "@instruction"),
        ("Memory", "@memory{0,0.00} MiB"),
        ("Values", "@values{0,0.00} MiB"),
    ]
    plot.add_tools(models.HoverTool(renderers=[marks], mode="vline", tooltips=tips))
    plot.add_layout(
        models.Span(
            location=seen.peak_bytes / _MIB,
            dimension="width",
            line_dash="dashed",
            line_color="#6B6B6B",
        )
    )
    style(plot, "program point", "MiB")
    plot.y_range.start = 0
    plot.legend.orientation, plot.legend.border_line_color = "horizontal", None
    plot.add_layout(plot.legend[0], "below")
    return gridplot([[plot], [_lifetimes(seen, plot, width, most)]], merge_tools=False)


def _lifetimes(seen: View, above: Any, width: int, limit: int) -> Any:
    plotting, models = bokeh()
    rows = seen.at_peak.sort_values("size_bytes", ascending=False, kind="stable").head(limit)
    # Two buffers may have the same name.
    names = [
        f"{i + 1}. {wording.one_line(str(name))[:60]}" for i, name in enumerate(rows["buffer"])
    ]
    data: dict[str, Any] = {
        "name": names,
        "start": rows["start"].to_numpy(np.float64),
        "end": rows["end"].to_numpy(np.float64),
        "mib": rows["size_bytes"].to_numpy(np.float64) / _MIB,
        "ratio": rows["padding_ratio"].to_numpy(np.float64),
    }
    for key in ("category", "shape", "framework_op"):
        data[key] = [wording.one_line(str(text)) for text in rows[key]]
    plot: Any = plotting.figure(
        width=width,
        height=60 + 18 * len(rows),
        y_range=names[::-1] or ["–"],
        x_range=above.x_range,
        tools="xpan,xwheel_zoom,reset,save",
    )
    source = models.ColumnDataSource(data)
    plot.hbar(y="name", left="start", right="end", height=0.7, color=HEAP, source=source)
    tips = [
        ("Buffer", "@name"),
        ("Category", "@category"),
        ("Size", "@mib{0,0.00} MiB"),
        ("Expansion", "@ratio{0.00}"),
        ("Shape", "@shape"),
        ("Framework op", "@framework_op"),
    ]
    plot.add_tools(models.HoverTool(tooltips=tips))
    style(plot, "program point", None)
    plot.ygrid.visible = False
    return plot

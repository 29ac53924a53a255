"""Ops of compiled programs as Bokeh figures: time by category, and the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.activity.given_peaks import ON_CHIP
from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import DEVICE, OTHER
from nbprof.tools.plot import Floats, bokeh, hover_times, style

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.analysis.roofline import Peaks
    from nbprof.run.run import Run

_UNKNOWN = "#C9CCD0"
_SCALE = ("#D7EAE3", "#B0D5C7", "#86BFAB", "#5CA98F", "#33947A", "#0E6B50")
"""Utilization from 0 to 1 in one hue, pale where it is low: readable without telling red from
green.
"""
_ROOF = "#6B6B6B"
_DECADES = 0.5


def hlo(run: Run, *, top: int = 15, width: int = 900, height: int = 0, **options: Any) -> Figure:
    """A bar a category of ops, in ms of self time.

    Parameters
    ----------
    run : Run
    top : int
        Categories with a bar of their own; the rest is one more.
    width, height : int
        Pixels; 0 for a height that suits the number of bars.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or no op of a compiled program ran on a device.
    """
    plotting, models = bokeh()
    frame = run.programs.hlo
    if frame.empty:
        raise NbprofError(run.programs.hlo_missing)
    sums = frame.groupby("category", sort=False).agg(self_us=("self_us", "sum"), ops=("op", "size"))
    sums = sums.sort_values("self_us", ascending=False, kind="stable")
    head, rest = sums.head(top), sums.iloc[top:]
    names = [wording.one_line(str(name)) or "unknown" for name in head.index]
    ms, ops = (head["self_us"] / 1000).tolist(), head["ops"].tolist()
    if len(rest):
        names.append(wording.plural(len(rest), "other"))
        ms.append(float(rest["self_us"].sum()) / 1000)
        ops.append(int(rest["ops"].sum()))
    total = sum(ms) or 1.0
    data = {"name": names, "ms": ms, "ops": ops, "part": [100 * value / total for value in ms]}
    data["colour"] = [DEVICE] * len(head) + [OTHER] * (len(names) - len(head))
    defaults = {
        "width": width,
        "height": height or 70 + 26 * len(names),
        "y_range": names[::-1],
        "tools": "save",
    }
    plot: Any = plotting.figure(**defaults | options)
    plot.hbar(
        y="name", right="ms", height=0.7, color="colour", source=models.ColumnDataSource(data)
    )
    tips = [("Category", "@name"), ("Self time", "@ms{custom} (@part{0.0}%)"), ("Ops", "@ops{0,0}")]
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=hover_times(models, "ms", digits=3)))
    style(plot, "ms", None)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    return cast("Figure", plot)


def colour(utilization: float) -> str:
    """The colour of a utilization, the darker the more; grey where it is not known."""
    if not np.isfinite(utilization):
        return _UNKNOWN
    return _SCALE[min(max(int(utilization * len(_SCALE)), 0), len(_SCALE) - 1)]


def roofline(
    frame: pd.DataFrame,
    peaks: Peaks,
    missing: str,
    *,
    width: int = 900,
    height: int = 420,
    **options: Any,
) -> Figure:
    """The ops under the roof, both axes logarithmic; a point is as large as the op's time.

    Parameters
    ----------
    frame : DataFrame
        `p.roofline.frame`.
    peaks : Peaks
    missing : str
        What is missing, as the title; '' for none.
    width, height : int
        Pixels.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or of no op both FLOPs and bytes are known.
    """
    plotting, models = bokeh()
    drawn = frame[(frame["operational_intensity"] > 0) & (frame["flops_per_second"] > 0)]
    if drawn.empty:
        raise NbprofError(
            missing
            or "no op of this profile has both FLOPs and bytes above 0, so there is no roofline to"
            " draw"
        )
    flops_text = f"{peaks.flops_per_second / 1e12:,.4g} TFLOP/s"
    bytes_text = f"{peaks.bytes_per_second / 1e9:,.4g} GB/s"
    title = missing or f"{peaks.device}: {flops_text}, {bytes_text}"
    defaults = {
        "width": width,
        "height": height,
        "x_axis_type": "log",
        "y_axis_type": "log",
        "tools": "pan,box_zoom,wheel_zoom,reset,save",
        "title": wording.one_line(title),
    }
    plot: Any = plotting.figure(**defaults | options)
    _draw_roof(plot, drawn["operational_intensity"].to_numpy(np.float64), peaks)
    points = plot.scatter(
        "x",
        "y",
        size="size",
        fill_color="colour",
        fill_alpha=0.75,
        line_color="white",
        source=models.ColumnDataSource(_points(drawn)),
    )
    tips = [
        ("Op", "@op"),
        ("Program", "@program"),
        ("Category", "@category"),
        ("Self time", "@part{0.0}%"),
        ("Intensity", "@x{0.000} FLOP/B"),
        ("Rate", "@y{0,0.0} GFLOP/s, @gb{0,0.0} GB/s"),
        ("Bound by", "@bound"),
        ("Of the roof", "@roof"),
    ]
    plot.add_tools(models.HoverTool(tooltips=tips, renderers=[points]))
    style(plot, "operational intensity, FLOP/B", "GFLOP/s")
    if plot.legend:
        plot.legend.location = "bottom_right"
    return cast("Figure", plot)


def _points(ops: pd.DataFrame) -> dict[str, Any]:
    """The columns of the points and their hover cards."""
    share = ops["self_fraction"].to_numpy(np.float64)
    roof = ops["roof_fraction"].to_numpy(np.float64)
    return {
        "x": ops["operational_intensity"].to_numpy(np.float64),
        "y": ops["flops_per_second"].to_numpy(np.float64) / 1e9,
        "size": 5 + 25 * np.sqrt(share / max(float(share.max()), 1e-12)),
        "colour": [colour(value) for value in roof],
        "op": ops["op"].astype(str).to_list(),
        "program": ops["program"].astype(str).to_list(),
        "category": ops["category"].astype(str).to_list(),
        "bound": [str(value) or "unknown" for value in ops["bound"]],
        "part": 100 * share,
        "roof": [_percent(value) for value in roof],
        "gb": ops["bytes_per_second"].to_numpy(np.float64) / 1e9,
    }


def _draw_roof(plot: Any, intensity: Floats, peaks: Peaks) -> None:
    """The roof of main memory, and dashed that of memories on the chip."""
    flops, moved = peaks.flops_per_second / 1e9, peaks.bytes_per_second / 1e9
    ridge = peaks.ridge_point
    left, right = float(intensity.min()) * 10**-_DECADES, float(intensity.max()) * 10**_DECADES
    if np.isfinite(ridge):
        left, right = min(left, ridge / 10), max(right, ridge * 10)
    roof_x = [left, right]
    if left < ridge < right:
        roof_x.insert(1, ridge)
    if flops > 0 or moved > 0:
        # With only one known peak, the roof has one of its two sides.
        roof_y = [float(np.nanmin([x * moved, flops])) for x in roof_x]
        plot.line(roof_x, roof_y, color=_ROOF, line_width=2)
    for level, peak in peaks.on_chip.items():
        end = min(right, flops * 1e9 / peak) if flops > 0 else right
        if left < end:
            plot.line(
                [left, end],
                [left * peak / 1e9, end * peak / 1e9],
                color=_ROOF,
                line_dash="dashed",
                legend_label=ON_CHIP[level],
            )


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%" if np.isfinite(value) else "unknown"

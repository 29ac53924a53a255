"""The op profile as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import DEVICE
from nbprof.tools.plot import bokeh, hover_times, style

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

_LEVELS = 3


def op_profile(
    tree: pd.DataFrame,
    *,
    levels: int = _LEVELS,
    top: int = 40,
    width: int = 900,
    height: int = 0,
    **options: Any,
) -> Figure:
    """The upper levels of an op profile: a bar a node, as long as its time, the part that is wasted
    pale.

    Parameters
    ----------
    tree : DataFrame
        `p.op_profile.frame` or `.tree(...)`.
    levels : int
        How deep.
    top : int
        Nodes at most, those with the most time.
    width, height : int
        Pixels; 0 for a height that suits the number of bars.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or there is nothing to draw.
    """
    plotting, models = bokeh()
    nodes = tree[(tree["depth"] <= levels) & (tree["kind"] != "fused")]
    if nodes.empty:
        raise NbprofError(
            "no op of a compiled XLA program ran on a device in this profile, so there is no op"
            " profile"
        )
    largest = nodes["time_us"].rank(method="first", ascending=False) <= top
    nodes = nodes[largest]
    used = nodes["flops_utilization"].to_numpy(np.float64)
    ms, wasted = (
        nodes["time_us"].to_numpy(np.float64) / 1000,
        nodes["wasted_us"].to_numpy(np.float64) / 1000,
    )
    lost = ms * np.nan_to_num(nodes["unknown_fraction"].to_numpy(np.float64))
    labels = [
        f"{number:>3}  {'  ' * deep}{wording.one_line(str(name))[:60]}"
        for number, deep, name in zip(
            range(1, len(nodes) + 1), nodes["depth"], nodes["name"], strict=True
        )
    ]
    # Labels stand right-aligned; of one width they show the tree.
    wide = max(map(len, labels))
    labels = [label.ljust(wide, "\u00a0").replace(" ", "\u00a0") for label in labels]
    data = {
        "label": labels,
        "path": nodes["path"].astype(str).to_list(),
        "category": nodes["category"].astype(str).to_list(),
        "ms": ms,
        "part": 100 * nodes["time_fraction"].to_numpy(np.float64),
        "wasted": [_ms(value) for value in wasted],
        "unknown": [_ms(value) for value in lost],
        "used": ms - np.nan_to_num(wasted) - lost,
        "flops": [_percent(value) for value in used],
        "memory": [
            _percent(value) for value in nodes["bandwidth_utilization"].to_numpy(np.float64)
        ],
    }
    defaults = {
        "width": width,
        "height": height or 70 + 22 * len(nodes),
        "y_range": labels[::-1],
        "tools": "save",
    }
    plot: Any = plotting.figure(**defaults | options)
    source = models.ColumnDataSource(data)
    named = (
        {"legend_label": "at the peak"},
        {"legend_label": "wasted or unknown" if lost.any() else "wasted"},
    )
    waste_known = bool(np.isfinite(wasted).any())
    plot.hbar(
        y="label",
        right="used",
        height=0.6,
        color=DEVICE,
        source=source,
        **(named[0] if waste_known else {}),
    )
    if waste_known:
        plot.hbar(
            y="label",
            left="used",
            right="ms",
            height=0.6,
            color=DEVICE,
            alpha=0.35,
            source=source,
            **named[1],
        )
        plot.legend.location = "bottom_right"
    tips = [
        ("", "@path"),
        ("Category", "@category"),
        ("Self time", "@ms{custom} (@part{0.0}%)"),
        ("FLOPS utilization", "@flops"),
        ("Bandwidth utilization", "@memory"),
        ("Wasted", "@wasted"),
        ("Cost unknown", "@unknown"),
    ]
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=hover_times(models, "ms", digits=3)))
    style(plot, "ms", None)
    plot.yaxis.major_label_text_font = "monospace"
    plot.x_range.start = 0
    plot.ygrid.visible = False
    return cast("Figure", plot)


def _ms(value: float) -> str:
    return wording.millis(value, 3) if np.isfinite(value) else "unknown"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%" if np.isfinite(value) else "unknown"

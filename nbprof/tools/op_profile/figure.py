"""The op profile as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import DEVICE
from nbprof.tools.plot import bokeh, hover_times, style
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

_LEVELS = 3
_UNKNOWN = "unknown"


def op_profile(
    tree: pd.DataFrame,
    *,
    levels: int = _LEVELS,
    top: int = 40,
    width: int = 900,
    height: int = 0,
    **options: Any,
) -> Figure:
    """The upper levels of an op profile: a bar per node, as long as its time, with the wasted part
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
    nodes = nodes[nodes["time_us"].rank(method="first", ascending=False) <= top]
    labels = _labels(nodes)
    defaults = {
        "width": width,
        "height": height or 70 + 22 * len(nodes),
        "y_range": labels[::-1],
        "tools": "save",
    }
    plot: Any = plotting.figure(**defaults | options)
    _draw_bars(plot, models.ColumnDataSource(_bars(nodes, labels)), nodes)
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


def _labels(nodes: pd.DataFrame) -> list[str]:
    """Numbered names, indented by depth; of one width, so that right-aligned they show the tree."""
    labels = []
    for number, row in enumerate(nodes.to_dict("records"), 1):
        name = wording.one_line(str(row["name"]))[:60]
        labels.append(f"{number:>3}  {'  ' * row['depth']}{name}")
    width = max(map(len, labels))
    return [label.ljust(width, "\u00a0").replace(" ", "\u00a0") for label in labels]


def _bars(nodes: pd.DataFrame, labels: list[str]) -> dict[str, Any]:
    """The columns of the bars and their hover cards."""
    ms, wasted = floats(nodes["time_us"]) / 1000, floats(nodes["wasted_us"]) / 1000
    lost = ms * np.nan_to_num(floats(nodes["unknown_fraction"]))
    return {
        "label": labels,
        "path": nodes["path"].astype(str).to_list(),
        "category": nodes["category"].astype(str).to_list(),
        "ms": ms,
        "part": 100 * floats(nodes["time_fraction"]),
        "wasted": [_ms(value) for value in wasted],
        "unknown": [_ms(value) for value in lost],
        "used": ms - np.nan_to_num(wasted) - lost,
        "flops": [_percent(value) for value in floats(nodes["flops_utilization"])],
        "memory": [_percent(value) for value in floats(nodes["bandwidth_utilization"])],
    }


def _draw_bars(plot: Any, source: Any, nodes: pd.DataFrame) -> None:
    """The part at the peak, and pale the part that is wasted or unknown, if any waste is known."""
    bar = {"y": "label", "height": 0.6, "color": DEVICE, "source": source}
    if nodes["wasted_us"].isna().all():
        plot.hbar(**bar, right="used")
        return
    unknown = bool((nodes["unknown_fraction"].fillna(0.0) * nodes["time_us"]).any())
    pale = "wasted or unknown" if unknown else "wasted"
    plot.hbar(**bar, right="used", legend_label="at the peak")
    plot.hbar(**bar, left="used", right="ms", alpha=0.35, legend_label=pale)
    plot.legend.location = "bottom_right"


def _ms(value: float) -> str:
    return wording.millis(value, 3) if np.isfinite(value) else _UNKNOWN


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%" if np.isfinite(value) else _UNKNOWN

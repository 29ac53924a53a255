"""Memory over time as a Bokeh figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.analysis.memory.sample import sample
from nbprof.core.errors import NbprofError
from nbprof.display.categories import FRAGMENTATION, FREE, HEAP, STACK
from nbprof.tools.memory import payload as memory_view
from nbprof.tools.plot import bokeh, hover_times, staircase, style
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run

_MIB = 2.0**20


def memory(
    run: Run,
    memory_id: str | None = None,
    *,
    whole_device: bool = False,
    width: int = 900,
    height: int = 320,
    **options: Any,
) -> Figure:
    """Stack, heap and free bytes over time in MiB, with fragmentation in % on a second axis and a
    hover card of ten fields.

    Parameters
    ----------
    run : Run
    memory_id : str, optional
        The allocator; the one with the largest peak when left out.
    whole_device : bool
        Whether the axis reaches up to the capacity, so that free memory is drawn to scale.

    Raises
    ------
    NbprofError
        Bokeh is not installed, no allocations were recorded, or no such allocator exists.
    """
    plotting, models = bokeh()
    chosen = _allocator(run, memory_id)
    drawn = memory_view.of_id(run.memory_drawn, chosen)
    frame = drawn if len(drawn) else memory_view.of_id(run.memory_timeline, chosen)
    frame = frame.iloc[sample(floats(frame["in_use_bytes"]))]
    data = _memory_columns(frame)
    defaults = {
        "width": width,
        "height": height,
        "tools": "xpan,xbox_zoom,xwheel_zoom,reset,save",
        "toolbar_location": "right",
    }
    plot: Any = plotting.figure(**defaults | options)
    keys = ("time", "stack", "used", "top", "fragmentation")
    stepped = models.ColumnDataSource(
        {key: staircase(data[key], shift=key != "time") for key in keys}
    )
    stepped.add(np.zeros(len(stepped.data["time"])), "base")
    for label, low, high, colour in _areas(frame):
        plot.varea(
            "time", low, high, color=colour, source=stepped, legend_label=label, level="underlay"
        )
    peak = float(np.nanmax(data["used"])) if len(frame) else 0.0
    top = float(np.nanmax(data["top"])) if whole_device else max(peak * 1.25, 1e-3)
    plot.y_range = models.Range1d(0, top)
    if not np.isnan(data["fragmentation"]).all():
        _draw_fragmentation(plot, models, stepped, float(np.nanmax(data["fragmentation"])))
    style(plot, "ms", None)
    plot.left[0].axis_label = "MiB"
    for axis in plot.right:
        axis.axis_label = "fragmentation, %"
    _add_card(plot, models, data)
    plot.legend.orientation, plot.legend.border_line_color = "horizontal", None
    plot.add_layout(plot.legend[0], "below")
    return cast("Figure", plot)


def _areas(frame: pd.DataFrame) -> list[tuple[str, str, str, str]]:
    """The areas from bottom to top: label, lower and upper column, colour."""
    areas = [
        ("Stack", "base", "stack", STACK),
        ("Heap", "stack", "used", HEAP),
        ("Free", "used", "top", FREE),
    ]
    if frame["stack_bytes"].isna().all():
        # PyTorch's allocators have no stack, and call what they hold beyond the allocated reserved.
        areas = [("Allocated", "base", "used", HEAP), ("Reserved", "used", "top", FREE)]
    return areas[:-1] if frame["free_bytes"].isna().all() else areas


def _draw_fragmentation(plot: Any, models: Any, stepped: Any, highest: float) -> None:
    """A line on a second axis, in percent."""
    plot.extra_y_ranges = {"fragmentation": models.Range1d(0, max(highest * 1.25, 0.01))}
    plot.line(
        "time",
        "fragmentation",
        color=FRAGMENTATION,
        alpha=0.6,
        source=stepped,
        y_range_name="fragmentation",
        legend_label="Fragmentation",
    )
    plot.add_layout(
        models.LinearAxis(y_range_name="fragmentation", axis_label="fragmentation, %"), "right"
    )


def _add_card(plot: Any, models: Any, data: dict[str, Any]) -> None:
    """The hover card of each event."""
    marks = plot.scatter(
        "time",
        "used",
        size=6,
        alpha=0,
        hover_alpha=1,
        color=STACK,
        source=models.ColumnDataSource(data),
    )
    plot.add_tools(
        models.HoverTool(
            renderers=[marks],
            mode="vline",
            tooltips=_MEMORY_TIPS,
            formatters=hover_times(models, "time", digits=3),
        )
    )


_MEMORY_TIPS = [
    ("Timestamp", "@time{custom}"),
    ("Event", "@event"),
    ("Requested", "@requested{0,0} B"),
    ("Allocated", "@allocated{0,0} B"),
    ("Op", "@op"),
    ("Step", "@step"),
    ("Region", "@region"),
    ("Data type", "@dtype"),
    ("Shape", "@shape"),
    ("In use after", "@used{0.00} MiB"),
]


def _memory_columns(frame: pd.DataFrame) -> dict[str, Any]:
    stack, heap, free = (floats(frame[f"{key}_bytes"]) / _MIB for key in ("stack", "heap", "free"))
    texts = {
        short: frame[key].fillna("").astype(str).to_list() for short, key in _MEMORY_TEXTS.items()
    }
    numbers = {
        "time": "time_ms",
        "requested": "requested_bytes",
        "allocated": "allocated_bytes",
        "step": "step",
    }
    data: dict[str, Any] = {short: floats(frame[key]) for short, key in numbers.items()}
    return {
        **data,
        **texts,
        "stack": stack,
        "used": np.nan_to_num(stack) + heap,
        "top": np.nan_to_num(stack) + heap + np.nan_to_num(free),
        "fragmentation": 100 * floats(frame["fragmentation"]),
    }


_MEMORY_TEXTS = {
    "event": "event",
    "op": "op",
    "region": "region_type",
    "dtype": "data_type",
    "shape": "shape",
}


def _allocator(run: Run, memory_id: str | None) -> str:
    summary = run.memory_summary
    if summary.empty:
        raise NbprofError(
            "no allocations were recorded in this run; record them with %%nbprof --memory"
        )
    if memory_id is None:
        return str(
            summary.sort_values("peak_bytes", ascending=False, kind="stable")["memory_id"].iloc[0]
        )
    if memory_id not in set(summary["memory_id"]):
        raise NbprofError(
            f"there is no allocator {memory_id!r} in this run; it has"
            f" {', '.join(map(str, summary['memory_id']))}"
        )
    return memory_id

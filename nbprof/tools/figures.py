"""The views as Bokeh figures, to restyle, compose and use in documents of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import DEVICE, FRAGMENTATION, FREE, HEAP, HOST, OTHER, STACK, ranked
from nbprof.tools.memory import payload as memory_view
from nbprof.tools.steps.payload import recorded
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.models import GridPlot
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run

_SOFT, _LINE, _IDLE = "#6B6B6B", "#DEDEDE", "#C9CCD0"
_MIB = 2.0**20


def steps(run: Run, *, width: int = 900, height: int = 280, **options: Any) -> Figure:
    """A bar a step, stacked by category in ms, with a hover card.

    Parameters
    ----------
    run : Run
    width, height : int
        Pixels.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or the run has no steps.
    """
    plotting, models = _bokeh()
    frame = run.steps
    if frame.empty:
        raise NbprofError("this run has no steps, so there is no step graph; mark them with `with nbprof.step():`")
    categories = recorded(frame)
    # Several hosts record the same step numbers: positions keep their bars apart.
    data: dict[str, Any] = {"x": np.arange(len(frame)), "step": frame["step"].to_numpy(), "total": floats(frame["step_time_ms"])}
    data |= {c.key: np.nan_to_num(floats(frame[c.column])) for c in categories}
    plot: Any = plotting.figure(
        **{"width": width, "height": height, "tools": "xpan,xbox_zoom,xwheel_zoom,reset,save", "toolbar_location": "right"} | options
    )
    source = models.ColumnDataSource(data)
    plot.vbar_stack(
        [c.key for c in categories],
        x="x",
        width=0.86,
        color=[c.colour for c in categories],
        source=source,
        legend_label=[c.label for c in categories],
    )
    rows = [(c.label, f"@{c.key}{{0.00}} ms") for c in reversed(categories)]
    plot.add_tools(models.HoverTool(tooltips=[("Step", "@step"), ("Step time", "@total{0.00} ms"), *rows]))
    _style(plot, "step number", "ms")
    plot.y_range.start = 0
    plot.xaxis.ticker = models.BasicTicker(min_interval=1, num_minor_ticks=0)
    labels = [str(step) for step in frame["step"]]
    plot.xaxis.formatter = models.CustomJSTickFormatter(args={"labels": labels}, code="return labels[tick] ?? ''")
    plot.xgrid.visible = False
    if plot.legend:
        plot.add_layout(plot.legend[0], "right")
        plot.legend[0].items = plot.legend[0].items[::-1]
        plot.legend[0].border_line_color = None
    return cast("Figure", plot)


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
    plotting, models = _bokeh()
    if run.pods.empty:
        raise NbprofError("this run has no steps, so there are no workers to compare; mark them with `with nbprof.step():`")
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
    _style(plot, "ms", None)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    if plot.legend:
        plot.add_layout(plot.legend[0], "right")
        plot.legend[0].border_line_color = None
    return cast("Figure", plot)


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
    _, _ = _bokeh()
    from bokeh.layouts import gridplot

    frame = run.ops_with_idle if include_idle else run.ops
    rows: list[Any] = []
    for where, colour in (("device", DEVICE), ("host", HOST)):
        side = frame[frame["where"] == where] if len(frame) else frame
        if len(side) and floats(side["self_us"]).sum() > 0:
            rows.append([_pie(side, key, f"{where.capitalize()}, by {key}", colour, size, top) for key in ("op", "type")])
    if not rows:
        raise NbprofError("this run has no ops, so there is nothing to divide")
    return gridplot(rows, toolbar_location=None)


def kernels(run: Run, *, top: int = 10, width: int = 900, height: int = 0, **options: Any) -> Figure:
    """A bar for each of the kernels with most time, in ms.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or nothing ran on a device.
    """
    plotting, models = _bokeh()
    frame = run.kernels.head(top)
    if frame.empty:
        raise NbprofError("no kernel ran on a device in this run")
    whole = float(floats(run.kernels["total_us"]).sum())
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
            "part": 100 * times / whole if whole else np.zeros(len(frame)),
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
        ("Total", "@ms{0.000} ms (@part{0.0}%)"),
        ("Launches", "@count{0,0}"),
        ("Average", "@avg{0.0} µs"),
    ]
    plot.add_tools(models.HoverTool(tooltips=tips))
    _style(plot, "ms", None)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    return cast("Figure", plot)


def memory(
    run: Run, memory_id: str | None = None, *, whole_device: bool = False, width: int = 900, height: int = 320, **options: Any
) -> Figure:
    """Stack, heap and free bytes over time in MiB, with fragmentation in % on a second axis and a hover card of ten fields.

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
        Bokeh is not installed, no allocations were recorded, or there is no such allocator.
    """
    plotting, models = _bokeh()
    frame = memory_view.of_id(run.memory_timeline, _allocator(run, memory_id))
    use = floats(frame["in_use_bytes"])
    frame = frame.iloc[memory_view.sample(use)]
    data = _memory_columns(frame)
    plot: Any = plotting.figure(
        **{"width": width, "height": height, "tools": "xpan,xbox_zoom,xwheel_zoom,reset,save", "toolbar_location": "right"} | options
    )
    stepped = models.ColumnDataSource(
        {key: _stepped(data[key], shift=key != "time") for key in ("time", "stack", "used", "top", "fragmentation")}
    )
    base = np.zeros(len(stepped.data["time"]))
    stepped.add(base, "base")
    parts = [("Stack", "base", "stack", STACK), ("Heap", "stack", "used", HEAP), ("Free", "used", "top", FREE)]
    if frame["stack_bytes"].isna().all():
        # PyTorch's allocators have no stack, and call what they hold beyond the allocated reserved.
        parts = [("Allocated", "base", "used", HEAP), ("Reserved", "used", "top", FREE)]
    if frame["free_bytes"].isna().all():
        parts = parts[:-1]
    for label, low, high, colour in parts:
        plot.varea("time", low, high, color=colour, source=stepped, legend_label=label, level="underlay")
    peak = float(np.nanmax(data["used"])) if len(frame) else 0.0
    plot.y_range = models.Range1d(0, float(np.nanmax(data["top"])) if whole_device else max(peak * 1.25, 1e-3))
    if not np.isnan(data["fragmentation"]).all():
        highest = float(np.nanmax(data["fragmentation"]))
        plot.extra_y_ranges = {"fragmentation": models.Range1d(0, max(highest * 1.25, 0.01))}
        plot.line(
            *("time", "fragmentation"),
            color=FRAGMENTATION,
            alpha=0.6,
            source=stepped,
            y_range_name="fragmentation",
            legend_label="Fragmentation",
        )
        plot.add_layout(models.LinearAxis(y_range_name="fragmentation", axis_label="fragmentation, %"), "right")
    _style(plot, "ms", None)
    plot.left[0].axis_label = "MiB"
    for axis in plot.right:
        axis.axis_label = "fragmentation, %"
    marks = plot.scatter("time", "used", size=6, alpha=0, hover_alpha=1, color=STACK, source=models.ColumnDataSource(data))
    plot.add_tools(models.HoverTool(renderers=[marks], mode="vline", tooltips=_MEMORY_TIPS))
    plot.legend.orientation, plot.legend.border_line_color = "horizontal", None
    plot.add_layout(plot.legend[0], "below")
    return cast("Figure", plot)


_MEMORY_TIPS = [
    ("Timestamp", "@time{0.000} ms"),
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
    texts = {short: frame[key].fillna("").astype(str).to_list() for short, key in _MEMORY_TEXTS.items()}
    numbers = {"time": "time_ms", "requested": "requested_bytes", "allocated": "allocated_bytes", "step": "step"}
    data: dict[str, Any] = {short: floats(frame[key]) for short, key in numbers.items()}
    return {
        **data,
        **texts,
        "stack": stack,
        "used": np.nan_to_num(stack) + heap,
        "top": np.nan_to_num(stack) + heap + np.nan_to_num(free),
        "fragmentation": 100 * floats(frame["fragmentation"]),
    }


_MEMORY_TEXTS = {"event": "event", "op": "op", "region": "region_type", "dtype": "data_type", "shape": "shape"}


def _stepped(values: Any, *, shift: bool) -> Any:
    """A column for a staircase: each value holds until the next event."""
    doubled = np.repeat(values, 2)
    return doubled[:-1] if shift else doubled[1:]


def _allocator(run: Run, memory_id: str | None) -> str:
    summary = run.memory_summary
    if summary.empty:
        raise NbprofError("no allocations were recorded in this run; %%nbprof --memory asks for them")
    if memory_id is None:
        return str(summary.sort_values("peak_bytes", ascending=False, kind="stable")["memory_id"].iloc[0])
    if memory_id not in set(summary["memory_id"]):
        raise NbprofError(f"there is no memory {memory_id!r} in this run; it has {', '.join(map(str, summary['memory_id']))}")
    return memory_id


def _pie(side: pd.DataFrame, key: str, title: str, colour: str, size: int, top: int) -> Figure:
    plotting, models = _bokeh()
    idle = side["type"] == "IDLE"
    work = (
        side[~idle]
        .assign(self_us=floats(side.loc[~idle, "self_us"]))
        .groupby(key, sort=False)["self_us"]
        .sum()
        .sort_values(ascending=False, kind="stable")
    )
    head, rest = work.head(top), work.iloc[top:]
    slices = [(str(name), float(time), shade) for (name, time), shade in zip(head.items(), ranked(colour, len(head)), strict=True)]
    if len(rest):
        slices.append((wording.plural(len(rest), "other"), float(rest.sum()), OTHER))
    if idle.any():
        slices.append(("Idle", float(floats(side.loc[idle, "self_us"]).sum()), _IDLE))
    whole = sum(time for _, time, _ in slices) or 1.0
    ends = np.cumsum([time for _, time, _ in slices]) / whole * 2 * np.pi
    source = models.ColumnDataSource(
        {
            "name": [name for name, _, _ in slices],
            "ms": [time / 1000 for _, time, _ in slices],
            "part": [100 * time / whole for _, time, _ in slices],
            "colour": [shade for _, _, shade in slices],
            # From twelve o'clock, clockwise.
            "start": np.pi / 2 - np.concatenate(([0.0], ends[:-1])),
            "end": np.pi / 2 - ends,
            "pattern": ["/" if name == "Idle" else " " for name, _, _ in slices],
        }
    )
    plot: Any = plotting.figure(
        width=size, height=size, title=title, x_range=(-1.1, 1.1), y_range=(-1.1, 1.1), tools="", toolbar_location=None
    )
    wedge = {"x": 0, "y": 0, "inner_radius": 0.6, "outer_radius": 1, "start_angle": "start", "end_angle": "end", "direction": "clock"}
    plot.annular_wedge(
        **wedge, fill_color="colour", line_color="white", hatch_pattern="pattern", hatch_color="#8F959C", hatch_alpha=0.5, source=source
    )
    plot.add_tools(models.HoverTool(tooltips=[("", "@name"), ("Self time", "@ms{0.00} ms"), ("Part", "@part{0.0}%")]))
    plot.axis.visible, plot.grid.visible, plot.outline_line_color = False, False, None
    return cast("Figure", plot)


def _style(plot: Any, x: str | None, y: str | None) -> None:
    plot.xaxis.axis_label, plot.yaxis.axis_label = x, y
    plot.axis.axis_label_text_font_style, plot.axis.axis_label_text_color = "normal", _SOFT
    plot.axis.axis_line_color, plot.axis.major_tick_line_color, plot.axis.minor_tick_line_color = None, _LINE, None
    plot.outline_line_color, plot.grid.grid_line_color = None, "#EBEBEB"


def _bokeh() -> tuple[Any, Any]:
    try:
        from bokeh import models, plotting
    except ImportError as error:
        raise NbprofError('figures are drawn by Bokeh, which is not installed: pip install "nbprof[bokeh]" or pip install bokeh') from error
    return plotting, models

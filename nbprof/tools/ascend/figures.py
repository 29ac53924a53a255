"""Bokeh figures of an Ascend profile: iterations by their parts, types of ops by core, pipes of the
cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.analysis.ascend import ascend
from nbprof.analysis.ascend.pmu import PIPES
from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import BY_KEY, DEVICE, HOST, OTHER, mix
from nbprof.run.ascend import LACKS
from nbprof.tools.ascend.payload import PARTS, WHOLE_REFRESH
from nbprof.tools.plot import bokeh, hover_times, legend_beside, stacked_columns, style
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run

_COLOURS = {
    ascend.AI_CORE: DEVICE,
    ascend.VECTOR: mix(DEVICE, 63),
    ascend.MIX: mix(DEVICE, 80),
    ascend.AI_CPU: HOST,
    ascend.COMMUNICATION: BY_KEY["device_collectives"].colour,
    ascend.COPY: BY_KEY["device_to_device"].colour,
    ascend.OTHER: OTHER,
    "": OTHER,
}
_TOOLS = "xpan,xbox_zoom,xwheel_zoom,reset,save"


def iterations(
    run: Run,
    device: int | None = None,
    model: int | None = None,
    *,
    width: int = 900,
    height: int = 280,
    **options: Any,
) -> Figure:
    """A bar an iteration, stacked by its parts in ms; the line is the Iteration Time that the file
    states.

    Parameters
    ----------
    run : Run
    device, model : int, optional
        The first device, and its main model, when left out.
    width, height : int
        Pixels.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or no such iteration exists.
    """
    plotting, models = bokeh()
    frame = run.ascend.iterations
    if frame.empty:
        raise NbprofError(LACKS["iterations"])
    device = int(frame["device"].iloc[0]) if device is None else device
    mine = frame[frame["device"] == device]
    mine = mine[mine["main"]] if model is None else mine[(mine["model"] == model).fillna(False)]
    if mine.empty:
        there = frame[["device", "model"]].drop_duplicates().to_dict("records")
        known = ", ".join(
            f"device {one['device']}" + ("" if pd.isna(one["model"]) else f" model {one['model']}")
            for one in there
        )
        raise NbprofError(
            f"there is no iteration of model {model} on device {device}; there are iterations of"
            f" {known}"
        )
    # Recordings may have devices of the same number.
    mine = mine[mine["host"] == mine["host"].iloc[0]]
    parts: tuple[tuple[str, str, str], ...] = (
        PARTS if mine["all_reduce_ms"].notna().any() else (*PARTS[:2], WHOLE_REFRESH)
    )
    data: dict[str, Any] = {
        "x": np.arange(len(mine)),
        "iteration": mine["iteration"].to_numpy(),
        "total": floats(mine["iteration_ms"]),
    }
    data |= {"reported": floats(mine["reported_iteration_ms"])}
    columns, card_columns = stacked_columns({name: floats(mine[name]) for name, _, _ in parts})
    data |= columns
    source = models.ColumnDataSource(data)
    plot: Any = plotting.figure(
        **{"width": width, "height": height, "tools": _TOOLS, "title": f"Device {device}"} | options
    )
    plot.vbar_stack(
        [name for name, _, _ in parts],
        x="x",
        width=0.86,
        color=[BY_KEY[key].colour for _, key, _ in parts],
        source=source,
        legend_label=[label for _, _, label in parts],
    )
    if np.isfinite(data["reported"]).any():
        plot.step(
            "x",
            "reported",
            mode="center",
            color="#22262B",
            line_dash="dotted",
            source=source,
            legend_label="Iteration Time",
        )
    rows = [(label, f"@{card_columns[name]}{{custom}}") for name, _, label in reversed(parts)]
    head = [
        ("Iteration", "@iteration"),
        ("End to end", "@total{custom}"),
        ("Iteration Time", "@reported{custom}"),
    ]
    plot.add_tools(
        models.HoverTool(
            tooltips=[*head, *rows],
            formatters=hover_times(models, "total", "reported", *card_columns.values()),
        )
    )
    style(plot, "iteration", "ms")
    plot.y_range.start = 0
    plot.xaxis.ticker = models.BasicTicker(min_interval=1, num_minor_ticks=0)
    labels = [str(number) for number in mine["iteration"]]
    plot.xaxis.formatter = models.CustomJSTickFormatter(
        args={"labels": labels}, code="return labels[tick] ?? ''"
    )
    plot.xgrid.visible = False
    legend_beside(plot)
    return cast("Figure", plot)


def op_types(run: Run, limit: int = 15, *, width: int = 700, **options: Any) -> Figure:
    """A bar a type of op as long as its time, in the colour of the kind of core.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or no op is known.
    """
    plotting, models = bokeh()
    frame = run.ascend.op_types
    if frame.empty:
        raise NbprofError(LACKS["op_types"])
    rows = frame.groupby(["op_type", "core"], sort=False)[["tasks", "total_us"]].sum().reset_index()
    total = float(rows["total_us"].sum())
    rows = rows.sort_values("total_us", ascending=False, kind="stable").head(limit)
    # The same type may run on several kinds of cores.
    names = [
        f"{wording.one_line(str(row['op_type']))[:60]} ({row['core'] or 'unknown'})"
        for row in rows.to_dict("records")
    ]
    source = models.ColumnDataSource(
        {
            "name": names,
            "ms": rows["total_us"].to_numpy(np.float64) / 1000,
            "tasks": rows["tasks"].to_numpy(np.int64),
            "percent": (
                100 * rows["total_us"].to_numpy(np.float64) / total
                if total > 0
                else np.zeros(len(rows))
            ),
            "colour": [_COLOURS.get(core, OTHER) for core in rows["core"]],
        }
    )
    plot: Any = plotting.figure(
        **{"width": width, "height": 60 + 20 * len(rows), "y_range": names[::-1], "tools": "save"}
        | options
    )
    plot.hbar(y="name", right="ms", height=0.72, color="colour", source=source)
    tips = [
        ("Type", "@name"),
        ("Time", "@ms{custom}"),
        ("Of all", "@percent{0.0}%"),
        ("Tasks", "@tasks{0,0}"),
    ]
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=hover_times(models, "ms", digits=3)))
    style(plot, "ms", None)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    return cast("Figure", plot)


def pmu(run: Run, limit: int = 12, *, width: int = 700, **options: Any) -> Figure:
    """Types of ops by pipe: a cell is the stronger, the larger the part of its cycles that the pipe
    is busy.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or no counters of pipes were recorded.
    """
    plotting, models = bokeh()
    rows = run.ascend.pmu_types
    pipes = {f"{name.lower()}_fraction": name for name in PIPES.values()}
    if rows.empty or not rows[list(pipes)].notna().to_numpy().any():
        raise NbprofError(LACKS["pmu"])
    rows = rows.head(limit)
    names = [
        f"{wording.one_line(str(row['op_type']))[:60]} ({row['core'] or 'unknown'})"
        for row in rows.to_dict("records")
    ]
    cells = [
        (name, label, float(rows[key].iloc[i]))
        for i, name in enumerate(names)
        for key, label in pipes.items()
    ]
    cells = [cell for cell in cells if np.isfinite(cell[2])]
    source = models.ColumnDataSource(
        {
            "name": [cell[0] for cell in cells],
            "pipe": [cell[1] for cell in cells],
            "percent": [100 * cell[2] for cell in cells],
            "text": [f"{100 * cell[2]:.0f}" for cell in cells],
            "colour": [mix(DEVICE, min(100.0, 100 * cell[2])) for cell in cells],
            "ink": ["#FFFFFF" if cell[2] > 0.5 else "#22262B" for cell in cells],
        }
    )
    defaults = {
        "width": width,
        "height": 60 + 22 * len(names),
        "x_range": list(pipes.values()),
        "y_range": names[::-1],
        "tools": "save",
    }
    plot: Any = plotting.figure(**defaults | {"x_axis_location": "above"} | options)
    plot.rect(x="pipe", y="name", width=0.96, height=0.92, color="colour", source=source)
    plot.text(
        x="pipe",
        y="name",
        text="text",
        text_color="ink",
        text_align="center",
        text_baseline="middle",
        text_font_size="11px",
        source=source,
    )
    plot.add_tools(
        models.HoverTool(
            tooltips=[
                ("Type", "@name"),
                ("Pipe", "@pipe"),
                ("Busy", "@percent{0.0}% of its cycles"),
            ]
        )
    )
    style(plot, None, None)
    plot.grid.visible = False
    return cast("Figure", plot)

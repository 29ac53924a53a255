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
from nbprof.run.frames.ascend import LACKS
from nbprof.tools.ascend.payload import parts_of
from nbprof.tools.plot import (
    bokeh,
    hover_times,
    legend_right,
    number_bars,
    stacked_columns,
    style,
)
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function

    from nbprof.run.run import Run


def _draw_reported(plot: Any, source: Any) -> None:
    """The Iteration Time that the file states, as a dotted line."""
    plot.step(
        "x",
        "reported",
        mode="center",
        color="#22262B",
        line_dash="dotted",
        source=source,
        legend_label="Iteration Time",
    )


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
    """A bar per iteration, stacked by its parts in ms; the line is the Iteration Time that the file
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
    rows = _of_model(frame, device, model)
    parts = parts_of(rows)
    columns, card_columns = stacked_columns({name: floats(rows[name]) for name, _, _ in parts})
    data: dict[str, Any] = {
        "x": np.arange(len(rows)),
        "iteration": rows["iteration"].to_numpy(),
        "total": floats(rows["iteration_ms"]),
        "reported": floats(rows["reported_iteration_ms"]),
        **columns,
    }
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
        _draw_reported(plot, source)
    tips = [
        ("Iteration", "@iteration"),
        ("End to end", "@total{custom}"),
        ("Iteration Time", "@reported{custom}"),
        *((label, f"@{card_columns[name]}{{custom}}") for name, _, label in reversed(parts)),
    ]
    formatters = hover_times(models, "total", "reported", *card_columns.values())
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=formatters))
    style(plot, "iteration", "ms")
    plot.y_range.start = 0
    number_bars(plot, models, [str(number) for number in rows["iteration"]])
    legend_right(plot)
    return cast("Figure", plot)


def _of_model(frame: pd.DataFrame, device: int, model: int | None) -> pd.DataFrame:
    """The iterations of a model on a device, by default its main one."""
    rows = frame[frame["device"] == device]
    rows = rows[rows["main"]] if model is None else rows[(rows["model"] == model).fillna(False)]
    if rows.empty:
        groups = []
        for row in frame[["device", "model"]].drop_duplicates().to_dict("records"):
            suffix = "" if pd.isna(row["model"]) else f" model {row['model']}"
            groups.append(f"device {row['device']}{suffix}")
        raise NbprofError(
            f"there is no iteration of model {model} on device {device}; there are iterations of"
            f" {', '.join(groups)}"
        )
    # Recordings may have devices of the same number.
    of_host: pd.DataFrame = rows[rows["host"] == rows["host"].iloc[0]]
    return of_host


def _type_names(rows: pd.DataFrame) -> list[str]:
    """`MatMul (AI Core)`: the same type may run on several kinds of cores."""
    return [
        f"{wording.one_line(str(op_type))[:60]} ({core or 'unknown'})"
        for op_type, core in zip(rows["op_type"], rows["core"], strict=True)
    ]


def op_types(run: Run, limit: int = 15, *, width: int = 700, **options: Any) -> Figure:
    """A bar per type of op as long as its time, in the colour of the kind of core.

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
    times_us = rows["total_us"].to_numpy(np.float64)
    names = _type_names(rows)
    source = models.ColumnDataSource(
        {
            "name": names,
            "ms": times_us / 1000,
            "tasks": rows["tasks"].to_numpy(np.int64),
            "percent": 100 * times_us / total if total > 0 else np.zeros(len(rows)),
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
    """Types of ops by pipe: the darker a cell, the larger the share of cycles that the pipe is
    busy.

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
    names = _type_names(rows)
    cells = _pmu_cells(rows.assign(name=names), pipes)
    defaults = {
        "width": width,
        "height": 60 + 22 * len(names),
        "x_range": list(pipes.values()),
        "y_range": names[::-1],
        "tools": "save",
        "x_axis_location": "above",
    }
    plot: Any = plotting.figure(**defaults | options)
    source = models.ColumnDataSource(cells)
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
    tips = [("Type", "@name"), ("Pipe", "@pipe"), ("Busy", "@percent{0.0}% of its cycles")]
    plot.add_tools(models.HoverTool(tooltips=tips))
    style(plot, None, None)
    plot.grid.visible = False
    return cast("Figure", plot)


def _pmu_cells(rows: pd.DataFrame, pipes: dict[str, str]) -> dict[str, list[Any]]:
    """The cells with a value, by type and then by pipe."""
    cells: dict[str, list[Any]] = {
        key: [] for key in ("name", "pipe", "percent", "text", "colour", "ink")
    }
    for row in rows.to_dict("records"):
        for key, pipe in pipes.items():
            fraction = wording.real(row[key])
            if fraction is None:
                continue
            cells["name"].append(row["name"])
            cells["pipe"].append(pipe)
            cells["percent"].append(100 * fraction)
            cells["text"].append(f"{100 * fraction:.0f}")
            cells["colour"].append(mix(DEVICE, min(100.0, 100 * fraction)))
            cells["ink"].append("#FFFFFF" if fraction > 0.5 else "#22262B")
    return cells

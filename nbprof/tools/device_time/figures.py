"""The time of devices as Bokeh figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import BY_KEY, OTHER
from nbprof.tools.common import unit_of
from nbprof.tools.device_time.payload import PARTS, WAITS
from nbprof.tools.plot import Floats, bokeh, hover_times, stacked_columns, style
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.run.run import Run

_MOST = 64
_COLOURS = {
    "compute": BY_KEY["device_compute"].colour,
    "communication": BY_KEY["device_collectives"].colour,
    "memory": BY_KEY["device_to_device"].colour,
    "idle": OTHER,
    "host_wait": BY_KEY["host_compute"].colour,
    "kernel_wait": BY_KEY["kernel_launch"].colour,
    "other": OTHER,
}
_KINDS = {
    "compute": ("Compute", _COLOURS["compute"]),
    "communication": ("Communication", _COLOURS["communication"]),
    "memory": ("Memory", _COLOURS["memory"]),
    "launch": ("Launch", _COLOURS["kernel_wait"]),
    "launch_delay": ("Launch delay", _COLOURS["kernel_wait"]),
    "kernel_wait": ("Between kernels", OTHER),
    "wait": ("Waiting for the device", OTHER),
    "input": ("Input", BY_KEY["input"].colour),
    "op": ("Host op", _COLOURS["host_wait"]),
    "allocate": ("Memory call", _COLOURS["host_wait"]),
    "host": ("Other host work", _COLOURS["host_wait"]),
}
"""Label and colour of each kind of segment of the critical path."""


def figure(run: Run, what: str, **options: Any) -> Model:
    """One of the figures of `p.device_time.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, no such figure exists, or there is nothing to draw.
    """
    figures: dict[str, Callable[..., Model]] = {
        "frame": _parts,
        "idle": _idle,
        "queue": _queue,
        "bandwidth": _bandwidth,
        "stragglers": _stragglers,
        "critical_path": _path,
    }
    if what not in figures:
        raise NbprofError(
            f"the figures of p.device_time are {', '.join(map(repr, figures))}, not {what!r}"
        )
    if run.device_time.missing:
        raise NbprofError(run.device_time.missing)
    return figures[what](run, **options)


def _labels(rows: Any) -> list[str]:
    several = rows["host"].nunique() > 1
    return [_label(h, d, several) for h, d in zip(rows["host"], rows["device"], strict=True)]


def _label(host: object, device: object, several: bool) -> str:
    if several:
        return f"{_shorten(host, 40)}, device {device}"
    return f"device {device}"


def _shorten(text: object, limit: int = 60) -> str:
    return wording.shortened(wording.one_line(str(text)), limit)


def _stacked(
    names: list[str], parts: dict[str, Floats], title: str, options: dict[str, Any]
) -> Model:
    """Stacked bars of times in ms by name; NaN is what is not known."""
    plotting, models = bokeh()
    columns, card_columns = stacked_columns(parts)
    source = models.ColumnDataSource({"name": names, **columns})
    plot: Any = plotting.figure(
        **{
            "width": 900,
            "height": 140 + 24 * len(names),
            "y_range": names[::-1],
            "tools": "xpan,xwheel_zoom,reset,save",
            "title": title,
        }
        | options
    )
    keys = list(parts)
    plot.hbar_stack(
        keys,
        y="name",
        height=0.75,
        color=[_COLOURS[k] for k in keys],
        source=source,
        legend_label=[_word(k) for k in keys],
    )
    tips = [("", "@name"), *((_word(k), f"@{card_columns[k]}{{custom}}") for k in keys)]
    plot.add_tools(
        models.HoverTool(tooltips=tips, formatters=hover_times(models, *card_columns.values()))
    )
    style(plot, "ms", None)
    plot.ygrid.visible = False
    plot.legend.orientation, plot.legend.border_line_color = "horizontal", None
    plot.add_layout(plot.legend[0], "below")
    return plot  # type: ignore[no-any-return]


def _word(key: str) -> str:
    return key.replace("_", " ").capitalize()


def _parts(run: Run, **options: Any) -> Model:
    rows = run.device_time.frames["device_time"]
    rows = rows[rows["step"].isna()].head(_MOST)
    return _stacked(
        _labels(rows), {part: floats(rows[f"{part}_ms"]) for part in PARTS}, "Device time", options
    )


def _idle(run: Run, **options: Any) -> Model:
    rows = run.device_time.frames["device_idle"]
    rows = rows[rows["stream"] == ""]
    by = rows.pivot_table(
        index=["host", "device"], columns="category", values="idle_ms", sort=False
    ).reindex(columns=list(WAITS))
    by = by.head(_MOST).reset_index()
    return _stacked(_labels(by), {w: floats(by[w]) for w in WAITS}, "Idle time breakdown", options)


def _steps(rows: Any, by: str, value: str, unit: str, title: str, options: dict[str, Any]) -> Model:
    plotting, models = bokeh()
    if not len(rows):
        raise NbprofError(f"{title}: this profile has none.")
    plot: Any = plotting.figure(
        **{
            "width": 900,
            "height": 260,
            "tools": "xpan,xbox_zoom,xwheel_zoom,reset,save",
            "title": title,
        }
        | options
    )
    colours = (
        "#23896A",
        "#184A95",
        "#BF8C08",
        "#CF4A1A",
        "#9455C8",
        "#1E9FCE",
        "#5E3C0A",
        "#123A44",
    )
    # Only the largest get a line of their own; the frame has all.
    largest = (
        rows.groupby(["host", "device", by], sort=False)
        .size()
        .sort_values(ascending=False, kind="stable")
        .head(len(colours))
    )
    several = rows["host"].nunique() > 1
    for colour, (host, device, name) in zip(colours, largest.index, strict=False):
        series = rows[(rows["host"] == host) & (rows["device"] == device) & (rows[by] == name)]
        source = models.ColumnDataSource(
            {
                "time": series["time_ms"].to_numpy(np.float64),
                "value": series[value].to_numpy(np.float64),
            }
        )
        plot.step(
            "time",
            "value",
            mode="after",
            color=colour,
            source=source,
            legend_label=f"{_label(host, device, several)}: {_shorten(name, 40)}",
        )
    style(plot, "ms", unit)
    plot.y_range.start = 0
    plot.legend.border_line_color = None
    # Beside the plot: below it eight lines of a legend would leave it no room.
    plot.add_layout(plot.legend[0], "right")
    return plot  # type: ignore[no-any-return]


def _queue(run: Run, **options: Any) -> Model:
    return _steps(
        run.device_time.queue_series(),
        "stream",
        "queue_length",
        "launched, not begun",
        "Queue length",
        options,
    )


def _bandwidth(run: Run, **options: Any) -> Model:
    return _steps(
        run.device_time.bandwidth_series(),
        "copy",
        "gb_per_second",
        "GB/s",
        "Memory bandwidth",
        options,
    )


def _stragglers(run: Run, **options: Any) -> Model:
    plotting, models = bokeh()
    rows = run.device_time.frames["device_stragglers"]
    rows = rows[rows["step"].notna()] if len(rows) else rows
    if not len(rows):
        raise NbprofError(
            "This profile has no collectives across ranks, so there is no waiting between ranks to"
            " show."
        )
    names = list(dict.fromkeys(_labels(rows)))[:_MOST]
    rows = rows.assign(name=_labels(rows))
    source = models.ColumnDataSource(
        {
            "step": rows["step"].astype("int64").to_numpy(),
            "name": rows["name"].to_numpy(object),
            "cost": rows["cost_ms"].to_numpy(),
        }
    )
    plot: Any = plotting.figure(
        **{
            "width": 900,
            "height": 120 + 24 * len(names),
            "y_range": names[::-1],
            "tools": "xpan,xwheel_zoom,reset,save",
        }
        | {"title": "Which rank the others waited for"}
        | options
    )
    from bokeh.transform import linear_cmap

    high = max(float(rows["cost_ms"].max()), 1e-9)
    paint = linear_cmap("cost", ["#F4F6F8", "#F0C9B8", "#E2906A", "#CF4A1A"], 0, high)
    plot.rect("step", "name", 0.95, 0.9, fill_color=paint, line_color=None, source=source)
    tips = [("", "@name"), ("Step", "@step"), ("Waited for it", "@cost{custom}")]
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=hover_times(models, "cost")))
    plot.add_layout(
        models.ColorBar(color_mapper=paint["transform"], title="ms waited", width=12), "right"
    )
    plot.xaxis.ticker = models.BasicTicker(min_interval=1)
    style(plot, "step", None)
    return plot  # type: ignore[no-any-return]


def _path(run: Run, *, most: int = 20, **options: Any) -> Model:
    plotting, models = bokeh()
    rows = run.device_time.frames["device_critical_path"].head(most)
    names = [f"{i + 1}. {_shorten(n or 'nothing recorded')}" for i, n in enumerate(rows["name"])]
    kinds = [_KINDS.get(str(kind), ("Not known", OTHER)) for kind in rows["kind"]]
    source = models.ColumnDataSource(
        {
            "name": names,
            "percent": rows["percent"].to_numpy(),
            "us": rows["total_us"].to_numpy(),
            "kind": [kind for kind, _ in kinds],
            "colour": [colour for _, colour in kinds],
        }
    )
    plot: Any = plotting.figure(
        **{
            "width": 900,
            "height": 80 + 20 * len(names),
            "y_range": names[::-1],
            "tools": "save",
            "title": "Critical path",
        }
        | options
    )
    plot.hbar(
        y="name", right="percent", height=0.7, color="colour", legend_group="kind", source=source
    )
    unit = unit_of(run)
    tips = [
        ("", "@name"),
        ("Kind", "@kind"),
        ("Time", "@us{custom}"),
        (f"Of {unit.the}", "@percent{0.0}%"),
    ]
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=hover_times(models, "us", unit="us")))
    style(plot, f"% of {unit.the}", None)
    plot.ygrid.visible = False
    plot.legend.location, plot.legend.border_line_color = "bottom_right", None
    return plot  # type: ignore[no-any-return]

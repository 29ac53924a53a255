"""Style, hover cards and stacked bars of the Bokeh figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nbprof.core.errors import NbprofError
from nbprof.display.wording import LEAST_MS

if TYPE_CHECKING:
    from bokeh.model import Model

    from nbprof.display.categories import Category

Floats = npt.NDArray[np.float64]
_SOFT, _LINE = "#6B6B6B", "#DEDEDE"


def bokeh() -> tuple[Any, Any]:
    """The modules `bokeh.plotting` and `bokeh.models`, as (plotting, models).

    Raises
    ------
    NbprofError
        Bokeh is not installed.
    """
    try:
        from bokeh import models, plotting
    except ImportError as error:
        raise NbprofError(
            "figures are drawn by Bokeh, which is not installed: pip install bokeh"
        ) from error
    return plotting, models


def style(plot: Any, x: str | None, y: str | None) -> None:
    """The looks of all figures, and the titles of the axes."""
    plot.xaxis.axis_label, plot.yaxis.axis_label = x, y
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.axis_label_text_color = _SOFT
    plot.axis.axis_line_color = None
    plot.axis.major_tick_line_color = _LINE
    plot.axis.minor_tick_line_color = None
    plot.outline_line_color = None
    plot.grid.grid_line_color = "#EBEBEB"


def legend_right(plot: Any) -> None:
    """The legend stands to the right of the plot, where it hides nothing."""
    if plot.legend:
        plot.add_layout(plot.legend[0], "right")
        plot.legend[0].border_line_color = None


_TIME = """
if (!Number.isFinite(value)) return "–";
const size = Math.abs(value * scale);
const [unit, factor, places] =
    size >= 1e4 ? ["s", 1e-3, 2] : size > 0 && size < least ? ["µs", 1e3, 1] : ["ms", 1, digits];
const fraction = {minimumFractionDigits: places, maximumFractionDigits: places};
const text = (size * factor).toLocaleString("en-US", fraction);
return `${value < 0 && /[1-9]/.test(text) ? "−" : ""}${text} ${unit}`;
"""
"""A body in JavaScript: `wording.millis` of `value * scale`, with `digits`, below `least` in µs."""


def number_bars(plot: Any, models: Any, labels: list[str]) -> None:
    """Labels the bars of a chart, which stand at 0, 1, 2 …, below the x-axis."""
    plot.xaxis.ticker = models.BasicTicker(min_interval=1, num_minor_ticks=0)
    plot.xaxis.formatter = models.CustomJSTickFormatter(
        args={"labels": labels}, code="return labels[tick] ?? ''"
    )
    plot.xgrid.visible = False


def hover_times(models: Any, *columns: str, unit: str = "ms", digits: int = 2) -> dict[str, Any]:
    """For `HoverTool.formatters`: times in ms, or µs where `unit` is "us", as `wording.millis` says
    them; for `@column{custom}`.
    """
    micros = unit == "us"
    args = {
        "scale": 1e-3 if micros else 1.0,
        "digits": digits,
        "least": 1.0 if micros else LEAST_MS,
    }
    # A model that cards share is sent once.
    formatter = models.CustomJSHover(args=args, code=_TIME)
    return {f"@{column}": formatter for column in columns}


def stacked_columns(parts: Mapping[str, Floats]) -> tuple[dict[str, Floats], dict[str, str]]:
    """The columns of a stack of bars, of float arrays by name, and by name the column for its hover
    card.

    NaN would end the stack, so bars have 0 in its place; the card shows "–" for unknown values.
    """
    stacked = {name: np.nan_to_num(values) for name, values in parts.items()}
    with_nan: dict[str, Floats] = {}
    card_columns: dict[str, str] = {}
    for name, values in parts.items():
        card_columns[name] = name
        if np.isnan(values).any():
            card_columns[name] = f"{name}_known"
            with_nan[f"{name}_known"] = values
    return stacked | with_nan, card_columns


def stacked_rows(
    plot: Any, models: Any, categories: Sequence[Category], data: dict[str, Any], look: RowLook
) -> None:
    """Bars of step-time categories, one row for each name in `data[look.noun.lower()]`, with
    `data["total"]` in the card; ms, NaN unknown.
    """
    keys = [category.key for category in categories]
    labels = [category.label for category in categories]
    columns, card_columns = stacked_columns({key: np.asarray(data[key], float) for key in keys})
    names = look.noun.lower()
    plot.hbar_stack(
        keys,
        y=names,
        height=look.height,
        color=[category.colour for category in categories],
        source=models.ColumnDataSource(data | columns),
        legend_label=labels,
    )
    tips = [(look.noun, f"@{names}"), ("Step time", "@total{custom}")]
    for label, column in zip(labels, card_columns.values(), strict=True):
        tips.append((label, f"@{column}{{custom}}"))
    formatters = hover_times(models, "total", *card_columns.values(), digits=look.digits)
    plot.add_tools(models.HoverTool(tooltips=tips, formatters=formatters))
    style(plot, "ms", None)
    plot.x_range.start = 0
    plot.ygrid.visible = False
    legend_right(plot)


class RowLook(NamedTuple):
    """Looks of `stacked_rows`: the noun of a row, height of a bar (of 1), decimals of times."""

    noun: str
    height: float
    digits: int


def staircase(values: Any, *, shift: bool) -> Any:
    """A column for a staircase: each value holds until the next event."""
    doubled = np.repeat(values, 2)
    return doubled[:-1] if shift else doubled[1:]


_MARGIN = 24
"""Of a page around a figure, in px."""


def displayed(figure: Model, drawn: Any) -> Model:
    """The figure, which a notebook shows as it is at the end of a cell, with whatever was changed
    in it.

    Where `bokeh.io.output_notebook()` was called Bokeh shows it. Elsewhere its output carries
    Bokeh's scripts, packed to about 0.5 MB, so that it needs no network and no other cell. A
    terminal prints the text of `drawn`, the view that the figure is a part of.
    """

    def show(**_: Any) -> None:
        from bokeh.io import show
        from bokeh.io.state import curstate
        from IPython.display import display

        from nbprof.tools import bokeh_html

        if curstate().notebook:
            show(figure)  # type: ignore[arg-type]  # each of ours can be shown
            return
        data = {"text/html": bokeh_html.fragment(figure), "text/plain": repr(drawn)}
        display(data, raw=True)  # type: ignore[no-untyped-call]

    def in_frame() -> Any:
        from nbprof.display.marimo import frame
        from nbprof.tools import bokeh_html

        item: Any = figure
        if item.sizing_mode is None:
            # A frame is as wide as its cell, and what is beyond it is not seen.
            item.sizing_mode = "stretch_width"
        return frame(bokeh_html.fragment(figure), (item.height or 0) + _MARGIN)

    # Bokeh models accept other attributes only if their names start with an underscore.
    setattr(figure, "_ipython_display_", show)  # noqa: B010  the type knows none of it
    setattr(figure, "_display_", in_frame)  # noqa: B010  marimo asks this
    return figure

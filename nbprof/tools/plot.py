"""What Bokeh figures share."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbprof.core.errors import NbprofError

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
        raise NbprofError('figures are drawn by Bokeh, which is not installed: pip install "nbprof[bokeh]" or pip install bokeh') from error
    return plotting, models


def style(plot: Any, x: str | None, y: str | None) -> None:
    """The looks of all figures, and the titles of the axes."""
    plot.xaxis.axis_label, plot.yaxis.axis_label = x, y
    plot.axis.axis_label_text_font_style, plot.axis.axis_label_text_color = "normal", _SOFT
    plot.axis.axis_line_color, plot.axis.major_tick_line_color, plot.axis.minor_tick_line_color = None, _LINE, None
    plot.outline_line_color, plot.grid.grid_line_color = None, "#EBEBEB"


def staircase(values: Any, *, shift: bool) -> Any:
    """A column for a staircase: each value holds until the next event."""
    doubled = np.repeat(values, 2)
    return doubled[:-1] if shift else doubled[1:]

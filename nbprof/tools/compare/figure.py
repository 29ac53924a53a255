"""Two average steps as a Bokeh figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from nbprof.analysis.compare.compare import STEP
from nbprof.core.errors import NbprofError
from nbprof.display import wording
from nbprof.display.categories import CATEGORIES
from nbprof.tools.plot import RowLook, bokeh, stacked_rows

if TYPE_CHECKING:
    from bokeh.plotting import figure as Figure  # noqa: N812  the class has the name of a function


def compare(
    categories: pd.DataFrame,
    names: Sequence[str],
    *,
    width: int = 900,
    height: int = 200,
    **options: Any,
) -> Figure:
    """A bar for the average step of each run, stacked by category in ms, with a hover card.

    Parameters
    ----------
    categories : DataFrame
        The result of `nbprof.analysis.compare.compare.categories`.
    names : sequence of str
        Names of the two runs.
    width, height : int
        Pixels.
    **options
        Passed to `bokeh.plotting.figure`.

    Raises
    ------
    NbprofError
        Bokeh is not installed, or neither run has steps.
    """
    plotting, models = bokeh()
    rows = {
        str(row["category"]): [float(row["before_ms"]), float(row["after_ms"])]
        for row in categories.to_dict("records")
    }
    if np.isnan(rows[STEP]).all():
        raise NbprofError(
            "neither run has steps, so there are no step times to compare; mark steps with `with"
            " nbprof.step():`"
        )
    recorded = [c for c in CATEGORIES if not np.isnan(rows[c.key]).all()]
    labels = [
        f"{word}: {wording.one_line(name)}"
        for word, name in zip(("before", "after"), names, strict=True)
    ]
    data: dict[str, object] = {"run": labels, "total": rows[STEP]}
    data |= {c.key: rows[c.key] for c in recorded}
    defaults = {
        "width": width,
        "height": height,
        "y_range": labels[::-1],
        "tools": "save",
        "toolbar_location": "right",
    }
    plot: Any = plotting.figure(**defaults | options)
    stacked_rows(plot, models, recorded, data, RowLook("Run", height=0.6, digits=3))
    return cast("Figure", plot)

"""Work split at the boundaries of steps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.core.intervals import Intervals
from nbprof.core.trace import Int64s


def split_at_steps(
    work: pd.DataFrame, begin: Int64s, end: Int64s, group: Int64s, rows: Int64s | None = None
) -> pd.DataFrame:
    """Pieces of work, repeated for each step that they overlap, with the group of that step.

    Times are not clipped. Work that runs ahead of a device belongs to each step that it overlaps.

    Parameters
    ----------
    work : DataFrame
        ``start end`` in ps, and ``group``.
    begin, end, group : int64[steps]
        The steps, in order of time and apart from each other.
    rows : int64[n], optional
        Which rows of `work`; all when left out.
    """
    rows = np.arange(len(work)) if rows is None else rows
    piece, step = Intervals(begin, end).overlapping(
        work["start"].to_numpy()[rows], work["end"].to_numpy()[rows]
    )
    row = rows[piece]
    # Column by column: pandas would look up the label of each row, and merge columns into blocks.
    columns = {
        str(name): column.to_numpy()[row] for name, column in work.items() if name != "group"
    }
    columns["group"] = group[step]
    return pd.DataFrame({str(name): columns[str(name)] for name in work.columns}, copy=False)

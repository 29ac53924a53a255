"""Work that reaches over the end of a step, cut there."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.trace import Int64s


def cut(work: pd.DataFrame, begin: Int64s, end: Int64s, group: Int64s) -> pd.DataFrame:
    """Pieces of work, once for each step that they reach into, with the group of that step; times stay whole.

    What runs ahead of a device belongs to each step in whose time it is done.

    Parameters
    ----------
    work : DataFrame
        ``start end`` in ps, and ``group``.
    begin, end, group : int64[steps]
        The steps, in order of time and apart from each other.
    """
    first = np.searchsorted(end, work["start"].to_numpy(), side="right")
    after = np.maximum(np.searchsorted(begin, work["end"].to_numpy(), side="left"), first)
    times = after - first
    out = work.loc[work.index.repeat(times)].copy()
    turn = np.arange(len(out)) - np.repeat(np.cumsum(times) - times, times)
    out["group"] = group[np.repeat(first, times) + turn]
    return out

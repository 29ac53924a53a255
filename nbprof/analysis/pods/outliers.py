"""Ops and kernels that take longer on some hosts than the same ones on the others.

A time is out of line if it is above the median of all hosts by more than a part of that, by more
than a part of the step, and by more deviations (of the median absolute deviation over hosts) than
chance gives once in a thousand runs, over all names and hosts looked at.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.analysis.pods.chance import deviation, threshold
from nbprof.schema import frames

LEAST_HOSTS = 3
"""Of two hosts that differ, neither is out of line."""
PART, OF_STEP = 0.1, 0.005
"""Differences below this fraction of the median over hosts, or of the step, are left out."""
SPREAD = 0.01
"""Equal machines differ by this fraction of a time, however equal these hosts are."""


def outliers(table: pd.DataFrame, measured: float, ranks: pd.DataFrame) -> pd.DataFrame:
    """One row per op or kernel and host on which it is out of line, most time first: the columns of
    `p.pods.outliers`.

    Parameters
    ----------
    table : DataFrame
        Of `sums.a_step`.
    measured : float
        The step time in ms.
    ranks : DataFrame
        `host rank`: the ranks of hosts.
    """
    if table.shape[1] < LEAST_HOSTS or not measured > 0:
        return frames.empty("pods.outliers")
    least = OF_STEP * measured
    table = table[table.max(axis=1) >= least]
    times = table.to_numpy(np.float64)
    median = np.median(times, axis=1, keepdims=True)
    spread = np.maximum(deviation(times), np.maximum(SPREAD * median, 0.1 * least))
    beyond = (times - median) / spread
    more = times - median
    outliers = (
        (beyond > threshold(times.size, table.shape[1])) & (more > PART * median) & (more > least)
    )
    row, column = np.nonzero(outliers)
    side, kind, name = (
        table.index.get_level_values(key).to_numpy(object)[row] for key in ("where", "kind", "name")
    )
    host = table.columns.to_numpy(object)[column]
    rank_of = ranks.drop_duplicates("host").set_index("host")["rank"]
    ratio = np.full(len(row), np.nan)
    np.divide(times[row, column], median[row, 0], out=ratio, where=median[row, 0] > 0)
    rows = pd.DataFrame(
        {
            "name": name,
            "where": side,
            "kind": kind,
            "host": host,
            "rank": pd.Series(host, dtype=object).map(rank_of).astype("Int64").array,
            "time_ms": times[row, column],
            "median_ms": median[row, 0],
            "excess_ms": more[row, column],
            "ratio": ratio,
            "deviations": beyond[row, column],
            "hosts_out": outliers.sum(axis=1)[row],
            "hosts": table.shape[1],
        }
    )
    rows = rows.sort_values(
        ["excess_ms", "name", "host"], ascending=[False, True, True], kind="stable"
    )
    return frames.shaped("pods.outliers", rows)

"""What begins in a step, and what between steps, before the first or after the last."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd


def begin_in_steps(
    rows: pd.DataFrame, steps: pd.DataFrame, hosts: list[str]
) -> npt.NDArray[np.bool_]:
    """Which rows (columns `start`, ps, and `host`, a position in `hosts`) begin in one of the steps
    of their host.
    """
    out = np.zeros(len(rows), np.bool_)
    if not len(steps):
        return out
    at, host = rows["start"].to_numpy(np.int64) / 1e9, rows["host"].to_numpy(np.int64)
    for number, name in enumerate(hosts):
        mine = steps[steps["host"] == name]
        begin = np.sort(mine["start_ms"].to_numpy(np.float64))
        stop = np.sort(
            mine["start_ms"].to_numpy(np.float64) + mine["step_time_ms"].to_numpy(np.float64)
        )
        of_host = np.flatnonzero(host == number)
        # More steps have begun than ended: also where steps overlap.
        out[of_host] = np.searchsorted(begin, at[of_host], side="right") > np.searchsorted(
            stop, at[of_host], side="right"
        )
    return out

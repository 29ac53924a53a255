"""Events that begin in a step, rather than between steps, before the first or after the last."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd


def begin_in_steps(
    rows: pd.DataFrame, steps: pd.DataFrame, hosts: list[str]
) -> npt.NDArray[np.bool_]:
    """Flags of the rows (columns `start`, ps, and `host`, a position in `hosts`) that begin in one
    of the steps of their host.
    """
    result = np.zeros(len(rows), np.bool_)
    if not len(steps):
        return result
    start_ms, host = rows["start"].to_numpy(np.int64) / 1e9, rows["host"].to_numpy(np.int64)
    for number, name in enumerate(hosts):
        host_steps = steps[steps["host"] == name]
        begin = np.sort(host_steps["start_ms"].to_numpy(np.float64))
        stop = np.sort(
            host_steps["start_ms"].to_numpy(np.float64)
            + host_steps["step_time_ms"].to_numpy(np.float64)
        )
        of_host = np.flatnonzero(host == number)
        # More steps have begun than ended: also where steps overlap.
        result[of_host] = np.searchsorted(begin, start_ms[of_host], side="right") > np.searchsorted(
            stop, start_ms[of_host], side="right"
        )
    return result

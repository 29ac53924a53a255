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
    host_of_step = steps["host"].to_numpy(object)
    begin_of_step = steps["start_ms"].to_numpy(np.float64)
    stop_of_step = begin_of_step + steps["step_time_ms"].to_numpy(np.float64)
    for number, name in enumerate(hosts):
        of_steps = host_of_step == name
        begin, stop = np.sort(begin_of_step[of_steps]), np.sort(stop_of_step[of_steps])
        of_host = np.flatnonzero(host == number)
        # More steps have begun than ended: also where steps overlap.
        result[of_host] = np.searchsorted(begin, start_ms[of_host], side="right") > np.searchsorted(
            stop, start_ms[of_host], side="right"
        )
    return result

"""Which step something belongs to. The number of a step is a label: it repeats on a host with several loops, or where epochs count anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import Int64s

Floats = npt.NDArray[np.float64]


def step_rows(host: npt.NDArray[np.object_], start_ms: Floats, steps: pd.DataFrame) -> Int64s:
    """The row of `steps` in which something begins on its host; -1 outside of all steps."""
    result = np.full(len(host), -1, np.int64)
    if not len(steps):
        return result
    code, names = pd.factorize(host)
    of_host = pd.Index(names).get_indexer(pd.Index(steps["host"]))
    begins, lengths = (steps[name].to_numpy(np.float64) for name in ("start_ms", "step_time_ms"))
    for number in range(len(names)):
        of_steps = np.flatnonzero(of_host == number)
        if not len(of_steps):
            continue
        of_steps = of_steps[np.argsort(begins[of_steps], kind="stable")]
        begin = begins[of_steps]
        end = begin + lengths[of_steps]
        rows = np.flatnonzero(code == number)
        at = np.searchsorted(begin, start_ms[rows], side="right") - 1
        inside = (at >= 0) & (start_ms[rows] < end[np.maximum(at, 0)])
        result[rows[inside]] = of_steps[at[inside]]
    return result


def turns(steps: pd.DataFrame) -> Int64s:
    """How many earlier steps of the host have the number of each step: 0, 1 in the second epoch that counts from 0, and so on.

    A number is only a label; with its turn it is the same step on all hosts.
    """
    if not len(steps):
        return np.zeros(0, np.int64)
    order = np.argsort(steps["start_ms"].to_numpy(np.float64), kind="stable")
    result = np.empty(len(steps), np.int64)
    result[order] = steps[["host", "step"]].iloc[order].groupby(["host", "step"], sort=False).cumcount()
    return result

"""The step that an event belongs to. The number of a step is only a label: it repeats on a host
with several loops, or if epochs count from 0 again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.factorize import unique_rows
from nbprof.core.intervals import index_by_group
from nbprof.core.runs import run_starts
from nbprof.core.trace import Int64s

Floats = npt.NDArray[np.float64]


def step_rows(host: npt.NDArray[np.object_], start_ms: Floats, steps: pd.DataFrame) -> Int64s:
    """The row of `steps` in which something begins on its host; -1 outside of all steps."""
    if not len(steps):
        return np.full(len(host), -1, np.int64)
    code, names = pd.factorize(host)
    start, length = (steps[name].to_numpy(np.float64) for name in ("start_ms", "step_time_ms"))
    of_host = pd.Index(names).get_indexer(pd.Index(steps["host"]))
    return index_by_group((start, start + length), of_host, start_ms, code)


def step_rows_ps(steps: pd.DataFrame, hosts: Sequence[str], start: Int64s, host: Int64s) -> Int64s:
    """The row of `steps` in which each event begins on its host, -1 outside of all steps,
    int64[events].

    Parameters
    ----------
    steps : DataFrame
        Rows of `p.steps.frame`.
    hosts : sequence of str
        Names of the hosts.
    start : int64[events]
        When each begins, ps.
    host : int64[events]
        Index in `hosts` of the host of each.
    """
    of_host = pd.Index(hosts).get_indexer(pd.Index(steps["host"]))
    return index_by_group(step_bounds(steps), of_host, start, host)


def step_bounds(steps: pd.DataFrame) -> tuple[Int64s, Int64s]:
    """Start and end of steps in ps, int64[steps] each, of rows of `p.steps.frame`."""
    start = np.round(steps["start_ms"].to_numpy(np.float64) * 1e9).astype(np.int64)
    return start, start + np.round(steps["step_time_ms"].to_numpy(np.float64) * 1e9).astype(
        np.int64
    )


def turns(steps: pd.DataFrame) -> Int64s:
    """The number of earlier steps of the host with the number of each step: 0, 1 in the second
    epoch that counts from 0, and so on.

    A number is only a label; with its turn it is the same step on all hosts.
    """
    if not len(steps):
        return np.zeros(0, np.int64)
    host, _ = pd.factorize(steps["host"])
    first, code = unique_rows(host, pd.factorize(steps["step"].to_numpy(np.int64))[0])
    if len(first) == len(steps):
        return np.zeros(len(steps), np.int64)
    order = np.lexsort((steps["start_ms"].to_numpy(np.float64), code))
    begin = run_starts(code[order])
    count = np.diff(begin, append=len(order))
    result = np.empty(len(steps), np.int64)
    result[order] = np.arange(len(order)) - np.repeat(begin, count)
    return result

"""Start and end of the iterations in a table of Ascend's profilers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.core.trace import Int64s

STEPS = "Iterations"
"""The process whose lanes show them."""


def spans(frame: pd.DataFrame) -> tuple[Int64s, Int64s]:
    """Begin and end of each iteration (ps), a gap before it included: from the end of the one
    before of its device and model.

    The first of each begins at its own begin, else at its first forward op, else as long before its
    end as it states to have taken.
    """
    end = frame["iteration_end_ps"].fillna(-1).to_numpy(np.int64)
    finish = end.copy()
    if "iteration_us" in frame:
        length_us = np.nan_to_num(frame["iteration_us"].to_numpy(np.float64))
        finish = end - np.rint(length_us * 1e6).astype(np.int64)
    for column in ("fp_start_ps", "iteration_start_ps"):
        if column in frame:
            numbers = frame[column].fillna(-1).to_numpy(np.int64)
            finish = np.where(numbers >= 0, numbers, finish)
    keys = []
    for name in ("model_id", "device_id"):
        if name in frame:
            keys.append(frame[name].fillna(-1).to_numpy(np.int64))
        else:
            keys.append(np.zeros(len(frame), np.int64))
    order = np.lexsort((end, *keys))
    same = np.ones(len(frame), np.bool_)
    for key in keys:
        same &= np.diff(key[order], prepend=-2) == 0
    before = np.append(-1, end[order][:-1])
    begin = np.empty_like(end)
    begin[order] = np.where(same & (before >= 0), before, finish[order])
    return np.where(end >= 0, begin, -1), end

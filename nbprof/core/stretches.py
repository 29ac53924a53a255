"""Stretches of time that are apart, and what lies in them or outside of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import Int64s


def joined(start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """Begins and ends of the stretches that some spans cover, in order of time."""
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    begins = np.append(True, start[1:] > reached[:-1])[: len(start)]
    return start[begins], reached[np.append(begins[1:], True)[: len(start)]]


def outside(spans: pd.DataFrame, start: Int64s, end: Int64s) -> pd.DataFrame:
    """What of some spans lies in none of the stretches `start` to `end`, as `joined` gives them."""
    # The stretches between them, from before all to after all.
    most = np.iinfo(np.int64).max
    free_from: npt.NDArray[np.int64] = np.append(-most, end)
    free_to: npt.NDArray[np.int64] = np.append(start, most)
    first = np.searchsorted(free_to, spans["start"].to_numpy(np.int64), side="right")
    after = np.maximum(np.searchsorted(free_from, spans["end"].to_numpy(np.int64), side="left"), first)
    row = np.repeat(np.arange(len(spans)), after - first)
    place = np.arange(len(row)) - np.repeat(np.cumsum(after - first) - (after - first), after - first) + np.repeat(first, after - first)
    out = spans.iloc[row]
    return out.assign(
        start=np.maximum(out["start"].to_numpy(np.int64), free_from[place]), end=np.minimum(out["end"].to_numpy(np.int64), free_to[place])
    )


def inside(spans: pd.DataFrame, start: Int64s, end: Int64s) -> pd.DataFrame:
    """What of some spans lies in the stretches `start` to `end`, as `joined` gives them."""
    most = np.iinfo(np.int64).max
    return outside(spans, np.append(-most, end), np.append(start, most))

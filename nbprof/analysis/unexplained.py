"""What Python did in the time of steps that no recorded event explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.core import stretches

if TYPE_CHECKING:
    from nbprof.analysis.python import Python, PythonUse


def use(python: Python, activity: Activity, steps: pd.DataFrame, origin_ns: int, waited: float = 0.0) -> PythonUse | None:
    """What the thread of the cell did in some steps while no op, call or device work was recorded; None where it was not sampled then.

    Parameters
    ----------
    python : Python
        Sampled stacks.
    activity : Activity
        Of one host.
    steps : DataFrame
        Rows of `p.steps.frame`.
    origin_ns : int
        Moment 0 of the trace, in ns since 1970.
    waited : float
        Part of the time in which threads were ready to run that they had no core, 0 to 1.
    """
    # Late, for most profiles have no samples.
    from nbprof.analysis.python import Python, Spans

    begin = np.round(steps["start_ms"].to_numpy(np.float64) * 1e9).astype(np.int64)
    spans = pd.DataFrame({"start": begin, "end": begin + np.round(steps["step_time_ms"].to_numpy(np.float64) * 1e9).astype(np.int64)})
    work = activity.work.frame()
    covered = stretches.joined(work["start"].to_numpy(np.int64), work["end"].to_numpy(np.int64))
    open_ = stretches.outside(spans, *covered).sort_values("start")
    open_ = open_[open_["end"] > open_["start"]]
    if not len(open_) or not origin_ns:
        return None
    start, end = (open_[column].to_numpy(np.int64) // 1000 + origin_ns for column in ("start", "end"))
    apart = np.maximum(start, np.append(start[:1], np.maximum.accumulate(end)[:-1]))
    known = end > apart
    return Python(python.samples, python.cells, Spans(apart[known], end[known])).use(waited)

"""Use of Python in the time of steps that no recorded event explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.core.intervals import Intervals

if TYPE_CHECKING:
    from nbprof.analysis.python import Python, PythonUse


def use(
    python: Python, activity: Activity, steps: pd.DataFrame, origin_ns: int, waited: float = 0.0
) -> PythonUse | None:
    """Use of Python by the thread of the cell in steps while no op, call or device work was
    recorded; None if it was not sampled then.

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
        Fraction of the runnable time of threads in which they had no core, 0 to 1.
    """
    # Late, as most profiles have no samples.
    from nbprof.analysis.python import Python

    # Steps may overlap: the union counts each instant once.
    pieces = Intervals.union(activity.work.start, activity.work.end).pieces_outside(
        *step_bounds(steps)
    )
    unexplained = Intervals.union(pieces.start, pieces.end, merge_touching=False)
    if not len(unexplained) or not origin_ns:
        return None
    start, end = unexplained.start // 1000 + origin_ns, unexplained.end // 1000 + origin_ns
    return Python(
        python.samples, python.cells, Intervals.union(start, end, merge_touching=False)
    ).use(waited)

"""The person's code in findings on batches that the iterator of the loop itself makes."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from nbprof.analysis.advice.cores import FROM_LOADER, NONE
from nbprof.analysis.python import TopFunction
from nbprof.analysis.verdict import location_text

SHARE = 0.2
"""A function with a smaller part of the time is not named."""
_OF_ITERATOR = (NONE, "input_ahead", "input_outside_tf_data")


def named(findings: pd.DataFrame, busiest: Callable[[], TopFunction | None]) -> pd.DataFrame:
    """The findings, with the function in which most of the wait is spent.

    Parameters
    ----------
    findings : DataFrame
        `p.advice`.
    busiest : callable
        Finds the function; called only where it is needed.
    """
    evidence = findings["evidence"].astype(str)
    rows = findings["rule"].isin(_OF_ITERATOR)
    rows &= ~evidence.str.contains(FROM_LOADER, regex=False)
    if not rows.any():
        return findings
    top = busiest()
    if top is None or top.share < SHARE:
        return findings
    text = f" **{100 * top.share:.0f}%** of the wait is spent in {location_text(top)}."
    return findings.assign(evidence=evidence.mask(rows, evidence + text))

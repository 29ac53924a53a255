"""Compilations by function and cause."""

from __future__ import annotations

import pandas as pd

from nbprof.analysis.compiles.again import NOT_AGAIN
from nbprof.schema.columns import Col, count, ms

_KEYS = ["framework", "function", "where", "cause"]
COMPILATIONS = count(
    "compilations", "Times", "Compilations of the function for this kind of cause."
)
TOTAL = ms("total_ms", "Total ms", "Time of these, a function that is compiled meanwhile included.")
COLUMNS: tuple[Col, ...] = (COMPILATIONS, TOTAL)
"""Columns beyond those of `p.compiles`."""


def by_cause(compiles: pd.DataFrame) -> pd.DataFrame:
    """One row per function and kind of cause, most time first.

    `why` and `graph_breaks` are those of the longest compilation.

    Parameters
    ----------
    compiles : DataFrame
        `p.compiles`.
    """
    longest_first = compiles.sort_values("duration_ms", ascending=False, kind="stable")
    groups = longest_first.groupby(_KEYS, sort=False)
    rows = groups.agg(
        compilations=("duration_ms", "size"),
        total_ms=("duration_ms", "sum"),
        why=("why", "first"),
        graph_breaks=("graph_breaks", "first"),
    ).reset_index()
    return rows.sort_values("total_ms", ascending=False, kind="stable", ignore_index=True)


def again(compiles: pd.DataFrame) -> pd.DataFrame:
    """Those that are known to be of something that was compiled before."""
    return compiles[~compiles["cause"].isin(NOT_AGAIN)]

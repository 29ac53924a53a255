"""The part of the Overview on compilations: which functions were compiled, how often, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from nbprof.analysis.compiles import summary
from nbprof.core.units import plural
from nbprof.display import wording
from nbprof.schema import frames
from nbprof.tools.overview.parts import Compiles
from nbprof.tools.tables import table_of

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST = 12
"""Rows of the table."""
_BEGIN, _END = ("function", "where"), ("cause", "why")


def payload(run: Run) -> Compiles | None:
    """Functions by the cause of their compilations; None where nothing was compiled."""
    if run.capture is None or not run.capture.compiles or not len(run.compiles):
        return None
    rows = summary.by_cause(run.compiles)
    begin, end = ([frames.column("compiles", name) for name in names] for names in (_BEGIN, _END))
    notes = [_total(run.compiles)]
    if len(rows) > MOST:
        left_out = rows.iloc[MOST:]
        notes.append(
            f"{plural(len(left_out), 'further row')} with {_time(left_out['total_ms'])}:"
            " `p.compiles` has all compilations."
        )
    if run.compilations.left_out:
        notes.append(
            f"{run.compilations.left_out:,} further compilations of the cell were counted only."
        )
    columns = [*begin, *summary.COLUMNS, *end]
    return Compiles(table=table_of(_in_words(rows.head(MOST)), columns), notes=notes)


def _in_words(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with their causes as people read them."""
    return rows.assign(
        cause=rows["cause"].str.replace("_", " "), why=rows["why"].replace("", "not known")
    )


def _total(compiles: pd.DataFrame) -> str:
    """A sentence on all of them."""
    again = summary.again(compiles)
    text = f"{plural(len(compiles), 'compilation')} in the cell: {_time(compiles['duration_ms'])}"
    if len(again):
        text += f", of which {len(again):,} again: {_time(again['duration_ms'])}"
    return f"{text}."


def _time(times: pd.Series[float]) -> str:
    return wording.millis(float(times.sum()))

"""The part of the Overview on graph breaks of `torch.compile`: where, why, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from nbprof.analysis.compiles import breaks
from nbprof.core.units import plural
from nbprof.display import wording
from nbprof.schema import frames
from nbprof.tools.overview.parts import GraphBreaks
from nbprof.tools.tables import table_of

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST = 12
"""Rows of the table."""
_WITHOUT_DEVICE, _REASON = "kernels_per_step", "cost_reason"


def payload(run: Run) -> GraphBreaks | None:
    """Lines at which graphs break, the costliest first; None where none is known to."""
    rows = run.graph_breaks
    if not len(rows):
        return None
    names = frames.names("graph_breaks")
    if rows[_WITHOUT_DEVICE].isna().all():
        names.remove(_WITHOUT_DEVICE)
    if not rows[_REASON].head(MOST).any():
        names.remove(_REASON)
    notes = [_total(rows)]
    if len(rows) > MOST:
        notes.append(f"{plural(len(rows) - MOST, 'further line')}: `p.graph_breaks` has all.")
    columns = [frames.column("graph_breaks", name) for name in names]
    in_words = rows.head(MOST).assign(reason=rows["reason"].replace("", "not known"))
    return GraphBreaks(table=table_of(in_words, columns), notes=notes)


def _total(rows: pd.DataFrame) -> str:
    """A sentence on all of them."""
    costs = breaks.in_steps(rows)
    lines = plural(len(rows), "line")
    if costs is None:
        return f"Graphs break at {lines}."
    if costs.lines < len(rows):
        lines += f", of which {costs.lines:,} with known cost"
    ops = "op" if costs.ops == 1 else "ops"
    return (
        f"Graphs break at {lines}: {wording.millis(costs.ms)} and {costs.ops:,.3g} {ops} per step"
        " between graphs."
    )

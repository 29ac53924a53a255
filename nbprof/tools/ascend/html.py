"""Parts of `p.ascend` as HTML without script: what a notebook shows of them where no widget
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from nbprof.analysis.ascend import rules as ascend_rules
from nbprof.display import wording
from nbprof.schema import frames
from nbprof.schema.columns import Col
from nbprof.tools.ascend.payload import COLUMNS, frame_name, shorten

_SHOWN = {
    "iterations": (
        "iteration",
        "iteration_ms",
        "data_aug_ms",
        "fp_to_bp_ms",
        "grad_refresh_ms",
        "all_reduce_ms",
        "reported_iteration_ms",
    ),
    "ops": (
        "op",
        "op_type",
        "task_type",
        "stream",
        "start_ms",
        "duration_us",
        "wait_us",
        "block_num",
    ),
    "pmu": (
        "op",
        "op_type",
        "duration_us",
        "bound_by",
        "bound_fraction",
        "cube_fraction",
        "vector_fraction",
        "mte2_fraction",
    ),
    "rules": ("severity", "title", "evidence", "fix"),
}


def html(name: str, frame: pd.DataFrame, limit: int, missing: str) -> str:
    """The first rows of a part as an HTML table without script, or why there are none."""
    if missing:
        return f"<p>{escape(missing)}</p>"
    keys: Sequence[str] = _SHOWN.get(name) or COLUMNS.get(name) or frames.names(frame_name(name))
    cols = [frames.column(frame_name(name), key) for key in keys]
    if name == "rules":
        frame = frame[frame["state"] == ascend_rules.FOUND]
    rows = frame.head(limit)
    heads = "".join(
        f'<th scope="col" title="{escape(col.help)}" style="{_style(col)}">{escape(col.label)}</th>'
        for col in cols
    )
    body = "".join(_row(cols, row) for row in rows.to_dict("records"))
    caption = wording.plural(len(rows), "row")
    if len(frame) > len(rows):
        caption = f"{len(rows):,} of {len(frame):,} rows"
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _row(cols: Sequence[Col], row: dict[Any, Any]) -> str:
    cells = [
        f'<td style="{_style(col)}">{escape(cell_text(col, row[col.name]))}</td>' for col in cols
    ]
    return f"<tr>{''.join(cells)}</tr>"


def cell_text(col: Col, value: Any) -> str:
    """A value of a column, human-readable."""
    if col.kind in ("text", "code"):
        return wording.one_line(shorten(str(value)))
    if col.kind == "bool":
        return "✓" if value else "✗"
    if col.kind == "bytes":
        return wording.size(value)
    number = wording.real(value)
    if col.unit == "fraction":
        return wording.percent(None if number is None else 100 * number)
    return wording.number(number, col.digits or 0)


def _style(col: Col) -> str:
    side = "left" if col.kind in ("text", "code") else "right"
    return (
        f"padding:2px 8px;max-width:32em;overflow:hidden;text-overflow:ellipsis;text-align:{side}"
    )

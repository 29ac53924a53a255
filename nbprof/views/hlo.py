"""Tables of ops of compiled programs for a notebook: HTML without script."""

from __future__ import annotations

from html import escape

import pandas as pd

from nbprof import frames_hlo
from nbprof.frames import Col
from nbprof.views import wording

_KEYS = {
    "hlo": (
        "op",
        "program",
        "category",
        "occurrences",
        "self_us",
        "self_fraction",
        "flops_per_second",
        "memory_bytes_per_second",
        "bound_by",
        "framework_op",
    ),
    "roofline": (
        "op",
        "program",
        "category",
        "self_us",
        "self_fraction",
        "operational_intensity",
        "flops_per_second",
        "bytes_per_second",
        "bound_by",
        "roof_fraction",
    ),
}
_TITLES = {"hlo": "Ops of compiled programs", "roofline": "Roofline"}
_GIGA = 1e9
_CELL = "padding:2px 8px;white-space:nowrap;max-width:32em;overflow:hidden;text-overflow:ellipsis"


def html(name: str, frame: pd.DataFrame, most: int, missing: str) -> str:
    """The first rows of a frame as a table, with what is missing above it.

    Parameters
    ----------
    name : str
        "hlo" or "roofline".
    frame : DataFrame
    most : int
        Rows.
    missing : str
    """
    columns = [frames_hlo.column(name, key) for key in _KEYS[name]]
    rows = frame.head(most)
    parts = [f"<p>{escape(missing)}</p>"] if missing else []
    if len(rows):
        heads = "".join(
            f'<th scope="col" title="{escape(col.help)}" style="{_CELL};text-align:{_side(col)}">{escape(_head(col))}</th>'
            for col in columns
        )
        lines = []
        for i in range(len(rows)):
            row = rows.iloc[i]
            cells = [_cell(col, row[col.name]) for col in columns]
            lines.append(f"<tr>{''.join(cells)}</tr>")
        more = len(frame) - len(rows)
        caption = _TITLES[name] + (f": {len(rows):,} of {len(frame):,} rows" if more else "")
        parts.append(f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>")
    return f"<div>{''.join(parts)}</div>"


def _side(col: Col) -> str:
    return "left" if col.kind in ("text", "code") else "right"


def _head(col: Col) -> str:
    """Rates are shown in thousand millions."""
    if col.unit == "flops_per_second":
        return f"G{col.label}"
    return col.label.replace("B/s", "GB/s") if col.unit == "bytes_per_second" else col.label


def _cell(col: Col, value: object) -> str:
    style = f"{_CELL};text-align:{_side(col)}"
    return f'<td style="{style}">{escape(_told(col, value))}</td>'


def _told(col: Col, value: object) -> str:
    if col.kind in ("text", "code"):
        return wording.one_line(str(value))
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return "–"
    number = float(str(value))
    if col.unit == "fraction":
        return f"{100 * number:.1f}%"
    if col.unit in ("flops_per_second", "bytes_per_second"):
        return f"{number / _GIGA:,.1f}"
    return f"{number:,.{col.digits or 0}f}"

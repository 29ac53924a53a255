"""``%nbprof memory``: what keeps arrays alive in this notebook, as the output of the cell."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd
from IPython.core.error import UsageError

from nbprof.capture.variables.arrays import HOST
from nbprof.capture.variables.table import NOWHERE, variables
from nbprof.core.units import plural, size_text
from nbprof.schema import frames

_MOST = 40
"""Rows that are rows."""
_SHOWN = (
    "name",
    "device",
    "bytes",
    "freed_bytes",
    "arrays",
    "largest",
    "held_by",
    "also",
    "remedy",
)
_SIZES = ("bytes", "freed_bytes")


def run(shell: Any, words: Sequence[str]) -> None:
    """Show the table.

    Raises
    ------
    UsageError
        It has no options.
    """
    if words:
        raise UsageError(f"%nbprof memory takes no options, not {words[0]}")
    table = variables(shell.user_ns)
    sentence = _sentence(table)
    rows = _labelled(table)
    html = f"<p>{escape(sentence)}</p>"
    text = sentence
    if len(rows):
        html += _html(rows)
        text += f"\n{rows.to_string(index=False)}"
    shell.display_pub.publish({"text/html": html, "text/plain": text})


def _sentence(table: pd.DataFrame) -> str:
    if table.empty:
        return "No array is kept alive by a variable, an output, a traceback or a module."
    parts = []
    for device, rows in table.groupby("device", sort=False):
        on_device = f"on {device}"
        if device == HOST:
            on_device = "on the host"
        elsewhere = rows["holder"] == NOWHERE
        freed = int(rows.loc[~elsewhere, "freed_bytes"].sum())
        part = f"{on_device}, {size_text(freed)} have a single holder"
        if elsewhere.any():
            unknown = int(rows.loc[elsewhere, "bytes"].sum())
            part += f", and libraries hold {size_text(unknown)}, or they are garbage"
        parts.append(part)
    text = f"What keeps arrays alive: {'; '.join(parts)}."
    graphs = int(table["graphs"].max())
    if graphs:
        text += (
            f" {plural(graphs, 'tensor')} or more have a graph of autograd, which keeps what it"
            " saved for the backward pass: its size is unknown, and loss.item() or loss.detach()"
            " keep the number alone."
        )
    if len(table) > _MOST:
        text += f" The first {_MOST} of {len(table):,} rows:"
    if not table.attrs["complete"]:
        text += " The search ended early: there are too many objects, so what follows is a part."
    return text


def _labelled(table: pd.DataFrame) -> pd.DataFrame:
    columns = {column.name: column for column in frames.SCHEMA["memory.variables"]}
    rows = table.head(_MOST)[list(_SHOWN)].copy()
    for name in _SIZES:
        rows[name] = list(map(size_text, rows[name]))
    return rows.rename(columns={name: columns[name].label for name in _SHOWN})


def _html(table: pd.DataFrame) -> str:
    """A table whose texts begin at the left, which notebooks align at the right."""
    lines = [_line("th", list(table.columns))]
    lines += [_line("td", row) for row in table.to_numpy().tolist()]
    return f'<div style="overflow-x:auto"><table>{"".join(lines)}</table></div>'


def _line(tag: str, texts: list[Any]) -> str:
    cells = [f'<{tag} style="text-align:left">{escape(str(text))}</{tag}>' for text in texts]
    return f"<tr>{''.join(cells)}</tr>"

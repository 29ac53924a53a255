"""A cell of a frame as the dashboard shows it: units, digits, and a dash for what was not measured."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from nbprof.display import wording
from nbprof.schema.columns import Col

_UNITS = {
    "us": "µs",
    "percent": "%",
    "fraction": "%",
    "bytes_per_second": "B/s",
    "gb_per_second": "GB/s",
    "flops_per_second": "FLOP/s",
    "flops_per_byte": "FLOP/B",
}
"""How a unit of the schema is written, where not as it is called there."""


def head(col: Col) -> str:
    """The label of a column, with its unit where neither the label nor the cells say it."""
    unit = "" if col.kind == "bytes" else _UNITS.get(col.unit, col.unit)
    # As a word of the label: there is an "ms" in programs.
    stated = re.search(rf"(?<!\w){re.escape(unit)}(?!\w)", col.label, re.IGNORECASE)
    return col.label if not unit or stated else f"{col.label} {unit}"


def column(values: pd.Series[Any], col: Col) -> list[str]:
    """The cells of a column."""
    return [cell(value, col) for value in values.tolist()]


def cell(value: Any, col: Col) -> str:
    """One cell."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
        return wording.MISSING
    if col.kind == "bool":
        return "✓" if value else "✗"
    if isinstance(value, (str, list, tuple, dict, set)) or not hasattr(value, "__float__"):
        return wording.one_line(str(value))
    if col.kind == "bytes":
        return wording.size(value)
    if col.kind == "percent":
        value = value * 100 if col.unit == "fraction" else value
    return str(value) if col.digits is None else wording.number(value, col.digits)

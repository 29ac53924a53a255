"""Tables of a payload made from frames: heads and tooltips from the schema, text dictionary coded,
numbers narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from nbprof.display.codec import coded, numbers, short
from nbprof.schema import frames
from nbprof.schema.columns import Col
from nbprof.tools.parts import Column, ColumnData, Table

_TEXT = ("text", "code")

DERIVED = {
    column.name: column
    for column in (
        Col("percent", "float64", "percent", "%", "Share of the total.", "percent", 1),
        Col(
            "us_per_call",
            "float64",
            "us",
            "µs / call",
            "Self time divided by the number of calls.",
            "number",
            1,
        ),
        Col(
            "shared_bytes",
            "float64",
            "bytes",
            "Shared B",
            "Static and dynamic shared memory of one block, in bytes.",
            "number",
            0,
        ),
        Col(
            "worker_steps",
            "int64",
            "",
            "Steps",
            "Steps of the worker included in the means.",
            "number",
            0,
        ),
        Col(
            "mean_step_ms",
            "float64",
            "ms",
            "Step ms",
            "Mean duration of a step on this worker.",
            "number",
            2,
        ),
        Col(
            "over_median_percent",
            "float64",
            "percent",
            "Over median %",
            "How much longer a step takes than on the median worker, mean over the steps.",
            "percent",
            1,
        ),
        Col(
            "times_slowest",
            "int64",
            "",
            "Slowest in",
            "Steps in which this worker took longer than every other.",
            "number",
            0,
        ),
        Col(
            "gflops_per_second",
            "float64",
            "",
            "GFLOP/s",
            "Floating-point operations per second, in 10⁹, over the total time of the op.",
            "number",
            1,
        ),
        Col(
            "gbytes_per_second",
            "float64",
            "",
            "GB/s",
            "Bytes read and written per second, in 10⁹, over the total time.",
            "number",
            1,
        ),
        Col("per_step_ms", "float64", "ms", "ms / step", "Time per step.", "number", 2),
        Col("block", "string", "", "Block", "Threads of one block: x × y × z.", "text", None),
        Col("grid", "string", "", "Grid", "Blocks of one launch: x × y × z.", "text", None),
    )
}
"""Columns that a view adds to a frame, or shows in another form than the frame has them."""
_IN_ANOTHER_FORM = ("percent", "block", "grid")


def table(frame: pd.DataFrame, name: str, keys: Sequence[str]) -> Table:
    """A `Table` with these columns of a frame.

    Parameters
    ----------
    frame : DataFrame
    name : str
        The frame's name in `nbprof.frames.SCHEMA`, which has the heads of its columns.
    keys : sequence of str
        The columns to send. One that the frame lacks was not recorded: it is sent as missing in
        every row.
    """
    columns = heads(name, keys)
    data = {head.key: column(frame, head.key, head.kind) for head in columns}
    return Table(columns=columns, data=data, rows=len(frame))


def table_of(frame: pd.DataFrame, columns: Sequence[Col]) -> Table:
    """The same with columns that are declared elsewhere than in `nbprof.schema.frames`."""
    data = {col.name: column(frame, col.name, col.kind) for col in columns}
    return Table(columns=[head(col) for col in columns], data=data, rows=len(frame))


def hidden(table: Table, at_ms: Any, for_ms: Any) -> Table:
    """A table that also knows the longest call of each row: `_at_ms` and `_for_ms`, which no head
    names, so nothing shows them.

    Times are rounded to a nanosecond, which tells a call, and durations to 24 bits.
    """
    start = short(np.round(np.asarray(at_ms, np.float64), 6))
    return table.with_columns(
        {"_at_ms": start, "_for_ms": np.asarray(for_ms, np.float64).astype(np.float32)}
    )


def longest(frame: pd.DataFrame, calls: pd.DataFrame, sides: Sequence[str]) -> tuple[Any, Any]:
    """Start and duration of the longest call of each op of a frame, in ms; NaN if unknown.

    Parameters
    ----------
    frame : DataFrame
        With `op`, and perhaps `where`.
    calls : DataFrame
        `Run.longest_calls`.
    sides : sequence of str
        Sides to look at, the first one first; rows with a `where` only look there.
    """
    names = frame["op"].tolist() if len(frame) else []
    row_sides = frame["where"].to_numpy(object) if "where" in frame.columns else None
    side_of_call, op_of_call = (calls[key].to_numpy(object) for key in ("where", "op"))
    call = np.full(len(frame), -1, np.int64)
    for side in sides:
        rows = np.flatnonzero(side_of_call == side)[::-1]
        # Of several the first: the last assignment wins.
        number = dict(zip(op_of_call[rows].tolist(), rows.tolist(), strict=True))
        numbers = np.array([number.get(name, -1) for name in names], np.int64)
        missing = call < 0
        if row_sides is not None:
            missing &= row_sides == side
        call[missing] = numbers[missing]
    # The row behind the last call is that of ops without one.
    times = [np.append(calls[key].to_numpy(np.float64), np.nan) for key in ("at_ms", "for_ms")]
    return times[0][call], times[1][call]


def heads(name: str, keys: Sequence[str]) -> list[Column]:
    """The heads of columns of a frame."""
    return [head(_declared(name, key)) for key in keys]


def _declared(name: str, key: str) -> Col:
    """A column as a view shows it: a fraction of the frame as percent."""
    names = frames.names(name)
    if key in DERIVED and (key in _IN_ANOTHER_FORM or key not in names):
        return DERIVED[key]
    fraction = f"{key.removesuffix('_percent')}_fraction"
    optional = [col.name for col in frames.WHERE_KNOWN.get(name, ())]
    if fraction in names or fraction in optional:
        return frames.column(name, fraction)._replace(name=key)
    return frames.column(name, key)


def head(col: Col) -> Column:
    """The head of a column: its name, and how it is shown."""
    return Column(
        key=col.name, label=col.label, kind=col.kind, help=explained(col), digits=col.digits
    )


def column(frame: pd.DataFrame, key: str, kind: str) -> ColumnData:
    """One column of a frame as the payload holds it."""
    if kind in _TEXT:
        return coded(frame[key].tolist() if key in frame.columns else [""] * len(frame))
    if key not in frame.columns:
        return np.full(len(frame), np.nan, np.float32)
    return numbers(floats(frame[key]))


def floats(values: pd.Series[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A column as float64 with NaN for what is missing."""
    if values.dtype.kind in "biuf":
        if isinstance(values.dtype, np.dtype):
            return values.to_numpy(np.float64)
        return values.to_numpy(np.float64, na_value=np.nan)
    return np.asarray(pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan))


_UNITS = {
    "ms": ("ms", "ms"),
    "us": ("µs", "µs"),
    "percent": ("%", "percent"),
    "fraction": ("%", "percent"),
}
"""By unit of the schema: its sign in a head, and its word in a sentence."""


def explained(col: Col) -> str:
    """The meaning of a column, with its unit unless the head or the sentence states it."""
    sign, word = _UNITS.get(col.unit, ("", ""))
    unit_stated = not sign or sign in col.label or word in col.help.replace(".", " ").split()
    return col.help if unit_stated else f"{col.help} In {word}."

"""Every public frame by name: its path under `p.`, so `p.kernels.by_name()` is "kernels.by_name".

Calls are written without parentheses, and keys of a mapping like attributes:
`p.overview["top_ops"]` is "overview.top_ops". "memory_viewer[module]" stands for each program of
`p.memory_viewer`, "comparison" for the result of `nbprof.compare`.

Table headers, tooltips and docs/numbers.md are generated from it, and tests check the frames
against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from nbprof.schema import (
    allocator,
    ascend,
    comparison,
    device_time,
    hlo,
    input_pipeline,
    kernels,
    lines,
    memory,
    memory_viewer,
    ops,
    overview,
    pods,
    python,
    receipt,
    serving,
    steps,
    torch_ops,
    trace,
)
from nbprof.schema.columns import Col

SCHEMA: dict[str, list[Col]] = {
    **overview.SCHEMA,
    **receipt.SCHEMA,
    **steps.SCHEMA,
    **serving.SCHEMA,
    **pods.SCHEMA,
    **input_pipeline.SCHEMA,
    **ops.SCHEMA,
    **torch_ops.SCHEMA,
    **lines.SCHEMA,
    **python.SCHEMA,
    **kernels.SCHEMA,
    **hlo.SCHEMA,
    **device_time.SCHEMA,
    **ascend.SCHEMA,
    **memory.SCHEMA,
    **allocator.SCHEMA,
    **memory_viewer.SCHEMA,
    **trace.SCHEMA,
    **comparison.SCHEMA,
}
"""The columns of each frame, in order."""

OF_NO_PROFILE = ("comparison.", "fits.")
"""How the frames begin that no profile has: those of `nbprof.compare` and `nbprof.fits`."""

WHERE_KNOWN: dict[str, list[Col]] = {**steps.WHERE_KNOWN, **ops.WHERE_KNOWN}
"""Optional columns, after those of SCHEMA: present if any row has a value."""


def column(frame: str, name: str) -> Col:
    """The declaration of one column.

    Raises
    ------
    KeyError
        No such frame or column; names those that exist.
    """
    columns = [*SCHEMA[frame], *WHERE_KNOWN.get(frame, [])]
    for col in columns:
        if col.name == name:
            return col
    raise KeyError(
        f"frame {frame!r} has no column {name!r}; it has {', '.join(col.name for col in columns)}"
    )


def names(frame: str) -> list[str]:
    """The names of its columns, in order."""
    return [col.name for col in SCHEMA[frame]]


def dtypes(frame: str) -> dict[str, str]:
    """The dtype of each of its columns, for `DataFrame.astype`."""
    return {col.name: col.dtype for col in SCHEMA[frame]}


def empty(frame: str) -> pd.DataFrame:
    """The frame, with no rows."""
    return _empty(frame).copy()


@cache
def _empty(frame: str) -> pd.DataFrame:
    # Arrays: pandas would align columns that are Series, which takes three times as long.
    arrays = {col.name: _typed([], col.dtype) for col in SCHEMA[frame]}
    return pd.DataFrame(arrays, index=pd.RangeIndex(0))


def build(
    frame: str, columns: Mapping[str, Any], keys: Sequence[str] | None = None
) -> pd.DataFrame:
    """A frame of columns of equal length, in the order and dtypes of its schema; it may share their
    memory.

    Parameters
    ----------
    frame : str
    columns : mapping of str to array_like
        The columns by name, and perhaps others; a scalar fills its column.
    keys : sequence of str, optional
        The columns that the frame has, where these are not all.
    """
    kinds = dtypes(frame)
    length = next(len(values) for values in columns.values() if np.ndim(values))
    arrays: dict[str, Any] = {}
    for name in keys or kinds:
        values = columns[name] if np.ndim(columns[name]) else np.full(length, columns[name])
        arrays[name] = _typed(values, kinds[name])
    return pd.DataFrame(arrays, copy=False)


def _typed(values: Any, kind: str) -> Any:
    if kind == "object":
        # An index of objects stays one, where pandas would look into an array for strings.
        return pd.Index(np.asarray(values, object), dtype=object)
    if kind[0].isupper() or kind in ("boolean", "string", "category"):
        return pd.array(values, dtype=kind)
    return np.asarray(values, kind)


def typed(frame: str, rows: pd.DataFrame, keys: Sequence[str] | None = None) -> pd.DataFrame:
    """Rows with the columns and dtypes of a frame, or with some of its columns; the index stays."""
    kinds = dtypes(frame)
    arrays = {name: _typed(rows[name].array, kinds[name]) for name in keys or kinds}
    return pd.DataFrame(arrays, rows.index, copy=False)


def shaped(frame: str, rows: pd.DataFrame | None) -> pd.DataFrame:
    """Rows with the columns and dtypes of a frame; None gives a frame with no rows."""
    return typed(frame, rows) if rows is not None and len(rows) else empty(frame)

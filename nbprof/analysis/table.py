"""DataFrames made of columns, and of other DataFrames."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd

K = TypeVar("K", bound=Hashable)


def table(columns: Mapping[str, Any]) -> pd.DataFrame:
    """A DataFrame that may share its columns; texts stay objects."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        is_text = isinstance(values, np.ndarray) and values.dtype == object
        # An index of objects stays one, where pandas would look into an array for strings.
        arrays[name] = pd.Index(values, dtype=object) if is_text else values
    return pd.DataFrame(arrays, copy=False)


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of several tables; dtypes are those of the tables with rows."""
    with_rows = [table for table in tables if len(table)]
    return pd.concat(with_rows or tables[:1], ignore_index=True)


def positions(names: Iterable[K]) -> dict[K, int]:
    """The position of each name."""
    return {name: number for number, name in enumerate(names)}

"""DataFrames of columns that stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def table(columns: Mapping[str, Any]) -> pd.DataFrame:
    """A DataFrame that may share its columns; texts stay objects."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        is_text = isinstance(values, np.ndarray) and values.dtype == object
        # An index of objects stays one, where pandas would look into an array for strings.
        arrays[name] = pd.Index(values, dtype=object) if is_text else values
    return pd.DataFrame(arrays, copy=False)

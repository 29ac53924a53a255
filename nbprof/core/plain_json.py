"""Values of frames, arrays and mappings as values that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

_MISSING = ("NAType", "NaTType")
"""Types of pandas' missing values, by name: processes that never import pandas encode payloads,
too.
"""


def scalar(value: Any) -> str | int | float | None:
    """Convert a single value; NA, NaT, NaN and infinity become None.

    Raises
    ------
    TypeError
        The value is neither a text nor a number nor missing.
    """
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, np.generic):
        value = value.item()
        # A long double stays what it is.
        return None if isinstance(value, np.generic) else scalar(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value).__name__ in _MISSING:
        return None
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def plain(
    value: Any, *, text: Callable[[str], str] = str, number: Callable[[float], float] = float
) -> Any:
    """Convert a value and all values in it.

    DataFrames become lists of rows, times ISO 8601, and other objects their text.

    Parameters
    ----------
    value : object
    text : callable
        Applied to each text, for example to shorten it.
    number : callable
        Applied to each finite float, for example to round it.
    """
    convert = partial(plain, text=text, number=number)
    if isinstance(value, Mapping):
        return {str(key): convert(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(map(convert, value))
    if hasattr(value, "itertuples"):
        rows = value.itertuples(index=False, name=None)
        return [convert(dict(zip(value.columns, row, strict=True))) for row in rows]
    try:
        result = scalar(value)
    except TypeError:
        result = value.isoformat() if hasattr(value, "isoformat") else str(value)
    if isinstance(result, str):
        return text(result)
    if isinstance(result, float):
        return number(result)
    return result

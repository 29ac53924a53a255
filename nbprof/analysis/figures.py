"""Figures that are unknown, NaN, where nothing was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


def ratio(part: Any, total: Any) -> Any:
    """A part of a total of at least 0; NaN where the total is 0 or unknown."""
    return part / total if total > 0 else math.nan


def percent(part: Any, total: Any) -> Any:
    """The same in percent."""
    return ratio(100 * part, total)


def mean(values: npt.NDArray[Any]) -> float:
    """The mean of the values; NaN without any."""
    return float(values.mean()) if len(values) else math.nan


def median(values: npt.NDArray[Any]) -> float:
    """The median of the values; NaN without any."""
    return float(np.median(values)) if len(values) else math.nan


def smallest(values: npt.NDArray[Any]) -> float:
    """The smallest value; NaN without any."""
    return float(values.min()) if len(values) else math.nan


def largest(values: npt.NDArray[Any]) -> float:
    """The largest value; NaN without any."""
    return float(values.max()) if len(values) else math.nan


def sum_of_known(values: Iterable[float]) -> float:
    """The sum of the values that are known; NaN without any."""
    known_values = [value for value in values if not math.isnan(value)]
    return sum(known_values) if known_values else math.nan

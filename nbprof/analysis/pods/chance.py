"""Differences of a host from the others, and how likely equal hosts would differ as much."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from nbprof.analysis.compare.welch import t_quantile

Floats = npt.NDArray[np.float64]

LEVEL = 0.001
"""A finding on one host of all is made where equal hosts would give it in fewer than one run of a
thousand.
"""
NORMAL = 1.4826
"""Times the median absolute deviation, this is the standard deviation of a normal distribution."""


def of_others(values: Floats) -> Floats:
    """float64[rows, hosts]: of each value the median of the others in its row; NaN where there are
    none. Missing values do not count.

    The median of all would be half way between two hosts, however much one of them is slow.
    """
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    position = np.empty_like(order)
    np.put_along_axis(
        position, order, np.broadcast_to(np.arange(values.shape[1]), values.shape), axis=1
    )
    others_count = (~np.isnan(values)).sum(axis=1, keepdims=True) - 1
    median = np.zeros(values.shape)
    for middle in ((others_count - 1) // 2, others_count // 2):
        # Those from the value on have moved up by one place.
        middle = np.clip(middle + (middle >= position), 0, values.shape[1] - 1)
        median += np.take_along_axis(ordered, middle, axis=1) / 2
    return np.where(np.isnan(values) | (others_count < 1), np.nan, median)


def tail(often: int, times: int, share: float) -> float:
    """The probability of at least so many of so many trials, each of which has this probability."""
    if often <= 0:
        return 1.0
    if share >= 1 or often > times:
        return float(often <= times)
    log_total = math.lgamma(times + 1)
    terms = [
        math.exp(
            log_total
            - math.lgamma(k + 1)
            - math.lgamma(times - k + 1)
            + k * math.log(share)
            + (times - k) * math.log1p(-share)
        )
        for k in range(often, times + 1)
    ]
    return min(1.0, math.fsum(terms))


def deviation(values: Floats) -> Floats:
    """float64[rows, 1]: the median absolute deviation of each row, as a standard deviation; NaN of
    a row without values.
    """
    has_value = ~np.isnan(values).all(axis=1)
    largest = np.full((len(values), 1), np.nan)
    if has_value.any():
        rows = values[has_value]
        largest[has_value] = NORMAL * np.nanmedian(
            np.abs(rows - np.nanmedian(rows, axis=1, keepdims=True)), axis=1, keepdims=True
        )
    return largest


def threshold(tests: int, hosts: int) -> float:
    """The number of deviations from the median that makes one of many tests a finding, by Student's
    t with a deviation out of so many hosts.
    """
    return t_quantile(1 - LEVEL / max(tests, 1), hosts - 1)

"""Runs of consecutive integers or equal values in arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_FEW = 16


def expand(first: Int64s, count: Int64s) -> tuple[Int64s, Int64s]:
    """The integers of several ranges, one range after another.

    Parameters
    ----------
    first, count : int64[ranges]
        First integer and length of each range.

    Returns
    -------
    index, value : int64[total]
        The range that each integer belongs to, and the integer.
    """
    index = np.flatnonzero(count)
    if count.max(initial=0) <= 1:
        return index, first[index]
    longer = np.flatnonzero(count[index] > 1)
    if len(longer) * _FEW < len(index):
        # Nearly all have one integer: those behind the first of the others are put in between.
        more = count[index[longer]] - 1
        inner, value = expand(first[index[longer]] + 1, more)
        position = longer[inner] + 1
        return np.insert(index, position, index[longer[inner]]), np.insert(
            first[index], position, value
        )
    index = np.repeat(np.arange(len(first)), count)
    offset = first - (np.cumsum(count) - count)
    return index, np.arange(len(index)) + offset[index]


def run_starts(*columns: npt.NDArray[np.integer]) -> Int64s:
    """First row of each run of rows that are equal in all columns, int64[runs]."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    differs = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        differs |= column[1:] != column[:-1]
    return np.append(0, np.flatnonzero(differs) + 1)


def rows_by_code(code: Int64s) -> list[Int64s]:
    """Ascending rows of each code from 0 to the largest one; empty where a code does not occur."""
    if not len(code):
        return []
    return np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])


def rows_by_value(values: npt.NDArray[np.integer]) -> list[Int64s]:
    """Ascending rows of each different value, in ascending order of the values."""
    if not len(values):
        return []
    order = np.argsort(values, kind="stable")
    return np.split(order, run_starts(values[order])[1:])

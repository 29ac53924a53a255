"""Grouping of rows by several columns of codes, and look-ups, without Python objects per row."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.trace import Int64s

_HEAD = 32
_MOST = 1 << 62
_DENSE = 4
"""Size of a table relative to the number of rows, at most."""


def unique_rows(*columns: Int64s) -> tuple[Int64s, Int64s]:
    """First row of each distinct combination of codes, and the combination's index for each row.

    Codes are -1 or more.
    """
    code = np.zeros(len(columns[0]), np.int64)
    sizes = [int(column.max(initial=-1)) + 2 for column in columns]
    if math.prod(sizes) < _MOST:
        # All columns fit into one number.
        for column, size in zip(columns, sizes, strict=True):
            code = code * size + column + 1
        if len(code) and math.prod(sizes) <= _DENSE * len(code) and code.min() >= 0:
            return _in_table(code, math.prod(sizes))
        code, _ = pd.factorize(code)
    else:
        for column in columns:
            small, seen = pd.factorize(column)
            code, _ = pd.factorize(code * max(len(seen), 1) + small)
    first = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return first, code


def _in_table(code: Int64s, size: int) -> tuple[Int64s, Int64s]:
    """`unique_rows` of codes below `size`: a table takes a third of the time of hashing."""
    table = np.full(size, -1, np.int64)
    table[code[::-1]] = np.arange(len(code))[::-1]
    first = np.sort(table[table >= 0])
    table[code[first]] = np.arange(len(first))
    return first, table[code]


def used_codes(codes: npt.NDArray[np.integer], size: int) -> tuple[Int64s, Int64s]:
    """The codes that occur, ascending, and the index of the code of each row among them.

    A table over all codes does this without sorting, which matters with millions of rows.

    Parameters
    ----------
    codes : int[rows]
        From -1 to `size` - 1.
    size : int

    Returns
    -------
    used : int64[k]
    index : int64[rows]
    """
    is_used = np.zeros(size + 1, np.bool_)
    # The last element is that of -1, which comes first.
    is_used[codes] = True
    is_used = np.roll(is_used, 1)
    index = np.cumsum(is_used) - 1
    return np.flatnonzero(is_used) - 1, np.roll(index, -1)[codes]


def distinct(codes: npt.NDArray[np.integer]) -> int:
    """The number of different codes; codes are -1 or more."""
    # The last element is that of -1.
    seen = np.zeros(int(codes.max(initial=-1)) + 2, np.bool_)
    seen[codes] = True
    return int(np.count_nonzero(seen))


def all_differ(codes: npt.NDArray[np.integer]) -> bool:
    """True if no code occurs twice; codes are 0 or more."""
    return distinct(codes) == len(codes)


def lookup(keys: npt.NDArray[np.integer], values: Int64s, lookups: Int64s) -> Int64s:
    """The value of each key looked up, -1 for keys that do not exist.

    `keys` ascend; the first of equal keys counts.
    """
    if not len(keys) or not len(lookups):
        return np.full(len(lookups), -1, np.int64)
    index = np.minimum(np.searchsorted(keys, lookups.astype(keys.dtype)), len(keys) - 1)
    return np.where(keys[index] == lookups, values[index], -1)


def heads(names: npt.NDArray[np.object_]) -> npt.NDArray[np.str_]:
    """The first characters of each name as an array of numpy strings."""
    return names.astype(f"U{_HEAD}")


def starting(heads: npt.NDArray[np.str_], *starts: str) -> npt.NDArray[np.bool_]:
    """bool[names]: names that start with one of the texts, of at most 32 characters."""
    assert all(len(text) <= _HEAD for text in starts)
    starts_with = np.zeros(len(heads), np.bool_)
    for text in starts:
        starts_with |= np.char.startswith(heads, text)
    return starts_with


def ending(
    names: npt.NDArray[np.object_], used: npt.NDArray[np.integer], text: str
) -> npt.NDArray[np.bool_]:
    """bool[names]: names that are used (codes in any order) and end with a text."""
    ends_with = np.zeros(len(names), np.bool_)
    codes = np.flatnonzero(np.bincount(used))
    ends_with[codes] = [name.endswith(text) for name in names[codes].tolist()]
    return ends_with

"""Rows that are alike in several columns of codes, without a Python object a row."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nbprof.trace import Int64s


def distinct(*columns: Int64s) -> tuple[Int64s, Int64s]:
    """First row of each different combination of codes, and the combination of each row as its number; codes are >= -1."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        small, seen = pd.factorize(column)
        code, _ = pd.factorize(code * max(len(seen), 1) + small)
    first = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return first, code

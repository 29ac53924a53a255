"""Columns of integers as text, as the JSON beside a recording stores them."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from nbprof.core.trace import Int64s

_BYTES = 8
_LARGEST_SUM = 2.0**61


def pack(columns: Sequence[Int64s]) -> str:
    """Columns of equal length as text."""
    data = b"".join(column.astype("<i8").tobytes() for column in columns)
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def unpack(text: object, columns: int, rows: int) -> list[Int64s] | None:
    """The columns that `pack` was given; None if they are damaged or a sum of them may overflow.

    Memory is bounded by `columns` and `rows`, whatever the text holds.
    """
    if not isinstance(text, str):
        return None
    size = columns * rows * _BYTES
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(text, validate=True), size + 1)
    except (zlib.error, binascii.Error, ValueError):
        return None
    if len(data) != size or not unzip.eof:
        return None
    unpacked = []
    for i in range(columns):
        column = np.frombuffer(data, "<i8", rows, _BYTES * rows * i).astype(np.int64)
        if np.abs(column.astype(np.float64)).sum() >= _LARGEST_SUM:
            return None
        unpacked.append(column)
    return unpacked


def is_count(value: object) -> TypeGuard[int]:
    """True for an integer of 0 or more that int64 holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63

"""Texts in a file as codes: equal texts are found by a hash, then compared byte by byte."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

# As in `core.trace`, which imports pandas: listing files does not need it.
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.array([pow(0x9E3779B97F4A7C15, i + 2, 1 << 64) for i in range(32)], np.uint64)
_TABLE_BITS = 13
# Texts of up to so many bytes are copied into rows of that width; longer ones go through a dict.
_WIDTHS = (16, 32, 64, 128, 256)
# Fewer texts go through a dict as well.
_FEW = 64
# Rows that are built at a time, so that they are still in the processor's cache when hashed.
_BLOCK = 1 << 13


def distinct(buf: Bytes, start: Int64s, length: Int64s) -> tuple[Int32s, list[bytes]]:
    """Codes of texts, and the distinct texts by code.

    Parameters
    ----------
    buf : uint8[n]
    start, length : int64[texts]
        Position and length of each text in `buf`.
    """
    code = np.empty(len(start), np.int32)
    texts: list[bytes] = []
    width_index = np.full(len(start), len(_WIDTHS))
    if len(start) >= _FEW:
        width_index = np.searchsorted(_WIDTHS, length)
    for index, width in enumerate((*_WIDTHS, 0)):
        rows = np.flatnonzero(width_index == index)
        if len(rows):
            if width:
                first = _alike(buf, start[rows], length[rows], width)
            else:
                first = _by_dict(buf, start[rows], length[rows])
            chosen = np.zeros(len(rows), np.bool_)
            chosen[first] = True
            picked = np.flatnonzero(chosen)
            code_of_row = np.zeros(len(rows), np.int32)
            code_of_row[picked] = np.arange(len(texts), len(texts) + len(picked), dtype=np.int32)
            code[rows] = code_of_row[first]
            spans = zip(start[rows[picked]].tolist(), length[rows[picked]].tolist(), strict=True)
            texts += [buf[a : a + n].tobytes() for a, n in spans]
    return code, texts


def _by_dict(buf: Bytes, start: Int64s, length: Int64s) -> Int64s:
    """Index of the first text that equals each text."""
    seen: dict[bytes, int] = {}
    spans = zip(start.tolist(), length.tolist(), strict=True)
    return np.array(
        [seen.setdefault(buf[a : a + n].tobytes(), i) for i, (a, n) in enumerate(spans)], np.int64
    )


def _alike(buf: Bytes, start: Int64s, length: Int64s, width: int) -> Int64s:
    """Index of an equal text for each text of up to `width` bytes, the same for all equal ones."""
    words = np.empty((len(start), width // 8), np.uint64)
    value = np.empty(len(start), np.uint64)
    for low in range(0, len(start), _BLOCK):
        block = slice(low, low + _BLOCK)
        words[block] = _rows(buf, start[block], length[block], width)
        value[block] = words[block] @ _FACTORS[: width // 8]
    value += length.view(np.uint64) * _FACTOR
    value ^= value >> np.uint64(29)
    value *= _FACTOR
    first = first_alike(value)
    row = np.dtype(f"V{width}")
    other = words.view(row)[:, 0][first].view(np.uint64).reshape(words.shape)
    differs = words != other
    different = np.flatnonzero(differs.any(1)) if differs.any() else np.zeros(0, np.int64)
    different = np.union1d(different, np.flatnonzero(length != length[first]))
    if len(different):
        # Different texts with equal hashes.
        first[different] = different[_by_dict(buf, start[different], length[different])]
    return first


def _rows(buf: Bytes, start: Int64s, length: Int64s, width: int) -> Words:
    """Texts as rows, padded with zeros."""
    last = len(buf) - width
    if len(start) and int(start.max()) > last:
        # Rows of the last texts reach beyond the buffer.
        low = int(start.min())
        buf, start = np.concatenate([buf[low:], np.zeros(width, np.uint8)]), start - low
        last = len(buf) - width
    view: npt.NDArray[np.void] = np.ndarray((last + 1,), f"V{width}", buf, 0, (1,))
    rows: Words = view[start].view("<u8").reshape(-1, width // 8)
    rows &= _masks(width)[length]
    return rows


@cache
def _masks(width: int) -> Words:
    """Masks of the bits of a row that belong to its text, by the length of the text."""
    in_text = np.arange(width) < np.arange(width + 1)[:, None]
    return np.where(in_text, 0xFF, 0).astype(np.uint8).view("<u8")


def first_alike(value: Words) -> Int64s:
    """Index of an equal hash for each hash, the same for all equal ones."""
    first = np.arange(len(value))
    rows = np.arange(len(value))
    table = np.zeros(1 << _TABLE_BITS, np.int64)
    for turn in range(4):
        slot = (
            (value[rows] << np.uint64(_TABLE_BITS * turn)) >> np.uint64(64 - _TABLE_BITS)
        ).astype(np.int64)
        table[slot] = rows
        standing = table[slot]
        alike = value[standing] == value[rows]
        first[rows[alike]] = standing[alike]
        rows = rows[~alike]
        if not len(rows):
            return first
    _, index, inverse = np.unique(value[rows], return_index=True, return_inverse=True)
    first[rows] = rows[index[inverse]]
    return first

"""Texts in a file as codes: equal ones are found by a hash of their bytes, then held against each
other byte by byte.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

# As in `core.trace`, which imports more than who looks for files needs.
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.array([pow(0x9E3779B97F4A7C15, i + 2, 1 << 64) for i in range(32)], np.uint64)
_TABLE_BITS = 13
# Texts up to so many bytes are laid side by side in rows of that width; longer ones go through a
# dict.
_WIDTHS = (16, 32, 64, 128, 256)
# So few texts go through a dict, too.
_FEW = 64
# Rows that are made at a time, so that they stay in the cache until they are hashed.
_BLOCK = 1 << 13


def distinct(buf: Bytes, at: Int64s, length: Int64s) -> tuple[Int32s, list[bytes]]:
    """Codes of texts, and the texts by code, each once.

    Parameters
    ----------
    buf : uint8[n]
    at, length : int64[texts]
        Where they are in `buf`.
    """
    code = np.empty(len(at), np.int32)
    found: list[bytes] = []
    kind = np.searchsorted(_WIDTHS, length) if len(at) >= _FEW else np.full(len(at), len(_WIDTHS))
    for which, width in enumerate((*_WIDTHS, 0)):
        rows = np.flatnonzero(kind == which)
        if len(rows):
            first = (
                _alike(buf, at[rows], length[rows], width)
                if width
                else _by_dict(buf, at[rows], length[rows])
            )
            chosen = np.zeros(len(rows), np.bool_)
            chosen[first] = True
            picked = np.flatnonzero(chosen)
            place = np.zeros(len(rows), np.int32)
            place[picked] = np.arange(len(found), len(found) + len(picked), dtype=np.int32)
            code[rows] = place[first]
            spans = zip(at[rows[picked]].tolist(), length[rows[picked]].tolist(), strict=True)
            found += [buf[a : a + n].tobytes() for a, n in spans]
    return code, found


def _by_dict(buf: Bytes, at: Int64s, length: Int64s) -> Int64s:
    """For each text the first that equals it."""
    seen: dict[bytes, int] = {}
    spans = zip(at.tolist(), length.tolist(), strict=True)
    return np.array(
        [seen.setdefault(buf[a : a + n].tobytes(), i) for i, (a, n) in enumerate(spans)], np.int64
    )


def _alike(buf: Bytes, at: Int64s, length: Int64s, width: int) -> Int64s:
    """For each text of at most `width` bytes the place of one that equals it, the same for all
    equal ones.
    """
    words = np.empty((len(at), width // 8), np.uint64)
    value = np.empty(len(at), np.uint64)
    for low in range(0, len(at), _BLOCK):
        block = slice(low, low + _BLOCK)
        words[block] = _rows(buf, at[block], length[block], width)
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
        # Other texts of one hash; what they are is found without one.
        first[different] = different[_by_dict(buf, at[different], length[different])]
    return first


def _rows(buf: Bytes, at: Int64s, length: Int64s, width: int) -> Words:
    """Texts side by side, with zeros behind each."""
    last = len(buf) - width
    if len(at) and int(at.max()) > last:
        # Rows of the last texts reach behind the buffer.
        low = int(at.min())
        buf, at = np.concatenate([buf[low:], np.zeros(width, np.uint8)]), at - low
        last = len(buf) - width
    view: npt.NDArray[np.void] = np.ndarray((last + 1,), f"V{width}", buf, 0, (1,))
    rows: Words = view[at].view("<u8").reshape(-1, width // 8)
    rows &= _masks(width)[length]
    return rows


@cache
def _masks(width: int) -> Words:
    """The bits that count in a row of a text, by its length."""
    inside = np.arange(width) < np.arange(width + 1)[:, None]
    return np.where(inside, 0xFF, 0).astype(np.uint8).view("<u8")


def first_alike(value: Words) -> Int64s:
    """For each hash the place of an equal one, the same for all equal ones."""
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

"""Rows of an SQLite table whose headers are alike have each column at one place: they are read column by column, not row by row.

Format: https://www.sqlite.org/fileformat2.html#record_format
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.distinct import Bytes, Int64s, Words, first_alike

# Where rows begin in their windows, so that the eight bytes up to any value are inside, and how long windows are at most.
BEFORE, WIDEST = 8, 256
FEW = 1 << 8
"""Fewer rows than these of one layout are read sooner in lockstep with others."""
# How many rows tell how long they are; bytes of the length and number of one.
_PROBES, _VARINTS = 8, 18
# Bytes of numbers by serial type.
_SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Layout:
    """What rows have in common.

    Attributes
    ----------
    length, size : int
        Bytes of the record, and with its length and number before it.
    number : slice
        Bytes of the row's number in a window.
    values : list of (int, int)
        Serial type of each column, and the byte of a window behind its value.
    mask, pattern : uint64[words]
        The bits that tell the layout.
    """

    length: int
    size: int
    number: slice
    values: list[tuple[int, int]]
    mask: Words
    pattern: Words

    def fits(self, words: Words) -> npt.NDArray[np.bool_]:
        """Which windows, rows of `words`, have it."""
        out = np.ones(len(words), np.bool_)
        for column, mask, pattern in zip(words.T, self.mask, self.pattern, strict=True):
            if mask:
                out &= (column & mask) == pattern
        return out

    def numbers(self, words: Words) -> Int64s:
        """The numbers of the rows."""
        out = np.zeros(len(words), np.int64)
        columns = words.view(np.uint8).T[self.number]
        for i, column in enumerate(columns):
            out = (out << 8) | column if i == 8 else (out << 7) | (column & 0x7F)
        return out


def layout_of(window: bytes) -> Layout | None:
    """The layout of one row by its window, some words; None where its header is not sound, or it is longer than that."""
    length, at = _varint(window, BEFORE)
    number, first = at, _varint(window, at)[1]
    head, at = _varint(window, first)
    stop = behind = first + head
    end = first + length
    if not head or end > len(window) or behind > end:
        return None
    values = []
    while at < behind:
        kind, at = _varint(window, at)
        stop += _SIZES[kind] if kind < 12 else (kind - 12) // 2
        values.append((kind, stop))
    if at != behind or stop > end:
        return None
    mask = bytearray(len(window))
    mask[BEFORE:number] = b"\xff" * (number - BEFORE)
    mask[number : min(first, number + 8)] = b"\x80" * min(first - number, 8)
    mask[first:behind] = b"\xff" * head
    masks = np.frombuffer(bytes(mask), "<u8")
    pattern = np.frombuffer(window, "<u8") & masks
    return Layout(length, end - BEFORE, slice(number, first), values, masks, pattern)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of 1 to 9 bytes and where it ends; behind the end of the data are zeros."""
    value = 0
    for i, byte in enumerate(data[at : at + 9]):
        if i == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value, len(data) + 1


def windows(data: Bytes, cells: Int64s) -> Words | None:
    """uint64[rows, words]: the bytes of rows and the eight before each; None where they are too long, or too near an end of the data."""
    low, high = int(cells.min()), int(cells.max())
    if low < BEFORE:
        return None
    longest = 0
    for at in cells[:: len(cells) // _PROBES + 1].tolist():
        length, _ = _varint(data[at : at + _VARINTS].tobytes(), 0)
        longest = max(longest, length + _VARINTS) if length <= WIDEST else longest
    # Some may be a little longer than those that were looked at.
    width = BEFORE + longest + 15 & -8
    last = len(data) - width
    if not longest or high - BEFORE > last:
        return None
    view = np.ndarray((last + 1,), np.dtype((np.void, width)), data, 0, (1,))
    words: Words = view[cells - BEFORE].view("<u8").reshape(-1, width // 8)
    return words


def grouped(words: Words, like: Layout) -> tuple[Int64s, Int64s]:
    """An order in which windows of one layout lie side by side, and the bounds of these groups; `like` tells where headers lie."""
    key = np.zeros(len(words), np.uint64)
    for column, mask in zip(words.T, like.mask, strict=True):
        if mask:
            key = (key ^ (column & mask)) * _FACTOR
            key ^= key >> np.uint64(29)
    first = first_alike(key)
    order = np.argsort(first.astype(np.uint16) if len(first) <= 1 << 16 else first, kind="stable")
    return order, np.concatenate([[0], np.flatnonzero(np.diff(first[order])) + 1, [len(order)]])

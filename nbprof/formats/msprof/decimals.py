"""Decimal numbers at many places of a text at once, eight bytes a step.

A "word" is the eight bytes at a place as one little-endian uint64: the first character is the
lowest byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int64s

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

# So many bytes may be read behind the last place that is looked at.
PADDING = 32

_HIGH = np.uint64(0x8080808080808080)
_ZEROS = np.uint64(0x3030303030303030)
_PAIRS = np.uint64(0x000000FF000000FF)
_BY_100 = np.uint64(0x000F424000000064)
_BY_10000 = np.uint64(0x0000271000000001)
_INDEX = np.uint64(0x0001020304050607)
_POWERS = np.array([10**k for k in range(9)], np.int64)

_MOST_DIGITS, _MOST_DECIMALS = 18, 16


def words(text: Bytes) -> Words:
    """The word at every place of a text; the last seven places have none."""
    return np.ndarray((len(text) - 7,), np.dtype("<u8"), text, strides=(1,))


def _leading(high: Words) -> Int64s:
    """How many bytes come before the first whose high bit is set, 8 where none is."""
    lowest = high & np.negative(high)
    lowest >>= np.uint64(7)
    lowest *= _INDEX
    lowest >>= np.uint64(56)
    lowest[high == 0] = 8
    return lowest.view(np.int64)


def _digits(word: Words, index: Int64s) -> tuple[Int64s, Int64s]:
    """Value and number of the digits at each place, eight at most."""
    x = word[index] ^ _ZEROS
    count = _leading(((x + np.uint64(0x7676767676767676)) | x) & _HIGH)
    # Zeros move in from the front; what follows the digits moves out at the back.
    x <<= (8 - count).view(np.uint64) << np.uint64(3)
    x[count == 0] = 0
    x = x * np.uint64(10) + (x >> np.uint64(8))
    x = ((x & _PAIRS) * _BY_100 + ((x >> np.uint64(16)) & _PAIRS) * _BY_10000) >> np.uint64(32)
    return (x & np.uint64(0xFFFFFFFF)).view(np.int64), count


def _run(word: Words, index: Int64s, limit: int) -> tuple[Int64s, Int64s]:
    """Value and number of the digits at each place; where there are more than `limit` (at most 18)
    the number is over `limit`.
    """
    value, count = _digits(word, index)
    left = np.flatnonzero(count == 8)
    done = 8
    while len(left) and done <= limit:
        more, n = _digits(word, index[left] + done)
        value[left] = value[left] * _POWERS[n] + more
        count[left] += n
        left = left[n == 8]
        done += 8
    return value, count


@dataclass
class Decimals:
    """Decimal numbers: `integer` and `part` (the digits behind the point, `decimals` of them),
    `negative`, where each ends, and whether it could be read at all: not those with an exponent, or
    with more than 18 digits before or 16 behind the point.
    """

    integer: Int64s
    part: Int64s
    decimals: Int64s
    digits: Int64s
    negative: npt.NDArray[np.bool_]
    end: Int64s
    good: npt.NDArray[np.bool_]


def decimals(text: Bytes, word: Words, index: Int64s) -> Decimals:
    """The decimal numbers at some places."""
    negative = text[index] == 0x2D
    begin = index + negative
    complete, count = _run(word, begin, _MOST_DIGITS)
    good = (count > 0) & (count <= _MOST_DIGITS)
    end = begin + count
    behind = text[end]
    point = np.flatnonzero(behind == 0x2E)
    part, places = np.zeros(len(index), np.int64), np.zeros(len(index), np.int64)
    if len(point):
        # A third word could not be held: more than 16 decimals are left to be read by themselves.
        part[point], places[point] = _run(word, end[point] + 1, _MOST_DECIMALS - 1)
        end[point] += 1 + places[point]
        good[point] &= (places[point] > 0) & (places[point] <= _MOST_DECIMALS)
        longer = point[places[point] == _MOST_DECIMALS]
        good[longer] &= (text[end[longer]] - np.uint8(0x30)) > 9
        behind[point] = text[end[point]]
    good &= (behind | 0x20) != 0x65
    return Decimals(complete, part, places, count, negative, end, good)

"""Words, spaces and decimal numbers at many places of a text at once, eight bytes a step.

A "word" is the eight bytes at a place as one little-endian uint64: the first character is the
lowest byte.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

# So many bytes may be read behind the last place that is looked at.
PADDING = 32

# Of more spaces in a row than so many words have, the end is looked up: a file may have millions.
_MOST_STEPS = 8

_HIGH = np.uint64(0x8080808080808080)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_ZEROS = np.uint64(0x3030303030303030)
_COMMAS = np.uint64(0x2C2C2C2C2C2C2C2C)
_PAIRS = np.uint64(0x000000FF000000FF)
_BY_100 = np.uint64(0x000F424000000064)
_BY_10000 = np.uint64(0x0000271000000001)
_INDEX = np.uint64(0x0001020304050607)
_MASKS = np.array([(1 << (8 * k)) - 1 for k in range(9)], np.uint64)
POWERS = np.array([10**k for k in range(19)], np.int64)

MOST_DIGITS, MOST_DECIMALS = 18, 16


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


def after_spaces(text: Bytes, word: Words, index: Int64s) -> Int64s:
    """The first place from each on that holds no space (space, tab, line feed and whatever control
    characters there are).
    """
    result = index.copy()
    left = np.flatnonzero(text[result] <= 0x20)
    for _ in range(_MOST_STEPS):
        if not len(left):
            return result
        w = word[result[left]]
        # The high bit of a byte ends up set where it is over 0x20.
        count = _leading((((w & _LOW7) + np.uint64(0x5F5F5F5F5F5F5F5F)) | w) & _HIGH)
        result[left] += count
        left = left[count == 8]
        left = left[text[result[left]] <= 0x20]
    if len(left):
        # Where spaces end; they all do, behind the text at the latest.
        space = text <= 0x20
        ends = np.flatnonzero(space[:-1] > space[1:]) + 1
        result[left] = ends[np.searchsorted(ends, result[left])]
    return result


def gaps(
    text: Bytes, word: Words, start: Int64s, end: Int64s
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether nothing but spaces and at most one comma stands between two places, by pair of
    places; and whether the comma does.
    """
    length = end - start
    w = word[start]
    # Set in the bytes that are over 0x20.
    signs = w & _LOW7
    signs += np.uint64(0x5F5F5F5F5F5F5F5F)
    signs |= w
    signs &= _HIGH
    signs &= _MASKS.take(length, mode="clip")
    comma = signs != 0
    good = (signs & (signs - np.uint64(1))) == 0
    signs >>= np.uint64(7)
    signs *= np.uint64(0xFF)
    w ^= _COMMAS
    w &= signs
    good &= w == 0
    odd = np.flatnonzero((length < 0) | (length > 8))
    if len(odd):
        index = after_spaces(text, word, start[odd])
        comma[odd] = (text[index] == 0x2C) & (index < end[odd])
        index += comma[odd]
        good[odd] = after_spaces(text, word, index) == end[odd]
    return good, comma


def digits(word: Words, index: Int64s) -> tuple[Int64s, Int64s]:
    """Value and number of the digits at each place, eight at most."""
    x = word[index] ^ _ZEROS
    count = _leading(((x + np.uint64(0x7676767676767676)) | x) & _HIGH)
    # Zeros move in from the front; what follows the digits moves out at the back.
    x <<= (8 - count).view(np.uint64) << np.uint64(3)
    x[count == 0] = 0
    x = x * np.uint64(10) + (x >> np.uint64(8))
    x = ((x & _PAIRS) * _BY_100 + ((x >> np.uint64(16)) & _PAIRS) * _BY_10000) >> np.uint64(32)
    return (x & np.uint64(0xFFFFFFFF)).view(np.int64), count


def run(word: Words, index: Int64s, limit: int) -> tuple[Int64s, Int64s]:
    """Value and number of the digits at each place; where there are more than `limit` (at most 18)
    the number is over `limit`.
    """
    value, count = digits(word, index)
    left = np.flatnonzero(count == 8)
    done = 8
    while len(left) and done <= limit:
        more, n = digits(word, index[left] + done)
        value[left] = value[left] * POWERS[n] + more
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
    complete, count = run(word, begin, MOST_DIGITS)
    good = (count > 0) & (count <= MOST_DIGITS)
    end = begin + count
    behind = text[end]
    point = np.flatnonzero(behind == 0x2E)
    part, places = np.zeros(len(index), np.int64), np.zeros(len(index), np.int64)
    if len(point):
        # A third word could not be held: more than 16 decimals are left to be read by themselves.
        part[point], places[point] = run(word, end[point] + 1, MOST_DECIMALS - 1)
        end[point] += 1 + places[point]
        good[point] &= (places[point] > 0) & (places[point] <= MOST_DECIMALS)
        longer = point[places[point] == MOST_DECIMALS]
        good[longer] &= (text[end[longer]] - np.uint8(0x30)) > 9
        behind[point] = text[end[point]]
    good &= (behind | 0x20) != 0x65
    return Decimals(complete, part, places, count, negative, end, good)


_SEEDS = np.array([secrets.randbits(64) | 1 for _ in range(2)], np.uint64)


def distinct(word: Words, start: Int64s, end: Int64s) -> tuple[Int32s, Int64s]:
    """Which stretches of a text are equal.

    Parameters
    ----------
    start, end : int64[k]

    Returns
    -------
    code : int32[k]
        Equal for equal stretches, numbered in the order in which they first appear.
    first : int64[codes]
        The index of the first stretch with each code.

    Notes
    -----
    Stretches count as equal where 64 bits of a hash and the length are; its seeds are random
    in every process, so that no file can be made to have two that collide (by chance: about one in
    10^9 files of 100,000 names).
    """
    hashes = _hashes(word, start, end - start)
    count = len(start)
    if not count:
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    index = np.arange(count, dtype=np.int32)
    # Most stretches are of a few that come again and again, for which a table does that fits in the
    # nearest cache.
    owner = _owners(hashes, index, 12, 64)
    left = np.flatnonzero(hashes[owner] != hashes)
    bits, top = max(12, len(left).bit_length()), 64
    while len(left) and top > bits + 7:
        top -= 7
        remaining = hashes[left]
        first = left[_owners(remaining, index[: len(left)], bits, top)]
        owner[left] = first
        left = left[np.flatnonzero(hashes[first] != remaining)]
    if len(left):
        _, representative, back = np.unique(hashes[left], return_index=True, return_inverse=True)
        owner[left] = left[representative][back]
    firsts = np.flatnonzero(owner == index)
    code = np.empty(count, np.int32)
    code[firsts] = np.arange(len(firsts), dtype=np.int32)
    return code[owner], firsts


def _owners(hashes: Words, index: Int32s, bits: int, top: int) -> Int32s:
    """By hash, the first that has the same bits below `top`, as far as `bits` of them go."""
    slot = (hashes >> np.uint64(top - bits)).view(np.int64)
    if top < 64:
        slot &= (1 << bits) - 1
    table = np.empty(1 << bits, np.int32)
    # Written backwards, so that the first one stays.
    table[slot[::-1]] = index[::-1]
    return table[slot]


def _hashes(word: Words, start: Int64s, length: Int64s) -> Words:
    result = word[start]
    result &= _MASKS.take(length, mode="clip")
    result ^= length.view(np.uint64) * _SEEDS[0]
    result = _mixed(result)
    longer = np.flatnonzero(length > 8)
    # The last word overlaps the first, which does no harm.
    result[longer] = _mixed((result[longer] + word[start[longer] + length[longer] - 8]) * _SEEDS[1])
    long = longer[length[longer] > 16]
    if not len(long):
        return result
    # The words behind the first of all long stretches in one row, each mixed with its number, then
    # added up by stretch.
    rest = length[long] - 8
    count = (rest + 7) >> 3
    ends = np.cumsum(count)
    begins = ends - count
    number = np.arange(ends[-1])
    number -= np.repeat(begins, count)
    mixed = word[np.repeat(start[long] + 8, count) + number * 8]
    mixed[ends - 1] &= _MASKS[rest - (count - 1) * 8]
    number += 1
    mixed += number.view(np.uint64) * _SEEDS[1]
    result[long] = _mixed(result[long] + np.add.reduceat(_mixed(mixed), begins))
    return result


def _mixed(h: Words) -> Words:
    """A bijection of 64 bits that leaves no trace of the order of its input; works in place."""
    h ^= h >> np.uint64(32)
    h *= _SEEDS[1]
    h ^= h >> np.uint64(29)
    h *= _SEEDS[0]
    h ^= h >> np.uint64(32)
    return h

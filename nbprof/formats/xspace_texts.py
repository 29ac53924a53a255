"""Texts in a file as codes: equal ones are found by a hash of their bytes, then held against each other byte by byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nbprof.formats import wire
from nbprof.formats.xspace_events import Words
from nbprof.trace import Int32s, Int64s, Receipt

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TABLE_BITS = 13
# Fewer texts go through a dict; of longer ones only so many words are hashed at first.
_FEW = 64
_HASHED = 4
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def distinct(words: Words, data: memoryview, at: Int64s, length: Int64s) -> tuple[Int32s, list[bytes]]:
    """Codes of texts, and the texts by code.

    Parameters
    ----------
    words : uint64[n + 9]
        The eight bytes from any byte on.
    data : memoryview
        The same bytes.
    at, length : int64[texts]
    """
    if len(at) < _FEW:
        found: dict[bytes, int] = {}
        spans = zip(at.tolist(), length.tolist(), strict=True)
        codes = [found.setdefault(bytes(data[a : a + n]), len(found)) for a, n in spans]
        return np.array(codes, np.int32), list(found)
    # By length, so that the texts that have an n-th word are the last ones.
    order = np.argsort(length.astype(np.uint16) if int(length.max()) < 1 << 16 else length, kind="stable")
    at, length = at[order], length[order]
    first = _first_alike(_hash(words, at, length, _HASHED))
    same = _equal(words, at, length, first)
    if not same.all():
        rest = np.flatnonzero(~same)
        first[rest] = rest[_first_alike(_hash(words, at[rest], length[rest], None))]
        still = rest[~_equal(words, at[rest], length[rest], np.searchsorted(rest, first[rest]))]
        # Different texts of one hash: each stands for itself.
        first[still] = still
    chosen = np.zeros(len(at), np.bool_)
    chosen[first] = True
    rows = np.flatnonzero(chosen)
    code = np.zeros(len(at), np.int32)
    code[rows] = np.arange(len(rows), dtype=np.int32)
    out = np.empty(len(at), np.int32)
    out[order] = code[first]
    return out, [bytes(data[a : a + n]) for a, n in zip(at[rows].tolist(), length[rows].tolist(), strict=True)]


def _short(words: Words, at: Int64s, length: Int64s) -> Words:
    """Texts of less than eight bytes as numbers."""
    word = words[at]
    word &= ~(_ALL << (length.view(np.uint64) << np.uint64(3)))
    return word


def _hash(words: Words, at: Int64s, length: Int64s, most: int | None) -> Words:
    """Hashes of texts that are sorted by length: of their first `most` words (all where None) and the last one."""
    value = length.view(np.uint64) * _FACTOR
    eight = int(np.searchsorted(length, 8))
    value[:eight] ^= _short(words, at[:eight], length[:eight])
    turn, low = 0, eight
    while low < len(at) and (most is None or turn < most):
        _mix(value[low:], words[at[low:] + 8 * turn])
        turn += 1
        low = int(np.searchsorted(length, 8 * (turn + 1)))
    _mix(value[eight:], words[at[eight:] + (length[eight:] - 8)])
    value *= _FACTOR
    return value


def _mix(value: Words, word: Words) -> None:
    value ^= word
    value *= _FACTOR
    value ^= value >> np.uint64(29)


def _first_alike(value: Words) -> Int64s:
    """For each hash the place of an equal one, the same for all equal ones."""
    first = np.arange(len(value))
    rows = np.arange(len(value))
    table = np.zeros(1 << _TABLE_BITS, np.int64)
    for turn in range(4):
        slot = ((value[rows] << np.uint64(_TABLE_BITS * turn)) >> np.uint64(64 - _TABLE_BITS)).astype(np.int64)
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


def _equal(words: Words, at: Int64s, length: Int64s, first: Int64s) -> npt.NDArray[np.bool_]:
    """Whether texts that are sorted by length equal those at the places `first` of the same list."""
    same: npt.NDArray[np.bool_] = length == length[first]
    eight = int(np.searchsorted(length, 8))
    short = slice(0, eight)
    other = at[first]
    same[short] &= _short(words, at[short], length[short]) == _short(words, other[short], length[short])
    turn, low = 0, eight
    # Texts of other lengths are compared with themselves.
    other = np.where(same, other, at)
    while low < len(at):
        same[low:] &= words[at[low:] + 8 * turn] == words[other[low:] + 8 * turn]
        turn += 1
        low = int(np.searchsorted(length, 8 * (turn + 1)))
    tail = length[eight:] - 8
    same[eight:] &= words[at[eight:] + tail] == words[other[eight:] + tail]
    return same


class Strings:
    """Texts of all files, each once; counts those that are no UTF-8."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.broken = 0
        self.example = ""

    def decode(self, data: bytes | memoryview) -> str:
        """A text; bytes that are no UTF-8 become U+FFFD and are counted."""
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError:
            self.broken += 1
            text = str(data, "utf-8", "replace")
            self.example = self.example or text
            return text

    def code(self, text: str) -> int:
        """The code of a text."""
        return self.codes.setdefault(text, len(self.codes))

    def table(self, texts: Sequence[bytes]) -> Int32s:
        """Codes of many texts."""
        return np.array([self.code(self.decode(t)) for t in texts], np.int32)

    def report(self, receipt: Receipt) -> None:
        """Says what was no UTF-8."""
        if self.broken:
            texts = "text" if self.broken == 1 else "texts"
            receipt.warn(
                f"Bytes that are no UTF-8 are in {self.broken:,} {texts}, as in {self.example[:60]!r}; they are shown as "
                "\N{REPLACEMENT CHARACTER}. The file may be damaged."
            )


def span_texts(buf: wire.Bytes, start: Int64s, end: Int64s, strings: Strings) -> list[str]:
    """Texts at many places, one by one."""
    data = buf.data
    decode = strings.decode
    return [decode(data[a:b]) for a, b in zip(start.tolist(), end.tolist(), strict=True)]

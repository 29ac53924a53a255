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
    if len(at) < 64:
        found: dict[bytes, int] = {}
        codes = [found.setdefault(bytes(data[a : a + n]), len(found)) for a, n in zip(at.tolist(), length.tolist(), strict=True)]
        return np.array(codes, np.int32), list(found)
    first = _first_alike(_hash(words, at, length))
    same = _equal(words, at, length, first)
    # Different texts of one hash: each stands for itself.
    first[~same] = np.flatnonzero(~same)
    chosen = np.zeros(len(at), np.bool_)
    chosen[first] = True
    rows = np.flatnonzero(chosen)
    code = np.zeros(len(at), np.int32)
    code[rows] = np.arange(len(rows), dtype=np.int32)
    return code[first], [bytes(data[a : a + n]) for a, n in zip(at[rows].tolist(), length[rows].tolist(), strict=True)]


def _pieces(words: Words, at: Int64s, length: Int64s, rows: Int64s, turn: int) -> Words:
    """The `turn`-th eight bytes of some texts; zero behind their end."""
    word = words[at[rows] + 8 * turn]
    missing = (turn + 1) * 8 - length[rows]
    short = np.flatnonzero(missing > 0)
    word[short] &= _ALL >> (8 * missing[short]).astype(np.uint64)
    return word


def _rounds(length: Int64s) -> list[Int64s]:
    """The texts that have an n-th eight bytes, for each n."""
    rows = np.flatnonzero(length > 0)
    out = []
    while len(rows):
        out.append(rows)
        rows = rows[length[rows] > 8 * len(out)]
    return out


def _hash(words: Words, at: Int64s, length: Int64s) -> Words:
    value = length.astype(np.uint64) * _FACTOR
    for turn, rows in enumerate(_rounds(length)):
        mixed = value[rows] ^ _pieces(words, at, length, rows, turn)
        mixed *= _FACTOR
        mixed ^= mixed >> np.uint64(29)
        value[rows] = mixed
    return value * _FACTOR


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
    same: npt.NDArray[np.bool_] = length == length[first]
    for turn, rows in enumerate(_rounds(np.where(same, length, 0))):
        other = first[rows]
        same[rows] &= _pieces(words, at, length, rows, turn) == _pieces(words, at, length, other, turn)
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
            receipt.warn(
                f"{self.broken:,} texts hold bytes that are no UTF-8; they are shown with \N{REPLACEMENT CHARACTER} in their place, "
                f"as in {self.example[:60]!r}. The file may be damaged."
            )


def span_texts(buf: wire.Bytes, start: Int64s, end: Int64s, strings: Strings) -> list[str]:
    """Texts at many places, one by one."""
    data = buf.data
    decode = strings.decode
    return [decode(data[a:b]) for a, b in zip(start.tolist(), end.tolist(), strict=True)]

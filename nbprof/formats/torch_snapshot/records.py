"""Records of a pickle, matched whole: dicts whose keys were all written before, and whose values
are numbers, texts and lists of frames.

PyTorch writes a million such dicts one behind the other. The opcodes of one tell what those of the
next ones look like; only numbers and slots of the memo differ. Each shape becomes one regular
expression, which reads a record some thirty times as fast as opcode by opcode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_FRAMES = 512
"""Frames of a stack that are kept, the innermost; a deeper stack has none of interest further
out.
"""
_MOST_KEYS = 24
_INT = rb"K.|M..|J.{4}|\x8a\x05.{5}|\x8a\x06.{6}|\x8a\x07.{7}|\x8a\x08.{8}|\x8a\x09.{9}"
_SCALAR = rb"(" + _INT + rb"|h.|j.{4}|N|\x88|\x89)"
_TEXT = (
    rb"(\x8c(?:"
    + b"|".join(rb"\x%02x.{%d}" % (n, n) if n else rb"\x00" for n in range(48))
    + rb"))"
)
_FRAMES = rb"((?:\((?:h.|j.{4}){1,%d}e|(?:h.|j.{4})a)?)" % MOST_FRAMES
_PAIR = rb"((?:" + _INT + rb"){2})\x86"
_WIDTH = {
    ord("K"): 1,
    ord("M"): 2,
    ord("J"): 4,
    ord("h"): 1,
    ord("j"): 4,
    ord("N"): 0,
    0x88: 0,
    0x89: 0,
}
SCALAR, TEXT, FRAMES, PAIR = range(4)
_MEMO = 0x94


class Shape:
    """What some records look like.

    Attributes
    ----------
    match : callable
        Matches a record at a byte; the groups are the values.
    keys : tuple of str
    kinds : tuple of int
        What each value is.
    remembered : tuple of int
        The values that go into the memo, in their order; the record itself goes before them where
        `itself`.
    """

    def __init__(
        self,
        pattern: bytes,
        keys: Sequence[str],
        kinds: Sequence[int],
        remembered: Sequence[int],
        *,
        itself: bool,
    ) -> None:
        self.match: Callable[[bytes, int], re.Match[bytes] | None] = re.compile(
            pattern, re.DOTALL
        ).match
        self.keys = tuple(keys)
        self.kinds = tuple(kinds)
        self.remembered = tuple(remembered)
        self.itself = itself
        self.frames = kinds.index(FRAMES) if FRAMES in kinds else -1


def learn(data: bytes, at: int, memo: Sequence[Any]) -> tuple[bytes, Shape] | None:
    """The shape of the record that begins at a byte with an empty dict, and its pattern; None where
    it is of another kind.
    """
    start = at
    at += 1
    itself = data[at : at + 1] == b"\x94"
    at += itself
    if data[at : at + 1] != b"(":
        return None
    at += 1
    pattern = [re.escape(data[start:at])]
    keys: list[str] = []
    kinds: list[int] = []
    remembered: list[int] = []
    while data[at : at + 1] != b"u":
        width = _WIDTH.get(data[at], -1) if data[at : at + 1] in (b"h", b"j") else -1
        if width < 0 or len(keys) == _MOST_KEYS:
            return None
        slot = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        key = memo[slot] if slot < len(memo) else None
        if type(key) is not str:
            return None
        pattern.append(re.escape(data[at : at + 1 + width]))
        at += 1 + width
        value = _value(data, at)
        if value is None:
            return None
        kind, at = value
        if at >= len(data):
            return None
        pattern.append((_SCALAR, _TEXT, rb"\]", _PAIR)[kind])
        if kind == FRAMES:
            # No record of PyTorch's has two lists.
            if FRAMES in kinds:
                return None
            memoised = data[at] == _MEMO
            pattern.append(rb"\x94" * memoised + _FRAMES)
            found = re.compile(_FRAMES, re.DOTALL).match(data, at + memoised)
            if found is None:
                return None
            at = found.end()
        else:
            memoised = data[at] == _MEMO
            pattern.append(rb"\x94" * memoised)
            at += memoised
        if memoised:
            remembered.append(len(keys))
        keys.append(key)
        kinds.append(kind)
    whole = b"".join(pattern) + b"u"
    return (whole, Shape(whole, keys, kinds, remembered, itself=itself)) if keys else None


def _value(data: bytes, at: int) -> tuple[int, int] | None:
    """What begins at a byte, and where it ends; of a list of frames only the opcode that makes
    it.
    """
    if at + 12 > len(data):
        return None
    op = data[at]
    if op == ord("]"):
        return FRAMES, at + 1
    if op == 0x8C:
        return (TEXT, at + 2 + data[at + 1]) if data[at + 1] < 48 else None
    end = _number(data, at)
    if end is None:
        return None
    second = _number(data, end) if op not in b"hj" else None
    if second is not None and data[second : second + 1] == b"\x86":
        return PAIR, second + 1
    return SCALAR, end


def _number(data: bytes, at: int) -> int | None:
    op = data[at]
    if op == 0x8A:
        return at + 2 + data[at + 1] if 5 <= data[at + 1] <= 9 else None
    width = _WIDTH.get(op)
    return None if width is None else at + 1 + width


class Values(dict[bytes, Any]):
    """What the bytes of a value stand for; remembers some of them."""

    MOST = 1 << 16

    def __init__(self, memo: Sequence[Any]) -> None:
        super().__init__()
        self._memo = memo

    def of(self, column: Sequence[bytes]) -> list[Any]:
        """The values of a column."""
        if len(self) > self.MOST:
            self.clear()
        return list(map(self.__getitem__, column))

    def __missing__(self, raw: bytes) -> Any:
        value = self._decoded(raw)
        # A slot of the memo may be filled anew, but nobody does.
        self[raw] = value
        return value

    def _decoded(self, raw: bytes) -> Any:
        op = raw[0]
        if op == 0x8A:
            end = 2 + raw[1]
            first: Any = int.from_bytes(raw[2:end], "little", signed=True)
        elif op == 0x8C:
            return raw[2:].decode("utf-8", "replace")
        elif op in b"hj":
            slot = int.from_bytes(raw[1:], "little")
            return self._memo[slot] if slot < len(self._memo) else None
        elif op in b"N\x88\x89":
            return {ord("N"): None, 0x88: True, 0x89: False}[op]
        else:
            end = 1 + _WIDTH[op]
            first = int.from_bytes(raw[1:end], "little", signed=op == ord("J"))
        return first if end == len(raw) else (first, self._decoded(raw[end:]))


def numbers(column: Sequence[bytes]) -> npt.NDArray[np.int64] | None:
    """A column of matched scalars all of which are numbers of the same 5 to 8 bytes, as addresses
    and times are; None of any other.

    The values are decoded together: nearly each is another one, so that to remember them helps
    little.
    """
    size = len(column[0])
    width = size - 2
    if not 5 <= width <= 8:
        return None
    joined = b"".join(column)
    if len(joined) != size * len(column):
        return None
    rows = np.frombuffer(joined, np.uint8).reshape(len(column), size)
    # That the first begins as such a number, and is as long, tells where the second one begins; and
    # so on.
    if (rows[:, 0] != 0x8A).any() or (rows[:, 1] != width).any():
        return None
    out = np.empty((len(column), 8), np.uint8)
    out[:, :width] = rows[:, 2:]
    # The highest bit is the sign.
    out[:, width:] = (rows[:, -1:] >> 7) * np.uint8(255)
    return out.view("<i8")[:, 0].astype(np.int64, copy=False)


def slots(raw: bytes) -> list[int]:
    """The slots of the memo that a matched list of frames recalls."""
    out, at, end = [], int(raw[:1] == b"("), len(raw) - 1
    while at < end:
        width = 1 if raw[at] == ord("h") else 4
        out.append(int.from_bytes(raw[at + 1 : at + 1 + width], "little"))
        at += 1 + width
    return out

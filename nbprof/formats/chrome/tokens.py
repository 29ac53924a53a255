"""The skeleton of a stretch of JSON as columns: its strings and brackets, how deep they lie, and which bracket closes which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.chrome.digits import PADDING, Bytes, Words, words

QUOTE, COMMA, COLON, BACKSLASH = 0x22, 0x2C, 0x3A, 0x5C
# Args lie two levels deep: in an object in an event.
DEEPEST = 2
OPEN_LIST, OPEN_OBJECT, CLOSE_OBJECT = 0x5B, 0x7B, 0x7D


class Uneven(Exception):  # noqa: N818 — never leaves the reader
    """Quotes or brackets don't pair up: the stretch has to be read in another way."""


@dataclass
class Level:
    """The containers that lie so many levels deep: the tokens that open and close them, and by token how many were opened so far."""

    opens: Int64s
    closes: Int64s
    number: Int32s


@dataclass
class Tokens:
    """Quotes and brackets outside of strings, in order, but not those within the lists and objects that are args.

    `at` int64 their places, `sign` uint8 the characters, `depth` int32 how many brackets are open behind each.
    """

    text: Bytes
    word: Words
    at: Int64s
    sign: npt.NDArray[np.uint8]
    depth: Int32s
    closed_at: int
    """Where the list that the stretch lies in is closed; -1 where it is not."""

    def level(self, depth: int) -> Level:
        """Containers whose content lies at a depth."""
        opens = ((self.sign & 0x5D) == 0x59) & (self.depth == depth)
        closes = ((self.sign & 0x5D) == 0x5D) & (self.depth == depth - 1)
        number = np.cumsum(opens, dtype=np.int32)
        opened, closed = np.flatnonzero(opens), np.flatnonzero(closes)
        if len(opened) != len(closed) or not np.array_equal(self.sign[opened] + np.uint8(2), self.sign[closed]):
            raise Uneven
        return Level(opened, closed, number)


def tokens(data: bytes | memoryview) -> Tokens:
    """The tokens of a stretch that begins outside of strings, in the list of events.

    Raises
    ------
    Uneven
    """
    text = np.empty(len(data) + PADDING, np.uint8)
    text[: len(data)] = np.frombuffer(data, np.uint8)
    # Neither a space nor a digit, so that nothing runs on behind the end.
    text[len(data) :] = 0xFF
    found = np.bitwise_or(text, 0x20)
    found -= np.uint8(0x7B)
    found &= np.uint8(0xFD)
    is_token = found == 0
    is_token |= text == QUOTE
    at = np.flatnonzero(is_token)
    sign = text[at]
    if BACKSLASH in data:
        at = at[~_escaped(text, at, sign)]
        sign = text[at]
    quotes = sign == QUOTE
    inside = (np.cumsum(quotes, dtype=np.int32) & 1) == 1
    inside &= ~quotes
    if inside.any():
        at, sign, quotes = at[~inside], sign[~inside], quotes[~inside]
    # Bit 2 is set in ] and } but not in [ and {.
    step = (1 - ((sign & 4) >> 1)).view(np.int8)
    step[quotes] = 0
    depth = np.cumsum(step, dtype=np.int32)
    closed_at = -1
    if len(depth) and depth.min() < 0:
        end = int(np.argmax(depth < 0))
        if sign[end] != 0x5D:
            raise Uneven
        closed_at = int(at[end])
        at, sign, depth, quotes = at[:end], sign[:end], depth[:end], quotes[:end]
    if len(depth) and (depth[-1] != 0 or int(quotes.sum()) & 1):
        raise Uneven
    # What lies deeper is never looked into: it is the text of an arg.
    near = (depth <= DEEPEST) | ((depth == DEEPEST + 1) & (step[: len(at)] > 0))
    if not near.all():
        at, sign, depth = at[near], sign[near], depth[near]
    return Tokens(text, words(text), at, sign, depth, closed_at)


def _escaped(text: Bytes, at: Int64s, sign: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which quotes have an odd number of backslashes before them."""
    out = np.zeros(len(at), bool)
    behind = np.flatnonzero((sign == QUOTE) & (text[at - 1] == BACKSLASH) & (at > 0))
    if not len(behind):
        return out
    slashes = np.flatnonzero(text == BACKSLASH)
    begins = np.concatenate([[True], np.diff(slashes) != 1])
    first = np.maximum.accumulate(np.where(begins, slashes, 0))
    last = at[behind] - 1
    out[behind] = ((last - first[np.searchsorted(slashes, last)]) & 1) == 0
    return out

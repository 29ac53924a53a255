"""The skeleton of a stretch of JSON as columns: its strings, brackets and keys, how deep they lie, and which bracket closes which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.chrome.digits import PADDING, Bytes, Words, after_spaces, words

Bools = npt.NDArray[np.bool_]

QUOTE, COMMA, COLON, BACKSLASH = 0x22, 0x2C, 0x3A, 0x5C
# Args lie two levels deep: in an object in an event.
DEEPEST = 2
OPEN_LIST, OPEN_OBJECT, CLOSE_OBJECT = 0x5B, 0x7B, 0x7D
_ARGS = np.uint64(int.from_bytes(b"args", "little"))


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


@dataclass
class Keys:
    """The keys of a stretch, in order.

    `opens` and `closes` are the tokens of their quotes, `event` the event they are in, `is_arg` tells which level, `at` is where the
    value begins, `first` its first byte, `end` the byte behind the value, `after` the token that has to come next.
    """

    opens: Int64s
    closes: Int64s
    event: Int32s
    is_arg: Bools
    at: Int64s
    first: npt.NDArray[np.uint8]
    end: Int64s
    after: Int64s


def keys_of(found: Tokens, events: Level, bad: Bools) -> tuple[Keys, Level, Level]:
    """The keys of events and of their args; marks events in which something else stands where a key should be."""
    inner, deep = found.level(2), found.level(3)
    quotes = np.flatnonzero(found.sign == QUOTE)
    opens, closes = quotes[0::2], quotes[1::2]
    is_key, at, first = _colons(found, found.at[closes])
    depth = found.depth[opens]
    # Args are the objects at keys called args.
    maybe = np.flatnonzero((first == OPEN_OBJECT) & is_key & (depth == 1))
    begin = found.at[opens[maybe]] + 1
    is_args = (found.at[closes[maybe]] - begin == 4) & ((found.word[begin] & np.uint64(0xFFFFFFFF)) == _ARGS)
    args = closes[maybe[is_args]] + 1
    in_args = np.zeros(len(inner.opens) + 1, bool)
    in_args[inner.number[args]] = True
    mine = in_args[inner.number[opens]] | (depth == 1)
    if not mine.all():
        opens, closes, is_key, at, first, depth = opens[mine], closes[mine], is_key[mine], at[mine], first[mine], depth[mine]
    # A string that is no key follows one as its value, right away.
    is_value = np.zeros(len(opens) + 1, bool)
    is_value[1:] = is_key & (first == QUOTE)
    stray = is_key == is_value[:-1]
    bad[events.number[opens[stray]] - 1] = True
    # Behind the opening bracket comes a key, or the end.
    for begins in (events.opens, args):
        next_sign = found.sign[begins + 1]
        fits = after_spaces(found.text, found.word, found.at[begins] + 1) == found.at[begins + 1]
        fits &= (next_sign == QUOTE) | (next_sign == CLOSE_OBJECT)
        bad[events.number[begins[~fits]] - 1] = True
    opens, closes = opens[is_key], closes[is_key]
    nothing = np.zeros(len(opens), np.int64)
    event = events.number[opens] - np.int32(1)
    return Keys(opens, closes, event, depth[is_key] == DEEPEST, at[is_key], first[is_key], nothing, nothing.copy()), inner, deep


def _colons(found: Tokens, quote: Int64s) -> tuple[Bools, Int64s, npt.NDArray[np.uint8]]:
    """By closing quote: whether a colon follows, where the value behind it begins, and its first byte."""
    letters = found.word[quote].view(np.uint8).reshape(-1, 8)
    is_key = letters[:, 1] == COLON
    space = letters[:, 2] == 0x20
    at = quote + 2
    at += space
    first = np.where(space, letters[:, 3], letters[:, 2])
    odd = np.flatnonzero(letters[:, 1] <= 0x20)
    if len(odd):
        behind = after_spaces(found.text, found.word, quote[odd] + 1)
        is_key[odd] = found.text[behind] == COLON
        at[odd] = behind + 1
        first[odd] = found.text[at[odd]]
    odd = np.flatnonzero((first <= 0x20) & is_key)
    if len(odd):
        at[odd] = after_spaces(found.text, found.word, at[odd])
        first[odd] = found.text[at[odd]]
    return is_key, at, first

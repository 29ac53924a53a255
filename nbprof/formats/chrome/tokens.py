"""The skeleton of a stretch of JSON as columns: its strings, brackets and keys, how deep they lie,
and which bracket closes which.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.chrome.digits import PADDING, Bytes, Words, after_spaces, gaps, words

Bools = npt.NDArray[np.bool_]

QUOTE, COMMA, COLON, BACKSLASH = 0x22, 0x2C, 0x3A, 0x5C
# Args lie two levels deep: in an object in an event.
DEEPEST = 2
OPEN_LIST, OPEN_OBJECT, CLOSE_OBJECT = 0x5B, 0x7B, 0x7D
_ARGS = np.uint64(int.from_bytes(b"args", "little"))
# So many bytes at a time stay in the processor's nearest cache.
_BLOCK = 1 << 16


class Uneven(Exception):  # noqa: N818 — never leaves the reader
    """Quotes or brackets don't pair up: the stretch has to be read in another way."""


@dataclass
class Level:
    """The containers that lie so many levels deep: the tokens that open and close them, and by
    token how many were opened so far.
    """

    opens: Int64s
    closes: Int64s
    number: Int32s


@dataclass
class Tokens:
    """Quotes and brackets outside of strings, in order, but not those within the lists and objects
    that are args.

    `at` int64 their places, `sign` uint8 the characters, `depth` int32 how many brackets are open
    behind each; `brackets` which of them are brackets, and `opening` whether those open something.
    """

    text: Bytes
    word: Words
    offset: Int64s
    sign: npt.NDArray[np.uint8]
    depth: Int32s
    brackets: Int64s
    opening: Bools
    closed_at: int
    """Where the list that the stretch lies in is closed; -1 where it is not."""

    def level(self, depth: int) -> Level:
        """Containers whose content lies at a depth."""
        opening = self.opening
        behind = self.depth[self.brackets]
        opened = np.compress(opening & (behind == depth), self.brackets)
        closed = np.compress(~opening & (behind == depth - 1), self.brackets)
        if len(opened) != len(closed) or not np.array_equal(
            self.sign[opened] + np.uint8(2), self.sign[closed]
        ):
            raise Uneven
        number = np.zeros(len(self.offset), np.int8)
        number[opened] = 1
        return Level(opened, closed, np.cumsum(number, dtype=np.int32))


def tokens(data: bytes) -> Tokens:
    """The tokens of a stretch that begins outside of strings, in the list of events.

    Raises
    ------
    Uneven
    """
    # What is behind the end is neither a space nor a digit, so that nothing runs on there.
    text = np.frombuffer(data + b"\xff" * PADDING, np.uint8)
    rows = np.flatnonzero(_are_tokens(text))
    sign = text[rows]
    if BACKSLASH in data:
        rows = rows[~_escaped(text, rows, sign)]
        sign = text[rows]
    quotes = sign == QUOTE
    # Outside of strings is what has an even number of quotes up to it, and the quotes themselves; a
    # byte is enough to tell.
    in_string = (np.cumsum(quotes, dtype=np.uint8) & 1) > quotes
    if in_string.any():
        outside = np.flatnonzero(~in_string)
        rows, sign = rows[outside], sign[outside]
        quotes = sign == QUOTE
    # Bit 2 is set in ] and } but not in [ and {.
    step = (1 - ((sign & 4) >> 1)).view(np.int8)
    step *= ~quotes
    depth = np.cumsum(step, dtype=np.int32)
    closed_at = -1
    if len(depth) and depth.min() < 0:
        end = int(np.argmax(depth < 0))
        if sign[end] != 0x5D:
            raise Uneven
        closed_at = int(rows[end])
        rows, sign, depth, quotes = rows[:end], sign[:end], depth[:end], quotes[:end]
    if len(depth) and (depth[-1] != 0 or int(quotes.sum()) & 1):
        raise Uneven
    # What lies deeper is never looked into: it is the text of an arg.
    near = (depth <= DEEPEST) | ((depth == DEEPEST + 1) & (step[: len(rows)] > 0))
    if not near.all():
        retained = np.flatnonzero(near)
        rows, sign, depth = rows[retained], sign[retained], depth[retained]
    brackets = np.flatnonzero(sign != QUOTE)
    return Tokens(
        text, words(text), rows, sign, depth, brackets, (sign[brackets] & 4) == 0, closed_at
    )


def _are_tokens(text: Bytes) -> Bools:
    """Which bytes are quotes or brackets."""
    result = np.empty(len(text), np.bool_)
    for low in range(0, len(text), _BLOCK):
        block = text[low : low + _BLOCK]
        lower = block | np.uint8(0x20)
        lower -= np.uint8(0x7B)
        lower &= np.uint8(0xFD)
        np.equal(block, QUOTE, out=result[low : low + _BLOCK])
        result[low : low + _BLOCK] |= lower == 0
    return result


def _escaped(text: Bytes, index: Int64s, sign: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which quotes have an odd number of backslashes before them."""
    result = np.zeros(len(index), bool)
    behind = np.flatnonzero((sign == QUOTE) & (text[index - 1] == BACKSLASH) & (index > 0))
    if not len(behind):
        return result
    slashes = np.flatnonzero(text == BACKSLASH)
    begins = np.concatenate([[True], np.diff(slashes) != 1])
    first = np.maximum.accumulate(np.where(begins, slashes, 0))
    last = index[behind] - 1
    result[behind] = ((last - first[np.searchsorted(slashes, last)]) & 1) == 0
    return result


@dataclass
class Keys:
    """The keys of a stretch, in order.

    `opens` and `closes` are the tokens of their quotes, `event` the event they are in, `is_arg`
    tells which level, `at` is where the value begins, `first` its first byte, `end` the byte behind
    the value, `after` the token that has to come next.
    """

    opens: Int64s
    closes: Int64s
    event: Int32s
    is_arg: Bools
    offset: Int64s
    first: npt.NDArray[np.uint8]
    end: Int64s
    after: Int64s


def keys_of(token_table: Tokens, events: Level, bad: Bools) -> tuple[Keys, Level, Level]:
    """The keys of events and of their args; marks events in which something else stands where a key
    should be.
    """
    inner, deep = token_table.level(2), token_table.level(3)
    quotes = np.flatnonzero(token_table.sign == QUOTE)
    opens, closes = quotes[0::2], quotes[1::2]
    is_key, index, first = _colons(token_table, token_table.offset[closes])
    depth = token_table.depth[opens]
    # Args are the objects at keys called args.
    maybe = np.flatnonzero((first == OPEN_OBJECT) & is_key & (depth == 1))
    begin = token_table.offset[opens[maybe]] + 1
    is_args = (token_table.offset[closes[maybe]] - begin == 4) & (
        (token_table.word[begin] & np.uint64(0xFFFFFFFF)) == _ARGS
    )
    args = closes[maybe[is_args]] + 1
    if len(args) < len(inner.opens):
        in_args = np.zeros(len(inner.opens) + 1, bool)
        in_args[inner.number[args]] = True
        rows = np.flatnonzero(in_args[inner.number[opens]] | (depth == 1))
        opens, closes, is_key, index, first, depth = (
            opens[rows],
            closes[rows],
            is_key[rows],
            index[rows],
            first[rows],
            depth[rows],
        )
    # A string that is no key follows one as its value, right away.
    is_value = np.zeros(len(opens) + 1, bool)
    is_value[1:] = is_key & (first == QUOTE)
    stray = is_key == is_value[:-1]
    bad[events.number[opens[stray]] - 1] = True
    # Behind the opening bracket comes a key, or the end.
    for begins in (events.opens, args):
        next_sign = token_table.sign[begins + 1]
        fits, comma = gaps(
            token_table.text,
            token_table.word,
            token_table.offset[begins] + 1,
            token_table.offset[begins + 1],
        )
        fits &= ~comma & ((next_sign == QUOTE) | (next_sign == CLOSE_OBJECT))
        bad[events.number[begins[~fits]] - 1] = True
    chosen = np.flatnonzero(is_key)
    opens, closes = opens[chosen], closes[chosen]
    nothing = np.zeros(len(opens), np.int64)
    event = events.number[opens]
    event -= 1
    return (
        Keys(
            opens,
            closes,
            event,
            depth[chosen] == DEEPEST,
            index[chosen],
            first[chosen],
            nothing,
            nothing.copy(),
        ),
        inner,
        deep,
    )


def _colons(token_table: Tokens, quote: Int64s) -> tuple[Bools, Int64s, npt.NDArray[np.uint8]]:
    """By closing quote: whether a colon follows, where the value behind it begins, and its first
    byte.
    """
    next_ = token_table.text[quote + 1]
    is_key = next_ == COLON
    index = quote + 2
    index += token_table.text[index] == 0x20
    first = token_table.text[index]
    odd = np.flatnonzero(next_ <= 0x20)
    if len(odd):
        behind = after_spaces(token_table.text, token_table.word, quote[odd] + 1)
        is_key[odd] = token_table.text[behind] == COLON
        index[odd] = behind + 1
        first[odd] = token_table.text[index[odd]]
    odd = np.flatnonzero((first <= 0x20) & is_key)
    if len(odd):
        index[odd] = after_spaces(token_table.text, token_table.word, index[odd])
        first[odd] = token_table.text[index[odd]]
    return is_key, index, first

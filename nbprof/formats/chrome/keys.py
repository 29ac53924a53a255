"""The keys of a stretch of events, found all at once, and where their values begin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.core.trace import Int32s, Int64s
from nbprof.formats.chrome.digits import after_spaces
from nbprof.formats.chrome.tokens import CLOSE_OBJECT, COLON, DEEPEST, OPEN_OBJECT, QUOTE, Level, Tokens

Bools = npt.NDArray[np.bool_]

_ARGS = np.uint64(int.from_bytes(b"args", "little"))


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

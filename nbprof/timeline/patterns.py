"""Search texts: a substring, or a regular expression with bounded running time."""

from __future__ import annotations

import importlib
import re
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nbprof.display.wording import plural

# The parser of regular expressions has its own names since Python 3.11.
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

MOST_PATTERN = 500
"""Characters of an expression."""
SECONDS = 2.0
"""Time limit of one search."""
# Characters of a text that are looked at, by how many repeats in a row may match in different ways:
# n characters are matched in about n ** (k + 1) / (k + 1)! steps at worst, here at most some
# hundred million.
_LOOKED_AT = (1 << 20, 20_000, 1_200, 300, 130)
_FEW = 8
_MOST_WAYS = 4096
_LOOK_EVERY = 256


class PatternError(ValueError):
    """An expression that is not supported; the message is a sentence."""


@dataclass
class Pattern:
    """A search text.

    Raises
    ------
    PatternError
        The text is an expression that is wrong, or whose work could grow without bound.
    """

    query: str
    skipped: int = field(default=0, init=False)
    """Texts that were not searched for lack of time."""
    shortened: int = field(default=0, init=False)
    """Texts of which only the first characters were searched."""

    def __post_init__(self) -> None:
        self.text = self.query.strip()
        self._expression: re.Pattern[str] | None = None
        self.limit = _LOOKED_AT[0]
        self._until: float | None = None
        if match := re.fullmatch(r"/(.+)/", self.text, re.DOTALL):
            self._expression, self.limit = _compiled(match[1])

    @property
    def number(self) -> int | None:
        """The integer that the text is, or None."""
        if re.fullmatch(r"[+-]?\d{1,20}", self.text, re.ASCII):
            return int(self.text)
        return None

    def matches(self, texts: Iterable[object]) -> npt.NDArray[np.bool_]:
        """Mask of texts that match, bool[n]; False for those not reached in time."""
        if self._expression is None:
            part = self.text.lower()
            # ASCII text is the rule, and what is searched for mostly has no letter that changes its
            # length when it is lowered.
            return np.fromiter((part in str(text).lower() for text in texts), np.bool_)
        result = []
        search, limit = self._expression.search, self.limit
        if self._until is None:
            self._until = time.monotonic() + SECONDS
        late = False
        for i, text in enumerate(texts):
            string = str(text)
            if not late and (i % _LOOK_EVERY == 0 or len(string) > 1000):
                late = time.monotonic() > self._until
            if late:
                self.skipped += 1
                result.append(False)
                continue
            if len(string) > limit:
                self.shortened += 1
                string = string[:limit]
            result.append(search(string) is not None)
        return np.array(result, np.bool_)

    @property
    def note(self) -> str:
        """A sentence about texts that were not searched; "" if all were."""
        parts = []
        if self.shortened:
            parts.append(
                f"Of {_texts(self.shortened)} only the first {self.limit:,} characters were"
                " searched."
            )
        if self.skipped:
            parts.append(
                f"{_texts(self.skipped)} were not searched: the expression takes too long."
            )
        return " ".join(parts)


def _texts(count: int) -> str:
    return plural(count, "long text", "texts")


def _compiled(source: str) -> tuple[re.Pattern[str], int]:
    """The expression, and the number of characters of a text that it is matched with.

    Python's matcher backtracks, and cannot be stopped: a repeat of a repeat may take forever. Such
    an expression is refused.
    """
    if len(source) > MOST_PATTERN:
        raise PatternError(
            f"The expression has {len(source):,} characters; the limit is {MOST_PATTERN}."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            repeats, ways = _cost(_parser.parse(source, re.IGNORECASE))
            expression = re.compile(source, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"Invalid regular expression: {error}.") from None
    if repeats >= len(_LOOKED_AT) or ways > _MOST_WAYS:
        raise PatternError(
            "The expression can match in too many ways and could take forever. Use fewer repeats"
            " and alternatives."
        )
    return expression, _LOOKED_AT[repeats]


def _cost(tree: Any) -> tuple[int, int]:
    """Count of consecutive repeats of variable length, and of ways in which the rest may match.

    Raises
    ------
    PatternError
        A part that may match in several ways is repeated, or there is a backreference.
    """
    repeats, ways = 0, 1
    for op, argument in tree:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, limit, body = argument
            inner, inner_ways = _cost(body)
            if limit <= _FEW:
                repeats += inner * limit
                ways *= min((limit - least + 1) * inner_ways**limit, _MOST_WAYS + 1)
            elif inner or inner_ways > 1:
                raise PatternError(
                    "The expression repeats a part that can match in several ways, and could take"
                    " forever. Use fewer repeats."
                )
            else:
                repeats += int(limit != least)
        elif name == "BRANCH":
            parts = [_cost(branch) for branch in argument[1]]
            repeats += max(inner for inner, _ in parts)
            ways *= sum(inner_ways for _, inner_ways in parts)
        elif name in ("SUBPATTERN", "ASSERT", "ASSERT_NOT", "ATOMIC_GROUP"):
            inner, inner_ways = _cost(argument if name == "ATOMIC_GROUP" else argument[-1])
            repeats, ways = repeats + inner, ways * inner_ways
        elif name in ("GROUPREF", "GROUPREF_EXISTS"):
            raise PatternError(
                "The expression has a backreference, which the search does not support."
            )
    return repeats, ways

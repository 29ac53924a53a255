"""Colour of a slice: that of its category, or one of eight muted tints by name. The twin of
js/views/trace/colours.ts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from nbprof.display.wording import one_line

TINT = 100
"""Fills from here on are tints."""

MOST_NAME = 600
"""The most characters of a name that a page has: these decide its tint."""

# The whitespace of \s in JavaScript, and the characters that join a number to a name.
_SPACES = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_SEPARATORS = _SPACES + "_:#./-"
_BRACKETS = re.compile(r"[<(>)]")


def stem(name: str) -> str:
    """A name without template arguments, call arguments and the numbers that count copies of the
    same thing.
    """
    parts = []
    depth = index = 0
    for match in _BRACKETS.finditer(name):
        if not depth:
            parts.append(name[index : match.start()])
        # Like any other character, a closing bracket that nothing opened belongs to the name.
        if match[0] in "<(":
            depth += 1
        elif depth:
            depth -= 1
        else:
            parts.append(match[0])
        index = match.end()
    if not depth:
        parts.append(name[index:])
    text = "".join(parts)
    short = text.rstrip("0123456789")
    if len(short) < len(text):
        text = short.rstrip(_SEPARATORS)
    return text or name


def tint_of(name: str) -> int:
    """0…7, the same for every name with the same stem: three high bits of its 32-bit FNV-1a over
    code points.
    """
    value = 0x811C9DC5
    for c in stem(name):
        value = ((value ^ ord(c)) * 0x01000193) & 0xFFFFFFFF
    return (value >> 17) & 7


class Fills:
    """Fills of names, each found when it is first drawn.

    Parameters
    ----------
    names : object[n]
    category : uint8[n]
        1…9, 0 for none.
    """

    def __init__(self, names: npt.NDArray[np.object_], category: npt.NDArray[np.uint8]) -> None:
        self._names = names
        self._fill = category.copy()

    def by_code(self, codes: npt.NDArray[np.integer]) -> npt.NDArray[np.uint8]:
        """uint8: 1…9 a category, or 100 + tint."""
        result: npt.NDArray[np.uint8] = self._fill[codes]
        if not result.all():
            self._find(np.unique(codes[result == 0]).tolist())
            result = self._fill[codes]
        return result

    def _find(self, codes: Iterable[int]) -> None:
        # The page has names as one line.
        for code in codes:
            self._fill[code] = TINT + tint_of(one_line(str(self._names[code]))[:MOST_NAME])

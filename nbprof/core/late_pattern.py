"""Regular expressions that are compiled when they are first used.

Compiling those of all formats and frameworks takes a tenth of the time in which nbprof is imported,
and a profile needs few of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("match", "fullmatch", "search", "sub", "findall", "finditer", "split")


def late_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The pattern; it has the methods of a compiled one, but is none for pandas and `re.match`."""
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Reached once: the methods are attributes from then on.
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return self.__dict__[name]

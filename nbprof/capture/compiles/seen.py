"""Functions that were compiled before: was another one made of the same code?"""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass
from types import CodeType
from typing import Any

from nbprof.core.compile_times import FIRST, MADE_AGAIN, REDEFINED, UNKNOWN

MOST = 5_000
"""Functions that are remembered for the life of the process."""
_DEEPEST = 20


@dataclass
class _Made:
    recording: int
    function: Any
    """A weak reference, or None where there can be none."""


class Seen:
    """Functions that were compiled in this process while nbprof recorded, by their code.

    It holds no function and no code: only hashes and weak references.
    """

    def __init__(self) -> None:
        self._functions: dict[int, _Made] = {}
        self._recording = 0

    def begin(self) -> None:
        """Another recording begins."""
        self._recording += 1

    def state(self, function: Any, code: CodeType | None) -> str:
        """The state of a function of which its compiler has seen nothing.

        Parameters
        ----------
        function : object
            By whose identity the compiler remembers: a function, or a code object.
        code : code or None
            Its code.

        Returns
        -------
        str
            A state of `nbprof.core.compile_times`.
        """
        if code is None:
            return UNKNOWN
        key = hash((code.co_filename, code.co_firstlineno, code))
        earlier = self._functions.get(key)
        if earlier is None and len(self._functions) >= MOST:
            return UNKNOWN
        self._functions[key] = _Made(self._recording, _reference(function))
        if earlier is None or _is_method(code):
            # Each object of a class has separate methods.
            return FIRST
        if earlier.function is not None and earlier.function() is function:
            # The same function: its compiler's cache was cleared.
            return UNKNOWN
        return MADE_AGAIN if earlier.recording == self._recording else REDEFINED


def code_of(function: Any) -> CodeType | None:
    """The code of a function, below its decorators and partial applications; None without."""
    for _ in range(_DEEPEST):
        code = getattr(function, "__code__", None)
        wrapped = getattr(function, "__wrapped__", None)
        if isinstance(function, functools.partial):
            wrapped = function.func
        if wrapped is None:
            return code if isinstance(code, CodeType) else None
        function = wrapped
    return None


def _reference(function: Any) -> Any:
    try:
        return weakref.ref(function)
    except TypeError:
        return None


def _is_method(code: CodeType) -> bool:
    name = getattr(code, "co_qualname", code.co_name)
    parent = name.rpartition(".")[0]
    return bool(parent) and not parent.endswith("<locals>")


seen = Seen()
"""That of this process."""

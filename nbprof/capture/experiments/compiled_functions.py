"""Functions of a step that run op by op, and are compiled for a turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FunctionType
from typing import Any

from nbprof.capture.experiments.code_replaced import at_first_calls, calling, copy_of, swap
from nbprof.capture.experiments.edits import Find, located
from nbprof.capture.experiments.experiment import Change
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source, of_function
from nbprof.capture.patches import Patches

_LEAST_CALLS = 4
"""Calls in a turn from which on a function is one of the step."""
_RESUMED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
"""Flags of the code of functions that are no functions of arrays, whatever they give."""


class Compiled(Change):
    """The outermost functions of a step are compiled.

    Functions remain the same objects, so that whoever refers to one calls the compiled one: their
    code is replaced for the turn. Those that the program makes anew in each run are compiled in the
    first turn; all turns begin from the same state, so that their variables have the same values.

    Parameters
    ----------
    compiler : callable
        Compiles a function.
    observation : Observation
    """

    def __init__(self, compiler: Callable[[Any], Any], observation: Observation) -> None:
        self._compiler = compiler
        self._replacements: list[tuple[FunctionType, CodeType]] = []
        for function in lasting(observation):
            self._replacements.append((function, self._compiled(function)))
        self._codes = made_in_run(observation)
        self._of_code: dict[CodeType, CodeType] = {}

    def apply(self, patches: Patches) -> None:  # noqa: D102
        for function, code in self._replacements:
            swap(function, code, patches)
        at_first_calls(self._codes, partial(self._replace, patches), patches)

    def _replace(self, patches: Patches, function: FunctionType) -> None:
        code = function.__code__
        if code not in self._of_code:
            self._of_code[code] = self._compiled(function)
        swap(function, self._of_code[code], patches)

    def _compiled(self, function: FunctionType) -> CodeType:
        return calling(self._compiler(copy_of(function)), function.__code__)

    def close(self) -> None:  # noqa: D102
        self._replacements.clear()
        self._of_code.clear()


def lasting(observation: Observation) -> list[FunctionType]:
    """The outermost functions from before the program that each step calls with arrays."""
    codes = _codes(observation)
    functions = []
    for value in observation.seen:
        if isinstance(value, FunctionType) and value.__code__ in codes:
            functions.append(value)
    return functions


def made_in_run(observation: Observation) -> set[CodeType]:
    """The code of such functions that the program makes."""
    return _codes(observation) - {function.__code__ for function in lasting(observation)}


def _codes(observation: Observation) -> set[CodeType]:
    codes = set()
    for code, call in observation.calls.items():
        if code.co_flags & _RESUMED:
            continue
        if call.count >= _LEAST_CALLS and call.outermost and call.of_arrays:
            codes.add(code)
    return codes


def decorated_by(module: str, decorator: str) -> Find:
    """The line above the only function, in the cell that defines it.

    Parameters
    ----------
    module, decorator : str
        ``jax`` and ``jit``, for example.
    """

    def find(source: Source, observed: Sequence[Observation]) -> Located | None:
        del source
        functions = lasting(observed[0])
        if len(functions) != 1 or made_in_run(observed[0]):
            return None
        defined = of_function(functions[0])
        if defined is None:
            return None
        cell, definition = defined
        name = cell.name_of(sys.modules[module])
        if not name:
            return None
        return located(cell, cell.decorated(definition, f"{name}.{decorator}"))

    return find


def any_of(observation: Observation) -> bool:
    """Return whether a step calls functions that can be compiled."""
    return bool(_codes(observation))

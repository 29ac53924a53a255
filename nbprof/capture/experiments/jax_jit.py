"""The experiment on functions of JAX that run op by op: jax.jit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

from nbprof.capture.experiments.edits import located
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source, of_function
from nbprof.capture.patches import Patches

_HOLE = "nbprof: the compiled function"
_LEAST_CALLS = 4
"""Calls in a turn from which on a function is one of the step."""


class Jitted(Change):
    """The outermost functions of a step are compiled.

    Functions remain the same objects, so that whoever refers to one calls the compiled one: their
    code is replaced for the turn.

    Parameters
    ----------
    observation : Observation
    """

    def __init__(self, observation: Observation) -> None:
        self._replacements: list[tuple[FunctionType, CodeType]] = []
        for function in _functions(observation):
            copy = FunctionType(
                function.__code__,
                function.__globals__,
                function.__name__,
                function.__defaults__,
                function.__closure__,
            )
            copy.__kwdefaults__ = function.__kwdefaults__
            compiled = sys.modules["jax"].jit(copy)
            self._replacements.append((function, _calling(compiled, function.__code__)))

    def apply(self, patches: Patches) -> None:  # noqa: D102
        for function, code in self._replacements:
            _swap(function, code, patches)

    def close(self) -> None:  # noqa: D102
        self._replacements.clear()


def _swap(function: FunctionType, code: CodeType, patches: Patches) -> None:
    before = function.__code__

    def put_back() -> None:
        function.__code__ = before

    patches.on_restore(put_back)
    function.__code__ = code


def _calling(target: Callable[..., Any], code: CodeType) -> CodeType:
    """Code that calls `target`, for a function with the free variables of `code`."""
    source = (
        f"def call(*args, **kwargs):\n    target = {_HOLE!r}\n    return target(*args, **kwargs)\n"
    )
    namespace: dict[str, Any] = {}
    exec(compile(source, code.co_filename, "exec"), namespace)  # noqa: S102 - no text of anybody
    plain: CodeType = namespace["call"].__code__
    constants = []
    for constant in plain.co_consts:
        constants.append(target if constant == _HOLE else constant)
    return plain.replace(co_consts=tuple(constants), co_freevars=code.co_freevars)


def _functions(observation: Observation) -> list[FunctionType]:
    """The outermost functions of the program that each step calls with arrays."""
    functions = []
    for value in observation.seen:
        if not isinstance(value, FunctionType):
            continue
        call = observation.calls.get(value.__code__)
        if call is not None and call.count >= _LEAST_CALLS and call.outermost and call.of_arrays:
            functions.append(value)
    return functions


def _refusal(observation: Observation) -> str:
    if _functions(observation):
        return ""
    return (
        "no function from before the program takes and returns arrays of JAX in each step; the"
        " step has to be a function that is defined before it runs"
    )


def _in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The line above the only function, in the cell that defines it."""
    del source
    functions = _functions(observed[0])
    defined = of_function(functions[0]) if len(functions) == 1 else None
    if defined is None:
        return None
    cell, definition = defined
    name = cell.name_of(sys.modules["jax"])
    if not name:
        return None
    return located(cell, cell.decorated(definition, f"{name}.jit"))


EXPERIMENTS = (
    Experiment(
        "jax_jit",
        "jax.jit of the step",
        "jax",
        ("jit",),
        _refusal,
        Jitted,
        "- params, loss = step(params, batch)\n"
        "+ step = jax.jit(step)\n"
        "+ params, loss = step(params, batch)",
        touches=("functions",),
        edit=_in_source,
    ),
)

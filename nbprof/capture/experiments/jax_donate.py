"""The experiment on arrays of JAX that a compiled function may overwrite: donated arguments.

An argument is donated if each call of the function has in it what the call before returned, such as
the parameters of a model: nobody needs them any more, so the results may take their place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from nbprof.capture.experiments.edits import located
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.jax_calls import OURS, around_calls, code_of, has_options
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.patches import Patches


class Donated(Change):
    """Compiled functions overwrite the arguments that their results take the place of.

    Parameters
    ----------
    observation : Observation
    """

    def __init__(self, observation: Observation) -> None:
        self._arguments = _donatable(observation)
        # Now, as turns replace it.
        self._jit = sys.modules["jax"].jit
        # With the function itself, so that no other one gets its address.
        self._compiled: dict[int, tuple[Any, Any]] = {}

    def apply(self, patches: Patches) -> None:  # noqa: D102
        around_calls(self._donating, patches)

    def _donating(self, function: Any, call: Callable[..., Any]) -> Callable[..., Any] | None:
        del call
        code = code_of(function)
        positions = self._arguments.get(code) if code is not None else None
        if not positions or has_options(function):
            return None
        if id(function) not in self._compiled:
            self._compiled[id(function)] = function, self._donates(function, sorted(positions))
        donating: Callable[..., Any] = self._compiled[id(function)][1]
        return donating

    def _donates(self, function: Any, positions: list[int]) -> Any:
        options = function._jit_info
        donating = self._jit(
            function._fun,
            static_argnums=options.static_argnums,
            static_argnames=options.static_argnames,
            keep_unused=options.keep_unused,
            inline=options.inline,
            donate_argnums=positions,
        )
        setattr(donating, OURS, True)
        return donating

    def close(self) -> None:  # noqa: D102
        self._compiled.clear()


def _donatable(observation: Observation) -> dict[CodeType, set[int]]:
    return {code: positions for code, positions in observation.carried.items() if positions}


def _refusal(observation: Observation) -> str:
    if _donatable(observation):
        return ""
    return "no function of jax.jit takes the arrays that it returned before, or it donates them"


def _in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The only call of `jax.jit`, of the only such function."""
    arguments = _donatable(observed[0])
    jit = sys.modules["jax"].jit
    calls = [call for call in source.calls() if source.value(call.func) is jit]
    if len(calls) != 1 or len(arguments) != 1 or len(calls[0].args) != 1:
        return None
    ((code, positions),) = arguments.items()
    function = source.value(calls[0].args[0])
    if getattr(function, "__code__", None) is not code:
        return None
    donated = {"donate_argnums": str(tuple(sorted(positions)))}
    return located(source, source.with_arguments(calls[0], donated, jit))


EXPERIMENTS = (
    Experiment(
        "jax_donate",
        "arguments that the results may overwrite",
        "jax",
        ("memory_full",),
        _refusal,
        Donated,
        "- step = jax.jit(update)\n+ step = jax.jit(update, donate_argnums=(0,))",
        edit=_in_source,
    ),
)

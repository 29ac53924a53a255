"""Experiments on functions of JAX: jax.jit of what runs op by op, and once before the loop."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import partial, wraps
from types import FunctionType
from typing import Any

from nbprof.capture.experiments.compiled_functions import Compiled, any_of, decorated_by
from nbprof.capture.experiments.edits import located
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source, bound
from nbprof.capture.patches import Patches


def _jit(function: Any) -> Any:
    return sys.modules["jax"].jit(function)


class Once(Change):
    """A function that is wrapped in `jax.jit` again is the one that was compiled before.

    It is the same function if its code, the objects that it refers to, and the options are the
    same.
    """

    def __init__(self) -> None:
        # With what the key refers to, so that no other object gets its address.
        self._compiled: dict[Any, tuple[Any, Any]] = {}

    def apply(self, patches: Patches) -> None:  # noqa: D102
        jax = sys.modules["jax"]
        original = jax.jit

        @wraps(original)
        def jit(*args: Any, **kwargs: Any) -> Any:
            if len(args) != 1 or type(args[0]) is not FunctionType:
                return original(*args, **kwargs)
            try:
                key = _key(args[0], kwargs)
            except ValueError:  # a variable that it refers to is not set yet
                return original(*args, **kwargs)
            if key not in self._compiled:
                self._compiled[key] = (args[0], kwargs), original(*args, **kwargs)
            return self._compiled[key][1]

        patches.on_restore(self._compiled.clear)
        patches.replace(jax, "jit", jit)

    def close(self) -> None:  # noqa: D102
        self._compiled.clear()


def _key(function: FunctionType, options: dict[str, Any]) -> Any:
    held = [cell.cell_contents for cell in function.__closure__ or ()]
    held += function.__defaults__ or ()
    held += (function.__kwdefaults__ or {}).values()
    return (
        function.__code__,
        id(function.__globals__),
        tuple(map(id, held)),
        repr(sorted(options.items())),
    )


def _refusal(observation: Observation) -> str:
    if any_of(observation):
        return ""
    return "no function of the program takes and returns arrays of JAX in each step"


def _is_not_wrapped_again(observation: Observation) -> str:
    if observation.wrapped_again:
        return ""
    return "the program does not wrap the same function in jax.jit again"


def _once_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The only call of `jax.jit` in a loop, above the loop."""
    lines = observed[0].wrapped_again
    calls = [call for call in source.calls() if source.value(call.func) is sys.modules["jax"].jit]
    if len(calls) != 1 or lines != {(source.filename, calls[0].lineno)}:
        return None
    call = calls[0]
    loop = source.outermost_loop(call)
    if loop is None or not _is_the_same_in(loop, call):
        return None
    (function,) = call.args
    statement = source.statement_of(call)
    if isinstance(statement, ast.Assign) and statement.value is call:
        (target, *rest) = statement.targets
        if isinstance(target, ast.Name) and not rest and source.stored(target.id) == 1:
            text = source.text_of(statement)
            return located(source, source.before(loop, text), source.removed(statement))
    name = f"jitted_{function.id}"  # type: ignore[attr-defined]
    if not source.is_free(name):
        return None
    text = f"{name} = {source.text_of(call)}"
    return located(source, source.before(loop, text), source.with_other(call, name))


def _is_the_same_in(loop: ast.stmt, call: ast.Call) -> bool:
    """Return whether a call has the same arguments, in one line, in each round of a loop."""
    if len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
        return False
    if call.lineno != call.end_lineno or call.args[0].id in bound(loop):
        return False
    return all(_is_literal(keyword.value) for keyword in call.keywords)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


EXPERIMENTS = (
    Experiment(
        "jax_jit",
        "jax.jit of the step",
        "jax",
        ("jit",),
        _refusal,
        partial(Compiled, _jit),
        "- params, loss = step(params, batch)\n"
        "+ step = jax.jit(step)\n"
        "+ params, loss = step(params, batch)",
        touches=("functions",),
        edit=decorated_by("jax", "jit"),
    ),
    Experiment(
        "jax_jit_once",
        "jax.jit once, before the loop",
        "jax",
        ("compile",),
        _is_not_wrapped_again,
        lambda _: Once(),
        "+ step = jax.jit(update)\n"
        "  for batch in batches:\n"
        "-     params, loss = jax.jit(update)(params, batch)\n"
        "+     params, loss = step(params, batch)",
        touches=("functions",),
        edit=_once_in_source,
    ),
)

"""Record some steps of a callable for a gate, several times in turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from nbprof.capture.block import profile
from nbprof.capture.detect import backend_of, names_in
from nbprof.capture.options import ALL
from nbprof.capture.steps import step
from nbprof.capture.used import of_module, of_type
from nbprof.core.errors import CaptureError, NbprofError
from nbprof.frameworks.register import RECORDED
from nbprof.gate.figures import disturbed
from nbprof.profiles.profile import Profile

REPEATS = 5
"""Recordings of a run by default."""


class Repeated(Profile):
    """The first of several recordings of the same steps, with all of them in `repeats`."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        super().__init__(profiles[0].run)
        self.repeats = tuple(profiles)


def record(
    function: Callable[..., Any],
    *args: Any,
    steps: int = 20,
    warmup: int = 3,
    repeats: int = REPEATS,
    **options: Any,
) -> Repeated:
    """Record a callable: each call of it is one step.

    It is called `warmup` times without a recording, so that it is compiled and its caches are warm.
    Then `repeats` recordings are made in turn: `steps` calls are timed without the profiler; one
    call starts it and is excluded from averages; `steps` more calls are recorded. A recording that
    other processes disturbed is repeated, up to `repeats` more in total. Each step waits for the
    JAX arrays that it returns, since JAX computes ahead.

    Parameters
    ----------
    function : callable
        Called with `args`. Steps that it marks do not count: they are part of the step.
    *args
    steps : int
        Calls per recording, 2 or more; from 8 on the step time without the profiler is known.
    warmup : int
    repeats : int
        Counts need one; several reduce the noise of step times.
    **options
        The options of `nbprof.profile`; `backend` defaults to the framework that the callable uses,
        if that can be determined. Nothing is saved unless `save` or `logdir` is given.

    Raises
    ------
    NbprofError
        Too few steps or repeats, or an unknown option.
    CaptureError
        Nothing could be recorded; says why.
    """
    _check_count("steps", steps, 2)
    _check_count("warmup", warmup, 0)
    _check_count("repeats", repeats, 1)
    options = {"save": "logdir" in options, **options}
    options.setdefault("steps", ALL)
    options.setdefault("backend", _framework(function, args))
    for _ in range(warmup):
        _wait_for(function(*args))
    window = (steps + 1, 2 * steps + 1)
    profiles: list[Profile] = []
    undisturbed = 0
    while undisturbed < repeats and len(profiles) < 2 * repeats:
        with profile(warmup=1, **{**options, "steps": window}) as block:
            for _ in range(2 * steps + 1):
                with step():
                    _wait_for(function(*args))
        if block.result is None:
            raise CaptureError(f"nothing was recorded: {block._reason}")
        profiles.append(block.result)
        undisturbed += repeats == 1 or not disturbed(block.result.run)
    return Repeated(profiles)


def _check_count(name: str, value: object, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise NbprofError(f"{name} must be a whole number of {minimum} or more, not {value!r}")


def _framework(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The framework that a callable uses, by its arguments, its source or the modules it sees.

    It is `auto` if none of these tells. A process of tests may have imported several frameworks, of
    which `auto` takes the first.
    """
    unwrapped = inspect.unwrap(function)
    plain = getattr(unwrapped, "__func__", unwrapped)
    for argument in (*args, function, getattr(unwrapped, "__self__", None)):
        # A module of PyTorch or a model of Keras is of a class of the user's.
        framework = of_type(type(argument))
        if framework:
            return backend_of(framework)
    try:
        named = names_in(inspect.getsource(plain))
    except (OSError, TypeError):
        named = ()
    if named:
        return named[0]
    backends = set()
    for variable in getattr(plain, "__globals__", {}).values():
        framework = of_module(variable.__name__) if inspect.ismodule(variable) else ""
        if framework:
            backends.add(backend_of(framework))
    return backends.pop() if len(backends) == 1 else "auto"


def _wait_for(result: Any) -> None:
    if result is None:
        return
    for framework in RECORDED.values():
        if framework.recorder.imported:
            framework.recorder.wait_for(result)

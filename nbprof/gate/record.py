"""Record a callable for a gate: some steps of it, several times in turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from nbprof.capture.block import profile
from nbprof.capture.detect import backend_of, names_in
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
    Then `repeats` recordings are made in turn, each of one call that starts the profiler and is
    excluded from averages, and of `steps` calls; one that other processes disturbed is repeated, up
    to `repeats` more in total. Each step waits for the JAX arrays that it returns, since JAX
    computes ahead.

    Parameters
    ----------
    function : callable
        Called with `args`. Steps that it marks itself do not count: they lie inside the step.
    *args
    steps : int
        Calls per recording, 2 or more.
    warmup : int
    repeats : int
        Counts need one; several reduce the noise of step times.
    **options
        The options of `nbprof.profile`; `backend` is the framework that the callable uses, where
        that can be told. Nothing is kept unless `save` or `logdir` is given.

    Raises
    ------
    NbprofError
        Too few steps or repeats, or an unknown option.
    CaptureError
        Nothing could be recorded; says why.
    """
    numbers: list[tuple[str, object, int]] = [
        ("steps", steps, 2),
        ("warmup", warmup, 0),
        ("repeats", repeats, 1),
    ]
    for name, value, least in numbers:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise NbprofError(f"{name} must be a whole number of {least} or more, not {value!r}")
    given = {"save": "logdir" in options, **options}
    given.setdefault("backend", _framework(function, args))
    for _ in range(warmup):
        _settled(function(*args))
    found: list[Profile] = []
    quiet = 0
    while quiet < repeats and len(found) < 2 * repeats:
        with profile(warmup=1, **given) as block:
            for _ in range(steps + 1):
                with step():
                    _settled(function(*args))
        if block.result is None:
            raise CaptureError(f"nothing was recorded: {block._reason}")
        found.append(block.result)
        quiet += repeats == 1 or not disturbed(block.result.run)
    return Repeated(found)


def _framework(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The framework that a callable uses, by what it is called with, its source or the modules it
    sees; `auto` if they do not tell.

    A process of tests may have imported several, and of these `auto` takes the first.
    """
    plain = inspect.unwrap(function)
    whole = getattr(plain, "__func__", plain)
    for one in (*args, function, getattr(plain, "__self__", None)):
        # A module of PyTorch or a model of Keras is of a class of the user's.
        if framework := of_type(type(one)):
            return backend_of(framework)
    try:
        named = names_in(inspect.getsource(whole))
    except (OSError, TypeError):
        named = ()
    seen = {
        of_module(each.__name__)
        for each in getattr(whole, "__globals__", {}).values()
        if inspect.ismodule(each)
    }
    modules = sorted({backend_of(each) for each in seen - {""}})
    return named[0] if named else modules[0] if len(modules) == 1 else "auto"


def _settled(result: Any) -> None:
    if result is None:
        return
    for framework in RECORDED.values():
        if framework.recorder.imported:
            framework.recorder.wait_for(result)

"""Calls of functions that `jax.jit` compiled, seen and replaced for a turn."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import CodeType
from typing import Any

from nbprof.capture.experiments.code_replaced import calling, copy_of, swap
from nbprof.capture.patches import Patches
from nbprof.capture.probe.state import INSTALLED

Around = Callable[[Any, Callable[..., Any]], Callable[..., Any] | None]
"""Makes of a compiled function and the way to call it what is called in its place, if anything."""

OURS = "_nbprof_donates"
"""An attribute of functions that are compiled here."""


def around_calls(around: Around, patches: Patches) -> None:
    """Have functions compiled by `jax.jit` of the program call others.

    JAX calls a compiled function without Python once it knows its arguments, and asks a function of
    Python what to do with arguments that it does not know. That function gets other code here, and
    JAX forgets what it knows, without what it has compiled.
    """
    jax = sys.modules["jax"]
    original = jax.jit

    @wraps(original)
    def jit(*args: Any, **kwargs: Any) -> Any:
        function = original(*args, **kwargs)
        if code_of(function) is not None:
            with suppress(AttributeError):  # of a JAX that looks different inside
                _intercept(function, around, patches)
        return function

    for function in _compiled_functions():
        with suppress(AttributeError):
            _intercept(function, around, patches)
    patches.replace(jax, "jit", jit)


def _compiled_functions() -> list[Any]:
    kind = type(sys.modules["jax"].jit(lambda: None))
    functions = [each for each in gc.get_objects() if type(each) is kind]
    return [each for each in functions if code_of(each) is not None]


def code_of(function: Any) -> CodeType | None:
    """The code of a function of the program that `jax.jit` compiles; None for any other."""
    code: CodeType | None = getattr(getattr(function, "_fun", None), "__code__", None)
    if code is None or code.co_filename.startswith(INSTALLED) or hasattr(function, OURS):
        return None
    return code if hasattr(function, "_cache_miss") else None


def _intercept(function: Any, around: Around, patches: Patches) -> None:
    miss = function._cache_miss
    ask = copy_of(miss)
    rest: list[tuple[Any, ...]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        outputs, _, *behind = ask(*args, **kwargs)
        rest[:] = [tuple(behind)]
        return outputs

    instead = around(function, call)
    if instead is None:
        return

    def missed(*args: Any, **kwargs: Any) -> Any:
        # The first call as it is, to learn what an answer has besides outputs. Without what JAX
        # would remember, it asks again the next time.
        outputs = instead(*args, **kwargs) if rest else call(*args, **kwargs)
        return (outputs, None, *rest[0])

    swap(miss, calling(missed, miss.__code__), patches)
    patches.on_restore(function._clear_cache)
    function._clear_cache()


class Carried:
    """Which arguments of the program's compiled functions are what they returned before.

    Attributes
    ----------
    arguments : dict of code to set of int
        Positions, of functions that were called more than once.
    """

    def __init__(self) -> None:
        self.arguments: dict[CodeType, set[int]] = {}
        # With the arrays themselves, so that no other ones get their address.
        self._returned: dict[CodeType, list[Any]] = {}

    def hook(self, patches: Patches) -> None:
        """Watch the calls until `patches` are restored."""
        around_calls(self._watching, patches)
        patches.on_restore(self._returned.clear)

    def _watching(self, function: Any, call: Callable[..., Any]) -> Callable[..., Any] | None:
        code = code_of(function)
        if code is None or has_options(function):
            return None

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._note(code, args)
            outputs = call(*args, **kwargs)
            self._returned[code] = sys.modules["jax"].tree.leaves(outputs)
            return outputs

        return watched

    def _note(self, code: CodeType, args: tuple[Any, ...]) -> None:
        if code not in self._returned:
            return
        returned = {id(leaf) for leaf in self._returned[code]}
        carried = set()
        for position, argument in enumerate(args):
            if _is_from(returned, argument):
                carried.add(position)
        self.arguments[code] = self.arguments.get(code, carried) & carried


def _is_from(returned: set[int], argument: Any) -> bool:
    jax = sys.modules["jax"]
    leaves = jax.tree.leaves(argument)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        # Within another compiled function, whose arguments are the ones to donate.
        return False
    return bool(leaves) and all(id(leaf) in returned for leaf in leaves)


def has_options(function: Any) -> bool:
    """Return whether it donates already, or says where its arrays are."""
    options = function._jit_info
    shardings = (*options.in_shardings_leaves, *options.out_shardings_leaves)
    if any(type(sharding).__name__ != "UnspecifiedValue" for sharding in shardings):
        return True
    layouts = (*options.in_layouts_leaves, *options.out_layouts_leaves)
    if any(layout is not None for layout in layouts):
        return True
    if any(getattr(options, name, None) for name in ("device", "backend", "compiler_options_kvs")):
        return True
    return bool(options.donate_argnums or options.donate_argnames)

"""Traces of `tf.function`, and their causes: the types of its arguments beside earlier ones."""

from __future__ import annotations

import contextlib
import time
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nbprof.capture.compiles.seen import code_of, seen
from nbprof.capture.patches import Patches
from nbprof.core.compile_times import AGAIN, FIRST, UNKNOWN

if TYPE_CHECKING:
    from nbprof.capture.compiles.recorder import Compiles

TRACES = "_create_concrete_function"
"""The function of TensorFlow that traces a function for new types of arguments."""
_MOST_COMPARED = 4
_OWN_FUNCTIONS = ("initialize_variables",)
"""Functions that TensorFlow traces for itself, once."""


def follow(module: ModuleType, patches: Patches, compiles: Compiles) -> None:
    """Follow the traces of `tf.function` until `patches` are restored."""
    original = getattr(module, TRACES)

    def create_concrete_function(
        function_type: Any, type_context: Any, func_graph: Any, tracing_options: Any
    ) -> Any:
        __tracebackhide__ = True
        facts: dict[str, Any] | None = None
        with contextlib.suppress(Exception):
            facts = _facts(function_type, tracing_options, compiles)
        start, began = time.time_ns(), time.perf_counter_ns()
        try:
            return original(function_type, type_context, func_graph, tracing_options)
        finally:
            took = time.perf_counter_ns() - began
            if facts is not None:
                compiles.add("tensorflow", start, took, trace_ns=took, **facts)

    patches.replace(module, TRACES, create_concrete_function)


def _facts(function_type: Any, options: Any, compiles: Compiles) -> dict[str, Any] | None:
    """The facts of a trace before it begins; None of one that is TensorFlow's own."""
    name = str(options.name)
    if name in _OWN_FUNCTIONS:
        return None
    if compiles.full:
        return {}
    code = code_of(options.python_function)
    facts: dict[str, Any] = {"function": name}
    if code is not None:
        facts |= {"file": code.co_filename, "line": code.co_firstlineno}
    earlier = _latest(options.function_cache)
    if not earlier:
        return facts | {"state": seen.state(options.python_function, code)}
    types = _types(function_type)
    closest: tuple[str, ...] = ()
    before: dict[str, Any] = {}
    for traced in earlier:
        earlier_types = _types(traced.function_type)
        names = _differences(earlier_types, types)
        if not names:
            # A function that creates variables is traced twice at its first call.
            return facts | {"state": FIRST if len(earlier) == 1 else UNKNOWN}
        if not closest or len(names) < len(closest):
            closest, before = names, earlier_types
        if len(names) == 1:
            break
    name = closest[0]
    values = {"before": _text(before.get(name)), "after": _text(types.get(name))}
    return facts | {"state": AGAIN, "argument": name, **values}


def _latest(cache: Any) -> list[Any]:
    """The latest traces of a function, newest first."""
    if cache is None:
        return []
    traced = getattr(cache, "_primary", None)
    if isinstance(traced, dict):
        # It hashes the types of each trace that it gives out.
        return list(islice(reversed(traced.values()), _MOST_COMPARED))
    return list(reversed(cache.values()))[:_MOST_COMPARED]


def _types(function_type: Any) -> dict[str, Any]:
    """The types of the arguments by name."""
    parameters = function_type.parameters.items()
    return {name: parameter.type_constraint for name, parameter in parameters}


def _differences(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    """The names of the arguments whose types differ."""
    names = dict.fromkeys((*after, *before))
    return tuple(name for name in names if before.get(name) != after.get(name))


def _text(kind: Any) -> str:
    """A type as TensorFlow writes it; "" without one."""
    return "" if kind is None else repr(kind)

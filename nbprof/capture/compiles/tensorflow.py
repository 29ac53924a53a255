"""What `tf.function` traces, and why: the types of its arguments beside those of earlier traces."""

from __future__ import annotations

import contextlib
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nbprof.capture.compiles.seen import code_of, seen
from nbprof.capture.patches import Patches
from nbprof.core.compile_times import AGAIN, FIRST, UNKNOWN

if TYPE_CHECKING:
    from nbprof.capture.compiles.recorder import Compiles

TRACES = "_create_concrete_function"
"""The function of TensorFlow that traces a function for new types of arguments."""
_MOST_COMPARED = 8
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
    """What is known of a trace before it begins; None of one that is TensorFlow's own."""
    name = str(options.name)
    if name in _OWN_FUNCTIONS:
        return None
    if compiles.full:
        return {}
    code = code_of(options.python_function)
    facts: dict[str, Any] = {"function": name}
    if code is not None:
        facts |= {"file": code.co_filename, "line": code.co_firstlineno}
    cache = options.function_cache
    # Its values are the traces so far, in their order.
    earlier = [] if cache is None else cache.values()
    if not earlier:
        return facts | {"state": seen.state(options.python_function, code)}
    types = _types(function_type)
    closest: list[tuple[str, str, str]] | None = None
    for traced in reversed(earlier[-_MOST_COMPARED:]):
        differences = _differences(_types(traced.function_type), types)
        if not differences:
            # A function that creates variables is traced twice at its first call.
            return facts | {"state": FIRST if len(earlier) == 1 else UNKNOWN}
        if closest is None or len(differences) < len(closest):
            closest = differences
    if not closest:
        return facts | {"state": UNKNOWN}
    argument, before, after = closest[0]
    return facts | {"state": AGAIN, "argument": argument, "before": before, "after": after}


def _types(function_type: Any) -> dict[str, str]:
    """The types of the arguments by name, as text."""
    parameters = function_type.parameters.items()
    return {name: repr(parameter.type_constraint) for name, parameter in parameters}


def _differences(before: dict[str, str], after: dict[str, str]) -> list[tuple[str, str, str]]:
    return [
        (name, before.get(name, ""), after.get(name, ""))
        for name in dict.fromkeys((*after, *before))
        if before.get(name, "") != after.get(name, "")
    ]

"""The person's function in what a pool sends to a worker: one call, or a chunk of calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from nbprof.capture.loader_workers.stages import Stage, stage_of

TASK = "task"
"""Kind of the stage that a task is."""
_MAPPERS = ("mapstar", "starmapstar")
"""Functions of `multiprocessing.pool` that run a chunk: of the function, and the arguments."""
CHUNK = "_process_chunk"
"""The function of `concurrent.futures.process` that does."""
_OF_JOBLIB = ("BatchedCalls", "_TracebackCapturingWrapper")
"""Classes of joblib: of several calls, and of what runs one of these."""
MOST_WRAPPED = 200
"""Calls of a chunk that are timed each on its own."""
_MOST_DECORATORS = 10

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class Calls(NamedTuple):
    """The calls that are sent at a time.

    Attributes
    ----------
    calls : int
        Calls of the person's functions.
    function : callable
        Theirs; of a batch, the first.
    wrapped : callable
        Takes a function that wraps theirs; returns what to call instead, and its arguments. Of a
        chunk, the first `MOST_WRAPPED` calls are wrapped.
    """

    calls: int
    function: Callable[..., Any]
    wrapped: Callable[[Wrap], tuple[Callable[..., Any], tuple[Any, ...]]]


def calls_of(call: Callable[..., Any], args: tuple[Any, ...]) -> Calls:
    """The calls in a callable that a pool sends with these arguments."""
    if _is_mapper(call) and len(args) == 1:
        function, chunk = args[0]
        several = partial(_in_parts, lambda each, part: call((each, part)), function)
        return Calls(
            len(chunk), function, lambda wrap: (partial(several, wrap(function)), (chunk,))
        )
    if isinstance(call, partial) and getattr(call.func, "__name__", "") == CHUNK and args:
        run, (function, *rest) = call.func, call.args
        several = partial(_in_parts, lambda each, part: run(each, *rest, part), function)
        return Calls(len(args[0]), function, lambda wrap: (partial(several, wrap(function)), args))
    batch = batch_of(call)
    if batch is not None and batch.items:
        first = batch.items[0][0]
        return Calls(len(batch.items), first, lambda wrap: (_with_items(call, batch, wrap), args))
    return Calls(1, call, lambda wrap: (wrap(call), args))


def _in_parts(run: Callable[..., list[Any]], call: Any, wrapped: Any, chunk: Any) -> list[Any]:
    """The results of a chunk whose first calls are wrapped."""
    __tracebackhide__ = True
    results = run(wrapped, chunk[:MOST_WRAPPED])
    if len(chunk) > MOST_WRAPPED:
        results += run(call, chunk[MOST_WRAPPED:])
    return results


def _is_mapper(call: Callable[..., Any]) -> bool:
    module = sys.modules.get("multiprocessing.pool")
    return any(call is getattr(module, name, None) for name in _MAPPERS)


def batch_of(call: Any) -> Any:
    """The batch of joblib that a callable is or runs; None if it is none."""
    batch = call.func if type(call).__name__ == _OF_JOBLIB[1] else call
    if type(batch).__name__ == _OF_JOBLIB[0] and isinstance(vars(batch).get("items"), list):
        return batch
    return None


def _with_items(call: Callable[..., Any], batch: Any, wrap: Wrap) -> Callable[..., Any]:
    """A batch of joblib, which lives for one call, with its functions wrapped."""
    wrapped = [(wrap(function), *rest) for function, *rest in batch.items[:MOST_WRAPPED]]
    batch.items = wrapped + batch.items[MOST_WRAPPED:]
    return call


def stage_of_task(function: Callable[..., Any]) -> Stage:
    """The function of a task, without decorators, and its place in the code."""
    for _ in range(_MOST_DECORATORS):
        if isinstance(function, partial):
            function = function.func
        elif callable(inner := getattr(function, "__dict__", {}).get("__wrapped__")):
            function = inner
    if hasattr(function, "__qualname__"):
        return stage_of(TASK, function)
    return stage_of(TASK, function, "__call__")


def counted(arguments: Iterable[Any], call: Callable[..., Any], add: Callable[[int], None]) -> Any:
    """The arguments of a pool's tasks; tells how many calls of the person's function each is."""
    several = _is_mapper(call)

    def count(each: Any) -> Any:
        add(len(each[1]) if several else 1)
        return each

    return map(count, arguments)

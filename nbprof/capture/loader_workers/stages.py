"""Times of the stages of an item in a worker: its dataset, each transform, the collation."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from nbprof.core.worker_histogram import LONGEST

DATASET, TRANSFORM, COLLATE = "dataset", "transform", "collate"
FUNCTION, GENERATOR = "function", "generator"
"""Kinds of stages; the last two are what tf.data calls in Python."""
MOST_STAGES = 200
_CALLS = 40
"""Calls from which it is known what they cost."""


class Stage(NamedTuple):
    """A callable that takes part in making an item.

    Attributes
    ----------
    kind : str
        `DATASET`, `TRANSFORM`, `COLLATE`, `FUNCTION` or `GENERATOR`.
    name : str
        Its class, or the function.
    module : str
        The module that defines it.
    file : str
    line : int
        Where its code begins; 0 if it is not Python.
    """

    kind: str
    name: str
    module: str
    file: str
    line: int


class Times:
    """Calls of one stage."""

    __slots__ = ("calls", "longest_ns", "self_ns", "stage", "total_ns")

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.clear()

    def clear(self) -> None:
        """Forget all calls."""
        self.calls = self.total_ns = self.self_ns = self.longest_ns = 0

    def values(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {
            **self.stage._asdict(),
            "calls": self.calls,
            "total_ns": self.total_ns,
            "self_ns": self.self_ns,
            "longest_ns": self.longest_ns,
        }


class Stages:
    """The stages of a worker, timed on the thread that makes this object, or that it is bound to.

    Attributes
    ----------
    current : Times or None
        The innermost stage that runs now; what samples of the stack are attributed to.
    """

    def __init__(self) -> None:
        self.current: Times | None = None
        self._by_stage: dict[Stage, Times] = {}
        self._inside_ns = 0
        self._thread = threading.get_ident()

    def bind(self) -> None:
        """Time calls on the current thread from now on."""
        self._thread = threading.get_ident()

    def times(self, stage: Stage) -> Times | None:
        """The times of a stage; None if there are too many stages."""
        times = self._by_stage.get(stage)
        if times is None and len(self._by_stage) < MOST_STAGES:
            times = self._by_stage[stage] = Times(stage)
        return times

    def clear(self) -> None:
        """Forget all calls so far."""
        for times in self._by_stage.values():
            times.clear()

    def calls(self) -> int:
        """Timed calls so far."""
        return sum(times.calls for times in self._by_stage.values())

    def values(self) -> list[dict[str, Any]]:
        """The stages that ran, as plain values for JSON."""
        return [times.values() for times in list(self._by_stage.values()) if times.calls]

    def run(
        self,
        times: Times,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        calls: int = 1,
    ) -> Any:
        """Call something and count its time; on other threads only call it."""
        __tracebackhide__ = True
        if threading.get_ident() != self._thread:
            return call(*args, **kwargs)
        outer, self._inside_ns = self._inside_ns, 0
        stage_before, self.current = self.current, times
        began = time.perf_counter_ns()
        try:
            return call(*args, **kwargs)
        finally:
            took = time.perf_counter_ns() - began
            times.calls += calls
            times.total_ns += took
            times.self_ns += took - self._inside_ns
            times.longest_ns = max(times.longest_ns, took // max(calls, 1))
            self._inside_ns = outer + took
            self.current = stage_before


@functools.cache
def call_ns() -> float:
    """The cost of timing one call, in ns, as measured here; forked processes know it."""
    stages, times = Stages(), Times(Stage(DATASET, "", "", "", 0))
    return _cost_ns(lambda: stages.run(times, int, (), {}))


@functools.cache
def cpu_clock_ns() -> float:
    """The cost of measuring the CPU time of something, in ns, likewise."""
    return _cost_ns(lambda: time.thread_time_ns() - time.thread_time_ns())


def _cost_ns(call: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(_CALLS):
        began = time.perf_counter_ns()
        call()
        least = min(least, time.perf_counter_ns() - began)
    # Twice the least: what is called is seldom in the caches of the processor.
    return 2 * least


def stage_of(kind: str, thing: Any, *methods: str) -> Stage:
    """The stage that an object is, with the place of the first of these methods that is Python.

    Parameters
    ----------
    kind : str
    thing : object
        A function, or an object whose class has the methods.
    *methods : str
        None for a function.
    """
    owner = thing if not methods else type(thing)
    code = getattr(getattr(thing, "__func__", thing), "__code__", None)
    for method in methods:
        code = getattr(getattr(owner, method, None), "__code__", None)
        if code is not None:
            break
    name = str(getattr(owner, "__qualname__", None) or type(thing).__name__)
    return stage_at(kind, name, str(getattr(owner, "__module__", "") or ""), code)


def stage_at(kind: str, name: str, module: str, code: Any) -> Stage:
    """The stage with this qualified name, of code of Python or None."""
    name = name.rpartition("<locals>.")[2]
    file, line = (
        ("", 0) if code is None else (code.co_filename[-LONGEST:], max(code.co_firstlineno, 0))
    )
    return Stage(kind, name[:100], module[:200], file, line)

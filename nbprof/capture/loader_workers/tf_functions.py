"""Times the Python functions that tf.data calls in this process.

They are reached through TensorFlow's registry of functions, whose call is replaced for the
recording: so those of datasets that were made before it are timed as well.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from nbprof.capture.loader_workers.entry import PY_DATASETS
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.loader_workers.samples import Samples
from nbprof.capture.loader_workers.stages import (
    FUNCTION,
    GENERATOR,
    Stage,
    Stages,
    call_ns,
    stage_at,
    stage_of,
)
from nbprof.capture.patches import Patches

_MODULE = "tensorflow.python.ops.script_ops"
_CONTEXT = "tensorflow.python.eager.context"
_SHARE = 0.004
"""Share of the time of calls that timing them may take: of short ones, only some are timed."""
_CALLS = 6
"""Calls of `Stages` that take as long as all that times one call."""
_MOST_THREADS, _MOST_TOKENS = 500, 5_000
_MOST_AT_A_TIME = 16
"""Threads that are sampled at a time."""
_MOST_FUNCTIONS = 2_000
"""Functions of graphs that are searched for calls of Python."""
_DEEPEST = 8
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("tensorflow", "keras"))


class TfFunctions:
    """The Python functions that tf.data calls.

    Parameters
    ----------
    counts : callable
        Whether a window is open.
    number : callable
        The number in the recording of tf.data as a loader; None if there are too many loaders.
    samples : callable
        Whether to sample the threads that run them.
    """

    def __init__(
        self,
        counts: Callable[[], bool],
        number: Callable[[], int | None],
        samples: Callable[[], bool],
    ) -> None:
        self._counts, self._number, self._samples = counts, number, samples
        self._threads: dict[int, _Thread] = {}
        self._stages: dict[str, Stage | None] = {}
        """By token of the registry; None of what is not timed."""
        self._process = os.getpid()
        self._reporter: Reporter | None = None

    def hook(self, patches: Patches) -> bool:
        """Time the functions that TensorFlow calls from now on; False if it is not imported."""
        owner = getattr(sys.modules.get(_MODULE), "FuncRegistry", None)
        if owner is None or "__call__" not in vars(owner):
            return False
        original = owner.__call__

        @wraps(original)
        def call(registry: Any, token: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            thread = stage = None
            if self._counts():
                with contextlib.suppress(Exception):
                    thread, stage = self._timed(registry, token)
            if thread is None or stage is None:
                return original(registry, token, *args, **kwargs)
            return thread.run(stage, original, (registry, token, *args), kwargs)

        patches.replace(owner, "__call__", call)
        patches.on_restore(self.close)
        return True

    def _timed(self, registry: Any, token: Any) -> tuple[_Thread | None, Stage | None]:
        """The thread and the stage of a call of the function with this token; None if not timed."""
        if token in self._stages:
            stage = self._stages[token]
        else:
            if len(self._stages) >= _MOST_TOKENS:
                self._stages.clear()
            stage = None
            with contextlib.suppress(Exception):
                stage = _stage_of(registry, token)
            self._stages[token] = stage
        if stage is None or os.getpid() != self._process:
            return None, None
        ident = threading.get_ident()
        thread = self._threads.get(ident)
        if thread is None:
            if len(self._threads) >= _MOST_THREADS:
                return None, None
            thread = self._threads[ident] = _Thread(self._samples())
            if self._reporter is None and self._samples():
                self._reporter = Reporter(self._look, lambda: None)
                self._reporter.start()
        return (thread, stage) if thread.is_due(stage) else (None, None)

    def _look(self) -> bool:
        running = [each for each in list(self._threads.values()) if each.stages.current]
        for thread in running[:_MOST_AT_A_TIME]:
            thread.samples.take()
        return True

    def begin(self) -> None:
        """A window begins."""
        for thread in list(self._threads.values()):
            thread.clear()

    def reports(self) -> list[dict[str, Any]]:
        """A report for each thread: stages without a worker."""
        values = [thread.values() for thread in list(self._threads.values())]
        values = [each for each in values if each["stages"]]
        number = self._number() if values else None
        return [] if number is None else [{"loader": number, **each} for each in values]

    def close(self) -> None:
        """The recording is over."""
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.stop()
        self._threads.clear()
        self._stages.clear()


class _Thread:
    """The calls on one thread of TensorFlow."""

    def __init__(self, samples: bool) -> None:
        self.stages = Stages()
        self.samples = Samples(self.stages, enabled=samples)
        self._skip: dict[Stage, int] = {}
        self._calls: dict[Stage, int] = {}
        """All calls, also those that are not timed."""

    def is_due(self, stage: Stage) -> bool:
        """A stage is called: return whether that is timed."""
        self._calls[stage] = self._calls.get(stage, 0) + 1
        skip = self._skip.get(stage, 0)
        if skip > 0:
            self._skip[stage] = skip - 1
        return skip <= 0

    def run(self, stage: Stage, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function and count its time."""
        __tracebackhide__ = True
        times = self.stages.times(stage)
        if times is None:
            return call(*args, **kwargs)
        before = times.total_ns
        try:
            return self.stages.run(times, call, args, kwargs)
        finally:
            took = times.total_ns - before
            self._skip[stage] = int(_CALLS * call_ns() / max(_SHARE * took, 1.0))

    def clear(self) -> None:
        """Forget all calls so far."""
        self.stages.clear()
        self.samples.clear()
        self._calls.clear()

    def values(self) -> dict[str, Any]:
        """As plain values for JSON: all calls, with the mean time of those that were timed."""
        stages = self.stages.values()
        for values in stages:
            timed = values["calls"]
            calls = max(self._calls.get(Stage(*(values[name] for name in Stage._fields)), 0), timed)
            values["calls"] = calls
            for name in ("total_ns", "self_ns"):
                values[name] = values[name] * calls // timed
        return {"stages": stages, "lines": self.samples.values()}


def _stage_of(registry: Any, token: Any) -> Stage | None:
    """The stage of the function with this token; None if tf.data does not call it, or if its time
    is counted elsewhere.
    """
    function = registry.get(token)
    function = getattr(function, "_func", function)
    if function is None:
        return None
    closure = _closure(_innermost(function))
    if "generator_state" in closure:
        code = getattr(_innermost(function), "__name__", "")
        # Not what ends its iterators.
        if code != "generator_py_func":
            return None
        return _stage_of_generator(closure["generator_state"]._generator)
    function = _innermost(function)
    code = getattr(function, "__code__", None)
    if code is not None and _is_of_library(code.co_filename):
        return None
    if not _is_in_dataset(token if isinstance(token, bytes) else str(token).encode()):
        return None
    if code is not None or hasattr(function, "__func__"):
        return stage_of(FUNCTION, function)
    return stage_of(FUNCTION, function, "__call__")


def _stage_of_generator(generator: Any) -> Stage | None:
    """The stage of what `Dataset.from_generator` was given; None of a PyDataset of Keras, which is
    timed itself.
    """
    owner = getattr(generator, "__self__", None)
    if type(owner).__module__ == PY_DATASETS:
        return None
    # Keras iterates over what the person gave it.
    of_keras = getattr(_closure(generator).get("self"), "generator", None)
    if of_keras is not None and type(_closure(generator)["self"]).__module__.startswith("keras."):
        generator = _closure(of_keras).get("generator", generator)
    code = getattr(generator, "gi_code", None)
    if code is not None:
        # It runs already.
        return stage_at(GENERATOR, generator.__qualname__, "", code)
    if hasattr(generator, "__code__") or hasattr(generator, "__func__"):
        return stage_of(GENERATOR, generator)
    return stage_of(GENERATOR, generator, "__call__")


def _closure(function: Any) -> dict[str, Any]:
    """The variables of other functions that a function uses."""
    try:
        return dict(inspect.getclosurevars(function).nonlocals)
    except (TypeError, ValueError):
        return {}


def _innermost(function: Any) -> Any:
    """The person's function in those that TensorFlow puts around it."""
    for _ in range(_DEEPEST):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            code = getattr(function, "__code__", None)
            if code is None or not _is_of_library(code.co_filename):
                break
            inner = _closure(function).get("func")
        if inner is None:
            break
        function = inner
    return function


def _is_of_library(file: str) -> bool:
    return any(name in file for name in _LIBRARIES) and f"{os.sep}site-packages{os.sep}" in file


def _is_in_dataset(token: bytes) -> bool:
    """True if a function of tf.data calls the Python function with this token."""
    module = sys.modules[_CONTEXT]
    context = module.context()
    names = [str(name) for name in context.list_function_names()]
    waiting = [name for name in names if name.startswith("__inference_Dataset_")]
    seen = set(waiting)
    while waiting and len(seen) <= _MOST_FUNCTIONS:
        definition = context.get_function_def(waiting.pop())
        for node in definition.node_def:
            if "token" in node.attr and node.attr["token"].s == token:
                return True
            for value in node.attr.values():
                called = [value.func.name, *(each.name for each in value.list.func)]
                new = [name for name in called if name and name not in seen]
                seen.update(new)
                waiting += new
    return False

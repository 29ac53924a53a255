"""Find the steps of Keras 3: `fit`, `evaluate` and `predict` mark none themselves.

All three drive one ``CallbackList``, whose methods run on the caller's own thread, whatever the
callbacks inside do. Hooking the class rather than adding a callback changes nothing visible: the
list has no extra callback, and callbacks are dispatched as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import ModuleType
from typing import Any

from nbprof.capture.clock import EPOCH, KERAS_WAIT, StepClock
from nbprof.capture.patches import Patches
from nbprof.capture.steps import Waiting
from nbprof.core.sidecar import BATCHES_OF_KERAS

MODULE = "keras.src.callbacks.callback_list"
_ITERATORS = (
    ("keras.src.trainers.epoch_iterator", "EpochIterator"),
    ("keras.src.backend.jax.trainer", "JAXEpochIterator"),
)
"""Classes whose iterators give a loop its batches. Those of PyTorch and TensorFlow are loaders of
these frameworks, which record them.
"""
LOOPS = {"train": "fit", "test": "evaluate", "predict": "predict"}


def hook(module: ModuleType, clock: StepClock, patches: Patches) -> None:
    """Have the loops of Keras report to `clock` where their batches begin and end.

    Parameters
    ----------
    module : module
        ``keras.src.callbacks.callback_list``.
    clock : StepClock
        Receives the steps.
    patches : Patches
        Remembers what to restore.
    """
    owner = module.CallbackList
    for kind in LOOPS:
        first: dict[str, int] = {}

        def batch_begins(
            args: tuple[Any, ...], kind: str = kind, first: dict[str, int] = first
        ) -> None:
            first["batch"] = _batch(args)
            clock.begin(kind)

        def batch_ended(
            args: tuple[Any, ...], kind: str = kind, first: dict[str, int] = first
        ) -> None:
            # With steps_per_execution, one call covers several batches: it begins at the first's
            # number and ends at the last's.
            batches = _batch(args) - first.pop("batch", _batch(args)) + 1
            clock.end(kind, max(batches, 1), BATCHES_OF_KERAS)

        _around(owner, f"on_{kind}_batch_begin", patches, clock, before=batch_begins)
        _around(owner, f"on_{kind}_batch_end", patches, clock, after=batch_ended)
        _around(owner, f"on_{kind}_end", patches, clock, before=lambda _: clock.leave())

    def loop_begins(kind: str) -> None:
        _hook_iterators(clock, patches)
        if kind == "train":
            clock.bounds(EPOCH)
        clock.loop(kind)

    _around(owner, "on_epoch_begin", patches, clock, before=lambda _: loop_begins("train"))
    _around(owner, "on_epoch_end", patches, clock, before=lambda _: clock.leave())
    _around(owner, "on_test_begin", patches, clock, before=lambda _: loop_begins("test"))
    _around(owner, "on_predict_begin", patches, clock, before=lambda _: loop_begins("predict"))


class _Batches:
    """The batches of a loop; the time in which the loop waits for one counts as input.

    Parameters
    ----------
    batches : iterator
        What gives the batches.
    clock : StepClock
        Of the recording.
    """

    __slots__ = ("_batches", "_clock")

    def __init__(self, batches: Iterator[Any], clock: StepClock) -> None:
        self._batches = batches
        self._clock = clock

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        __tracebackhide__ = True
        with Waiting(self._clock, KERAS_WAIT):
            return next(self._batches)


def _hook_iterators(clock: StepClock, patches: Patches) -> None:
    """Time the iterators of loops; the backend may be imported later than the callbacks."""
    for name, kind in _ITERATORS:
        owner = getattr(sys.modules.get(name), kind, None)
        original = vars(owner).get("_get_iterator") if owner is not None else None
        if original is None or getattr(original, "_nbprof_clock", None) is clock:
            continue

        def get_iterator(self: Any, _original: Any = original) -> Any:
            __tracebackhide__ = True
            batches = _original(self)
            return _Batches(iter(batches), clock) if clock.alive else batches

        _stands_for(get_iterator, original)
        get_iterator._nbprof_clock = clock  # type: ignore[attr-defined]
        patches.replace(owner, "_get_iterator", get_iterator)


def _batch(args: tuple[Any, ...]) -> int:
    return int(args[0]) if args else 0


def _around(
    owner: Any,
    name: str,
    patches: Patches,
    clock: StepClock,
    *,
    before: Callable[[tuple[Any, ...]], None] | None = None,
    after: Callable[[tuple[Any, ...]], None] | None = None,
) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The user's traceback shows the user's callbacks, not the hook they were called through.
        __tracebackhide__ = True
        if before is not None:
            _safely(clock, before, args)
        result = original(self, *args, **kwargs)
        if after is not None:
            _safely(clock, after, args)
        return result

    # Keras leaves its own frames out of tracebacks; this one stands for one of them.
    _stands_for(method, original)
    patches.replace(owner, name, method)


def _stands_for(method: Any, original: Any) -> None:
    code = getattr(original, "__code__", None)
    if code is not None:
        method.__code__ = method.__code__.replace(
            co_filename=code.co_filename, co_name=code.co_name, co_firstlineno=code.co_firstlineno
        )


def _safely(
    clock: StepClock, tell: Callable[[tuple[Any, ...]], None], args: tuple[Any, ...]
) -> None:
    if not clock.alive:
        return
    try:
        tell(args)
    except Exception as error:
        # A fault in the counting must not break a training run.
        clock.fault = f"{type(error).__name__}: {error}"
        clock.abandon()

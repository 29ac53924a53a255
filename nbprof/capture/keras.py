"""Find the steps of Keras 3: `fit`, `evaluate` and `predict` mark none themselves.

All three drive one ``CallbackList``, whose methods run on the caller's own thread, whatever the callbacks inside do. Hooking the class
rather than adding a callback changes nothing visible: the list has no extra callback, and callbacks are dispatched as before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from nbprof.capture.clock import StepClock
from nbprof.capture.patches import Patches
from nbprof.sources.recording import BATCHES_OF_KERAS

MODULE = "keras.src.callbacks.callback_list"
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

        def batch_begins(args: tuple[Any, ...], kind: str = kind, first: dict[str, int] = first) -> None:
            first["batch"] = _batch(args)
            clock.begin(kind)

        def batch_ended(args: tuple[Any, ...], kind: str = kind, first: dict[str, int] = first) -> None:
            # With steps_per_execution, one call covers several batches: it begins at the first's number and ends at the last's.
            batches = _batch(args) - first.pop("batch", _batch(args)) + 1
            clock.end(kind, max(batches, 1), BATCHES_OF_KERAS)

        _around(owner, f"on_{kind}_batch_begin", patches, clock, before=batch_begins)
        _around(owner, f"on_{kind}_batch_end", patches, clock, after=batch_ended)
        _around(owner, f"on_{kind}_end", patches, clock, before=lambda _: clock.leave())
    _around(owner, "on_epoch_begin", patches, clock, before=lambda _: clock.loop("train"))
    _around(owner, "on_epoch_end", patches, clock, before=lambda _: clock.leave())
    _around(owner, "on_test_begin", patches, clock, before=lambda _: clock.loop("test"))
    _around(owner, "on_predict_begin", patches, clock, before=lambda _: clock.loop("predict"))


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
    own = getattr(original, "__code__", None)
    if own is not None:
        method.__code__ = method.__code__.replace(co_filename=own.co_filename, co_name=own.co_name, co_firstlineno=own.co_firstlineno)


def _safely(clock: StepClock, tell: Callable[[tuple[Any, ...]], None], args: tuple[Any, ...]) -> None:
    if not clock.alive:
        return
    try:
        tell(args)
    except Exception as error:
        # A fault in the counting must not break a training run.
        clock.fault = f"{type(error).__name__}: {error}"
        clock.abandon()

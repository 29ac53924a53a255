"""Experiments without what Keras runs besides the steps of a fit: callbacks and validation."""

from __future__ import annotations

import sys
from functools import wraps
from inspect import signature
from typing import Any

from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.patches import Patches

_KEPT = (
    "EarlyStopping",
    "History",
    "LearningRateScheduler",
    "ProgbarLogger",
    "ReduceLROnPlateau",
    "SwapEMAWeights",
    "TerminateOnNaN",
)
"""Callbacks of Keras that decide how a model is trained, or that every fit has."""
_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def _left_out(callbacks: list[Any]) -> list[Any]:
    keras = sys.modules["keras"]
    training = tuple(filter(None, (getattr(keras.callbacks, name, None) for name in _KEPT)))
    left_out = []
    for callback in callbacks:
        is_ours = type(callback).__module__.partition(".")[0] == __name__.partition(".")[0]
        if not is_ours and not isinstance(callback, training):
            left_out.append(callback)
    return left_out


def _has_batch_hook(callback: Any) -> bool:
    base = sys.modules["keras"].callbacks.Callback
    return any(getattr(type(callback), name) is not getattr(base, name) for name in _BATCH_HOOKS)


class _OfFit(Change):
    """A change of what a fit of Keras runs besides its steps.

    Parameters
    ----------
    observation : Observation
    """

    is_long = True
    kind = "train"

    def __init__(self, observation: Observation) -> None:
        self.steps = observation.epochs * observation.epoch_steps


class NoCallbacks(_OfFit):
    """Loops of Keras without the callbacks that do not train."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation)
        if observation.epochs > 1:
            self.epoch = observation.epoch_steps

    def apply(self, patches: Patches) -> None:  # noqa: D102
        owner = sys.modules["keras.src.callbacks.callback_list"].CallbackList
        original = owner.__init__

        @wraps(original)
        def make(self: Any, callbacks: Any = None, *args: Any, **kwargs: Any) -> None:
            flat = sys.modules["keras"].tree.flatten(callbacks) if callbacks else []
            left_out = set(map(id, _left_out(flat)))
            original(self, [each for each in flat if id(each) not in left_out], *args, **kwargs)

        patches.replace(owner, "__init__", make)


class NoValidation(_OfFit):
    """A fit of Keras without validation."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(observation)
        self.epoch = observation.validation_freq * observation.epoch_steps

    def apply(self, patches: Patches) -> None:  # noqa: D102
        model = sys.modules["keras"].Model
        original = model.fit
        parameters = signature(original)

        @wraps(original)
        def fit(*args: Any, **kwargs: Any) -> Any:
            bound = parameters.bind(*args, **kwargs)
            bound.arguments["validation_data"] = None
            return original(*bound.args, **bound.kwargs)

        patches.replace(model, "fit", fit)


def _no_callbacks(observation: Observation) -> str:
    left_out = _left_out(observation.callbacks)
    if not left_out:
        return "no callback of the program runs in a loop of Keras"
    if observation.epochs == 1 and not any(map(_has_batch_hook, left_out)):
        return "the callbacks run once, after the only epoch"
    return ""


def _no_validation(observation: Observation) -> str:
    if observation.validation_freq is None:
        return "no fit of Keras has validation_data"
    if not isinstance(observation.validation_freq, int):
        return "validation_freq is a list of epochs"
    if not observation.epoch_steps:
        return "the number of steps of an epoch is not known"
    if observation.epochs <= observation.validation_freq:
        return "the fit validates at its end at most"
    return ""


EXPERIMENTS = (
    Experiment(
        "keras_no_callbacks",
        "no callbacks but those that train",
        "keras",
        ("between_steps", "python_code", "library_code", "host_waits", "other", "periodic"),
        _no_callbacks,
        NoCallbacks,
        "- model.fit(..., callbacks=callbacks)\n+ model.fit(...)",
        tradeoff="run them less often, or in another thread, where what they do can wait",
    ),
    Experiment(
        "keras_no_validation",
        "no validation",
        "keras",
        ("between_steps", "periodic"),
        _no_validation,
        NoValidation,
        "- model.fit(..., validation_data=data)\n"
        "+ model.fit(..., validation_data=data, validation_freq=5)",
        tradeoff="validate less often, or on fewer examples, if that tells enough",
    ),
)

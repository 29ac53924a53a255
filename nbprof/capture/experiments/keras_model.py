"""Experiments on models of Keras on TensorFlow: a graph in place of eager ops, and XLA."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from functools import partial, wraps
from typing import Any

from nbprof.capture.experiments.edits import calls_of_method, located, name_of
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.patches import Patches
from nbprof.frameworks.register import TENSORFLOW

_FUNCTIONS = ("train_function", "test_function", "predict_function")


class Settings(Change):
    """Settings of `model.compile` for the loops of Keras.

    Parameters
    ----------
    jit_compile : bool
    observation : Observation
    """

    def __init__(self, jit_compile: bool, observation: Observation) -> None:
        self._jit_compile = jit_compile
        self._lasting = {id(model) for model in observation.keras_models}
        # With the model itself, so that no other one gets its address.
        self._functions: dict[tuple[int, str], tuple[Any, Any]] = {}

    def apply(self, patches: Patches) -> None:  # noqa: D102
        trainer = sys.modules["keras.src.backend.tensorflow.trainer"].TensorFlowTrainer
        for name in _FUNCTIONS:
            self._replace(trainer, name, patches)

    def _replace(self, trainer: Any, name: str, patches: Patches) -> None:
        original = getattr(trainer, f"make_{name}")

        @wraps(original)
        def make(model: Any, force: bool = False) -> Any:
            del force
            self._set(model, name, patches)
            key = id(model), name
            if key in self._functions:
                setattr(model, name, self._functions[key][1])
                return None
            result = original(model, force=True)
            if id(model) in self._lasting:
                self._functions[key] = model, getattr(model, name)
            return result

        patches.replace(trainer, f"make_{name}", make)

    def _set(self, model: Any, name: str, patches: Patches) -> None:
        before = model.run_eagerly, model.jit_compile, getattr(model, name)

        def put_back() -> None:
            model.run_eagerly, model.jit_compile = before[:2]
            setattr(model, name, before[2])

        patches.on_restore(put_back)
        model.run_eagerly = False
        if self._jit_compile:
            model.jit_compile = True

    def close(self) -> None:  # noqa: D102
        self._functions.clear()


def _on_tensorflow(observation: Observation) -> str:
    if not observation.keras_models:
        return "no model of Keras ran fit, evaluate or predict"
    if sys.modules["keras"].backend.backend() != TENSORFLOW.name:
        return "Keras does not run on TensorFlow"
    return ""


def _not_eager(observation: Observation) -> str:
    if why := _on_tensorflow(observation):
        return why
    if not any(model.run_eagerly for model in observation.keras_models):
        return "the model does not run eagerly"
    return ""


def _not_jit(observation: Observation) -> str:
    if why := _on_tensorflow(observation):
        return why
    if all(model.jit_compile for model in observation.keras_models):
        return "the model is compiled by XLA already"
    return ""


def _in_compile(
    arguments: Mapping[str, str], source: Source, observed: Sequence[Observation]
) -> Located | None:
    """The only call of `compile` of the only model."""
    models = observed[0].keras_models
    call = _compile_call(source, observed)
    if call is None:
        return None
    return located(source, source.with_arguments(call, arguments, type(models[0]).compile))


def _compile_call(source: Source, observed: Sequence[Observation]) -> ast.Call | None:
    models = observed[0].keras_models
    name = name_of(observed, models[0]) if len(models) == 1 else ""
    calls = calls_of_method(source, name, "compile") if name else []
    return calls[0] if len(calls) == 1 else None


def _not_eager_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    call = _compile_call(source, observed)
    # Another setting may make it run eagerly.
    if call is None or all(keyword.arg != "run_eagerly" for keyword in call.keywords):
        return None
    return _in_compile({"run_eagerly": "False"}, source, observed)


EXPERIMENTS = (
    Experiment(
        "keras_graph",
        "model.compile without run_eagerly",
        "keras",
        ("eager", "host_bound"),
        _not_eager,
        partial(Settings, False),
        "- model.compile(..., run_eagerly=True)\n+ model.compile(...)",
        touches=("keras model",),
        edit=_not_eager_in_source,
    ),
    Experiment(
        "keras_jit_compile",
        "XLA by jit_compile",
        "keras",
        ("tiny_ops", "tiny_eager_ops", "kernel_launch", "eager", "host_bound", "unfused"),
        _not_jit,
        partial(Settings, True),
        "- model.compile(...)\n+ model.compile(..., jit_compile=True)",
        touches=("keras model",),
        edit=partial(_in_compile, {"jit_compile": "True"}),
    ),
)

"""Steps of Keras models on JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import keras

from nbprof.capture.fit import jax_programs
from nbprof.capture.fit.device import Device
from nbprof.capture.fit.of_jax import struct
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.segments import checkpointed
from nbprof.capture.fit.xla import Sizes

HAS_CHECKPOINTING = True
REST = Role.PADDING
"""Role of the rest of the arguments, which are variables and inputs."""


def platform() -> str:
    """Name of the platform that programs are compiled for."""
    return jax_programs.platform()


def notes(_: Any) -> tuple[str, ...]:
    """Sentences on what is assumed of the step."""
    return ()


def is_compiled(model: Any, _: Device) -> bool:
    """True if XLA compiles the steps of the model."""
    return bool(model.jit_compile)


def is_distributed(_: Any) -> bool:
    """True if the model runs on several devices."""
    return keras.distribution.distribution() is not None


def batches(device: Device) -> int:
    """Batches that are on the device at once: `fit` moves the next one while a step runs."""
    if device.has_context or platform() != "cpu":
        return 2
    return 1


def shape_of(shape: Any, dtype: str) -> Any:
    """An array without data, of the type that `fit` passes on."""
    return struct(shape, jax.dtypes.canonicalize_dtype(dtype))


def checkpoint(model: Any) -> None:
    """Compute segments of the forward pass again in the backward pass."""
    # Not as an attribute that the model keeps track of, which only `compile` may set.
    loss = checkpointed(model.compute_loss_and_updates)
    object.__setattr__(model, "compute_loss_and_updates", loss)


def tracing() -> contextlib.AbstractContextManager[None]:
    """A scope in which steps are traced."""
    return contextlib.nullcontext()


def build(model: Any, data: Any, is_training: bool) -> None:
    """Create what layers, metrics and the optimizer lack, as the first batch of `fit` does."""
    with _no_values():
        if is_training:
            model._symbolic_build(data_batch=data)
        elif not all(layer.built for layer in model._flatten_layers()):
            jax.eval_shape(model, data[0])


def step_sizes(model: Any, data: Any, is_training: bool) -> Sizes:
    """Memory of a step whose model is built; its variables need no values."""
    function: Callable[..., Any]
    if is_training:
        variables = [
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        ]

        def function(state: Any, data: Any) -> Any:
            return model.train_step(state, data)
    else:
        variables = [model.trainable_variables, model.non_trainable_variables, [], []]

        def function(state: Any, data: Any) -> Any:
            outputs, not_trained = model.predict_step(state[:2], data)
            return outputs, (state[0], not_trained)

    state = tuple(map(_structs, variables))
    with _no_values():
        return jax_programs.compiled_sizes(jax.jit(function, donate_argnums=0).lower, state, data)


def _no_values() -> Any:
    """A scope in which variables are created with a shape and no value."""
    return keras.StatelessScope(initialize_variables=False)


def _structs(variables: Iterable[Any]) -> list[Any]:
    return [struct(variable.shape, variable.dtype) for variable in variables]

"""A prediction for a model of Keras on JAX or TensorFlow: its own step, compiled and not run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import keras
import numpy as np
from keras.src.backend.common import global_state

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.result import AS_IT_IS, CHECKPOINTING, Fit, Lever
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.unchanged import unchanged
from nbprof.capture.fit.xla import (
    ONE_PIECE,
    UNSEEN,
    Sizes,
    compiled_for,
    first_line,
    only_where_it_runs,
)
from nbprof.core.errors import NbprofError
from nbprof.frameworks.register import JAX

_PARTS = 2
_LOW = "mixed_bfloat16"
_AHEAD = "fit() moves the next batch to a device while a step runs: inputs count twice."


def fit_of_model(model: Any, batch: Any, device: Device, margin: float | None) -> Fit:
    """See `nbprof.fits`.

    Raises
    ------
    NbprofError
        Keras does not run this model as one program of JAX, or it cannot be traced.
    """
    step = _Step.from_batch(model, batch, device)
    kind = "a step of predict"
    if step.is_training:
        kind = "a training step"
    platform = step.backend.platform()
    assumptions = [*step.backend.notes(model), compiled_for(platform), ONE_PIECE, UNSEEN]
    if step.batches > 1:
        assumptions.append(_AHEAD)
    return Fit(
        step.roles(_Variant()),
        step.batch_size,
        f"{kind} of {type(model).__name__}",
        device,
        tuple(assumptions),
        tuple(_levers(step)),
        margin,
    )


class _Backend(Protocol):
    """A backend of Keras: one of the modules `keras_on_…`."""

    HAS_CHECKPOINTING: bool
    REST: Role

    def platform(self) -> str: ...
    def notes(self, model: Any) -> tuple[str, ...]: ...
    def is_compiled(self, model: Any, device: Device) -> bool: ...
    def is_distributed(self, model: Any) -> bool: ...
    def batches(self, device: Device) -> int: ...
    def shape_of(self, shape: Any, dtype: str) -> Any: ...
    def checkpoint(self, model: Any) -> None: ...
    def tracing(self) -> AbstractContextManager[None]: ...
    def build(self, model: Any, data: Any, is_training: bool) -> None: ...
    def step_sizes(self, model: Any, data: Any, is_training: bool) -> Sizes: ...


def _backend() -> _Backend:
    if keras.backend.backend() == JAX.name:
        from nbprof.capture.fit import keras_on_jax

        return keras_on_jax
    from nbprof.capture.fit import keras_on_tensorflow

    return keras_on_tensorflow


@dataclass(frozen=True)
class _Variant:
    """Options of a step.

    Attributes
    ----------
    low_precision : bool
        Layers of float32 have the policy `mixed_bfloat16`.
    checkpointing : bool
        Segments of the forward pass are computed again in the backward pass.
    parts : int
        Parts of the batch whose gradients the optimizer accumulates.
    """

    low_precision: bool = False
    checkpointing: bool = False
    parts: int = 1

    def apply(self, model: Any, backend: _Backend) -> None:
        """Change a model; `unchanged` puts it back."""
        if self.low_precision:
            for layer in model._flatten_layers():
                if layer.dtype_policy.name == "float32":
                    layer.dtype_policy = _LOW
        if self.checkpointing:
            backend.checkpoint(model)
        if self.parts > 1:
            config = model.optimizer.get_config() | {"gradient_accumulation_steps": self.parts}
            # Not as an attribute that the model keeps track of, which only `compile` may set.
            object.__setattr__(model, "optimizer", type(model.optimizer).from_config(config))


@dataclass(frozen=True)
class _Step:
    """A step of `fit` or `predict`.

    Attributes
    ----------
    data : object
        A tree of arrays without data, as a dataset of Keras yields it.
    batches : int
        Batches that are on the device at once.
    """

    model: Any
    data: Any
    is_training: bool
    backend: _Backend
    device: Device
    batches: int
    batch_size: int | None

    @classmethod
    def from_batch(cls, model: Any, batch: Any, device: Device) -> _Step:
        data = batch
        if isinstance(batch, list):
            data = tuple(batch)
        elif not isinstance(batch, tuple):
            data = (batch,)
        if not 1 <= len(data) <= 3:
            raise NbprofError(
                f"the batch has {len(data)} parts; pass x for a step of predict, (x, y) or (x, y,"
                " sample_weight) for a training step; several inputs are a tuple or a dictionary"
                " in place of x"
            )
        backend, is_training = _backend(), len(data) > 1
        _check(model, backend, is_training, device)
        shapes = keras.tree.map_structure(lambda value: _shape(value, backend), data)
        sizes = [leaf.shape[0] for leaf in _leaves(shapes) if leaf.shape]
        batches = backend.batches(device) if is_training else 1
        return cls(model, shapes, is_training, backend, device, batches, next(iter(sizes), None))

    def of_batch(self, size: int) -> _Step:
        """The same with another first dimension of the arrays that have that of the batch."""

        def resized(leaf: Any) -> Any:
            if leaf is None or not leaf.shape or leaf.shape[0] != self.batch_size:
                return leaf
            return type(leaf)((size, *leaf.shape[1:]), leaf.dtype)

        data = keras.tree.map_structure(resized, self.data)
        return replace(self, data=data, batch_size=size)

    def roles(self, variant: _Variant) -> dict[Role, int]:
        """Bytes by role at the peak.

        Raises
        ------
        NbprofError
            The step cannot be traced or compiled for these shapes.
        """
        build = self.backend.build
        try:
            with unchanged(self.model, _global_state()), self.backend.tracing():
                build(self.model, self.data, self.is_training)
                variant.apply(self.model, self.backend)
                build(self.model, self.data, self.is_training)
                return self._compiled()
        except NbprofError:
            raise
        except Exception as error:
            raise NbprofError(
                f"the step of {type(self.model).__name__} cannot be compiled for these shapes:"
                f" {first_line(error)}. It must run as it is on a batch of these shapes and types"
            ) from error

    def _compiled(self) -> dict[Role, int]:
        model, data = self.model, self.data
        sizes = self.backend.step_sizes(model, data, self.is_training)
        variables = [model.trainable_variables, model.non_trainable_variables, [], []]
        if self.is_training:
            variables[2:] = [model.optimizer.variables, model.metrics_variables]
        parameters = _parameters(model)
        buffers = [each for each in variables[1] if id(each) not in parameters]
        frozen = [each for each in variables[1] if id(each) in parameters]
        roles = {
            Role.PARAMETERS: _bytes(variables[0]) + _bytes(frozen),
            Role.BUFFERS: _bytes(buffers) + _bytes(variables[3]),
            Role.OPTIMIZER_STATE: _bytes(variables[2]),
            Role.INPUTS: _bytes(_leaves(data)),
        }
        roles[self.backend.REST] = sizes.arguments - sum(roles.values())
        roles[Role.INPUTS] *= self.batches
        roles |= {
            Role.OUTPUTS: sizes.outputs,
            Role.TEMPORARIES: sizes.temporaries,
            Role.CODE: sizes.code,
        }
        return {role: size for role, size in roles.items() if size > 0}


def _check(model: Any, backend: _Backend, is_training: bool, device: Device) -> None:
    if is_training and getattr(model, "optimizer", None) is None:
        raise NbprofError(
            "the model has no optimizer: call model.compile(optimizer=…, loss=…), or pass x alone"
            " for a step of predict"
        )
    if model.run_eagerly or not backend.is_compiled(model, device):
        raise NbprofError(
            "the model runs op by op (run_eagerly=True, or jit_compile=False, the default of Keras"
            " on TensorFlow without a GPU), and the memory of a step is predicted only where XLA"
            " compiles it; compile it with jit_compile=True"
        )
    if backend.is_distributed(model):
        raise NbprofError(
            "the memory of a model that is distributed over devices is not predicted; call"
            " nbprof.fits without keras.distribution and tf.distribute, for the batch of one device"
        )


def _levers(step: _Step) -> list[Lever]:
    levers = [_lever(step, AS_IT_IS, _Variant())]
    low = _Variant(low_precision=True)
    levers.append(_lever(step, _LOW, low, "the dtype policy of the layers of float32"))
    # Other training steps may compute their loss elsewhere.
    has_own_step = type(step.model).train_step is not keras.Model.train_step
    if step.is_training and step.backend.HAS_CHECKPOINTING and not has_own_step:
        note = "keras.remat around parts of the model"
        again = _Variant(checkpointing=True)
        levers.append(_lever(step, CHECKPOINTING, again, note))
        levers.append(_lever(step, "both", replace(low, checkpointing=True)))
    if step.is_training and not step.model.optimizer.gradient_accumulation_steps:
        name = f"accumulation of {_PARTS} parts"
        note = f"gradient_accumulation_steps={_PARTS} of the optimizer"
        levers.append(_lever(step, name, _Variant(parts=_PARTS), note))
    return levers


def _lever(step: _Step, name: str, variant: _Variant, note: str = "") -> Lever:
    @cache
    def peak(size: int) -> int:
        if step.batch_size is None:
            raise NbprofError("the batch has no dimension that could be changed")
        if variant.low_precision or variant.checkpointing:
            only_where_it_runs(step.backend.platform(), step.device)
        return sum(step.of_batch(size).roles(variant).values())

    return Lever(name, peak, variant.parts, note)


def _parameters(model: Any) -> set[int]:
    """Weights of layers by identity, also those that are frozen."""
    return {
        id(variable) for layer in model._flatten_layers() for variable in layer._trainable_variables
    }


def _global_state() -> Any:
    """Names in use, scopes and the global generator of seeds."""
    return global_state.GLOBAL_STATE_TRACKER


def _shape(value: Any, backend: _Backend) -> Any:
    """Shape and type as `fit` passes an array on: with floats of `keras.config.floatx()`."""
    if value is None:
        return None
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise NbprofError(
            f"the batch has a {type(value).__name__} ({value!r}); pass arrays, or"
            " keras.KerasTensor(shape, dtype) for arrays that need not exist"
        )
    if any(size is None for size in value.shape):
        raise NbprofError(
            f"an array of the batch has the shape {tuple(value.shape)}; pass sizes, no None"
        )
    dtype = keras.backend.standardize_dtype(value.dtype)
    if keras.backend.is_float_dtype(dtype):
        dtype = keras.config.floatx()
    return backend.shape_of(tuple(value.shape), dtype)


def _leaves(tree: Any) -> list[Any]:
    return [leaf for leaf in keras.tree.flatten(tree) if leaf is not None]


def _bytes(arrays: Iterable[Any]) -> int:
    """Bytes of variables, or of arrays without data."""
    total = 0
    for array in arrays:
        dtype = keras.backend.standardize_dtype(array.dtype)
        total += math.prod(array.shape) * np.dtype(dtype).itemsize
    return total

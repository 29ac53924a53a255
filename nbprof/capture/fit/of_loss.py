"""A prediction for training with a loss function of JAX and an optimizer of optax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.jax_programs import compiled_sizes, platform
from nbprof.capture.fit.of_jax import (
    arrays_of,
    bytes_of,
    lower_precision,
    shape_of,
    struct,
    with_arrays,
)
from nbprof.capture.fit.result import AS_IT_IS, CHECKPOINTING, Fit, Lever
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.segments import checkpointed
from nbprof.capture.fit.xla import (
    ONE_PIECE,
    UNSEEN,
    compiled_for,
    first_line,
    only_where_it_runs,
)
from nbprof.core.errors import NbprofError

_PARTS = 2
_STEP = "The step is one program: jax.value_and_grad of the first argument, and the update."


def fit_of_loss(
    loss: Callable[..., Any],
    arguments: tuple[Any, ...],
    optimizer: Any,
    device: Device,
    margin: float | None,
) -> Fit:
    """A training step, see `nbprof.fits`.

    Raises
    ------
    NbprofError
        The loss is no number, or the step cannot be compiled for these shapes.
    """
    if not hasattr(optimizer, "init") or not hasattr(optimizer, "update"):
        raise NbprofError(
            f"of a function of JAX, optimizer is one of optax, with init and update, not"
            f" {optimizer!r}; leave it out where the function is a whole training step"
        )
    if len(arguments) < 2:
        raise NbprofError("pass the parameters and the batch: nbprof.fits(loss, parameters, x, y)")
    parameters, *batch = jax.tree_util.tree_map(shape_of, arguments)
    step = _Step(loss, optimizer, parameters, tuple(batch), device)
    return Fit(
        step.roles(_Variant()),
        step.batch_size,
        f"a training step with {getattr(loss, '__name__', 'the loss')}",
        device,
        (_STEP, compiled_for(platform()), ONE_PIECE, UNSEEN),
        tuple(_levers(step)),
        margin,
    )


@dataclass(frozen=True)
class _Variant:
    """Options of a step.

    Attributes
    ----------
    low_precision : bool
        The loss is computed of parameters and inputs in bfloat16.
    checkpointing : bool
        Segments of the loss are computed again in the backward pass.
    accumulation : bool
        Gradients are added to those of the parts of the batch before.
    donation : bool
        Parameters and state are donated.
    """

    low_precision: bool = False
    checkpointing: bool = False
    accumulation: bool = False
    donation: bool = False


@dataclass(frozen=True)
class _Step:
    """A training step.

    Attributes
    ----------
    parameters, batch : object
        Trees of `jax.ShapeDtypeStruct` and other values, which are constants.
    """

    loss: Callable[..., Any]
    optimizer: Any
    parameters: Any
    batch: tuple[Any, ...]
    device: Device

    @property
    def batch_size(self) -> int | None:
        """The first dimension of the first array of the batch."""
        for leaf in arrays_of(self.batch):
            if leaf.shape:
                return int(leaf.shape[0])
        return None

    def of_batch(self, size: int) -> _Step:
        """The same with another first dimension of the arrays that have that of the batch."""
        before = self.batch_size

        def resized(leaf: Any) -> Any:
            if leaf.shape[:1] == (before,):
                return struct((size, *leaf.shape[1:]), leaf.dtype)
            return leaf

        batch = with_arrays(self.batch, [resized(leaf) for leaf in arrays_of(self.batch)])
        return replace(self, batch=batch)

    def roles(self, variant: _Variant) -> dict[Role, int]:
        """Bytes by role at the peak.

        Raises
        ------
        NbprofError
            The step cannot be compiled for these shapes.
        """
        try:
            return self._roles(variant)
        except NbprofError:
            raise
        except Exception as error:
            raise NbprofError(
                f"the training step cannot be compiled for these shapes: {first_line(error)}. The"
                " loss is a function of the parameters and the batch that returns a number"
            ) from error

    def _roles(self, variant: _Variant) -> dict[Role, int]:
        constants = self.batch

        def of_arrays(parameters: Any, arrays: list[Any]) -> Any:
            if variant.low_precision:
                parameters, arrays = jax.tree_util.tree_map(_cast, (parameters, arrays))
            return self.loss(parameters, *with_arrays(constants, arrays))

        loss = of_arrays
        if variant.checkpointing:
            loss = checkpointed(of_arrays)
        inputs = arrays_of(self.batch)
        state = jax.eval_shape(self.optimizer.init, self.parameters)
        accumulated = self.parameters if variant.accumulation else ()

        def step(parameters: Any, state: Any, accumulated: Any, arrays: list[Any]) -> Any:
            value, gradients = jax.value_and_grad(loss)(parameters, arrays)
            if variant.accumulation:
                gradients = jax.tree_util.tree_map(jax.numpy.add, accumulated, gradients)
            updates, state = self.optimizer.update(gradients, state, parameters)
            # As optax.apply_updates.
            parameters = jax.tree_util.tree_map(
                lambda parameter, update: (parameter + update).astype(parameter.dtype),
                parameters,
                updates,
            )
            # As optax.MultiSteps, that begins anew.
            zeros = jax.tree_util.tree_map(jax.numpy.zeros_like, accumulated)
            return parameters, state, zeros, value

        donated = (0, 1, 2) if variant.donation else ()
        lower = jax.jit(step, donate_argnums=donated).lower
        sizes = compiled_sizes(lower, self.parameters, state, accumulated, inputs)
        roles = {
            Role.PARAMETERS: _bytes(self.parameters),
            Role.OPTIMIZER_STATE: _bytes(state),
            Role.GRADIENTS: _bytes(accumulated),
            Role.INPUTS: _bytes(inputs),
        }
        roles |= {
            Role.PADDING: sizes.arguments - sum(roles.values()),
            Role.OUTPUTS: sizes.outputs,
            Role.TEMPORARIES: sizes.temporaries,
            Role.CODE: sizes.code,
        }
        return {role: size for role, size in roles.items() if size > 0}


def _levers(step: _Step) -> list[Lever]:
    def lever(name: str, variant: _Variant, note: str = "", parts: int = 1) -> Lever:
        @cache
        def peak(size: int) -> int:
            if step.batch_size is None:
                raise NbprofError("the batch has no dimension that could be changed")
            if variant.low_precision or variant.checkpointing:
                only_where_it_runs(platform(), step.device)
            return sum(step.of_batch(size).roles(variant).values())

        return Lever(name, peak, parts, note)

    low = _Variant(low_precision=True)
    return [
        lever(AS_IT_IS, _Variant()),
        lever("bfloat16", low, "parameters and inputs are cast in the loss"),
        lever(CHECKPOINTING, _Variant(checkpointing=True), "jax.checkpoint around parts of it"),
        lever("both", replace(low, checkpointing=True)),
        lever(
            f"accumulation of {_PARTS} parts",
            _Variant(accumulation=True),
            f"optax.MultiSteps(optimizer, {_PARTS})",
            _PARTS,
        ),
        lever("donation", _Variant(donation=True), "donate_argnums: parameters and state"),
    ]


def _cast(leaf: Any) -> Any:
    return leaf.astype(lower_precision(shape_of(leaf)).dtype)


def _bytes(tree: Any) -> int:
    return sum(map(bytes_of, arrays_of(tree)))

"""A prediction for a function of JAX."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.jax_programs import compiled_sizes, platform
from nbprof.capture.fit.result import AS_IT_IS, Fit, Lever
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.xla import (
    UNSEEN,
    Sizes,
    compiled_for,
    first_line,
    only_where_it_runs,
)
from nbprof.core.errors import NbprofError


def fit_of_function(
    function: Callable[..., Any], arguments: tuple[Any, ...], device: Device, margin: float | None
) -> Fit:
    """See `nbprof.fits`.

    The peak is arguments and outputs, those that share a buffer (donated arguments) once, and the
    temporary buffers and the code of the program: `Compiled.memory_analysis()`.
    """
    call = _Call(function, jax.tree_util.tree_map(shape_of, arguments))
    sizes = call.sizes()
    roles = {
        Role.ARGUMENTS: sizes.arguments,
        Role.OUTPUTS: sizes.outputs,
        Role.TEMPORARIES: sizes.temporaries,
        Role.CODE: sizes.code,
    }
    updated, batch = _changeable(call)
    return Fit(
        {role: size for role, size in roles.items() if size > 0},
        batch.size,
        f"a call of {getattr(function, '__name__', 'the function')}",
        device,
        (compiled_for(platform()), UNSEEN),
        tuple(_levers(call, sizes, updated, batch, device)),
        margin,
    )


@dataclass(frozen=True)
class _Batch:
    """Arguments whose arrays have the batch as their first dimension.

    Attributes
    ----------
    size : int or None
        None where it is not known which dimension is the batch.
    """

    size: int | None = None
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Call:
    """A call of a function for arguments without data.

    Attributes
    ----------
    arguments : tuple
        Trees of `jax.ShapeDtypeStruct`, and of other values, which are constants.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def sizes(self, arguments: tuple[Any, ...] | None = None, donated: Any = None) -> Sizes:
        """Memory of the program, of other arguments, or with arguments that are donated."""
        values = arguments or self.arguments
        try:
            if donated is None:
                lower = getattr(self.function, "lower", None) or jax.jit(self.function).lower
                return compiled_sizes(lower, *values)
            function, arrays = _of_arrays(self.function, values)
            with warnings.catch_warnings():
                # Of arguments that no output can take the place of.
                warnings.simplefilter("ignore")
                return compiled_sizes(jax.jit(function, donate_argnums=donated).lower, *arrays)
        except NbprofError:
            raise
        except Exception as error:
            raise NbprofError(
                f"the function cannot be compiled for these shapes: {first_line(error)}. Mark"
                " arguments that are not arrays with static_argnums of jax.jit"
            ) from error

    def updated(self) -> tuple[int, ...]:
        """Arguments of which each array has an output of its shape and type, which is its own."""
        results = jax.tree_util.tree_leaves(self._outputs(self.arguments))
        outputs = Counter(map(_kind, results))
        positions = []
        for position, argument in enumerate(self.arguments):
            kinds = Counter(map(_kind, arrays_of(argument)))
            if kinds and all(outputs[kind] >= number for kind, number in kinds.items()):
                outputs -= kinds
                positions.append(position)
        return tuple(positions)

    def batch(self, updated: tuple[int, ...]) -> _Batch:
        """The arguments that can be resized alone, if they are of one size only."""
        groups: dict[int, list[int]] = {}
        for position, argument in enumerate(self.arguments):
            sizes = {leaf.shape[:1] for leaf in arrays_of(argument)}
            if position not in updated and len(sizes) == 1 and sizes != {()}:
                groups.setdefault(next(iter(sizes))[0], []).append(position)
        batches = []
        for size, positions in groups.items():
            batch = _Batch(size, tuple(positions))
            # Any error: these shapes are not those of a batch.
            with contextlib.suppress(Exception):
                self._outputs(self.resized(batch, size + 1))
                batches.append(batch)
        if len(batches) != 1:
            return _Batch()
        return batches[0]

    def resized(self, batch: _Batch, size: int) -> tuple[Any, ...]:
        """The arguments for another size of the batch."""
        if batch.size is None:
            raise NbprofError("it is not known which dimension of the arguments is the batch")

        def with_size(leaf: Any) -> Any:
            if _is_array(leaf):
                return struct((size, *leaf.shape[1:]), leaf.dtype)
            return leaf

        arguments = list(self.arguments)
        if size != batch.size:
            for position in batch.arguments:
                arguments[position] = jax.tree_util.tree_map(with_size, arguments[position])
        return tuple(arguments)

    def _outputs(self, arguments: tuple[Any, ...]) -> Any:
        function, arrays = _of_arrays(self.function, arguments)
        return jax.eval_shape(function, *arrays)


def _changeable(call: _Call) -> tuple[tuple[int, ...], _Batch]:
    """Arguments that can be donated, and the batch; none where only the function itself traces."""
    with contextlib.suppress(Exception):
        updated = call.updated()
        return updated, call.batch(updated)
    return (), _Batch()


def _levers(
    call: _Call, sizes: Sizes, updated: tuple[int, ...], batch: _Batch, device: Device
) -> list[Lever]:
    def lever(name: str, total: Callable[[tuple[Any, ...]], int], note: str = "") -> Lever:
        @cache
        def peak(size: int) -> int:
            if batch.size is None:
                # The table asks for a batch of 1 where its size is unknown: the one passed.
                return total(call.arguments)
            return total(call.resized(batch, size))

        return Lever(name, peak, note=note)

    def in_bfloat16(arguments: tuple[Any, ...]) -> int:
        only_where_it_runs(platform(), device)
        return call.sizes(jax.tree_util.tree_map(lower_precision, arguments)).total

    levers = [
        lever(AS_IT_IS, lambda arguments: call.sizes(arguments).total),
        lever("bfloat16", in_bfloat16, "of all arguments that are float32"),
    ]
    bytes_updated = sum(
        bytes_of(leaf) for position in updated for leaf in arrays_of(call.arguments[position])
    )
    if sizes.aliased < bytes_updated:
        numbers = ", ".join(map(str, updated))
        if len(updated) > 1:
            numbers = f"({numbers})"
        levers.append(
            lever(
                "donation",
                lambda arguments: call.sizes(arguments, updated).total,
                f"jax.jit(…, donate_argnums={numbers})",
            )
        )
    return levers


def _of_arrays(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Callable[..., Any], list[list[Any]]]:
    """The function of the arrays of each argument; other values are constants, as if static."""

    def of_arrays(*arrays: list[Any]) -> Any:
        pairs = zip(arguments, arrays, strict=True)
        return function(*[with_arrays(argument, values) for argument, values in pairs])

    return of_arrays, list(map(arrays_of, arguments))


def arrays_of(tree: Any) -> list[Any]:
    """Arrays without data of a tree."""
    return [leaf for leaf in jax.tree_util.tree_leaves(tree) if _is_array(leaf)]


def with_arrays(tree: Any, arrays: list[Any]) -> Any:
    """A tree with other arrays in place of those without data, in their order."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    rest = iter(arrays)
    filled = [next(rest) if _is_array(leaf) else leaf for leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, filled)


def struct(shape: Any, dtype: Any) -> Any:
    """An array without data."""
    kind: Any = jax.ShapeDtypeStruct
    return kind(tuple(shape), dtype)


def bytes_of(leaf: Any) -> int:
    """Bytes of an array, or of what has a shape and a type."""
    return int(math.prod(leaf.shape) * jax.numpy.dtype(leaf.dtype).itemsize)


def lower_precision(leaf: Any) -> Any:
    """The same of bfloat16 in place of float32."""
    if _is_array(leaf) and leaf.dtype == jax.numpy.float32:
        return struct(leaf.shape, jax.numpy.bfloat16)
    return leaf


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _kind(leaf: Any) -> tuple[Any, ...]:
    return tuple(leaf.shape), leaf.dtype


def shape_of(value: Any) -> Any:
    """An array without data for one that has some; other values as they are."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return struct(value.shape, value.dtype)
    return value

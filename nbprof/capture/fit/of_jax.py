"""A prediction for a function of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.result import Fit
from nbprof.capture.fit.roles import Role
from nbprof.core.errors import NbprofError


def fit_of_function(
    function: Callable[..., Any], arguments: tuple[Any, ...], device: Device, margin: float | None
) -> Fit:
    """See `nbprof.fits`.

    The peak is arguments and outputs, those that share a buffer (donated arguments) once, and the
    temporary buffers and the code of the program: `Compiled.memory_analysis()`.
    """
    shapes = jax.tree_util.tree_map(_shape, arguments)
    lower = getattr(function, "lower", None)
    if lower is None:
        lower = jax.jit(function).lower
    try:
        sizes = lower(*shapes).compile().memory_analysis()
    except Exception as error:
        text = str(error).strip().split("\n")[0].rstrip(".")
        raise NbprofError(
            f"the function cannot be compiled for these shapes: {type(error).__name__}: {text}."
            " Mark arguments that are not arrays with static_argnums of jax.jit"
        ) from error
    platform = jax.default_backend()
    if sizes is None:
        raise NbprofError(f"XLA does not state the memory of programs for {platform}")
    roles = {
        Role.ARGUMENTS: sizes.argument_size_in_bytes,
        Role.OUTPUTS: sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
        Role.TEMPORARIES: sizes.temp_size_in_bytes,
        Role.CODE: sizes.generated_code_size_in_bytes,
    }
    return Fit(
        {role: int(size) for role, size in roles.items() if size > 0},
        None,
        f"a call of {getattr(function, '__name__', 'the function')}",
        device,
        (
            f"Compiled for {platform}: programs for other devices are fused and laid out anew.",
            "Not in the figures: arrays that are not arguments, and workspaces of libraries.",
        ),
        margin=margin,
    )


def _shape(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape: Any = jax.ShapeDtypeStruct
        return shape(value.shape, value.dtype)
    return value

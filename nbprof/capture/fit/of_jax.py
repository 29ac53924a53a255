"""A prediction for a function of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.result import Fit
from nbprof.capture.fit.roles import Role
from nbprof.capture.fit.xla import UNSEEN, compiled_for, compiled_sizes, first_line
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
        sizes = compiled_sizes(lower, *shapes)
    except NbprofError:
        raise
    except Exception as error:
        raise NbprofError(
            f"the function cannot be compiled for these shapes: {first_line(error)}. Mark arguments"
            " that are not arrays with static_argnums of jax.jit"
        ) from error
    roles = {
        Role.ARGUMENTS: sizes.arguments,
        Role.OUTPUTS: sizes.outputs,
        Role.TEMPORARIES: sizes.temporaries,
        Role.CODE: sizes.code,
    }
    return Fit(
        {role: size for role, size in roles.items() if size > 0},
        None,
        f"a call of {getattr(function, '__name__', 'the function')}",
        device,
        (compiled_for(), UNSEEN),
        margin=margin,
    )


def _shape(value: Any) -> Any:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        shape: Any = jax.ShapeDtypeStruct
        return shape(value.shape, value.dtype)
    return value

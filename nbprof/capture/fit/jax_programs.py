"""The memory of a program of JAX: `Compiled.memory_analysis()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from nbprof.capture.fit.xla import Sizes
from nbprof.core.errors import NbprofError


def compiled_sizes(lower: Callable[..., Any], *arguments: Any) -> Sizes:
    """Compile a function for the shapes of its arguments.

    Parameters
    ----------
    lower : callable
        `jax.jit(function).lower`.
    *arguments
        Trees of arrays or `jax.ShapeDtypeStruct`.

    Raises
    ------
    NbprofError
        XLA does not state the memory of programs for this backend. What the function raises passes.
    """
    sizes = lower(*arguments).compile().memory_analysis()
    if sizes is None:
        raise NbprofError(f"XLA does not state the memory of programs for {platform()}")
    return Sizes(
        int(sizes.argument_size_in_bytes),
        int(sizes.output_size_in_bytes - sizes.alias_size_in_bytes),
        int(sizes.temp_size_in_bytes),
        int(sizes.generated_code_size_in_bytes),
        int(sizes.alias_size_in_bytes),
    )


def platform() -> str:
    """Name of the backend that programs are compiled for."""
    return str(jax.default_backend())

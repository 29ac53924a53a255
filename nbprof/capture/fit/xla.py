"""The memory of a program of JAX, compiled and not run: XLA's buffer assignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from nbprof.capture.fit.device import Device
from nbprof.core.errors import NbprofError

UNSEEN = "Not in the figures: arrays that are not arguments, and workspaces of libraries."

ONE_PIECE = (
    "XLA divides one piece of memory among gradients, activations and all other temporaries."
)


@dataclass(frozen=True)
class Sizes:
    """Bytes of a compiled program, for one device.

    Attributes
    ----------
    arguments : int
    outputs : int
        Without those that take the memory of a donated argument.
    temporaries : int
        One piece of memory that XLA divides among all values within the program.
    code : int
    aliased : int
        Outputs that take the memory of a donated argument.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    aliased: int

    @property
    def total(self) -> int:
        """Bytes in use while the program runs."""
        return self.arguments + self.outputs + self.temporaries + self.code


def compiled_sizes(lower: Callable[..., Any], *arguments: Any) -> Sizes:
    """Compile a function for the shapes of its arguments: `Compiled.memory_analysis()`.

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


def compiled_for() -> str:
    """A sentence: for which backend."""
    return f"Compiled for {platform()}: programs for other devices are fused and laid out anew."


def only_where_it_runs(device: Device) -> None:
    """Refuse to predict for an accelerator what XLA for the CPU does otherwise.

    For the CPU, products of bfloat16 are computed in float32, and XLA drops the order in which
    `jax.checkpoint` computes values again before it decides when each is computed, so that most are
    kept after all.

    Raises
    ------
    NbprofError
        Programs are compiled for the CPU, and the device is another one.
    """
    if platform() == "cpu" and device.has_context:
        raise NbprofError(
            "for the CPU, XLA computes bfloat16 and checkpoints otherwise than for"
            f" {device.name}; ask where JAX runs on one"
        )


def first_line(error: Exception) -> str:
    """Type and first line of an error, without a full stop."""
    text = str(error).strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}"

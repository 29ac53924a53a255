"""The memory of a program that XLA compiles and that is not run: its buffer assignment."""

from __future__ import annotations

from dataclasses import dataclass

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


_PLATFORMS = {"cpu": "the CPU", "gpu": "the GPU", "tpu": "the TPU"}


def compiled_for(platform: str) -> str:
    """A sentence: for which platform of XLA the figures are.

    Parameters
    ----------
    platform : str
        Its name in XLA.
    """
    others = "for a GPU or TPU" if platform == "cpu" else "for other devices"
    return (
        f"Compiled for {_PLATFORMS.get(platform, platform)}: {others}, XLA fuses ops and lays out"
        " arrays otherwise, and the peak may differ."
    )


def only_where_it_runs(platform: str, device: Device) -> None:
    """Refuse to predict for an accelerator what XLA for the CPU does otherwise.

    For the CPU, products of bfloat16 are computed in float32, and XLA drops the order in which
    `jax.checkpoint` computes values again before it decides when each is computed, so that most are
    kept after all.

    Raises
    ------
    NbprofError
        Programs are compiled for the CPU, and the device is another one.
    """
    if platform == "cpu" and device.has_context:
        raise NbprofError(
            "for the CPU, XLA computes bfloat16 and checkpoints otherwise than for"
            f" {device.name}; ask where the program runs on one"
        )


def first_line(error: Exception) -> str:
    """Type and first line of an error, without a full stop."""
    text = str(error).strip().split("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}"

"""A prediction for a module of PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from nbprof.capture.fit.device import Device
from nbprof.capture.fit.program import Program, Variant
from nbprof.capture.fit.result import AS_IT_IS, CHECKPOINTING, Fit, Lever
from nbprof.core.errors import NbprofError

_UNSEEN = (
    "Not in the figures: workspaces of libraries (cuDNN, cuBLAS), and memory that the allocator"
    " holds in pieces."
)
_RECURRENT = (
    "Recurrent layers are predicted by their single ops; cuDNN keeps other tensors for the backward"
    " pass."
)
_PARTS = 2


def fit_of_module(
    model: Any,
    batch: Any,
    optimizer: Any,
    loss: Any,
    device: Device,
    autocast: Any,
    margin: float | None,
) -> Fit:
    """See `nbprof.fits`."""
    program = Program.of(model, batch, optimizer, loss, device.is_gpu)
    variant = Variant(autocast)
    kind = "an inference step"
    if program.is_training:
        kind = "a training step"
    roles = program.peak(variant)
    return Fit(
        roles,
        program.batch_size,
        f"{kind} of {type(model).__name__}",
        device,
        tuple(_assumptions(program)),
        tuple(_levers(program, variant)),
        margin,
    )


def _assumptions(program: Program) -> list[str]:
    sentences = []
    if program.has_own_loss:
        loss = "the sum of the outputs"
        if program.has_own_loss[0]:
            loss = "the `loss` of the output"
        sentences.append(f"No loss was passed; it is taken to be {loss}.")
    if program.is_gpu:
        sentences.append(_UNSEEN)
        if any(isinstance(module, torch.nn.RNNBase) for module in program.model.modules()):
            sentences.append(_RECURRENT)
    else:
        sentences.append("Not in the figures: workspaces of oneDNN, and the interpreter.")
    return sentences


def _levers(program: Program, variant: Variant) -> list[Lever]:
    variants = {AS_IT_IS: variant}
    low = replace(variant, autocast=torch.bfloat16)
    if variant.autocast is None:
        variants["autocast to bfloat16"] = low
    if program.is_training:
        variants[CHECKPOINTING] = replace(variant, checkpointing=True)
        if variant.autocast is None:
            variants["both"] = replace(low, checkpointing=True)
        variants[f"accumulation of {_PARTS} parts"] = replace(variant, micro_batches=_PARTS)
    return [_lever(program, name, changed) for name, changed in variants.items()]


def _lever(program: Program, name: str, variant: Variant) -> Lever:
    def peak(size: int) -> int:
        resized = program
        if size != program.batch_size:
            if program.batch_size is None:
                raise NbprofError("the batch has no dimension that could be changed")
            resized = program.of_batch(size)
        return sum(resized.peak(variant).values())

    return Lever(name, peak, variant.micro_batches)

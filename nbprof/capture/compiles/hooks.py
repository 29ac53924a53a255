"""Follow the compiler of a framework once its module is imported."""

from __future__ import annotations

from types import ModuleType

from nbprof.capture.compiles import JAX, TENSORFLOW, TORCH
from nbprof.capture.compiles.recorder import Compiles
from nbprof.capture.patches import Patches


def hook(module: ModuleType, patches: Patches, compiles: Compiles) -> None:
    """Follow the compiler of a module of `nbprof.capture.compiles.MODULES`, until `patches` are
    restored. Never raises.
    """
    name = module.__name__
    try:
        if name == JAX:
            from nbprof.capture.compiles import jax

            jax.follow(patches, compiles)
        elif name == TORCH:
            from nbprof.capture.compiles import torch

            torch.follow(module, patches, compiles)
        elif name == TENSORFLOW:
            from nbprof.capture.compiles import tensorflow

            tensorflow.follow(module, patches, compiles)
    except Exception as error:
        compiles.failures[name.partition(".")[0]] = error

"""Gradient checkpointing of a copy of a model, as one would write it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from nbprof.core.errors import NbprofError

_FEWEST_LAYERS = 4
"""Of a Sequential of single layers, for which segments save memory."""


def checkpoint_blocks(model: Any) -> None:
    """Compute activations of the blocks of a model again in the backward pass.

    Models of Hugging Face have a method for it. Of others, the blocks are the children of the
    outermost `nn.ModuleList` and `nn.Sequential` whose children are modules of several layers; a
    `Sequential` of single layers is cut into segments, as many as the root of their number.

    Raises
    ------
    NbprofError
        It has no blocks.
    """
    enable = getattr(model, "gradient_checkpointing_enable", None)
    if callable(enable):
        enable()
        return
    count = 0
    for container in _containers(model):
        if _are_blocks(container):
            for block in container.children():
                block.forward = _recomputed(block.forward)
        else:
            container.forward = _in_segments(container)
        count += 1
    if not count:
        raise NbprofError("the model has no nn.ModuleList or nn.Sequential of blocks to checkpoint")


def _containers(module: Any) -> Iterator[Any]:
    is_list = isinstance(module, torch.nn.ModuleList | torch.nn.Sequential)
    if is_list and _are_blocks(module):
        yield module
        return
    if _is_plain(module):
        yield module
        return
    for child in module.children():
        yield from _containers(child)


def _is_plain(module: Any) -> bool:
    """True for a Sequential of many layers that have no parts."""
    if not isinstance(module, torch.nn.Sequential) or len(module) < _FEWEST_LAYERS:
        return False
    return not any(map(_has_parts, module.children()))


def _are_blocks(container: Any) -> bool:
    children = list(container.children())
    return len(children) > 1 and all(map(_has_parts, children))


def _has_parts(module: Any) -> bool:
    return bool(module._modules)


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return recomputed


def _in_segments(container: Any) -> Callable[..., Any]:
    functions = list(container.children())
    segments = round(math.sqrt(len(functions)))

    def recomputed(value: Any) -> Any:
        return checkpoint_sequential(functions, segments, value, use_reentrant=False)

    return recomputed

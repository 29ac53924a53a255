"""A step of a PyTorch program, traced with fake tensors: its peak of memory by role."""

from __future__ import annotations

import contextlib
import inspect
import logging
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_iter, tree_map_only

from nbprof.capture.fit.allocations import CUDA_BLOCK_BYTES, Allocations
from nbprof.capture.fit.checkpoints import checkpoint_blocks
from nbprof.capture.fit.fake import Copies
from nbprof.capture.fit.gpu_ops import GpuOps
from nbprof.capture.fit.roles import Role
from nbprof.core.errors import NbprofError
from nbprof.core.garbage import collection_paused

_STEPS = 2
"""The optimizer creates its state in the first step; the second is as all others."""
_OURS = Path(__file__).parent
_TORCH = Path(torch.__file__).parent


@dataclass(frozen=True)
class Variant:
    """Options of a step.

    Attributes
    ----------
    autocast : torch.dtype, optional
        The forward pass and the loss are within `torch.autocast` of this type.
    checkpointing : bool
        Activations within blocks are computed again in the backward pass.
    micro_batches : int
        Parts of the batch whose gradients are accumulated before the optimizer's step.
    """

    autocast: Any = None
    checkpointing: bool = False
    micro_batches: int = 1


@dataclass(frozen=True)
class Program:
    """A model and what its step needs, with fake tensors.

    Attributes
    ----------
    mode : FakeTensorMode
        Of all tensors.
    model, optimizer, loss : object
        Copies; `optimizer` is None for inference, `loss` where it follows from the output.
    batch : object
        A tree of fake tensors and other values.
    batch_size : int or None
        The first dimension of the first tensor.
    is_gpu : bool
        Tensors stand for those of a GPU.
    has_own_loss : list of bool
        Whether the output had a loss, for each forward pass that was traced without `loss`.
    """

    mode: FakeTensorMode
    model: Any
    optimizer: Any
    loss: Any
    batch: Any
    batch_size: int | None
    is_gpu: bool
    has_own_loss: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, model: Any, batch: Any, optimizer: Any, loss: Any, is_gpu: bool) -> Program:
        """Copies of a person's objects.

        Raises
        ------
        NbprofError
            They cannot be copied or traced, or the optimizer has no parameters of the model.
        """
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        copies = Copies(mode)
        # Compiled code may need less: that of the module is an upper bound.
        model = copies.copied(getattr(model, "_orig_mod", model))
        if isinstance(loss, torch.nn.Module):
            loss = copies.copied(loss)
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer = copies.copied(optimizer)
        elif optimizer is not None:
            optimizer = _built(optimizer, model, mode)
        if optimizer is not None:
            _check_parameters(optimizer, model)
            if not model.training:
                model.train()
        fake_batch = copies.batch(_with_shapes(batch, model))
        copies.release()
        return cls(mode, model, optimizer, loss, fake_batch, _batch_size(fake_batch), is_gpu)

    @property
    def is_training(self) -> bool:
        """True if a step has a backward pass and an optimizer."""
        return self.optimizer is not None

    def of_batch(self, size: int) -> Program:
        """The same with another first dimension of the tensors that have that of the batch."""

        def resized(tensor: Any) -> Any:
            if not tensor.dim() or tensor.shape[0] != self.batch_size:
                return tensor
            return torch.empty(size, *tensor.shape[1:], dtype=tensor.dtype)

        with self.mode, torch.no_grad():
            batch = tree_map_only(torch.Tensor, resized, self.batch)
        return replace(self, batch=batch, batch_size=size)

    @collection_paused()
    def peak(self, variant: Variant) -> dict[Role, int]:
        """Bytes by role at the peak of a step.

        Raises
        ------
        NbprofError
            The step cannot be traced; names the op, the line and a remedy.
        """
        block_bytes = 1
        if self.is_gpu:
            block_bytes = CUDA_BLOCK_BYTES
        allocations = Allocations(self.mode, block_bytes)
        try:
            with _restored_settings(), self.mode, contextlib.ExitStack() as stack:
                copies = Copies(self.mode)
                model = copies.copied(self.model)
                optimizer, loss = copies.copied(self.optimizer), self.loss
                if isinstance(loss, torch.nn.Module):
                    loss = copies.copied(loss)
                if variant.checkpointing:
                    checkpoint_blocks(model)
                copies.release()
                if self.is_gpu:
                    stack.enter_context(GpuOps())
                stack.enter_context(allocations)
                _Run(self, variant, allocations, model, optimizer, loss).steps()
        except NbprofError:
            raise
        except Exception as error:
            raise _explained(error) from error
        return allocations.peak()


class _Run:
    """Steps of a copy of a program, with the role of what they allocate."""

    def __init__(
        self,
        program: Program,
        variant: Variant,
        allocations: Allocations,
        model: Any,
        optimizer: Any,
        loss: Any,
    ) -> None:
        self.program = program
        self.variant = variant
        self.allocations = allocations
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        # A loop's variables live until the next iteration assigns them.
        self.output: Any = None
        self.value: Any = None

    def steps(self) -> None:
        assign = self.allocations.assign
        modules = [self.model]
        if isinstance(self.loss, torch.nn.Module):
            modules.append(self.loss)
        for module in modules:
            assign(module.parameters(), Role.PARAMETERS)
            assign(module.buffers(), Role.BUFFERS, [Role.TEMPORARIES])
        assign(_tensors(self.program.batch), Role.INPUTS, [Role.TEMPORARIES])
        if self.optimizer is None:
            with torch.no_grad():
                for _ in range(_STEPS):
                    self._forward()
            return
        if self.program.is_gpu:
            _update_at_once(self.optimizer)
        assign(_state(self.optimizer), Role.OPTIMIZER_STATE, [Role.TEMPORARIES])
        for _ in range(_STEPS):
            self.optimizer.zero_grad()
            if _needs_closure(self.optimizer):
                self.optimizer.step(self._closure)
            else:
                # Two parts are as many: gradients of the first are there in the second.
                for _ in range(min(self.variant.micro_batches, 2)):
                    self._forward()
                    self._backward()
                self.allocations.numbers_are_one = True
                self.optimizer.step()
                self.allocations.numbers_are_one = False
            assign(_state(self.optimizer), Role.OPTIMIZER_STATE, [Role.TEMPORARIES])

    def _closure(self) -> Any:
        self.optimizer.zero_grad()
        self._forward()
        self._backward()
        return self.value

    def _forward(self) -> None:
        with _autocast(self.variant.autocast):
            self.output = _called(self.model, self.program.batch, self.loss)
            if self.optimizer is not None:
                self.value = self._loss()
        self.allocations.assign(
            _tensors((self.output, self.value)), Role.OUTPUTS, [Role.TEMPORARIES]
        )
        if self.optimizer is not None:
            self.allocations.assign_alive(Role.ACTIVATIONS, Role.TEMPORARIES)

    def _loss(self) -> Any:
        if self.loss is not None:
            return _loss_of(self.output, self.program.batch, self.loss)
        value = _own_loss(self.output)
        self.program.has_own_loss.append(value is not None)
        if value is None:
            return _sum(self.output)
        return value

    def _backward(self) -> None:
        self.value.backward()
        gradients = [
            parameter.grad
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        gradients += [p.grad for p in self.model.parameters() if p.grad is not None]
        self.allocations.assign(gradients, Role.GRADIENTS, [Role.TEMPORARIES])


def _called(model: Any, batch: Any, loss: Any) -> Any:
    if isinstance(batch, dict):
        return model(**batch)
    if not isinstance(batch, tuple | list):
        return model(batch)
    if loss is not None and len(batch) > 1:
        return model(*batch[:-1])
    return model(*batch)


def _sum(output: Any) -> Any:
    terms = [each.sum() for each in _tensors(output) if each.is_floating_point()]
    if not terms:
        raise NbprofError(
            "the model has no output of floating point to differentiate; pass loss=, a function of"
            " its output"
        )
    return sum(terms[1:], terms[0])


def _own_loss(output: Any) -> Any:
    """The loss that a model returns as a field or a key; None if it does not."""
    value = getattr(output, "loss", None)
    if isinstance(output, dict):
        value = output.get("loss", value)
    if isinstance(value, torch.Tensor):
        return value
    return None


def _loss_of(output: Any, batch: Any, loss: Any) -> Any:
    if isinstance(batch, tuple | list) and len(batch) > 1:
        return loss(output, batch[-1])
    if isinstance(batch, dict):
        return loss(output, batch)
    return loss(output)


def _tensors(value: Any) -> Iterator[Any]:
    """Tensors of a tree; of an object with fields, those of its fields."""
    for leaf in tree_iter(value):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif hasattr(leaf, "__dataclass_fields__"):
            yield from _tensors(vars(leaf))


def _state(optimizer: Any) -> Iterator[Any]:
    return _tensors([dict(state) for state in optimizer.state.values()])


def _autocast(dtype: Any) -> Any:
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=dtype)


def _update_at_once(optimizer: Any) -> None:
    """As on a GPU, where `foreach` is the default of the optimizers that have it."""
    for group in optimizer.param_groups:
        if "foreach" not in group or group.get("fused") or group.get("differentiable"):
            continue
        if group["foreach"] is None and not isinstance(optimizer, _NOT_AT_ONCE):
            group["foreach"] = True


_NOT_AT_ONCE = (torch.optim.Adafactor,)
"""Optimizers whose default is a loop on all devices."""


def _needs_closure(optimizer: Any) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _built(factory: Callable[..., Any], model: Any, mode: FakeTensorMode) -> Any:
    """The optimizer that a class or a function builds for the parameters of the copy."""
    if not callable(factory):
        raise NbprofError(
            f"optimizer is {factory!r}; pass an optimizer, its class, or a function of the"
            " parameters that returns one"
        )
    try:
        with mode:
            optimizer = factory(list(model.parameters()))
    except Exception as error:
        raise NbprofError(
            f"optimizer(parameters) failed: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(optimizer, "param_groups"):
        raise NbprofError(
            f"optimizer(parameters) returned a {type(optimizer).__name__}, not an optimizer"
        )
    return optimizer


def _check_parameters(optimizer: Any, model: Any) -> None:
    parameters = {id(parameter) for parameter in model.parameters()}
    updated = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if not parameters & updated:
        raise NbprofError(
            "the optimizer has no parameter of this model; build it with model.parameters()"
        )


def _with_shapes(batch: Any, model: Any) -> Any:
    """A batch in which shapes, tuples of integers, are tensors of the type of the model."""
    dtype = torch.get_default_dtype()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            dtype = parameter.dtype
            break

    def converted(value: Any) -> Any:
        if _is_shape(value):
            return torch.empty(tuple(value), dtype=dtype, device="meta")
        if isinstance(value, tuple | list):
            return type(value)(map(converted, value))
        if isinstance(value, dict):
            return {key: converted(item) for key, item in value.items()}
        if type(value).__module__ == "numpy" and hasattr(value, "__array_interface__"):
            return torch.as_tensor(value)
        return value

    converted_batch = converted(batch)
    if isinstance(converted_batch, list):
        converted_batch = tuple(converted_batch)
    elif not isinstance(converted_batch, dict | tuple) and hasattr(converted_batch, "items"):
        # Batches of tokenizers are mappings.
        converted_batch = dict(converted_batch.items())
    if not any(True for _ in _tensors(converted_batch)):
        raise NbprofError(
            f"batch is a {type(batch).__name__} without tensors; pass a tensor, a tuple or a"
            " dictionary of tensors, or a shape such as (32, 3, 224, 224). Tensors may be on the"
            " device meta"
        )
    return converted_batch


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) > 0
        and all(isinstance(size, int) and not isinstance(size, bool) for size in value)
    )


def _batch_size(batch: Any) -> int | None:
    for tensor in _tensors(batch):
        if tensor.dim():
            return int(tensor.shape[0])
    return None


@contextlib.contextmanager
def _restored_settings() -> Iterator[None]:
    """Leaves the generators of random numbers as they were, and recurrent layers as their ops.

    Of oneDNN's op for a whole recurrent layer the workspace is unknown without data.
    """
    python = random.getstate()
    numpy: Any = sys.modules.get("numpy.random")
    state = None
    if numpy is not None:
        state = numpy.get_state()
    torch_state = torch.get_rng_state()
    # The error is raised and explained; PyTorch would print its stack as well.
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, logger.disabled = logger.disabled, True
    is_onednn_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(is_onednn_enabled)
        logger.disabled = was_disabled
        random.setstate(python)
        torch.set_rng_state(torch_state)
        if numpy is not None:
            numpy.set_state(state)


def _explained(error: Exception) -> NbprofError:
    prefix = _line_of(error.__traceback__)
    if isinstance(error, UnsupportedOperatorException):
        return NbprofError(
            f"{prefix}the op {error.func} has no implementation for tensors without data; register"
            " one with torch.library.register_fake"
        )
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return NbprofError(
            f"{prefix}the step depends on the values of a tensor (op {error.func}), which a"
            " prediction does not have; leave out .item(), nonzero() and branches on values, or"
            " measure a step with nbprof.profile()"
        )
    text = str(error).strip().split("\n")[0].rstrip(".")
    return NbprofError(
        f"{prefix}the step cannot be traced: {type(error).__name__}: {text}. It must run as it is"
        " on a batch of these shapes and types"
    )


def _line_of(trace: TracebackType | None) -> str:
    """The last line that is of neither PyTorch nor nbprof, before a message."""
    for frame in reversed(traceback.extract_tb(trace)):
        path = Path(frame.filename)
        if not path.is_relative_to(_TORCH) and not path.is_relative_to(_OURS):
            if frame.filename.startswith(sys.base_prefix) or frame.filename.endswith("garbage.py"):
                continue
            return f"{path.name}, line {frame.lineno}: "
    return ""

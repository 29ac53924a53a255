"""Copies of a model, an optimizer and a batch whose tensors have a shape and no data.

The originals are read, never changed, and no memory is taken for the copies.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from nbprof.core.errors import NbprofError

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


class Copies(TorchFunctionMode):  # type: ignore[misc]
    """While it is active, `copy.deepcopy` copies tensors as fake ones.

    Parameters
    ----------
    mode : FakeTensorMode
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self._memo: dict[int, Any] = {}
        self._storages: dict[int, Any] = {}
        # Objects of the person whose id is in the memo.
        self._originals: list[Any] = []

    def copied(self, value: Any) -> Any:
        """A copy of a model, an optimizer or a loss.

        Objects that it shares with those copied before are shared by the copies too, so that an
        optimizer has the parameters of the copied model.

        Raises
        ------
        NbprofError
            It cannot be copied, or has tensors that cannot be traced.
        """
        for module in _modules(value):
            tensors = [*module._parameters.items(), *module._buffers.items()]
            for name, tensor in tensors:
                if tensor is not None and id(tensor) not in self._memo:
                    self._memo[id(tensor)] = self._of_module(
                        tensor, f"{type(module).__name__}.{name}"
                    )
        self._originals.append(value)
        try:
            with self._mode, self:
                return copy.deepcopy(value, self._memo)
        except NbprofError:
            raise
        except Exception as error:
            raise NbprofError(
                f"{type(value).__name__} cannot be copied, which nbprof.fits does so that yours"
                f" stays unchanged ({type(error).__name__}: {error}); remove the attribute that"
                " cannot be copied (a lock, a file, a generator), or create it in forward"
            ) from error

    def batch(self, value: Any) -> Any:
        """Fake tensors for those of a batch; other values stay."""
        return tree_map_only(torch.Tensor, self._fake, value)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__:
            tensor, memo = args
            if id(tensor) not in memo:
                memo[id(tensor)] = self._fake(tensor)
                self._originals.append(tensor)
            return memo[id(tensor)]
        if func is torch._C.TensorBase.clone:
            # Parameters are cloned when they are copied.
            return self._fake(args[0])
        return func(*args, **(kwargs or {}))

    def _of_module(self, tensor: Any, label: str) -> Any:
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise NbprofError(
                f"{label} has no shape yet: lazy modules get it from their first batch, so call the"
                " model once, on a small batch"
            )
        if type(tensor) not in _PLAIN:
            raise NbprofError(
                f"{label} is a {type(tensor).__name__}, whose memory is not predicted; use the"
                " model before it is sharded or quantized"
            )
        fake = self._fake(tensor)
        if isinstance(tensor, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake, tensor.requires_grad)
        elif tensor.requires_grad:
            fake.requires_grad_()
        return fake

    def _fake(self, tensor: Any) -> Any:
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor.layout is not torch.strided:
            raise NbprofError(
                f"the memory of tensors with the layout {tensor.layout} is not predicted; use dense"
                " ones (`sparse=False`)"
            )
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
        with self._mode, torch.no_grad(), torch._C.DisableTorchFunction():
            fake_storage = self._storages.get(storage._cdata)
            if fake_storage is None:
                fake_storage = torch.empty(storage.nbytes(), dtype=torch.uint8).untyped_storage()
                self._storages[storage._cdata] = fake_storage
                self._originals.append(storage)
            fake = torch.empty(0, dtype=tensor.dtype)
            return fake.set_(fake_storage, offset, size, stride)

    def release(self) -> None:
        """Forget the objects that were copied; nothing can be copied any more."""
        self._memo.clear()
        self._storages.clear()
        self._originals.clear()


def _modules(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.nn.Module):
        yield from value.modules()

"""Memory of the tensors that a traced program creates: who allocates, who frees, what the peak is.

Only the life of storages is followed, so that tensors without data (fake tensors) are enough.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from nbprof.capture.fit.roles import Role
from nbprof.core.errors import NbprofError

CUDA_BLOCK_BYTES = 512
"""PyTorch's caching allocator rounds the size of a block up to a multiple of this
(`kMinBlockSize` in c10/cuda/CUDACachingAllocator.h).
"""


_ATEN = torch.ops.aten
_PRODUCTS = (_ATEN.mm, _ATEN.addmm, _ATEN.bmm, _ATEN.baddbmm)
"""Ops whose kernels copy matrices that are contiguous in neither of their two dimensions."""


class Allocations(TorchDispatchMode):  # type: ignore[misc]
    """Follow the storages of all tensors that are created while it is active.

    Parameters
    ----------
    mode : FakeTensorMode
        Of the tensors.
    block_bytes : int
        Sizes are rounded up to a multiple of it.

    Attributes
    ----------
    numbers_are_one : bool
        Numbers that are read from a tensor are 1 where they are unknown. Optimizers scale their
        update by some; their memory does not depend on them.
    """

    def __init__(self, mode: FakeTensorMode, block_bytes: int = 1) -> None:
        super().__init__()
        self.numbers_are_one = False
        self._mode = mode
        self._block_bytes = block_bytes
        self._numbers: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._roles: list[Role] = []
        # Number of a storage and the change of its bytes, in the order of time.
        self._events: list[tuple[int, int]] = []
        self._bytes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "prim":
            # Asks for the device or the layout of a tensor.
            return func(*args, **(kwargs or {}))
        if func is not _ATEN.lift_fresh.default:
            args, kwargs = self._all_fake(args, kwargs or {})
        copies: list[int] = []
        if func.overloadpacket in _PRODUCTS:
            copies = [self._copied(matrix) for matrix in _strided(args)]
        try:
            result = func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            if not self.numbers_are_one or func is not _ATEN._local_scalar_dense.default:
                raise
            return 1.0
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                self._follow(value)
        for number in copies:
            self._events.append((number, -self._bytes[number]))
        return result

    def assign(self, tensors: Iterable[Any], role: Role, among: Iterable[Role] = Role) -> None:
        """Set the role of the storages of tensors, also of those created before.

        Parameters
        ----------
        tensors : iterable of Tensor
        role : Role
        among : iterable of Role
            Storages with other roles keep theirs.
        """
        replaced = set(among)
        for tensor in tensors:
            number = self._follow(tensor)
            if self._roles[number] in replaced:
                self._roles[number] = role

    def assign_alive(self, role: Role, among: Role) -> None:
        """Set the role of all storages that are alive and have another one."""
        for number in self._numbers.values():
            if self._roles[number] is among:
                self._roles[number] = role

    def peak(self) -> dict[Role, int]:
        """Bytes by role at the first moment with the most bytes; they add up to the peak."""
        in_use = peak_bytes = peak_index = 0
        for index, (_, change) in enumerate(self._events):
            in_use += change
            if in_use > peak_bytes:
                peak_bytes, peak_index = in_use, index + 1
        totals: dict[Role, int] = defaultdict(int)
        for number, change in self._events[:peak_index]:
            totals[self._roles[number]] += change
        return {role: totals[role] for role in Role if totals[role]}

    def _follow(self, tensor: Any) -> int:
        if tensor.layout is not torch.strided:
            raise NbprofError(
                f"the memory of tensors with the layout {tensor.layout} is not predicted; use dense"
                " ones (`sparse=False`)"
            )
        storage = tensor.untyped_storage()
        address = storage._cdata
        size = self._rounded(storage.nbytes())
        number = self._numbers.get(address)
        if number is None:
            number = len(self._roles)
            self._numbers[address] = number
            self._roles.append(Role.TEMPORARIES)
            self._bytes.append(0)
            self._references[number] = weakref.ref(storage, self._freeing(number, address))
        if size != self._bytes[number]:
            self._events.append((number, size - self._bytes[number]))
            self._bytes[number] = size
        return number

    def _all_fake(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        for value in tree_iter((args, kwargs)):
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                fakes: tuple[Any, Any] = tree_map_only(torch.Tensor, self._captured, (args, kwargs))
                return fakes
        return args, kwargs

    def _copied(self, matrix: Any) -> int:
        """The number of a copy that a kernel makes for the time of an op."""
        number = len(self._roles)
        self._roles.append(Role.TEMPORARIES)
        self._bytes.append(self._rounded(matrix.numel() * matrix.element_size()))
        self._events.append((number, self._bytes[number]))
        return number

    def _captured(self, tensor: Any) -> Any:
        """A fake tensor for one of the person's that a function of theirs refers to."""
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor.requires_grad and torch.is_grad_enabled():
            raise NbprofError(
                "the step refers to parameters of another model than the one that was passed (a"
                " loss that reads `model`, for one); make them part of the model, or pass the loss"
                " as a module"
            )
        fake = self._mode.from_tensor(tensor)
        if tensor.dim():
            self.assign([fake], Role.INPUTS, [Role.TEMPORARIES])
        return fake

    def _rounded(self, size: int) -> int:
        return -(-size // self._block_bytes) * self._block_bytes

    def _freeing(self, number: int, address: int) -> Any:
        def free(_: Any) -> None:
            self._events.append((number, -self._bytes[number]))
            self._references.pop(number, None)
            if self._numbers.get(address) == number:
                del self._numbers[address]

        return free


def _strided(args: Any) -> Iterator[Any]:
    for value in args:
        if isinstance(value, torch.Tensor) and value.dim() in (2, 3) and value.numel():
            rows, columns = value.shape[-2:]
            row_stride, column_stride = value.stride()[-2:]
            is_plain = column_stride == 1 and row_stride >= columns
            is_transposed = row_stride == 1 and column_stride >= rows
            if not is_plain and not is_transposed and rows > 1 and columns > 1:
                yield value

"""Memory of the tensors that a traced program creates: who allocates, who frees, what the peak is.

Only the life of storages is followed, so that tensors without data (fake tensors) are enough.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from nbprof.core.errors import NbprofError
from nbprof.fit.roles import Role

CUDA_BLOCK_BYTES = 512
"""PyTorch's caching allocator rounds the size of a block up to a multiple of this
(`kMinBlockSize` in c10/cuda/CUDACachingAllocator.h).
"""


class Allocations(TorchDispatchMode):
    """Follow the storages of all tensors that are created while it is active.

    Parameters
    ----------
    block_bytes : int
        Sizes are rounded up to a multiple of it.
    """

    def __init__(self, block_bytes: int = 1) -> None:
        super().__init__()
        self.default_role = Role.TEMPORARIES
        self._block_bytes = block_bytes
        self._numbers: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._roles: list[Role] = []
        # Number of a storage and the change of its bytes, in the order of time.
        self._events: list[tuple[int, int]] = []
        self._bytes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                self._follow(value)
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
        size = -(-storage.nbytes() // self._block_bytes) * self._block_bytes
        number = self._numbers.get(address)
        if number is None:
            number = len(self._roles)
            self._numbers[address] = number
            self._roles.append(self.default_role)
            self._bytes.append(0)
            self._references[number] = weakref.ref(storage, self._freeing(number, address))
        if size != self._bytes[number]:
            self._events.append((number, size - self._bytes[number]))
            self._bytes[number] = size
        return number

    def _freeing(self, number: int, address: int) -> Any:
        def free(_: Any) -> None:
            self._events.append((number, -self._bytes[number]))
            self._references.pop(number, None)
            if self._numbers.get(address) == number:
                del self._numbers[address]

        return free

"""Addresses of parameters, gradients, optimizer state and caches, by the objects themselves.

Their addresses go into the trace, where the allocator's events have the same. No tensor is kept
alive, and nothing of a tensor is read but where its storage is.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from nbprof.core.memory_roles import BUFFERS, KV_CACHE, OPTIMIZER_STATE, PARAMETERS

_MOST_GRADIENTS = 50_000
"""Gradients that are noted while a recording runs, counted anew each time."""
_MOST_CACHED = 50_000
"""Keys and values that are noted while a recording runs, counted anew each time."""
_DEPTH = 4
"""Containers in containers of an optimizer's state that are looked into."""

_CACHES_OF_CACHE = ("self_attention_cache", "cross_attention_cache")
_KEYS_AND_VALUES = frozenset(
    (
        "keys",
        "values",
        "_quantized_keys",
        "_quantized_values",
        "key_cache",
        "value_cache",
        "_quantized_key_cache",
        "_quantized_value_cache",
    )
)
"""Attributes of a cache of transformers, or of its layers."""

_Storage = tuple[str, int, int, int]
"""Type and number of the device, address and bytes of a storage."""


class KnownTensors:
    """The tensors of live models and optimizers.

    Parameters
    ----------
    torch : module
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._sets: dict[tuple[_Storage, ...], int] = {}
        self._seen: list[tuple[int, int]] = []
        self._cached: list[tuple[int, int]] = []
        self._left = _MOST_GRADIENTS
        self._left_of_caches = _MOST_CACHED
        self._steps: dict[int, int] = {}
        """Steps of each optimizer so far, by its identity."""

    def stepped(self, optimizer: Any) -> None:
        """Note the gradients at the end of the 1st, 2nd, 4th, 8th … step of each optimizer: a
        thousand of them take some milliseconds. Never raises.
        """
        # A part of an optimizer that cannot be read leaves its gradients unknown.
        try:
            steps = self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
            if not steps & (steps - 1):
                self._note([optimizer])
        except Exception:
            self._left = 0

    def generated(self, arguments: Mapping[str, Any]) -> None:
        """Note the keys and values in the arguments of the call that generates the next token.
        Never raises.
        """
        if self._left_of_caches <= 0:
            return
        try:
            caches = [each for each in arguments.values() if isinstance(each, cache_class())]
            storages = tuple(dict.fromkeys(map(self._storage_of, _keys_and_values(caches))))
            cached = tuple(storage for storage in storages if storage is not None)
            if cached:
                self._left_of_caches -= len(cached)
                number = self._sets.setdefault(cached, len(self._sets))
                self._cached.append((time.time_ns(), number))
        except Exception:
            self._left_of_caches = 0

    def end(self) -> str:
        """The addresses, as JSON for the trace (`nbprof.core.memory_roles.TENSORS`)."""
        modules, optimizers, caches = _live(self._torch)
        self._left = _MOST_GRADIENTS
        self._note(optimizers, modules)
        tensors: dict[_Storage, str] = {}
        for role, objects in (
            (OPTIMIZER_STATE, _states(optimizers)),
            (BUFFERS, _members(modules, "_buffers")),
            (KV_CACHE, _keys_and_values(caches)),
            (PARAMETERS, _members(modules, "_parameters")),
            (PARAMETERS, _parameters(optimizers)),
        ):
            for tensor in objects:
                storage = self._storage_of(tensor)
                # A view of a parameter in an optimizer's state is still the parameter.
                if storage is not None:
                    tensors[storage] = role
        return json.dumps(
            {
                "tensors": [[role, *storage] for storage, role in tensors.items()],
                "gradients": self._seen,
                "caches": self._cached,
                "sets": list(self._sets),
            }
        )

    def _note(self, optimizers: Iterable[Any], modules: Iterable[Any] = ()) -> None:
        """Note the gradients that there are now."""
        if self._left <= 0:
            return
        storages: dict[_Storage, None] = {}
        for objects in (_parameters(optimizers), _members(modules, "_parameters")):
            for tensor in objects:
                storage = self._storage_of(getattr(tensor, "grad", None))
                if storage is not None:
                    storages[storage] = None
        if not storages:
            return
        gradients = tuple(storages)
        self._left -= len(gradients)
        number = self._sets.setdefault(gradients, len(self._sets))
        self._seen.append((time.time_ns(), number))

    def _storage_of(self, tensor: Any) -> _Storage | None:
        """The storage of a tensor; None if it has none that an allocator handed out."""
        if not isinstance(tensor, self._torch.Tensor):
            return None
        try:
            # A DTensor is the part of it that is here.
            local = getattr(tensor, "_local_tensor", tensor)
            if isinstance(local, _fake()):
                # PyTorch warns where the address of one is read.
                return None
            memory, device = local.untyped_storage(), local.device
            address, size = memory.data_ptr(), memory.nbytes()
            # Memory of NumPy, of a file or of several processes is not the allocator's.
            owned = device.type != "cpu" or memory.resizable()
        except Exception:
            # Tensors without memory: fake ones, sparse ones, those not yet initialised.
            return None
        if not address or not size or not owned:
            return None
        return device.type, device.index or 0, address, size


def _fake() -> Any:
    """The class of tensors without memory, as `nbprof.fits` and compilers use them."""
    return getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())


def cache_class() -> Any:
    """The base class of caches of transformers; no class as long as they are not imported."""
    return getattr(sys.modules.get("transformers.cache_utils"), "Cache", ())


class _Live(NamedTuple):
    """Objects that there are, whoever holds them."""

    modules: list[Any]
    optimizers: list[Any]
    caches: list[Any]


def _live(torch: Any) -> _Live:
    """All modules, optimizers and caches."""
    bases = torch.nn.Module, torch.optim.Optimizer, cache_class()
    objects = _Live([], [], [])
    kinds: dict[type, int] = {}
    for each in gc.get_objects():
        kind = type(each)
        number = kinds.get(kind)
        if number is None:
            number = kinds[kind] = [*(issubclass(kind, base) for base in bases), True].index(True)
        if number < len(bases):
            objects[number].append(each)
    return objects


def _keys_and_values(caches: Iterable[Any]) -> Iterator[Any]:
    """The tensors of caches: in their layers, or before transformers 4.54 in lists."""
    for cache in caches:
        held = vars(cache)
        yield from _keys_and_values(held[name] for name in _CACHES_OF_CACHE if name in held)
        for owner in (cache, *held.get("layers", ())):
            attributes = getattr(owner, "__dict__", {})
            for name in _KEYS_AND_VALUES & attributes.keys():
                yield from _tensors_in(attributes[name], _DEPTH)


def _members(modules: Iterable[Any], name: str) -> Iterator[Any]:
    """Parameters or buffers of modules themselves; a module in another is listed as well."""
    for module in modules:
        members = vars(module).get(name)
        if isinstance(members, dict):
            yield from members.values()


def _parameters(optimizers: Iterable[Any]) -> Iterator[Any]:
    for optimizer in optimizers:
        for group in vars(optimizer).get("param_groups") or ():
            yield from group.get("params", ())


def _states(optimizers: Iterable[Any]) -> Iterator[Any]:
    for optimizer in optimizers:
        yield from _tensors_in(vars(optimizer).get("state"), _DEPTH)


def _tensors_in(value: Any, depth: int) -> Iterator[Any]:
    """The values in containers."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        yield value
    elif depth:
        for each in value:
            yield from _tensors_in(each, depth - 1)

"""Experiments on the DataLoader of PyTorch: workers that stay, and read ahead."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from nbprof.capture.experiments.edits import in_constructor
from nbprof.capture.experiments.experiment import Change, Experiment, available_cores
from nbprof.capture.experiments.observation import Observation, end_workers
from nbprof.capture.patches import Patches
from nbprof.frameworks.register import JAX, is_imported

_AHEAD = 4
"""Batches that each worker reads ahead."""
_RULES = ("loader_in_process", "loader_workers", "input_bottleneck")


class Copied(Change):
    """Each loader is replaced by a copy with other attributes where it is iterated over.

    The program's loaders remain as they are.

    Parameters
    ----------
    attributes : callable
        Makes those of the copy, by the loader.
    why_not : callable
        Returns why a loader is not replaced; '' if it is.
    observation : Observation
    warmup : int
        See `Change`.
    """

    def __init__(
        self,
        attributes: Callable[[Any], dict[str, Any]],
        why_not: Callable[[Any], str],
        observation: Observation,
        warmup: int = 0,
    ) -> None:
        self.warmup = warmup
        self._attributes = attributes
        self._why_not = why_not
        self._lasting = {id(loader) for loader in observation.loaders}
        # With the loader itself, so that no other one gets its address.
        self._copies: dict[int, tuple[Any, Any]] = {}

    def apply(self, patches: Patches) -> None:  # noqa: D102
        loader_class = sys.modules["torch.utils.data"].DataLoader
        original = loader_class.__iter__

        @wraps(original)
        def iterate(loader: Any) -> Any:
            if self._why_not(loader):
                return original(loader)
            return original(self._copy(loader))

        patches.on_restore(self._end_passing)
        patches.replace(loader_class, "__iter__", iterate)

    def _copy(self, loader: Any) -> Any:
        if id(loader) not in self._copies:
            copy = object.__new__(type(loader))
            # Past `__setattr__`, which refuses changes.
            vars(copy).update(vars(loader))
            vars(copy).update(self._attributes(loader), _iterator=None)
            self._copies[id(loader)] = loader, copy
        return self._copies[id(loader)][1]

    def _end_passing(self) -> None:
        """End the workers of loaders that the program makes anew in each run."""
        for key in self._copies.keys() - self._lasting:
            self._end(key)

    def _end(self, key: int) -> None:
        copy = self._copies.pop(key)[1]
        iterator, copy._iterator = copy._iterator, None
        end_workers(iterator)

    def close(self) -> None:  # noqa: D102
        for key in list(self._copies):
            self._end(key)


def _with_workers(count: int, observation: Observation) -> Change:
    attributes = {
        "num_workers": count,
        "prefetch_factor": _AHEAD,
        "persistent_workers": True,
    }
    warmup = count * _AHEAD + 1
    return Copied(lambda _: attributes, lambda loader: _why_not(loader, count), observation, warmup)


def _why_not(loader: Any, count: int) -> str:
    data = sys.modules["torch.utils.data"]
    if isinstance(loader.dataset, data.IterableDataset):
        return "workers repeat the items of an iterable dataset that does not divide them"
    if loader.num_workers >= count:
        return f"the loader has {loader.num_workers} workers already"
    return ""


def _refusal(count: int, observation: Observation) -> str:
    if not observation.loaders:
        return "no DataLoader was read"
    forked = (multiprocessing.get_start_method(allow_none=True) or "fork") == "fork"
    if is_imported(JAX.name) and forked and sys.platform == "linux":
        return "JAX was imported, and a process with it may hang when it is forked for workers"
    reasons = [_why_not(loader, count) for loader in observation.loaders]
    if all(reasons):
        return reasons[0]
    return ""


def _experiment(name: str, count: int) -> Experiment:
    return Experiment(
        name,
        f"DataLoader with {count} persistent workers",
        "torch",
        _RULES,
        partial(_refusal, count),
        partial(_with_workers, count),
        "- DataLoader(...)\n"
        f"+ DataLoader(..., num_workers={count}, persistent_workers=True,"
        f" prefetch_factor={_AHEAD})",
        unequal="random items always differ, as each worker draws numbers of its own",
        touches=("loader",),
        edit=in_constructor(
            lambda observation: observation.loaders,
            {
                "num_workers": str(count),
                "persistent_workers": "True",
                "prefetch_factor": str(_AHEAD),
            },
        ),
    )


EXPERIMENTS = (
    _experiment("loader_workers", max(2, available_cores())),
    _experiment("loader_many_workers", 4 * available_cores()),
)

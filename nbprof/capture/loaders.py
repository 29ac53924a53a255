"""Loaders that the recorded code uses, their arguments, and the cores that they use.

No loader is kept alive and none of its code runs: the attributes that its constructor set are read
once per iteration.
"""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NamedTuple

from nbprof.capture.loader_workers.watch import WorkerWatch
from nbprof.capture.patches import Patches
from nbprof.core.loader_uses import (
    DATA_LOADER,
    GRAIN_DATASET,
    GRAIN_LOADER,
    ITERABLE,
    MOST,
    PY_DATASET,
    TF_DATA,
    LoaderUse,
    short,
)

_MODULE = "torch.utils.data.dataloader"


class Clocks(NamedTuple):
    """A time in seconds: of the clock, and of the CPU time of the process and of the thread."""

    wall: float
    process: float
    thread: float


@dataclass
class _Sums:
    """Sums over the batches for `LoaderUse`."""

    iterations: int = 0
    batches: int = 0
    wait_s: float = 0.0
    wait_cpu_s: float = 0.0
    rest_s: float = 0.0
    rest_cpu_s: float = 0.0


@dataclass
class _Iteration:
    """An iterator over batches: its loader, and when it gave the last one, by both clocks."""

    loader: LoaderUse
    last: Clocks | None = None


class Loaders:
    """The loaders of one session.

    `begin` resets the counts, but not the iterators that are running.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.process_time,
        thread_cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._now, self._cpu, self._thread_cpu = now, cpu, thread_cpu
        self._iterations: weakref.WeakKeyDictionary[Any, _Iteration] = weakref.WeakKeyDictionary()
        self._sums: dict[LoaderUse, _Sums] = {}
        self._hooked: set[tuple[int, str]] = set()
        self._of_steps = _Iteration(LoaderUse(ITERABLE))
        self.workers = WorkerWatch()
        """What happens in their worker processes."""
        self.counting = False
        """True from the begin of a window until its loaders are taken."""

    def begin(self) -> None:
        """A window begins."""
        self._sums, self.counting = {}, True
        self.workers.begin()
        for iteration in [self._of_steps, *self._iterations.values()]:
            iteration.last = None

    def taken(self) -> list[LoaderUse]:
        """The loaders of the window, those that it waited for longest first."""
        self.counting = False
        uses = [replace(loader, **vars(sums)) for loader, sums in self._sums.items()]
        return sorted(uses, key=lambda use: -use.wait_s)[:MOST]

    def hook(self, patches: Patches) -> None:
        """Watch the loaders of the frameworks that are imported by now."""
        self.workers.hook(patches)
        with contextlib.suppress(Exception):
            self.workers.hook_tensorflow(patches)
        owner = getattr(sys.modules.get(_MODULE), "_BaseDataLoaderIter", None)
        for name in ("__init__", "_reset"):
            if owner is not None and name in vars(owner) and (id(owner), name) not in self._hooked:
                self._hooked.add((id(owner), name))
                self._around(owner, name, patches)

    def _around(self, owner: Any, name: str, patches: Patches) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def starts(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            # A new iterator with workers is reset once while it is made.
            if not (args and args[0] is True) and kwargs.get("first_iter") is not True:
                self.iterates(iterator, lambda: _of_data_loader(loader))
                with contextlib.suppress(Exception):
                    self.workers.iterates(loader, iterator)
            return original(iterator, loader, *args, **kwargs)

        patches.replace(owner, name, starts)

    def hook_keras(self, module: Any, patches: Patches) -> None:
        """Watch what `fit` of Keras is given; `module` is `entry.PY_DATASETS`."""
        owner = getattr(module, "PyDatasetAdapter", None)
        if owner is None or (id(owner), "__init__") in self._hooked:
            return
        self._hooked.add((id(owner), "__init__"))
        with contextlib.suppress(Exception):
            self.workers.hook_keras(module, patches)
        original = owner.__init__

        @wraps(original)
        def init(adapter: Any, x: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            shuffle = kwargs.get("shuffle", args[1] if len(args) > 1 else False)
            with contextlib.suppress(Exception):
                self._count(_of_py_dataset(x, shuffle)).iterations += 1
            original(adapter, x, *args, **kwargs)
            with contextlib.suppress(Exception):
                self.workers.takes(adapter, x, patches)

        patches.replace(owner, "__init__", init)

    def iterates(self, iterator: Any, look: Callable[[], LoaderUse]) -> None:
        """An iteration begins. Never raises."""
        with contextlib.suppress(Exception):
            loader = look()
            self._iterations[iterator] = _Iteration(loader)
            self._count(loader).iterations += 1

    def clocks(self) -> Clocks:
        """Read all three now."""
        return Clocks(self._now(), self._cpu(), self._thread_cpu())

    def gave(self, iterator: Any, began: Clocks) -> None:
        """An iterator gave a batch that it was asked for then. Never raises."""
        with contextlib.suppress(Exception):
            iteration = self._iterations.get(iterator)
            if iteration is None:
                # It was made before the recording.
                iteration = self._iterations[iterator] = _Iteration(_of_iterator(iterator))
            ended = self.clocks()
            self.workers.gave(iterator, ended.wall - began.wall)
            self._add(iteration, began, ended)

    def steps_gave(self, began: Clocks) -> None:
        """`nbprof.steps` got an item, from no iterator of a framework, that it asked for then.

        Never raises.
        """
        with contextlib.suppress(Exception):
            self._add(self._of_steps, began, self.clocks())

    def _add(self, iteration: _Iteration, began: Clocks, ended: Clocks) -> None:
        last, loader = iteration.last, iteration.loader
        iteration.last = ended
        if last is None:
            return
        sums = self._count(loader)
        sums.batches += 1
        sums.wait_s += ended.wall - began.wall
        # Threads of ops that have ended spin for a while: they make no part of a batch that this
        # thread makes.
        if loader.kind == ITERABLE or (loader.kind == DATA_LOADER and loader.workers == 0):
            sums.wait_cpu_s += ended.thread - began.thread
        else:
            sums.wait_cpu_s += ended.process - began.process
        sums.rest_s += began.wall - last.wall
        sums.rest_cpu_s += began.process - last.process

    def _count(self, loader: LoaderUse) -> _Sums:
        return self._sums.setdefault(loader, _Sums())


def _of_data_loader(loader: Any) -> LoaderUse:
    """The arguments of a DataLoader, as it stored them: a property of a subclass is not asked."""
    stored = _stored(loader)
    workers, prefetched = _count(stored.get("num_workers")), None
    if workers:
        prefetched = _count(stored.get("prefetch_factor"))
    sampler = type(stored.get("sampler")).__name__
    return LoaderUse(
        DATA_LOADER,
        short(type(stored.get("dataset")).__name__),
        workers,
        prefetched,
        _flag(stored.get("pin_memory")),
        _flag(stored.get("persistent_workers")),
        batch_size=_count(stored.get("batch_size")),
        shuffle={"RandomSampler": True, "SequentialSampler": False}.get(sampler),
    )


def _of_iterator(iterator: Any) -> LoaderUse:
    """The same by an iterator that was made before, which knows less."""
    if type(iterator).__module__ != _MODULE:
        return LoaderUse(TF_DATA)
    stored = _stored(iterator)
    workers, prefetched = _count(stored.get("_num_workers")), None
    if workers:
        prefetched = _count(stored.get("_prefetch_factor"))
    return LoaderUse(
        DATA_LOADER,
        short(type(stored.get("_dataset")).__name__),
        workers,
        prefetched,
        persistent_workers=_flag(stored.get("_persistent_workers")),
    )


def _of_py_dataset(dataset: Any, shuffle: object) -> LoaderUse:
    stored = _stored(dataset)
    return LoaderUse(
        PY_DATASET,
        short(type(dataset).__name__),
        _count(stored.get("_workers")),
        _count(stored.get("_max_queue_size")),
        processes=_flag(stored.get("_use_multiprocessing")),
        shuffle=_flag(shuffle),
    )


def of_grain(iterator: Any, source: str, workers: int) -> LoaderUse:
    """A loader of grain, by its iterator, the class of what it reads and its processes."""
    kind = GRAIN_LOADER if type(iterator).__name__.startswith("DataLoader") else GRAIN_DATASET
    return LoaderUse(kind, short(source), workers, processes=workers > 0)


def _stored(thing: Any) -> dict[str, Any]:
    """The attributes of an object, without calling methods of its class."""
    attributes: dict[str, Any] = object.__getattribute__(thing, "__dict__")
    return attributes


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None

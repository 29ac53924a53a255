"""The pools of threads and processes that make the batches of a PyDataset of Keras."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import multiprocessing.dummy
import multiprocessing.pool
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from nbprof.capture.loader_workers.entry import PY_DATASETS
from nbprof.capture.loader_workers.folder import Folder
from nbprof.capture.loader_workers.py_datasets import Batch, OfThreads, stage_of_dataset
from nbprof.capture.loader_workers.recorder import Recorder
from nbprof.capture.loader_workers.stages import Stage
from nbprof.capture.patches import Patches


class Pools:
    """The pools that Keras starts while it is recorded.

    Parameters
    ----------
    is_worker : callable
        Is called on each thread of a pool, with its number in it.
    starts : callable
        Is called before the processes for a dataset start; returns the folder to report through,
        the number of the dataset as a loader, and whether to sample, or None to record nothing.
    numbers : dict
        Takes the number in its pool of each process.
    """

    def __init__(
        self,
        is_worker: Callable[[int], None],
        starts: Callable[[Any], tuple[Folder, int, bool] | None],
        numbers: dict[int, int],
    ) -> None:
        self._is_worker, self._starts, self._numbers = is_worker, starts, numbers
        self._now = threading.local()
        self._pools: list[Any] = []

    def hook(self, module: Any, patches: Patches) -> None:
        """Watch the pools that Keras's `module` makes from now on."""
        run, pool_class = module.OrderedEnqueuer._run, module.get_pool_class

        @wraps(run)
        def run_of(enqueuer: Any) -> Any:
            __tracebackhide__ = True
            self._now.dataset = enqueuer.py_dataset
            try:
                return run(enqueuer)
            finally:
                self._now.dataset = None

        @wraps(pool_class)
        def pool_class_of(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            of_keras, dataset = pool_class(*args, **kwargs), getattr(self._now, "dataset", None)
            if dataset is None:
                return of_keras

            def pool(*args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                began_ns = time.time_ns()
                with contextlib.suppress(Exception):
                    kwargs = self._watched(of_keras, dataset, began_ns, args, kwargs)
                workers = of_keras(*args, **kwargs)
                with contextlib.suppress(Exception):
                    self._keep(workers)
                return workers

            return pool

        patches.replace(module.OrderedEnqueuer, "_run", run_of)
        patches.replace(module, "get_pool_class", pool_class_of)

    def _watched(
        self,
        of_keras: Any,
        dataset: Any,
        began_ns: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """The arguments of a pool, with an initializer that has its workers watched."""
        initializer = kwargs.get("initializer")
        if of_keras is multiprocessing.dummy.Pool:
            start = _Thread(self._is_worker, initializer)
            return {**kwargs, "initializer": start}
        # Ended pools leave their reports.
        self._pools = [pool for pool in self._pools if _alive(pool)]
        reports = self._starts(dataset)
        if reports is None or initializer is None:
            return kwargs
        folder, loader, samples = reports
        count = int(args[0]) if args else 0
        entry = PoolEntry(initializer, folder, (loader, count, began_ns, samples))
        return {**kwargs, "initializer": entry}

    def _keep(self, pool: Any) -> None:
        if isinstance(pool, multiprocessing.pool.ThreadPool):
            return
        for number, process in enumerate(pool._pool):
            self._numbers[process.pid] = number
        # Keras drops a pool after its last batch, and one that nothing has is terminated: its
        # workers would end without a last report. It is closed, and ends by itself.
        self._pools.append(pool)

    def running(self) -> set[int]:
        """The processes of the pools that run now."""
        return {pid for pool in list(self._pools) for pid in _alive(pool)}

    def release(self) -> None:
        """Leave the pools to Keras."""
        self._pools = []


def _alive(pool: Any) -> set[int]:
    processes = set()
    for process in list(pool._pool):
        with contextlib.suppress(Exception):
            if process.is_alive():
                processes.add(process.pid)
    return processes


class _Thread:
    """The initializer of the threads of a pool: each has a number."""

    def __init__(self, is_worker: Callable[[int], None], initializer: Any) -> None:
        self._is_worker, self._initializer = is_worker, initializer
        self._numbers: Iterator[int] = itertools.count()

    def __call__(self, *args: Any) -> None:
        with contextlib.suppress(Exception):
            self._is_worker(next(self._numbers))
        if self._initializer is not None:
            self._initializer(*args)


class PoolEntry:
    """The initializer of the processes of a pool, in place of Keras's, which it calls.

    Parameters
    ----------
    initializer : callable
        Keras's own.
    folder : Folder
        Where the workers report.
    about : tuple
        Number of the loader and of workers, since when the pool starts, in ns since 1970, and
        whether to sample.
    """

    def __init__(self, initializer: Any, folder: Folder, about: tuple[int, int, int, bool]) -> None:
        self._initializer, self._folder, self._about = initializer, folder, about

    def __reduce__(self) -> Any:
        return _in_worker, (self._initializer, str(self._folder.path), self._about)

    def __call__(self, *args: Any) -> None:
        """Record this process, and initialize it."""
        recorder = None
        with contextlib.suppress(Exception):
            # A fork has the parent's lock.
            self._folder.leave()
            recorder = PoolWorker(self._folder, *self._about)
            recorder.hook(sys.modules[PY_DATASETS])
        self._initializer(*args)
        if recorder is not None:
            with contextlib.suppress(Exception):
                recorder.start()


def _in_worker(initializer: Any, path: str, about: tuple[int, int, int, bool]) -> PoolEntry:
    """The same in a process that did not inherit it."""
    importlib.import_module(PY_DATASETS)
    return PoolEntry(initializer, Folder(Path(path)), about)


class PoolWorker(Recorder):
    """Times the batches of this worker process of a pool."""

    def __init__(
        self, folder: Folder, loader: int, worker: int, began_ns: int, samples: bool
    ) -> None:
        super().__init__(folder, loader, worker, began_ns, samples)
        self._batches: dict[int, tuple[Any, OfThreads, Stage]] = {}
        self._ended_ns = self._pickled_ns = 0
        self._main = threading.get_ident()

    def hook(self, module: Any) -> None:
        """Time the batches that Keras's `module` makes in this process."""
        original = module.get_index

        @wraps(original)
        def get_index(uid: Any, index: Any) -> Any:
            __tracebackhide__ = True
            batch = None
            with contextlib.suppress(Exception):
                if self.follow():
                    batch = self._batch(uid, module)
            if batch is None:
                return original(uid, index)
            self._waited()
            try:
                return self.timer.make(batch, batch.run, original, uid, index)
            finally:
                self._ended_ns = time.perf_counter_ns()
                self._pickled_ns = self.pickle_ns

        module.get_index = get_index
        self.undo.append(lambda: setattr(module, "get_index", original))
        self.hook_pickler(lambda: threading.get_ident() == self._main)

    def start(self) -> None:
        """The worker is initialized."""
        from multiprocessing import util

        self.ready()
        super().start()
        # The process ends without running what is registered with `atexit`.
        util.Finalize(None, self.end, exitpriority=100)

    def _batch(self, uid: Any, module: Any) -> Batch:
        dataset = module._SHARED_SEQUENCES[uid]
        parts = self._batches.get(uid)
        if parts is None or parts[0] is not dataset:
            transforms = OfThreads(dataset, (module.PyDataset,))
            parts = self._batches[uid] = dataset, transforms, stage_of_dataset(dataset)
        return Batch(parts[1], parts[2], self.timer.stages)

    def _waited(self) -> None:
        """Since its last batch, or its start, the worker did nothing but send that."""
        totals = self.timer.totals
        if self._ended_ns and totals.batches:
            waited = time.perf_counter_ns() - self._ended_ns
            # Of some messages, pickling is an estimate that later ones correct.
            pickled = min(max(self.pickle_ns - self._pickled_ns, 0), waited)
            totals.waiting_ns += max(waited - pickled, 0)

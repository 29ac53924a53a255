"""Times the batches that a PyDataset of Keras makes in this process: in the loop, or in threads."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

from nbprof.capture.loader_workers.batches import BatchTimer
from nbprof.capture.loader_workers.chain import Chain
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.loader_workers.stages import DATASET, Stage, Stages, Times, stage_of
from nbprof.capture.patches import Patches
from nbprof.core.worker_times import IN_PROCESS, MOST_ROWS

_OWN = str(Path(__file__).parent)
_MOST_AT_A_TIME = 16
"""Threads that are sampled at a time."""


class OfThreads:
    """The transforms of a dataset whose batches several threads make.

    They are replaced while any of the threads times a batch, and time it on these threads alone.

    Parameters
    ----------
    dataset : object
    datasets : tuple of type
        As of `Chain`.
    """

    def __init__(self, dataset: Any, datasets: tuple[type, ...]) -> None:
        self._templates = Stages()
        self._of_thread: dict[int, Stages] = {}
        self._lock = threading.Lock()
        self._chain = Chain(dataset, self, datasets)
        self.changes = 4 * len(self._chain) + 10

    def times(self, stage: Stage) -> Times | None:
        """Stands for the times of this stage in the stages of any thread."""
        return self._templates.times(stage)

    def run(
        self, times: Times, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call something, and count its time if the current thread times a batch."""
        __tracebackhide__ = True
        stages = self._of_thread.get(threading.get_ident())
        of_stage = None if stages is None else stages.times(times.stage)
        if stages is None or of_stage is None:
            return call(*args, **kwargs)
        return stages.run(of_stage, call, args, kwargs)

    def enter(self, stages: Stages) -> None:
        """The current thread times a batch with these stages."""
        with self._lock:
            if not self._of_thread:
                self._chain.install()
            self._of_thread[threading.get_ident()] = stages

    def leave(self) -> None:
        """It has made the batch."""
        with self._lock:
            self._of_thread.pop(threading.get_ident(), None)
            if not self._of_thread:
                self._chain.remove()


class Batch:
    """A batch that a PyDataset makes: it is timed as a whole, and its transforms are."""

    count = 0
    """A PyDataset makes batches; of how many items is unknown."""

    def __init__(self, transforms: OfThreads, stage: Stage, stages: Stages) -> None:
        self._transforms, self._stages = transforms, stages
        self._times = stages.times(stage)
        self._timed = False
        self.changes = transforms.changes

    def install(self, *, timed: bool) -> None:
        """Time the next batch."""
        self._timed = timed and self._times is not None
        if self._timed:
            self._transforms.enter(self._stages)

    def remove(self) -> None:
        """Leave the transforms as they were."""
        if self._timed:
            self._transforms.leave()

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """Make the batch."""
        __tracebackhide__ = True
        if self._timed and self._times is not None:
            return self._stages.run(self._times, call, args, {})
        return call(*args)


def stage_of_dataset(dataset: Any) -> Stage:
    """The stage that a PyDataset is, by its own code also where that stands behind a timer."""
    stage = stage_of(DATASET, dataset, "__getitem__")
    code = getattr(_own_getitem(type(dataset)), "__code__", None)
    if code is None:
        return stage
    return stage._replace(file=code.co_filename[-500:], line=max(code.co_firstlineno, 0))


def _own_getitem(owner: type) -> Any:
    function = getattr(owner, "__getitem__", None)
    code = getattr(function, "__code__", None)
    if code is not None and code.co_filename.startswith(_OWN):
        return getattr(function, "__wrapped__", None)
    return function


class _Timer(BatchTimer):
    """Times the batches that one worker of a dataset makes, on whichever thread that is."""

    def __init__(
        self, watched: _Watched, worker: int, counts: Callable[[], bool], samples: bool
    ) -> None:
        super().__init__(counts, samples=samples)
        self.worker = worker
        self.watched = watched
        self._ended_ns = 0

    def clear(self) -> None:
        """Forget all batches so far."""
        super().clear()
        self._ended_ns = 0

    def began(self) -> None:
        """Until now nothing was asked of it."""
        if self._ended_ns:
            self.totals.waiting_ns += time.perf_counter_ns() - self._ended_ns

    def ended(self) -> None:
        """From now on nothing is."""
        self._ended_ns = time.perf_counter_ns()


class _Watched:
    """A dataset, its number in the recording, and its timers by worker."""

    def __init__(self, number: int, dataset: Any) -> None:
        self.number = number
        self.dataset = weakref.ref(dataset)
        self.stage = stage_of_dataset(dataset)
        self.idle: dict[int, list[_Timer]] = {}
        self.timers: list[_Timer] = []


class PyDatasets:
    """The datasets of Keras whose batches this process makes.

    `__getitem__` of their classes is replaced until the end of the recording, and times the calls
    for these datasets alone.

    Parameters
    ----------
    counts : callable
        Whether a window is open.
    datasets : tuple of type
        Keras's base class of datasets.
    samples : callable
        Whether to sample the threads that make batches.
    """

    def __init__(
        self,
        counts: Callable[[], bool],
        datasets: tuple[type, ...],
        samples: Callable[[], bool],
    ) -> None:
        self._counts, self._datasets, self._samples = counts, datasets, samples
        self._watched: dict[int, _Watched] = {}
        """By the id of the dataset."""
        self._all: list[_Watched] = []
        self._transforms: weakref.WeakKeyDictionary[Any, OfThreads] = weakref.WeakKeyDictionary()
        """By what has the dataset and ends with it; they hold the dataset as well."""
        self._transforms_of = weakref.WeakValueDictionary[int, OfThreads]()
        self._classes: weakref.WeakSet[type] = weakref.WeakSet()
        self._making: dict[int, _Timer] = {}
        """By thread, what makes a batch now."""
        self._thread = threading.local()
        self._process = os.getpid()
        self._reporter: Reporter | None = None

    def watch(self, dataset: Any, number: int, owner: Any, patches: Patches) -> None:
        """Time the batches of a dataset; `owner` is the object of Keras's that has it."""
        original = getattr(type(dataset), "__getitem__", None)
        if not isinstance(original, FunctionType):
            return
        transforms = self._transforms_of.get(id(dataset)) or OfThreads(dataset, self._datasets)
        self._transforms[owner] = self._transforms_of[id(dataset)] = transforms
        watched = self._watched.get(id(dataset))
        if watched is None or watched.dataset() is not dataset:
            watched = self._watched[id(dataset)] = _Watched(number, dataset)
            self._all.append(watched)
        if type(dataset) not in self._classes:
            self._classes.add(type(dataset))
            patches.replace(type(dataset), "__getitem__", self._timed(original))
        if self._samples() and self._reporter is None:
            self._reporter = Reporter(self._look, lambda: None)
            self._reporter.start()

    def number(self, dataset: Any) -> int | None:
        """The number of a dataset in the recording; None if it has none."""
        watched = self._watched.get(id(dataset))
        return watched.number if watched is not None and watched.dataset() is dataset else None

    def is_worker(self, number: int) -> None:
        """The current thread is the one with this number of the threads that make batches."""
        self._thread.worker = number

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def getitem(dataset: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            begun = None
            if not kwargs:
                with contextlib.suppress(Exception):
                    begun = self._begin(dataset)
            if begun is None:
                return original(dataset, *args, **kwargs)
            timer, batch = begun
            try:
                return timer.make(batch, batch.run, original, dataset, *args)
            finally:
                self._end(timer)

        return getitem

    def _begin(self, dataset: Any) -> tuple[_Timer, Batch] | None:
        """The timer of a batch of a dataset, and the batch; None if none is timed now."""
        if not self._counts() or os.getpid() != self._process:
            return None
        watched, transforms = self._watched.get(id(dataset)), self._transforms_of.get(id(dataset))
        if watched is None or transforms is None or watched.dataset() is not dataset:
            return None
        thread = threading.get_ident()
        # A method of a parent class, or a batch that is made of others.
        if thread in self._making:
            return None
        worker = getattr(self._thread, "worker", IN_PROCESS)
        try:
            timer = watched.idle.setdefault(worker, []).pop()
        except IndexError:
            if len(watched.timers) >= MOST_ROWS:
                return None
            timer = _Timer(watched, worker, self._counts, self._samples())
            watched.timers.append(timer)
        timer.bind()
        self._making[thread] = timer
        return timer, Batch(transforms, watched.stage, timer.stages)

    def _end(self, timer: _Timer) -> None:
        self._making.pop(threading.get_ident(), None)
        timer.watched.idle[timer.worker].append(timer)

    def _look(self) -> bool:
        for timer in list(self._making.values())[:_MOST_AT_A_TIME]:
            timer.samples.take()
        return True

    def begin(self) -> None:
        """A window begins."""
        for watched in list(self._all):
            for timer in list(watched.timers):
                timer.clear()

    def reports(self) -> list[dict[str, Any]]:
        """A report for each worker, like that of a process."""
        # Threads are not processes.
        about = {"began_ns": 0, "start_ns": 0, "processes": 0}
        return [
            {"loader": watched.number, "worker": timer.worker, **about, **timer.values()}
            for watched in list(self._all)
            for timer in list(watched.timers)
            if timer.totals.batches
        ]

    def close(self) -> None:
        """The recording is over."""
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.stop()
        self._watched.clear()
        self._all.clear()
        self._transforms.clear()

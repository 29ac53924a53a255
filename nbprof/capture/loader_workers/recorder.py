"""Records one worker process of a DataLoader, from inside it."""

from __future__ import annotations

import contextlib
import multiprocessing.queues
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbprof.capture.loader_workers.chain import Chain
from nbprof.capture.loader_workers.folder import PAUSED, Folder
from nbprof.capture.loader_workers.items import Items
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.loader_workers.stages import CALL_NS, COLLATE, DATASET, Stages, stage_of

MOST_BATCHES = 2_000
"""Batches of a worker whose interval is reported."""
_SHARE = 0.004
"""Share of the worker's time that timing calls may take: of small items, only some batches are
timed fetches."""
_MOST_TENSORS = 1_000


class Totals:
    """Sums over the batches of a window."""

    def __init__(self) -> None:
        self.items = self.batches = 0
        self.busy_ns = self.cpu_ns = self.waiting_ns = 0
        self.timed_items = self.timed_busy_ns = 0
        self.pickle_ns = self.pickled_bytes = self.shared_bytes = 0
        self.memory_bytes = self.delayed_ns = 0


class Recorder:
    """Times the batches of this worker while a window of the recording is open.

    Parameters
    ----------
    folder : Folder
    loader, worker : int
        Number of the loader in the recording, and of the worker in the loader.
    began_ns : int
        When the loader began to start its workers, in ns since 1970.
    samples : bool
        Whether to sample the stack.
    """

    def __init__(
        self, folder: Folder, loader: int, worker: int, began_ns: int, samples: bool
    ) -> None:
        self._folder = folder
        self._loader, self._worker, self._began_ns = loader, worker, began_ns
        self._start_ns: int | None = None
        self._process = os.getpid()
        self._window: int | None = folder.window()
        self._open: int | None = self._window
        """The window that is open, as the reporter saw it last."""
        self.stages = Stages()
        self._items = Items()
        self._totals = Totals()
        self._batches: list[tuple[int, int, int, int]] = []
        self._delay_before = _delayed_ns()
        self._chain: Chain | None = None
        self._skip = 0
        self._number = -1
        self._in_batch = False
        self._undo: list[Callable[[], object]] = []
        self._unwatch: Callable[[], object] = lambda: None
        self._reporter = Reporter(folder, self.stages, samples, self.report, self._changed)

    @property
    def _counts(self) -> bool:
        """True while the window of the current batch is open."""
        return self._window not in (None, PAUSED) and self._open == self._window

    def start(self, index_queue: Any, data_queue: Any) -> None:
        """Begin to record; the queues are those of the worker."""
        self._hook_fetchers()
        if index_queue is not None:
            self._hook_index_queue(index_queue)
        if data_queue is not None:
            self._hook_data_queue(data_queue)
        self._reporter.start()

    def end(self) -> None:
        """The worker ends: report the rest."""
        self._reporter.stop()
        self.report(ended=True)
        self._leave()

    def _changed(self, window: int | None) -> None:
        """On the thread of the reporter."""
        before, self._open = self._open, window
        if window == before or before in (None, PAUSED):
            return
        if before != self._window:
            self._report_idle(before)
        elif self._open != self._window:
            # The window has ended: all that it has in it is known now, but a batch in the making.
            self.report(closed=True)

    def _report_idle(self, window: int) -> None:
        """Of a window in which no batch was begun."""
        if os.getpid() != self._process:
            return
        values = {
            "window": window,
            "loader": self._loader,
            "worker": self._worker,
            "process": self._process,
            "began_ns": 0,
            "start_ns": 0,
            "complete": True,
            "ended": False,
            **vars(Totals()),
            "stages": [],
            "lines": [],
            "batch_times": [],
            **Items().values(),
        }
        self._folder.report(self._process, values)

    def _follow(self) -> None:
        """Before a batch: begin a new window, or leave once the recording is over."""
        if self._open == self._window:
            return
        self._window = self._open
        if self._window is None:
            self._leave()
            return
        if self._window != PAUSED:
            self.stages.clear()
            self._items.clear()
            self._reporter.clear()
            self._totals = Totals()
            self._batches = []
            self._delay_before = _delayed_ns()

    def _leave(self) -> None:
        if self._chain is not None:
            self._chain.remove()
        self._chain = None
        self._unwatch()
        while self._undo:
            with contextlib.suppress(Exception):
                self._undo.pop()()

    def _hook_fetchers(self) -> None:
        kinds = sys.modules["torch.utils.data.dataloader"]._DatasetKind
        original = vars(kinds)["create_fetcher"]
        create = original.__get__(None, kinds)

        def create_fetcher(kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            fetcher = create(kind, dataset, *args, **kwargs)
            with contextlib.suppress(Exception):
                self._watch(fetcher, dataset)
            return fetcher

        kinds.create_fetcher = staticmethod(create_fetcher)
        self._undo.append(lambda: setattr(kinds, "create_fetcher", original))

    def _hook_index_queue(self, queue: Any) -> None:
        original = queue.get

        def get(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._start_ns is None:
                self._start_ns = time.time_ns()
            began = time.perf_counter_ns()
            try:
                request = original(*args, **kwargs)
                self._number = -1
                if type(request) is tuple and len(request) == 2 and type(request[0]) is int:
                    self._number = request[0]
                return request
            finally:
                if self._counts:
                    self._totals.waiting_ns += time.perf_counter_ns() - began

        queue.get = get
        self._undo.append(lambda: delattr(queue, "get"))

    def _hook_data_queue(self, queue: Any) -> None:
        put = queue.put

        def timed_put(message: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._counts and self._in_batch:
                self._in_batch = False
                with contextlib.suppress(Exception):
                    self._totals.shared_bytes += _shared_bytes(message)
            return put(message, *args, **kwargs)

        queue.put = timed_put
        self._undo.append(lambda: delattr(queue, "put"))
        queues: Any = multiprocessing.queues
        original = queues._ForkingPickler
        timed = _TimedPickler(original, queue, self._pickled)
        queues._ForkingPickler = timed

        def restore() -> None:
            if queues._ForkingPickler is timed:
                queues._ForkingPickler = original

        self._undo.append(restore)

    def _pickled(self, took_ns: int, size: int) -> None:
        """On the thread that sends the batches."""
        if self._counts:
            self._totals.pickle_ns += took_ns
            self._totals.pickled_bytes += size

    def _watch(self, fetcher: Any, dataset: Any) -> None:
        """Time the batches that a fetcher makes."""
        data = sys.modules["torch.utils.data"]
        chain = self._chain = Chain(dataset, self.stages, (data.Dataset,))
        original = fetcher.fetch
        fetches = _Fetches(fetcher, dataset, self.stages, self._items)

        def fetch(indices: Any) -> Any:
            __tracebackhide__ = True
            self._follow()
            if not self._counts:
                return original(indices)
            timed = self._skip <= 0
            calls = self.stages.calls()
            if timed:
                chain.install()
                fetches.install(self._number)
            else:
                fetches.install_counter()
            start_ns, cpu = time.time_ns(), time.thread_time_ns()
            began = time.perf_counter_ns()
            try:
                batch = original(indices)
            finally:
                busy = time.perf_counter_ns() - began
                cpu = time.thread_time_ns() - cpu
                fetches.remove()
                chain.remove()
            self._count_batch(start_ns, (busy, cpu), fetches.count, timed=timed)
            if timed:
                cost = (self.stages.calls() - calls + 4 * len(chain) + 10) * CALL_NS
                self._skip = int(cost / max(_SHARE * busy, 1.0))
            else:
                self._skip -= 1
            return batch

        fetcher.fetch = fetch
        # Workers that stay have a new one in each iteration: only that is kept.
        self._unwatch = lambda: vars(fetcher).pop("fetch", None)

    def _count_batch(
        self, start_ns: int, took: tuple[int, int], items: int, *, timed: bool
    ) -> None:
        """A batch was made."""
        busy, cpu = took
        totals = self._totals
        if timed:
            totals.timed_items += items
            totals.timed_busy_ns += busy
        totals.items += items
        totals.batches += 1
        totals.busy_ns += busy
        totals.cpu_ns += cpu
        self._in_batch = True
        if len(self._batches) < MOST_BATCHES:
            self._batches.append((self._number, start_ns, busy, items))

    def report(self, *, ended: bool = False, closed: bool = False) -> None:
        """Write all that is known. Never raises."""
        # A child that the person's code forked from this worker is none.
        if self._window in (None, PAUSED) or os.getpid() != self._process:
            return
        closed = closed or self._open != self._window
        with contextlib.suppress(Exception):
            totals = self._totals
            totals.memory_bytes = max(totals.memory_bytes, _resident_bytes())
            totals.delayed_ns = max(_delayed_ns() - self._delay_before, 0)
            lines = [
                [*stage._asdict().values(), name, file, line, count]
                for (stage, name, file, line), count in self._reporter.lines().items()
            ]
            values = {
                "window": self._window,
                "loader": self._loader,
                "worker": self._worker,
                "process": self._process,
                "began_ns": self._began_ns,
                "start_ns": max((self._start_ns or self._began_ns) - self._began_ns, 0),
                "complete": ended or closed,
                "ended": ended,
                **vars(totals),
                "stages": self.stages.values(),
                "lines": lines,
                "batch_times": list(self._batches),
                **self._items.values(),
            }
            self._folder.report(self._process, values)


class _Fetches:
    """Times the items and the collation of a fetcher while it makes a batch."""

    def __init__(self, fetcher: Any, dataset: Any, stages: Stages, items: Items) -> None:
        self._fetcher, self._stages, self._items = fetcher, stages, items
        self.count = 0
        self._batch = -1
        self._collate: Any = None
        self._source: tuple[str, Any, Any] | None = None
        iterator = vars(fetcher).get("dataset_iter")
        if iterator is not None:
            stage = stages.times(stage_of(DATASET, dataset, "__iter__"))
            if stage is not None:
                self._source = ("dataset_iter", iterator, _TimedIterator(self, iterator, stage))
        else:
            stage = stages.times(stage_of(DATASET, dataset, "__getitems__", "__getitem__"))
            if stage is not None:
                self._source = ("dataset", dataset, _timed_dataset(self, dataset, stage))
        collate = vars(fetcher).get("collate_fn")
        times = None if collate is None else stages.times(_stage_of_collation(collate))
        if times is not None:

            def timed(batch: Any) -> Any:
                __tracebackhide__ = True
                return stages.run(times, collate, (batch,), {})

            self._collate = (collate, timed)

    def install(self, batch: int) -> None:
        """Time the next batch, which has this number."""
        self.count, self._batch = 0, batch
        if self._source is not None:
            setattr(self._fetcher, self._source[0], self._source[2])
        if self._collate is not None:
            self._fetcher.collate_fn = self._collate[1]

    def install_counter(self) -> None:
        """Only count the items of the next batch."""
        fetcher, collate = self._fetcher, self._collate
        if collate is None:
            return

        def counting(batch: Any) -> Any:
            __tracebackhide__ = True
            several = fetcher.auto_collation and isinstance(batch, (list, tuple))
            self.count = len(batch) if several else 1
            return collate[0](batch)

        self.count = 0
        fetcher.collate_fn = counting

    def remove(self) -> None:
        """Leave the fetcher as it was."""
        if self._source is not None:
            setattr(self._fetcher, self._source[0], self._source[1])
        if self._collate is not None:
            self._fetcher.collate_fn = self._collate[0]

    def item(self, stage: Any, call: Any, args: tuple[Any, ...], label: object) -> Any:
        """One item."""
        __tracebackhide__ = True
        before = stage.total_ns
        value = self._stages.run(stage, call, args, {})
        self.count += 1
        self._items.add(label, stage.total_ns - before, self._batch)
        return value

    def several(self, stage: Any, call: Any, indices: Any) -> Any:
        """Items that the dataset makes together; how long each took is unknown."""
        __tracebackhide__ = True
        # A sampler may give what only the dataset understands.
        count = len(indices) if hasattr(indices, "__len__") else 1
        value = self._stages.run(stage, call, (indices,), {}, calls=count)
        self.count += count
        return value


class _TimedIterator:
    """In place of the iterator of an iterable dataset."""

    def __init__(self, fetches: _Fetches, iterator: Any, stage: Any) -> None:
        self._fetches, self._iterator, self._stage = fetches, iterator, stage
        self._count = 0

    def __iter__(self) -> _TimedIterator:
        return self

    def __next__(self) -> Any:
        __tracebackhide__ = True
        label, self._count = self._count, self._count + 1
        return self._fetches.item(self._stage, next, (self._iterator,), label)


class _TimedDataset:
    """In place of a dataset with single items."""

    def __init__(self, fetches: _Fetches, dataset: Any, stage: Any) -> None:
        self._fetches, self._dataset, self._stage = fetches, dataset, stage

    def __getitem__(self, index: Any) -> Any:
        __tracebackhide__ = True
        return self._fetches.item(self._stage, self._dataset.__getitem__, (index,), index)


class _TimedDatasetOfSeveral(_TimedDataset):
    """In place of a dataset that makes several items at a time."""

    def __getitems__(self, indices: Any) -> Any:
        __tracebackhide__ = True
        return self._fetches.several(self._stage, self._dataset.__getitems__, indices)


def _timed_dataset(fetches: _Fetches, dataset: Any, stage: Any) -> _TimedDataset:
    if getattr(dataset, "__getitems__", None):
        return _TimedDatasetOfSeveral(fetches, dataset, stage)
    return _TimedDataset(fetches, dataset, stage)


def _stage_of_collation(collate: Any) -> Any:
    if hasattr(collate, "__code__") or hasattr(collate, "__func__"):
        return stage_of(COLLATE, collate)
    return stage_of(COLLATE, collate, "__call__")


class _TimedPickler:
    """In place of the pickler of queues in this process; times what the thread of one sends."""

    def __init__(self, original: Any, queue: Any, pickled: Callable[[int, int], None]) -> None:
        self._original, self._queue, self._pickled = original, queue, pickled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def dumps(self, message: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not getattr(self._queue, "_thread", None):
            return self._original.dumps(message, *args, **kwargs)
        began = time.thread_time_ns()
        data = self._original.dumps(message, *args, **kwargs)
        with contextlib.suppress(Exception):
            self._pickled(time.thread_time_ns() - began, len(data))
        return data


def _shared_bytes(message: Any) -> int:
    """Bytes of the tensors in a message, which go through shared memory."""
    tensor = sys.modules["torch"].Tensor
    storages: dict[int, int] = {}
    values = [message]
    for _ in range(_MOST_TENSORS):
        if not values:
            break
        value = values.pop()
        if isinstance(value, tensor):
            storage = value.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif type(value) is dict or isinstance(value, dict):
            values += value.values()
        elif isinstance(value, (list, tuple)):
            values += value
    return sum(storages.values())


def _resident_bytes() -> int:
    """Memory of this process that is resident, that which it shares with others included; 0 where
    unknown.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _delayed_ns() -> int:
    """Time in which the main thread could have run but had no core; 0 where unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        path = Path(f"/proc/self/task/{os.getpid()}/schedstat")
        return int(path.read_text(encoding="ascii").split()[1])
    return 0

"""Times the batches that a thread makes, item by item, from inside a loader's fetcher."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from nbprof.capture.loader_workers.chain import Chain
from nbprof.capture.loader_workers.items import Items
from nbprof.capture.loader_workers.samples import Samples
from nbprof.capture.loader_workers.stages import (
    COLLATE,
    DATASET,
    Stages,
    call_ns,
    cpu_clock_ns,
    stage_of,
)
from nbprof.capture.loader_workers.totals import Sampled, Totals

MOST_BATCHES = 2_000
"""Batches whose interval is reported."""
_SHARE, _ITEMS_SHARE, CLOCK_SHARE = 0.002, 0.003, 0.0005
"""Shares of the time of batches that it may take to time all calls, to time items alone, and to
measure a CPU time: of small items, only some batches are timed inside."""
_ITEM_CALLS = 4
"""Timing an item with its stages and noting how slow it was takes as long as so many timed calls,
as measured between batches that were timed and batches that were not."""


class Inside(Protocol):
    """The calls inside of a batch that are timed.

    Attributes
    ----------
    count : int
        Items of the batch that was made last; 0 if that is unknown.
    changes : int
        Calls that would take as long as to install and remove it.
    """

    changes: int

    @property
    def count(self) -> int:
        """Items of the batch that was made last."""

    def install(self, *, timed: bool) -> None:
        """A batch is made next; time its calls, or only what is cheap."""

    def remove(self) -> None:
        """The batch is made: leave everything as it was."""


class BatchTimer:
    """Times the batches of a loader that are made on the thread that makes this object.

    Parameters
    ----------
    counts : callable
        Is asked before each batch whether it counts.
    samples : bool
        Whether the stack is sampled.

    Attributes
    ----------
    totals : Totals
    stages : Stages
    samples : Samples
    number : int
        Of the batch that is asked for; -1 if unknown.
    batch_made : bool
        Set when a batch was timed, for others to reset.
    """

    def __init__(self, counts: Callable[[], bool], *, samples: bool) -> None:
        self._counts = counts
        self.stages = Stages()
        self.samples = Samples(self.stages, enabled=samples)
        self._thread = threading.get_ident()
        self.number = -1
        self.batch_made = False
        self._skip = 0
        self._unfinished: tuple[Inside, int] | None = None
        """The calls of the timed batch that is being made, and when it began."""
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self.clear()

    def clear(self) -> None:
        """Forget all batches so far."""
        self.stages.clear()
        self._items = Items()
        self.totals = Totals()
        self._items_cost_ns = 0.0
        self._cpu = Sampled(CLOCK_SHARE, cpu_clock_ns())
        self._batches: list[tuple[int, int, int, int]] = []
        self.samples.clear()

    def watch(self, fetcher: Any, dataset: Any) -> None:
        """Time the batches that a fetcher makes."""
        # The fetcher must not have itself, nor this timer the dataset: they end as they would.
        data = sys.modules["torch.utils.data"]
        original, reference = type(fetcher).fetch, weakref.ref(fetcher)
        # First, as too many transforms leave no room for others.
        fetches = _Fetches(fetcher, dataset, self.stages, lambda: self._items)
        chain = Chain(dataset, self.stages, (data.Dataset,))

        calls = _InFetcher(self, chain, fetches)

        def fetch(indices: Any) -> Any:
            __tracebackhide__ = True
            fetcher = reference()
            if threading.get_ident() != self._thread or not self._counts():
                return original(fetcher, indices)
            calls.asks(indices)
            return self.make(calls, original, fetcher, indices)

        fetcher.fetch = fetch
        self._watched.add(fetcher)

    def make(self, parts: Inside, call: Callable[..., Any], *args: Any) -> Any:
        """Make a batch by this call, and count its time."""
        __tracebackhide__ = True
        self.began()
        timed = self._skip <= 0
        of_cpu = self._cpu.is_due(self.totals.busy_ns)
        calls = cpu = 0
        if timed:
            calls = self.stages.calls()
        parts.install(timed=timed)
        if of_cpu:
            cpu = time.thread_time_ns()
        start_ns, began = time.time_ns(), time.perf_counter_ns()
        if timed:
            self._unfinished = parts, began
        try:
            batch = call(*args)
        finally:
            busy = time.perf_counter_ns() - began
            self._unfinished = None
            if of_cpu:
                self._cpu.add(time.thread_time_ns() - cpu, busy)
            parts.remove()
            self.ended()
        self._count(start_ns, busy, parts.count, timed=timed)
        if timed:
            calls = self.stages.calls() - calls + (_ITEM_CALLS - 1) * parts.count
            cost = (calls + parts.changes) * call_ns()
            self._skip = int(cost / max(_SHARE * busy, 1.0))
        else:
            self._skip -= 1
        return batch

    def bind(self) -> None:
        """Time what the current thread makes from now on."""
        self._thread = threading.get_ident()
        self.stages.bind()
        self.samples.bind()

    def may_time_items(self, count: int) -> bool:
        """Return whether timing so many items alone stays within its share of the time of all
        batches: a few slow ones may be in any batch.
        """
        cost = self._items_cost_ns + (count + 5) * call_ns()
        if cost > _ITEMS_SHARE * self.totals.busy_ns:
            return False
        self._items_cost_ns = cost
        return True

    def began(self) -> None:
        """A batch that counts is being made."""

    def ended(self) -> None:
        """It is made, or that failed."""

    def leave(self) -> None:
        """Leave the fetchers as they were."""
        for fetcher in list(self._watched):
            vars(fetcher).pop("fetch", None)
        self._watched.clear()

    def _count(self, start_ns: int, busy: int, items: int, *, timed: bool) -> None:
        """A batch was made."""
        totals = self.totals
        if timed:
            totals.timed_items += items
            totals.timed_busy_ns += busy
        totals.items += items
        totals.batches += 1
        totals.busy_ns += busy
        self.batch_made = True
        if len(self._batches) < MOST_BATCHES:
            self._batches.append((self.number, start_ns, busy, items))

    def values(self) -> dict[str, Any]:
        """All that is known, as plain values for JSON."""
        totals = dict(vars(self.totals))
        totals["cpu_ns"] = self._cpu.total(totals["busy_ns"])
        unfinished = self._unfinished
        if unfinished is not None:
            # The times of stages have calls of the batch that is being made.
            parts, began = unfinished
            totals["timed_items"] += parts.count
            totals["timed_busy_ns"] += time.perf_counter_ns() - began
        return {
            **totals,
            "stages": self.stages.values(),
            "lines": self.samples.values(),
            "batch_times": list(self._batches),
            **self._items.values(),
        }


class _InFetcher:
    """The calls of a fetcher, and the transforms of its dataset."""

    def __init__(self, timer: BatchTimer, chain: Chain, fetches: _Fetches) -> None:
        self._timer, self._chain, self._fetches = timer, chain, fetches
        self.changes = 4 * len(chain) + 10

    @property
    def count(self) -> int:
        """Items of the last batch."""
        return self._fetches.count

    def asks(self, indices: Any) -> None:
        """The next batch is asked for with this."""
        self._fetches.asks(indices)

    def install(self, *, timed: bool) -> None:
        """Time the next batch."""
        if timed:
            self._chain.install()
            self._fetches.install(self._timer.number)
        elif self._fetches.has_items and self._timer.may_time_items(self._fetches.count):
            self._fetches.install_items(self._timer.number)
        else:
            self._fetches.install_counter()

    def remove(self) -> None:
        """Leave the fetcher and the transforms as they were."""
        self._fetches.remove()
        self._chain.remove()


class _Fetches:
    """Times the items and the collation of a fetcher while it makes a batch."""

    def __init__(
        self, fetcher: Any, dataset: Any, stages: Stages, items: Callable[[], Items]
    ) -> None:
        # The fetcher has this object.
        self._fetcher, self._stages, self._items = weakref.ref(fetcher), stages, items
        self.count = self.before = 0
        self._asked: int | None = None
        """Items that the next batch will have; None if that is unknown."""
        self._batch = -1
        self._took: list[tuple[object, int, int]] = []
        """The items of this batch where only they are timed, as `Items.add_all` takes them."""
        self._collate: Any = None
        self._is_list_of_items = False
        self._source: tuple[str, Any, Any] | None = None
        self._items_of: Any = None
        self._patched = False
        # A reference cycle would keep the dataset alive.
        itself = weakref.proxy(self)
        iterator = vars(fetcher).get("dataset_iter")
        if iterator is not None:
            stage = stages.times(stage_of(DATASET, dataset, "__iter__"))
            if stage is not None:
                self._source = ("dataset_iter", iterator, _TimedIterator(itself, iterator, stage))
                self._items_of = _ItemsOfIterator(iterator, self._took)
        else:
            stage = stages.times(stage_of(DATASET, dataset, "__getitems__", "__getitem__"))
            if stage is not None:
                timed_dataset = _timed_dataset(itself, dataset, stage)
                self._source = ("dataset", dataset, timed_dataset)
                if type(timed_dataset) is _TimedDataset:
                    self._items_of = _ItemsOfDataset(dataset, self._took)
        collate = vars(fetcher).get("collate_fn")
        times = None if collate is None else stages.times(_stage_of_collation(collate))
        if times is not None:

            def timed(batch: Any) -> Any:
                __tracebackhide__ = True
                return stages.run(times, collate, (batch,), {})

            by_batch = self._is_list_of_items = bool(vars(fetcher).get("auto_collation"))

            def counting(batch: Any) -> Any:
                __tracebackhide__ = True
                several = by_batch and isinstance(batch, (list, tuple))
                itself.count = len(batch) if several else 1
                return collate(batch)

            self._collate = (collate, timed, counting)

    @property
    def has_items(self) -> bool:
        """True if single items can be timed."""
        return self._items_of is not None

    def asks(self, indices: Any) -> None:
        """The next batch is asked for with this."""
        self._asked = None
        # A sampler may give what only the dataset understands, and an iterable may end.
        if not self._is_list_of_items or type(indices) is not list:
            return
        if self._source is not None and self._source[0] == "dataset":
            self._asked = len(indices)

    def install(self, batch: int) -> None:
        """Time the next batch, which has this number."""
        self.count, self._batch = 0, batch
        self._put(2, 1)

    def install_items(self, batch: int) -> None:
        """Time only the items of the next batch."""
        self.count, self._batch = 0, batch
        fetcher = self._fetcher()
        if fetcher is not None and self._source is not None:
            setattr(fetcher, self._source[0], self._items_of)
            self._patched = True

    def install_counter(self) -> None:
        """Only count the items of the next batch."""
        self.count = self._asked or 0
        fetcher = self._fetcher()
        if self._asked is None and self._collate is not None and fetcher is not None:
            fetcher.collate_fn = self._collate[2]
            self._patched = True

    def remove(self) -> None:
        """Leave the fetcher as it was, and take in its items."""
        if self._patched:
            self._put(1, 0)
            self._patched = False
        if self._took:
            self._take_in()
        self.before += self.count

    def _take_in(self) -> None:
        """Of a batch whose items alone were timed."""
        took = self._took
        if type(self._items_of) is _ItemsOfIterator:
            took = [(self.before + index, began, ns) for index, (_, began, ns) in enumerate(took)]
        self.count = len(took)
        self._items().add_all(took, self._batch)
        self._took.clear()

    def _put(self, source: int, collate: int) -> None:
        self._patched = True
        fetcher = self._fetcher()
        if fetcher is not None and self._source is not None:
            setattr(fetcher, self._source[0], self._source[source])
        if fetcher is not None and self._collate is not None:
            fetcher.collate_fn = self._collate[collate]

    def item(self, stage: Any, call: Any, args: tuple[Any, ...], label: object) -> Any:
        """One item."""
        __tracebackhide__ = True
        before = stage.total_ns
        value = self._stages.run(stage, call, args, {})
        self.count += 1
        self._items().add(label, stage.total_ns - before, self._batch)
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

    def __iter__(self) -> _TimedIterator:
        return self

    def __next__(self) -> Any:
        __tracebackhide__ = True
        label = self._fetches.before + self._fetches.count
        return self._fetches.item(self._stage, next, (self._iterator,), label)


class _ItemsOfIterator:
    """In place of the iterator of an iterable dataset whose items alone are timed."""

    def __init__(self, iterator: Any, took: list[tuple[object, int, int]]) -> None:
        self._iterator, self._took = iterator, took

    def __iter__(self) -> _ItemsOfIterator:
        return self

    def __next__(self) -> Any:
        __tracebackhide__ = True
        began = time.perf_counter_ns()
        value = next(self._iterator)
        self._took.append((len(self._took), began, time.perf_counter_ns() - began))
        return value


class _ItemsOfDataset:
    """In place of a dataset whose items alone are timed."""

    def __init__(self, dataset: Any, took: list[tuple[object, int, int]]) -> None:
        self._dataset, self._took = dataset, took

    def __getitem__(self, index: Any) -> Any:
        __tracebackhide__ = True
        began = time.perf_counter_ns()
        value = self._dataset[index]
        self._took.append((index, began, time.perf_counter_ns() - began))
        return value


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

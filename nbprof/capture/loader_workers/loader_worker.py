"""Records one worker process of a DataLoader, from inside it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Any

from nbprof.capture.loader_workers.recorder import Recorder
from nbprof.capture.loader_workers.totals import Sampled

_MOST_TENSORS = 1_000
_SHARE = 0.0005
"""Share of the time of batches that it may take to add up the bytes of their tensors."""


_current: LoaderWorker | None = None
"""Records this process now, or did until its recording was over."""


class LoaderWorker(Recorder):
    """Times the batches of this worker of a DataLoader, and adds up what they hand over in shared
    memory: of small batches, some are measured and stand for the others.
    """

    def begin_window(self) -> None:
        """Forget everything before this window."""
        super().begin_window()
        self._shared = Sampled(_SHARE, 0.0)

    def add_estimates(self) -> None:
        """Complete the totals before a report."""
        totals = self.timer.totals
        totals.shared_bytes = self._shared.total(totals.batches)

    def hook(self, index_queue: Any, data_queue: Any, *, ends: bool = False) -> None:
        """Time what the worker does from now on.

        Parameters
        ----------
        index_queue, data_queue : queue or None
            Its own.
        ends : bool
            Whether its last request ends the recorder; otherwise another call of `end` does.
        """
        global _current
        # What an earlier recording put in place would be under what this one does.
        if _current is not None and _current.process == os.getpid():
            _current.abandon()
        _current, self._ends = self, ends
        self._hook_fetchers()
        if index_queue is not None:
            self._hook_index_queue(index_queue)
        if data_queue is not None:
            self._hook_data_queue(data_queue)

    def watch(self, fetcher: Any, dataset: Any) -> None:
        """Time the batches of a fetcher that the worker has already."""
        if fetcher is not None:
            self.timer.watch(fetcher, dataset)

    def _hook_fetchers(self) -> None:
        kinds = sys.modules["torch.utils.data.dataloader"]._DatasetKind
        original = vars(kinds)["create_fetcher"]
        create = original.__get__(None, kinds)

        def create_fetcher(kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            fetcher = create(kind, dataset, *args, **kwargs)
            with contextlib.suppress(Exception):
                self.timer.watch(fetcher, dataset)
            return fetcher

        kinds.create_fetcher = staticmethod(create_fetcher)
        self.undo.append(lambda: setattr(kinds, "create_fetcher", original))

    def _hook_index_queue(self, queue: Any) -> None:
        original = queue.get

        def get(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            self.ready()
            began = time.perf_counter_ns()
            try:
                request = original(*args, **kwargs)
                self.timer.number = -1
                if type(request) is tuple and len(request) == 2 and type(request[0]) is int:
                    self.timer.number = request[0]
                elif request is None and self._ends:
                    self.end()
                return request
            finally:
                if self.counts:
                    self.timer.totals.waiting_ns += time.perf_counter_ns() - began

        queue.get = get
        self.undo.append(lambda: _take_back(queue, "get", get))

    def _hook_data_queue(self, queue: Any) -> None:
        put = queue.put

        def timed_put(message: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self.timer.batch_made and self.counts:
                self.timer.batch_made = False
                if self._shared.is_due(self.timer.totals.busy_ns):
                    with contextlib.suppress(Exception):
                        self._measure_shared(message)
            return put(message, *args, **kwargs)

        queue.put = timed_put
        self.undo.append(lambda: _take_back(queue, "put", timed_put))
        self.hook_pickler(lambda: threading.current_thread() is getattr(queue, "_thread", None))

    def _measure_shared(self, message: Any) -> None:
        began = time.perf_counter_ns()
        size = _shared_bytes(message)
        self._shared.cost_ns = time.perf_counter_ns() - began
        self._shared.add(size, 1)


def _take_back(queue: Any, name: str, ours: Any) -> None:
    if vars(queue).get(name) is ours:
        delattr(queue, name)


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

"""Records one worker process of a DataLoader, from inside it."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any

from nbprof.capture.loader_workers.recorder import Recorder

_MOST_TENSORS = 1_000


class LoaderWorker(Recorder):
    """Times the batches of this worker of a DataLoader."""

    def hook(self, index_queue: Any, data_queue: Any) -> None:
        """Time what the worker does from now on; the queues are its own."""
        self._hook_fetchers()
        if index_queue is not None:
            self._hook_index_queue(index_queue)
        if data_queue is not None:
            self._hook_data_queue(data_queue)

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
                return request
            finally:
                if self.counts:
                    self.timer.totals.waiting_ns += time.perf_counter_ns() - began

        queue.get = get
        self.undo.append(lambda: delattr(queue, "get"))

    def _hook_data_queue(self, queue: Any) -> None:
        put = queue.put

        def timed_put(message: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self.counts and self.timer.batch_made:
                self.timer.batch_made = False
                with contextlib.suppress(Exception):
                    self.timer.totals.shared_bytes += _shared_bytes(message)
            return put(message, *args, **kwargs)

        queue.put = timed_put
        self.undo.append(lambda: delattr(queue, "put"))
        self.hook_pickler(lambda: threading.current_thread() is getattr(queue, "_thread", None))


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

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

from nbprof.capture.loader_workers.batches import BatchTimer
from nbprof.capture.loader_workers.folder import PAUSED, Folder
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.loader_workers.totals import resident_bytes

_MOST_TENSORS = 1_000


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
        self._timer = BatchTimer(self._follow, samples=samples)
        self._delay_before = _delayed_ns()
        self._undo: list[Callable[[], object]] = []
        self._reporter = Reporter(self._look, self.report)

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

    def _look(self) -> bool:
        """On the thread of the reporter: sample, and see which window is open."""
        self._timer.samples.take()
        window = self._folder.window()
        self._changed(window)
        return window is not None

    def _changed(self, window: int | None) -> None:
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
        nothing = BatchTimer(lambda: False, samples=False).values()
        times = {"began_ns": 0, "start_ns": 0}
        self._write(window, {**nothing, **times, "complete": True, "ended": False})

    def _follow(self) -> bool:
        """Before a batch: begin a new window, or leave once the recording is over. Returns whether
        the batch counts.
        """
        if self._open != self._window:
            self._window = self._open
            if self._window is None:
                self._leave()
            elif self._window != PAUSED:
                self._timer.clear()
                self._delay_before = _delayed_ns()
        return self._counts

    def _leave(self) -> None:
        self._timer.leave()
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
                self._timer.watch(fetcher, dataset)
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
                self._timer.number = -1
                if type(request) is tuple and len(request) == 2 and type(request[0]) is int:
                    self._timer.number = request[0]
                return request
            finally:
                if self._counts:
                    self._timer.totals.waiting_ns += time.perf_counter_ns() - began

        queue.get = get
        self._undo.append(lambda: delattr(queue, "get"))

    def _hook_data_queue(self, queue: Any) -> None:
        put = queue.put

        def timed_put(message: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if self._counts and self._timer.batch_made:
                self._timer.batch_made = False
                with contextlib.suppress(Exception):
                    self._timer.totals.shared_bytes += _shared_bytes(message)
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
            self._timer.totals.pickle_ns += took_ns
            self._timer.totals.pickled_bytes += size

    def report(self, *, ended: bool = False, closed: bool = False) -> None:
        """Write all that is known. Never raises."""
        window = self._window
        # A child that the person's code forked from this worker is none.
        if window is None or window == PAUSED or os.getpid() != self._process:
            return
        closed = closed or self._open != window
        with contextlib.suppress(Exception):
            totals = self._timer.totals
            totals.memory_bytes = max(totals.memory_bytes, resident_bytes())
            totals.delayed_ns = max(_delayed_ns() - self._delay_before, 0)
            values = {
                "began_ns": self._began_ns,
                "start_ns": max((self._start_ns or self._began_ns) - self._began_ns, 0),
                "complete": ended or closed,
                "ended": ended,
                **self._timer.values(),
            }
            self._write(window, values)

    def _write(self, window: int, values: dict[str, Any]) -> None:
        about = {
            "window": window,
            "loader": self._loader,
            "worker": self._worker,
            "process": self._process,
        }
        self._folder.report(self._process, {**about, **values})


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


def _delayed_ns() -> int:
    """Time in which the main thread could have run but had no core; 0 where unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        path = Path(f"/proc/self/task/{os.getpid()}/schedstat")
        return int(path.read_text(encoding="ascii").split()[1])
    return 0

"""Measures the waits of loops over loaders with workers."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any

from nbprof.core.worker_times import MOST_ROWS, MOST_WAITS


class _Receipt:
    """Times how a loop receives batches through the queue of an iterator.

    The wait for a batch that is not there yet is no part of it: it begins with the first byte.
    """

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._receives = vars(queue)["_recv_bytes"]
        self._get = queue.get
        self._thread = 0
        self._began_ns = 0
        self._took_ns = self._bytes = 0
        queue._recv_bytes, queue.get = self._receive, self._timed_get

    def _receive(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        self._began_ns, self._thread = time.perf_counter_ns(), threading.get_ident()
        data = self._receives(*args, **kwargs)
        with contextlib.suppress(TypeError):
            self._bytes += len(data)
        return data

    def _timed_get(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        self._began_ns = 0
        data = self._get(*args, **kwargs)
        if self._began_ns and self._thread == threading.get_ident():
            self._took_ns += time.perf_counter_ns() - self._began_ns
        return data

    def taken(self) -> tuple[int, int]:
        """The time in ns and the bytes since the last call."""
        result = self._took_ns, self._bytes
        self._took_ns = self._bytes = 0
        return result

    def remove(self) -> None:
        """Leave the queue as it was."""
        own = vars(self._queue)
        if own.get("get") == self._timed_get:
            del self._queue.get
        if own.get("_recv_bytes") == self._receive:
            self._queue._recv_bytes = self._receives


@dataclass
class _Iteration:
    """An iteration over a loader: its number, when it began in ns since 1970, how long it took to
    make its iterator, and what times receiving its batches.
    """

    loader: int
    began_ns: int
    made_ns: int = 0
    first: bool = True
    receipt: _Receipt | None = None


class Loop:
    """The waits of the batches of one window."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[Any, _Iteration] = weakref.WeakKeyDictionary()
        self.clear()

    def clear(self) -> None:
        """Forget what has been so far, but not the iterations that are going on."""
        self._totals: dict[int, list[int]] = {}
        self._waits: list[list[int]] = []
        self._first: list[list[int]] = []

    def begins(self, iterator: Any, loader: int, began_ns: int) -> None:
        """An iteration begins."""
        iteration = self._of.get(iterator)
        receipt = None if iteration is None else iteration.receipt
        self._of[iterator] = _Iteration(loader, began_ns, receipt=receipt)

    def made(self, iterator: Any, took_ns: int) -> None:
        """An iterator was made: its workers have been started."""
        iteration = self._of.get(iterator)
        if iteration is not None:
            iteration.made_ns = took_ns
            self.watch(iterator)

    def watch(self, iterator: Any) -> None:
        """Time what an iterator receives, unless a thread of PyTorch receives it to pin it."""
        iteration, attributes = self._of.get(iterator), vars(iterator)
        queue = attributes.get("_worker_result_queue")
        if iteration is None or iteration.receipt is not None or queue is None:
            return
        if attributes.get("_data_queue") is queue and "_recv_bytes" in vars(queue):
            iteration.receipt = _Receipt(queue)

    def gave(self, iterator: Any, wait_ns: int) -> None:
        """The loop has waited so long for a batch."""
        iteration = self._of.get(iterator)
        if iteration is None:
            return
        start_ns = time.time_ns() - wait_ns
        receive_ns, size = (0, 0) if iteration.receipt is None else iteration.receipt.taken()
        if iteration.first:
            iteration.first = False
            if len(self._first) < MOST_ROWS:
                row = [iteration.loader, iteration.began_ns, iteration.made_ns, start_ns, wait_ns]
                self._first.append(row)
            return
        totals = self._totals.setdefault(iteration.loader, [0, 0, 0, 0])
        for index, value in enumerate((1, wait_ns, receive_ns, size)):
            totals[index] += value
        attributes = vars(iterator)
        # With `in_order=False` the iterator only counts its batches.
        number = (
            int(attributes.get("_rcvd_idx", 0)) - 1 if attributes.get("_in_order", True) else -1
        )
        self._waits.append([iteration.loader, number, start_ns, wait_ns])
        if len(self._waits) >= 2 * MOST_WAITS:
            self._keep_longest()

    def _keep_longest(self) -> None:
        self._waits.sort(key=lambda row: -row[3])
        del self._waits[MOST_WAITS:]

    def values(self) -> dict[str, list[list[int]]]:
        """As plain values for JSON."""
        self._keep_longest()
        return {
            "loops": [[loader, *totals] for loader, totals in self._totals.items()],
            "waits": list(self._waits),
            "iterations": list(self._first),
        }

    def close(self) -> None:
        """Leave all queues as they were."""
        for iteration in list(self._of.values()):
            if iteration.receipt is not None:
                with contextlib.suppress(Exception):
                    iteration.receipt.remove()
        self._of.clear()

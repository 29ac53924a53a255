"""One pool, as the process knows it that sends the tasks."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

MOST_INTERVALS = 1_000
"""Intervals in which tasks of a pool were unfinished."""


class PoolUse:
    """A pool, the calls that were sent to it, and when any were unfinished.

    Parameters
    ----------
    pool : object
    kind : str
        What people call it.
    fresh : bool
        True if its processes start while nbprof records.

    Attributes
    ----------
    sent : int
        Calls of the person's functions in this window.
    processes : int
        The most worker processes that it had.
    """

    def __init__(self, pool: Any, kind: str, *, fresh: bool = False) -> None:
        self.fresh = fresh or not _workers(pool)
        self._pool = weakref.ref(pool)
        self.kind = kind
        self._lock = threading.Lock()
        self._since_ns = self._last_ns = 0
        self._jobs: set[object] = set()
        self.processes = 0
        self.begin()

    def begin(self) -> None:
        """A window begins; jobs of earlier ones may still run."""
        with self._lock:
            self.sent = 0
            self.truncated = False
            self._intervals: list[tuple[int, int]] = []
            if self._jobs:
                self._since_ns = self._now()

    def add(self, calls: int) -> None:
        """So many calls are sent."""
        with self._lock:
            self.sent += calls

    def starts(self, job: object) -> None:
        """A job is handed over: one `map`, or one call."""
        self.count_processes()
        with self._lock:
            if not self._jobs:
                self._since_ns = max(time.time_ns(), self._last_ns)
            self._jobs.add(job)

    @contextlib.contextmanager
    def handing_over(self, calls: int) -> Iterator[None]:
        """So many calls are handed over, in a job that may be done before it is known."""
        token = object()
        self.starts(token)
        try:
            yield
            self.add(calls)
        finally:
            self.ends(token)

    def ends(self, job: object) -> None:
        """It is done; a second time does nothing."""
        with self._lock:
            if job in self._jobs:
                self._jobs.discard(job)
                if not self._jobs:
                    self._close()

    def ends_all(self) -> None:
        """The pool was ended."""
        with self._lock:
            if self._jobs:
                self._jobs.clear()
                self._close()

    def _close(self) -> None:
        if len(self._intervals) < MOST_INTERVALS:
            self._intervals.append((self._since_ns, self._now()))
        else:
            self.truncated = True

    def _now(self) -> int:
        """Now; the clock may be set back meanwhile."""
        self._last_ns = max(time.time_ns(), self._last_ns, self._since_ns)
        return self._last_ns

    def intervals(self) -> list[tuple[int, int]]:
        """When any job of this window was unfinished, in ns since 1970."""
        with self._lock:
            running = [(self._since_ns, self._now())] if self._jobs else []
            return [*self._intervals, *running]

    def count_processes(self) -> None:
        """Note how many worker processes there are now."""
        self.processes = max(self.processes, len(_workers(self._pool())))

    def running(self) -> set[int]:
        """The worker processes that run now."""
        processes = set()
        for worker in _workers(self._pool()):
            with contextlib.suppress(Exception):
                if worker.is_alive():
                    processes.add(worker.pid)
        return processes


def _workers(pool: Any) -> list[Any]:
    """The worker processes that a pool has now."""
    with contextlib.suppress(Exception):
        attributes = vars(pool)
        workers = attributes.get("_pool")
        if isinstance(workers, list):
            return list(workers)
        return list((attributes.get("_processes") or {}).values())
    return []

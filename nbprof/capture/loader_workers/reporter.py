"""A thread that looks at something at the rate of samples, within its share of a core."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable

from nbprof.core.sample_limits import FIRST_S, INTERVAL_S, LONGEST_S, jitter

REPORT_S = 1.0
"""Least time between reports."""
_REPORT_SHARE = 0.001
"""Share of the time that reports may take."""
_SHARE = 0.0015
"""Share of a core that the thread may use."""


class Reporter:
    """Samples and reports on a separate thread, from `start` to `stop`.

    Parameters
    ----------
    look : callable
        Is called for every sample; returns False at the end.
    report : callable
        Is called from time to time.
    """

    def __init__(self, look: Callable[[], bool], report: Callable[[], None]) -> None:
        self._look, self._report = look, report
        # A lock is cheaper to wait for than an event.
        self._ended = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._ended.acquire()
        self._thread = threading.Thread(target=self._run, name="nbprof-loader", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ended.release()
        # A thread that a library holds up must not hold up the worker.
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _run(self) -> None:
        sys.setprofile(None)
        with contextlib.suppress(Exception):
            self._loop()

    def _loop(self) -> None:
        began = time.perf_counter()
        next_report, pause, stretch = began + REPORT_S, INTERVAL_S, jitter()
        while not self._ended.acquire(timeout=pause):
            if not self._look():
                return
            now = time.perf_counter()
            if now >= next_report:
                self._report()
                took = time.perf_counter() - now
                next_report = now + max(REPORT_S, took / _REPORT_SHARE)
            due = max(time.thread_time() - FIRST_S, 0.0) / _SHARE - (now - began)
            pause = max(min(due, LONGEST_S), INTERVAL_S) * next(stretch)

"""Writes to the cache in the background, on one thread: once a run is idle for a moment, or as the
process ends.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from nbprof.core.quiet import quietly

AT_EXIT_S = 5.0
"""How long the end of the process may wait for what is not written yet."""


class Flushable(Protocol):
    """Something with data to write."""

    @property
    def busy(self) -> bool:
        """True while a caller is waiting for it: then it is not written yet."""

    def flush(self, stop: Callable[[], bool]) -> None:
        """Write; give up when `stop` returns True."""


def _recording() -> bool:
    """True while a cell is recorded: writing would disturb its measurement."""
    session = sys.modules.get("nbprof.capture.session")
    return session is not None and session.active() is not None


class _Desk:
    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._due: dict[Flushable, float] = {}
        self._thread: threading.Thread | None = None
        self._writing = False
        self._closing = False
        self._deadline = float("inf")

    def write(self, flushable: Flushable, seconds: float) -> None:
        with self._wake:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="nbprof cache", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    # A process that is ending, or that may have no more threads.
                    return
                self._thread = thread
            due = time.monotonic() + seconds
            # The thread wakes at the earliest time by itself, and sees that another is later.
            earlier = due < min(self._due.values(), default=due + 1)
            self._due[flushable] = due
            if earlier:
                self._wake.notify_all()

    def finish(self, seconds: float) -> bool:
        """Write everything now; False if that takes longer than `seconds`."""
        end = time.monotonic() + seconds
        with self._wake:
            self._due = dict.fromkeys(self._due, 0.0)
            self._wake.notify_all()
            return self._wake.wait_for(
                lambda: not self._due and not self._writing, max(end - time.monotonic(), 0.0)
            )

    def close(self) -> None:
        with self._wake:
            self._closing = True
            if self._thread is None:
                return
        if not self.finish(AT_EXIT_S):
            self._deadline = 0.0
            self.finish(0.5)

    def _work(self) -> None:
        while True:
            with self._wake:
                while True:
                    if not self._due:
                        # The next write starts another thread.
                        self._thread = None
                        self._wake.notify_all()
                        return
                    next_due = min(self._due, key=self._due.__getitem__)
                    wait = self._due[next_due] - time.monotonic()
                    if wait <= 0 and (next_due.busy or _recording()) and not self._closing:
                        self._due[next_due] = time.monotonic() + 0.5
                        continue
                    if wait <= 0:
                        break
                    self._wake.wait(wait)
                del self._due[next_due]
                self._writing = True
            try:
                quietly(next_due.flush, lambda: time.monotonic() > self._deadline)
            finally:
                with self._wake:
                    self._writing = False
                    self._wake.notify_all()


_desk = _Desk()


def write(flushable: Flushable, seconds: float) -> None:
    """Flush `flushable` once nothing has been added to it for some seconds."""
    _desk.write(flushable, seconds)


def finish(seconds: float = AT_EXIT_S) -> bool:
    """Write everything now; False if that takes longer than `seconds`."""
    return _desk.finish(seconds)


def _renew() -> None:
    # A forked process does not have the thread.
    global _desk
    _desk = _Desk()


atexit.register(lambda: _desk.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

"""Bounds that end a recording: the requested duration, and the memory it may use."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from nbprof.capture import notes
from nbprof.core.receipt import Note
from nbprof.core.units import size_text

PERIOD_S = 0.25
"""The memory of the process is checked four times a second."""

SHARE = 4
"""By default, a recording may take a quarter of the memory."""

GB = 1e9

# Files with the memory limit of a container.
_OF_CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_bytes() -> int:
    """The memory of this machine, or of the container that this process runs in."""
    total = int(psutil.virtual_memory().total)
    for name in _OF_CONTAINER:
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(name).read_text(encoding="ascii")))
    return total


def free_bytes() -> int:
    """Memory that this process may still take, by the machine, its container, and its own limit."""
    process = psutil.Process()
    used = process.memory_info()
    free = min(int(psutil.virtual_memory().available), machine_bytes() - int(used.rss))
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            free = min(free, soft - int(used.vms))
    return max(free, 0)


class Bounds:
    """Watches the clock and the process on a thread, and reports once that a bound was reached.

    Profilers keep what they record in the memory of the process until they are stopped, and none of
    them tells how much that is. So the growth of the process is what is bounded; it is counted from
    the end of the first recorded step, when the model and its buffers are there. A cell without
    steps has no such moment: its growth is counted from the beginning and may be the cell's own, so
    a limit that nobody asked for counts only when the machine runs short as well.

    Parameters
    ----------
    seconds : float or None
        How long the recording may last.
    limit_gb : float or None
        How much the process may grow, in GB; None for a quarter of the machine's memory.
    has_step : callable
        Says whether a recorded step has ended.
    reached : callable
        Called with a sentence, once, on the thread of the bounds.
    trouble : callable, optional
        Called with a note if it can watch no longer.
    grew : callable, optional
        Called with the growth of the process since the end of the first recorded step, each time
        it is read.

    Attributes
    ----------
    look : callable
        Called each time, with or without a step.
    """

    def __init__(
        self,
        seconds: float | None,
        limit_gb: float | None,
        has_step: Callable[[], bool],
        reached: Callable[[str], None],
        trouble: Callable[[Note], None] = lambda _: None,
        grew: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._seconds = seconds
        self._asked_gb = limit_gb
        self.limit = int(limit_gb * GB) if limit_gb is not None else machine_bytes() // SHARE
        self._has_step = has_step
        self._reached = reached
        self._trouble = trouble
        self._grew = grew
        self.look: Callable[[], None] = lambda: None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nbprof-bounds", daemon=True)
        self.grown = 0

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def cancel(self) -> None:
        """Stop watching."""
        self._done.set()

    def stop(self) -> None:
        """Stop watching, and wait for the thread to end."""
        self.cancel()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            # On a thread it would be printed below the cell, as if that had failed.
            self._trouble(notes.bounds_failed(error))

    def _watch(self) -> None:
        process = psutil.Process()
        end = math.inf
        if self._seconds is not None:
            end = time.monotonic() + self._seconds
        base, counted_from_step = _resident(process), False
        while True:
            left = min(PERIOD_S, end - time.monotonic())
            if left > 0 and self._done.wait(left):
                return
            if time.monotonic() >= end:
                self._reached(f"{self._seconds:g} s passed since the recording began (--seconds)")
                return
            self.look()
            now = _resident(process)
            if not counted_from_step and self._has_step():
                base, counted_from_step = now, True
            self.grown = now - base
            if counted_from_step:
                self._grew(self.grown)
            counts = counted_from_step or self._asked_gb is not None
            if self.grown <= self.limit:
                continue
            if counts or psutil.virtual_memory().available < self.limit:
                since, option = "since the recording began", "--limit"
                if counted_from_step:
                    since = "since its first recorded step"
                if self._asked_gb is not None:
                    option = f"--limit {self._asked_gb:g}"
                self._reached(
                    f"the process grew by {size_text(self.grown)} {since}, over"
                    f" {size_text(self.limit)} ({option})"
                )
                return


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0

"""Times the tasks of one worker process of a pool, from inside it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbprof.capture.loader_workers.folder import Folder
from nbprof.capture.loader_workers.items import Items
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.loader_workers.samples import Samples
from nbprof.capture.loader_workers.stages import MOST_STAGES, Stage, Stages, call_ns
from nbprof.capture.loader_workers.totals import Totals, resident_bytes
from nbprof.capture.pools.calls import MOST_WRAPPED, calls_of, stage_of_task

OWN = str(Path(__file__).parents[2])
"""The folder of nbprof."""
MOST_CHUNKS = 2_000
"""Chunks of tasks whose interval is reported."""
_SHARE = 0.004
"""Share of the time of chunks that timing each task in them may take: of short tasks, only some
chunks are timed inside.
"""


class Recorder:
    """Times the tasks of this process, on the thread that makes this object, while a window of the
    recording is open.

    Parameters
    ----------
    folder : Folder
    window : int
        The window that is open.
    pool : int
        Number of the pool in the recording.
    samples : bool
        Whether to sample the stack.
    """

    def __init__(self, folder: Folder, window: int, pool: int, samples: bool) -> None:
        self._folder, self._window, self._pool = folder, window, pool
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._stages, self._items, self._totals = Stages(), Items(), Totals()
        self._samples = Samples(self._stages, enabled=samples)
        self._chunks: list[tuple[int, int, int, int]] = []
        self._skips: dict[Stage, int] = {}
        """By function, how many of its next chunks are not timed inside."""
        self._began_ns: int | None = None
        """Since when a chunk runs, by the clock of durations."""
        self._item_ns = 0
        """How long the last task took that was timed on its own."""
        self._complete: int | None = None
        """Number of chunks when the pool was about to be terminated: no more is expected."""
        self._asked: int | None = folder.asked()
        self._reporter = Reporter(self._look, self.report)
        self._finalizer: Any = None

    def start(self) -> None:
        """Begin: a first report says that there will be others."""
        self.report()
        self._reporter.start()
        # `multiprocessing` ends the process without exit handlers of Python.
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            self._finalizer = util.Finalize(None, self.end, exitpriority=100)

    @property
    def running(self) -> bool:
        """True while it times a task, which may run others itself."""
        return self._began_ns is not None

    def serves(self, path: str, window: int) -> bool:
        """True if this is the recorder of this process for a window."""
        same = (str(self._folder.path), self._window, self._process) == (path, window, os.getpid())
        return same and self._thread == threading.get_ident()

    def run(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a task, or a chunk of several, and count its time."""
        __tracebackhide__ = True
        count, detailed, stage = 1, False, None
        with contextlib.suppress(Exception):
            calls = calls_of(call, args)
            count = calls.calls
            stage = stage_of_task(calls.function)
            if count == 1 or self._skips.get(stage, 0) <= 0:
                call, args = calls.wrapped(self._timed)
                detailed = True
        start_ns, cpu = time.time_ns(), time.thread_time_ns()
        self._item_ns = 0
        self._began_ns = began = time.perf_counter_ns()
        try:
            return call(*args, **kwargs)
        finally:
            busy = time.perf_counter_ns() - began
            self._began_ns = None
            if detailed and count == 1 and self._item_ns:
                # Without what timing it took.
                busy = self._item_ns
            took = (start_ns, busy, time.thread_time_ns() - cpu)
            self._count(count, took, stage, detailed=detailed)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        times = self._stages.times(stage_of_task(function))
        if times is None:
            return function
        stages, items, number = self._stages, self._items, self._totals.batches

        def task(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            before = times.total_ns
            try:
                return stages.run(times, function, args, kwargs)
            finally:
                self._item_ns = took = times.total_ns - before
                items.add(args[0] if args else "", took, number)

        return task

    def _count(
        self, count: int, took: tuple[int, int, int], stage: Stage | None, *, detailed: bool
    ) -> None:
        start_ns, busy, cpu = took
        totals = self._totals
        if detailed:
            timed = min(count, MOST_WRAPPED)
            totals.timed_items += timed
            totals.timed_busy_ns += busy
            skip = int(timed * call_ns() / max(_SHARE * busy, 1.0))
            if stage is not None and count > 1 and len(self._skips) < MOST_STAGES:
                self._skips[stage] = skip
        elif stage in self._skips:
            self._skips[stage] -= 1
        totals.items += count
        totals.batches += 1
        totals.busy_ns += busy
        totals.cpu_ns += cpu
        if len(self._chunks) < MOST_CHUNKS:
            self._chunks.append((totals.batches - 1, start_ns, busy, count))

    def _look(self) -> bool:
        """On the thread of the reporter: sample, and see whether the window is still open."""
        self._samples.take()
        window = self._folder.window()
        if window != self._window:
            self._leave()
            if window is not None:
                self.report(complete=True)
            return False
        asked = self._folder.asked()
        if asked != self._asked:
            self._asked, self._complete = asked, self._totals.batches
            self.report()
        return True

    def end(self) -> None:
        """The process ends: report the rest."""
        if os.getpid() == self._process:
            self._leave()
            self._reporter.stop()
            self.report(complete=True, ended=True)

    def _leave(self) -> None:
        global _current
        if _current is self:
            _current = None
        finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            with contextlib.suppress(Exception):
                finalizer.cancel()

    def report(self, *, complete: bool = False, ended: bool = False) -> None:
        """Write all that is known. Never raises."""
        # Not of a process that a task forked.
        if os.getpid() != self._process:
            return
        with contextlib.suppress(Exception):
            totals, began = self._totals, self._began_ns
            totals.memory_bytes = max(totals.memory_bytes, resident_bytes())
            running = 0 if began is None else max(time.perf_counter_ns() - began, 0)
            values = {
                "window": self._window,
                "loader": self._pool,
                "worker": self._process,
                "process": self._process,
                "began_ns": 0,
                "start_ns": 0,
                "complete": complete or self._complete == totals.batches,
                "ended": ended,
                "asked": self._asked,
                **vars(totals),
                "busy_ns": totals.busy_ns + running,
                "stages": self._stages.values(),
                "lines": self._samples.values(),
                "batch_times": list(self._chunks),
                **self._items.values(),
            }
            self._folder.report(self._process, values)


_current: Recorder | None = None
"""That of this process while a window is open."""


def recorder_for(path: str, window: int, pool: int, samples: bool) -> Recorder | None:
    """The recorder of this worker; None once the window is over.

    Parameters
    ----------
    path : str
        The folder of the recording.
    window, pool : int
    samples : bool
    """
    global _current
    current = _current
    if current is not None and current.serves(path, window):
        return None if current.running else current
    folder = Folder(Path(path))
    if folder.window() != window or threading.current_thread() is not threading.main_thread():
        return None
    if current is not None:
        current.end()
    _current = current = Recorder(folder, window, pool, samples)
    current.start()
    return current

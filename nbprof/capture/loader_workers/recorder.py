"""Records one worker process of a loader, from inside it."""

from __future__ import annotations

import contextlib
import multiprocessing.queues
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbprof.capture.loader_workers.batches import CLOCK_SHARE, BatchTimer
from nbprof.capture.loader_workers.folder import PAUSED, Folder
from nbprof.capture.loader_workers.reporter import Reporter
from nbprof.capture.loader_workers.stages import cpu_clock_ns
from nbprof.capture.loader_workers.totals import Sampled, resident_bytes


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

    Attributes
    ----------
    process : int
        The process that it records.
    """

    def __init__(
        self, folder: Folder, loader: int, worker: int, began_ns: int, samples: bool
    ) -> None:
        self._folder = folder
        self._loader, self._worker, self._began_ns = loader, worker, began_ns
        self._start_ns: int | None = None
        self.process = os.getpid()
        self._window: int | None = folder.window()
        self._open: int | None = self._window
        """The window that is open, as the reporter saw it last."""
        self.timer = BatchTimer(self.follow, samples=samples)
        self.begin_window()
        self.undo: list[Callable[[], object]] = []
        """What the end of the recording calls, last first."""
        self._reporter = Reporter(self._look, self.report)

    @property
    def counts(self) -> bool:
        """True while the window of the current batch is open."""
        return self._window not in (None, PAUSED) and self._open == self._window

    def start(self) -> None:
        """Begin to record."""
        self._reporter.start()

    def ready(self) -> None:
        """The worker can take its first request, now or since an earlier call."""
        if self._start_ns is None:
            self._start_ns = time.time_ns()

    def end(self) -> None:
        """The worker ends: report the rest."""
        self._reporter.stop()
        self.report(ended=True)
        self._leave()

    def abandon(self) -> None:
        """Another recorder takes this one's place: the recording of this one is over."""
        self._reporter.stop()
        self._leave()

    def _look(self) -> bool:
        """On the thread of the reporter: sample, and see which window is open."""
        self.timer.samples.take()
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
        if os.getpid() != self.process:
            return
        nothing = BatchTimer(lambda: False, samples=False).values()
        times = {"began_ns": 0, "start_ns": 0}
        self._write(window, {**nothing, **times, "complete": True, "ended": False})

    def follow(self) -> bool:
        """Before a batch: begin a new window, or leave once the recording is over. Returns whether
        the batch counts.
        """
        if self._open != self._window:
            self._window = self._open
            if self._window is None:
                self._leave()
            elif self._window != PAUSED:
                self.begin_window()
        return self.counts

    def begin_window(self) -> None:
        """Forget everything before this window."""
        self.timer.clear()
        self._pickling = Sampled(CLOCK_SHARE, cpu_clock_ns())
        self._delay_before = _delayed_ns()

    def _leave(self) -> None:
        self.timer.leave()
        while self.undo:
            with contextlib.suppress(Exception):
                self.undo.pop()()

    def hook_pickler(self, sends: Callable[[], bool]) -> None:
        """Time what is pickled for queues on the thread on which `sends` is true."""
        queues: Any = multiprocessing.queues
        original = queues._ForkingPickler
        timed = _TimedPickler(original, sends, self._may_time_pickle, self._pickled)
        queues._ForkingPickler = timed

        def restore() -> None:
            if queues._ForkingPickler is timed:
                queues._ForkingPickler = original

        self.undo.append(restore)

    @property
    def pickle_ns(self) -> int:
        """Time in pickling so far; an estimate where only some messages were timed."""
        return self._pickling.total(self.timer.totals.pickled_bytes)

    def _may_time_pickle(self) -> bool:
        return self._pickling.is_due(self.timer.totals.busy_ns)

    def _pickled(self, took_ns: int | None, size: int) -> None:
        """On the thread that sends the batches; the time is None where it was not measured."""
        if self.counts:
            self.timer.totals.pickled_bytes += size
            if took_ns is not None:
                self._pickling.add(took_ns, size)

    def report(self, *, ended: bool = False, closed: bool = False) -> None:
        """Write all that is known. Never raises."""
        window = self._window
        # A child that the person's code forked from this worker is none.
        if window is None or window == PAUSED or os.getpid() != self.process:
            return
        closed = closed or self._open != window
        with contextlib.suppress(Exception):
            totals = self.timer.totals
            totals.memory_bytes = max(totals.memory_bytes, resident_bytes())
            totals.pickle_ns = self.pickle_ns
            self.add_estimates()
            totals.delayed_ns = max(_delayed_ns() - self._delay_before, 0)
            values = {
                "began_ns": self._began_ns,
                "start_ns": max((self._start_ns or self._began_ns) - self._began_ns, 0),
                "complete": ended or closed,
                "ended": ended,
                **self.timer.values(),
            }
            self._write(window, values)

    def add_estimates(self) -> None:
        """Complete the totals before a report."""

    def _write(self, window: int, values: dict[str, Any]) -> None:
        about = {
            "window": window,
            "loader": self._loader,
            "worker": self._worker,
            "process": self.process,
        }
        self._folder.report(self.process, {**about, **values})


class _TimedPickler:
    """In place of the pickler of queues in this process; times what one thread sends."""

    def __init__(
        self,
        original: Any,
        sends: Callable[[], bool],
        may_time: Callable[[], bool],
        pickled: Callable[[int | None, int], None],
    ) -> None:
        self._original, self._sends = original, sends
        self._may_time, self._pickled = may_time, pickled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def dumps(self, message: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._sends():
            return self._original.dumps(message, *args, **kwargs)
        if not self._may_time():
            data = self._original.dumps(message, *args, **kwargs)
            took = None
        else:
            began = time.thread_time_ns()
            data = self._original.dumps(message, *args, **kwargs)
            took = time.thread_time_ns() - began
        with contextlib.suppress(Exception):
            self._pickled(took, len(data))
        return data


def _delayed_ns() -> int:
    """Time in which the main thread could have run but had no core; 0 where unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        path = Path(f"/proc/self/task/{os.getpid()}/schedstat")
        return int(path.read_text(encoding="ascii").split()[1])
    return 0

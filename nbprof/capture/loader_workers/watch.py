"""The workers of the loaders that a recording sees start."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import weakref
from collections.abc import Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from nbprof.capture.loader_workers import entry
from nbprof.capture.loader_workers.folder import PAUSED, Folder, remove_leftovers
from nbprof.capture.loader_workers.loop import Loop
from nbprof.capture.loader_workers.reports import Reports
from nbprof.capture.patches import Patches
from nbprof.core import worker_times

if TYPE_CHECKING:
    from nbprof.capture.loader_workers.in_process import InProcess

_ITERATORS = "torch.utils.data.dataloader"


class Missing(NamedTuple):
    """Gaps in what the workers of a window reported.

    Attributes
    ----------
    error : OSError or None
        Why no worker could report.
    unreached, running : int
        Workers that ran at the end without a report, of so many.
    killed : int
        Workers that ended without a last report.
    """

    error: OSError | None = None
    unreached: int = 0
    running: int = 0
    killed: int = 0


class WorkerWatch:
    """Has the workers that start from now on record themselves, and collects what they report.

    Attributes
    ----------
    samples : bool
        Whether they sample their stacks.
    """

    def __init__(self) -> None:
        self.samples = True
        self._entry: entry.Entry | None = None
        self._in_process: InProcess | None = None
        self._folder: Folder | None = None
        self._window = self._windows = 0
        self._reports = Reports(PAUSED)
        self._loop = Loop()
        self._error: OSError | None = None
        self._loaders: list[dict[str, Any]] = []
        self._number: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._earlier: weakref.WeakSet[Any] = weakref.WeakSet()
        """Iterators whose workers ran before the recording."""
        self._process = os.getpid()

    def hook(self, patches: Patches) -> None:
        """Let PyTorch start our loop of a worker, if it is imported by now."""
        module = sys.modules.get(entry.MODULE)
        if self._entry is not None or module is None:
            return
        loop = vars(module).get(entry.LOOP)
        if loop is None:
            return
        # Late, and here, so that workers that are forked have it.
        importlib.import_module("nbprof.capture.loader_workers.recorder")
        from nbprof.capture.loader_workers.in_process import InProcess

        self._in_process = InProcess(
            lambda: self._window != PAUSED, self._number.get, samples=self.samples
        )
        self._in_process.hook(patches)
        self._entry = entry.Entry(loop, self.samples)
        patches.replace(module, entry.LOOP, self._entry)
        self._hook_iterators(patches)
        patches.on_restore(self.close)

    def _hook_iterators(self, patches: Patches) -> None:
        """Time how long a loop waits for workers to be started."""
        iterators = getattr(sys.modules.get(_ITERATORS), "_MultiProcessingDataLoaderIter", None)
        if iterators is None or "__init__" not in vars(iterators):
            return
        original = iterators.__init__

        @wraps(original)
        def make(iterator: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            began = time.perf_counter_ns()
            original(iterator, *args, **kwargs)
            with contextlib.suppress(Exception):
                self._loop.made(iterator, time.perf_counter_ns() - began)

        patches.replace(iterators, "__init__", make)

    def begin(self) -> None:
        """A window begins."""
        self._windows += 1
        self._reports = Reports(self._windows)
        self._loop.clear()
        if self._in_process is not None:
            self._in_process.begin()
        self._open(self._windows)

    def iterates(self, loader: Any, iterator: Any) -> None:
        """A loader is iterated over; its workers start on this thread now, or run already."""
        if self._entry is None:
            return
        number = self._number.get(loader)
        if number is None:
            if len(self._loaders) >= worker_times.MOST_ROWS:
                return
            number = self._number[loader] = len(self._loaders)
            self._loaders.append({"dataset": "", "workers": 0, "prefetch": 0})
        attributes = object.__getattribute__(loader, "__dict__")
        dataset = type(attributes.get("dataset")).__name__
        self._loaders[number] = {
            "dataset": dataset[:100],
            "workers": int(attributes.get("num_workers") or 0),
            "prefetch": int(attributes.get("prefetch_factor") or 0),
        }
        if not attributes.get("num_workers"):
            return
        began_ns = time.time_ns()
        self._loop.begins(iterator, number, began_ns)
        if "_workers" not in vars(iterator):
            self._starts(number, began_ns)
            self._iterators.add(iterator)
        elif iterator not in self._iterators:
            self._earlier.add(iterator)
            self._loop.watch(iterator)

    def gave(self, iterator: Any, wait_s: float) -> None:
        """The loop over an iterator has waited so long for a batch."""
        if self._window != PAUSED:
            self._loop.gave(iterator, round(wait_s * 1e9))

    def _starts(self, number: int, began_ns: int) -> None:
        """The loader with this number starts its workers."""
        assert self._entry is not None
        if self._folder is None and self._error is None:
            try:
                self._make_folder()
            except OSError as error:
                self._error = error
        elif self._folder is not None:
            self._reports.collect_ended(self._folder, _running(self._iterators))
        self._entry.folder = self._folder
        self._entry.starts(number, began_ns)

    def _make_folder(self) -> None:
        remove_leftovers()
        folder = Folder.new()
        try:
            folder.open(self._window)
        except OSError:
            folder.remove()
            raise
        self._folder = folder

    def taken(self) -> tuple[dict[str, Any], Missing]:
        """The window ends: the reports of its workers, packed for the info, and what is missing."""
        self._window = PAUSED
        running, earlier = _running(self._iterators), _running(self._earlier)
        reports = self._reports
        if self._folder is not None:
            self._open(PAUSED)
            reports.collect(self._folder, running)
        if self._in_process is not None:
            for report in self._in_process.reports():
                reports.merge.add(report)
        unseen = len((running | earlier) - reports.processes)
        missing = Missing(self._error, unseen, len(running | earlier), reports.killed)
        return reports.merge.packed(self._loaders, self._loop.values()), missing

    def _open(self, window: int) -> None:
        self._window = window
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.open(window)

    def close(self) -> None:
        """The recording is over: workers that still run take everything back."""
        self._loop.close()
        folder, self._folder = self._folder, None
        if self._entry is not None:
            # Something else may have wrapped it, and start workers with it yet.
            self._entry.folder = None
        self._entry = None
        # A child that was forked meanwhile leaves the folder to its parent.
        if folder is not None and os.getpid() == self._process:
            folder.remove()


def _running(iterators: Iterable[Any]) -> set[int]:
    """The processes of the workers of iterators that run now."""
    processes = set()
    for iterator in list(iterators):
        with contextlib.suppress(Exception):
            for worker in vars(iterator).get("_workers", ()):
                if worker.is_alive():
                    processes.add(worker.pid)
    return processes

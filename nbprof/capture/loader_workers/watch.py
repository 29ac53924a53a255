"""The workers of the loaders that a recording sees start."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from nbprof.capture.loader_workers import entry
from nbprof.capture.loader_workers.folder import PAUSED, Folder
from nbprof.capture.patches import Patches
from nbprof.core import worker_times

ANSWER_S = 0.5
"""Longest wait for the reports of workers that still run when a window ends."""
_POLL_S = 0.005


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
        self._folder: Folder | None = None
        self._window = self._windows = 0
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
        if self._entry is not None or self._error is not None or module is None:
            return
        loop = vars(module).get(entry.LOOP)
        if loop is None:
            return
        try:
            path = Path(tempfile.mkdtemp(prefix="nbprof-workers-"))
            self._folder = Folder(path)
            self._folder.open(self._window)
        except OSError as error:
            self._error = error
            return
        # Late, and here, so that workers that are forked have it.
        importlib.import_module("nbprof.capture.loader_workers.recorder")
        self._entry = entry.Entry(loop, path, self.samples)
        patches.replace(module, entry.LOOP, self._entry)
        patches.on_restore(self.close)

    def begin(self) -> None:
        """A window begins."""
        self._windows += 1
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
        if attributes.get("num_workers"):
            if "_workers" not in vars(iterator):
                self._iterators.add(iterator)
                self._entry.starts(number)
            elif iterator not in self._iterators:
                self._earlier.add(iterator)

    def taken(self) -> tuple[dict[str, Any], Missing]:
        """The window ends: the reports of its workers, packed for the info, and what is missing."""
        window, self._window = self._window, PAUSED
        if self._folder is None or not self._loaders:
            return {}, Missing(self._error)
        self._open(PAUSED)
        running, earlier = _running(self._iterators), _running(self._earlier)
        reports = self._answers(window, running)
        unseen = len((running | earlier) - {report.get("process") for report in reports})
        killed = 0
        for report in reports:
            killed += not report.get("complete") and report.get("process") not in running
        missing = Missing(None, unseen, len(running | earlier), killed)
        return worker_times.merged(self._loaders, reports), missing

    def _answers(self, window: int, running: set[int]) -> list[dict[str, Any]]:
        """The reports on a window, once workers that run have completed theirs, or soon."""
        assert self._folder is not None
        deadline = time.perf_counter() + ANSWER_S
        while True:
            reports = [
                report for report in self._folder.reports() if report.get("window") == window
            ]
            complete = {report.get("process") for report in reports if report.get("complete")}
            if running <= complete or time.perf_counter() > deadline:
                return reports
            time.sleep(_POLL_S)

    def _open(self, window: int) -> None:
        self._window = window
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.open(window)

    def close(self) -> None:
        """The recording is over: workers that still run take everything back."""
        folder, self._folder = self._folder, None
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

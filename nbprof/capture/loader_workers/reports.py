"""The reports of a window, each read once: when its worker has ended, or when the window ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nbprof.capture.loader_workers import folder as folders
from nbprof.capture.loader_workers.folder import Folder, State
from nbprof.core.worker_times import Merge

ANSWER_S = 0.5
"""Longest wait for the reports of workers that still run when a window ends."""
_POLL_S, _LONGEST_POLL_S = 0.005, 0.05


class Reports:
    """The reports on one window.

    Workers that start again at every epoch leave a file each: those of the ended ones are merged
    and removed when the next start, so there are never more files than workers that run.

    Parameters
    ----------
    window : int
    numbers : mapping
        The number in its loader of each worker process that does not know its own.

    Attributes
    ----------
    merge : Merge
        What is known so far.
    processes : set of int
        Worker processes that reported.
    killed : int
        Workers that ended without a last report.
    """

    def __init__(self, window: int, numbers: Mapping[int, int] = MappingProxyType({})) -> None:
        self._window, self._numbers = window, numbers
        self.merge = Merge()
        self.processes: set[int] = set()
        self.killed = 0

    def collect_ended(self, folder: Folder, running: set[int]) -> None:
        """Take in the reports of workers that have ended. Never raises."""
        for process, (file, _) in folder.files().items():
            if process not in running:
                report = folders.read(file)
                if report.get("ended"):
                    self._add(process, report)
                    _remove(file)

    def collect(self, folder: Folder, running: set[int]) -> None:
        """The window has ended: take in the other reports, once workers that run have completed
        theirs, or soon.
        """
        deadline, pause = time.perf_counter() + ANSWER_S, _POLL_S
        states: dict[int, State] = {}
        reports: dict[int, dict[str, Any]] = {}
        paths: dict[int, Path] = {}
        while True:
            for process, (file, state) in folder.files().items():
                if states.get(process) != state:
                    states[process], paths[process] = state, file
                    reports[process] = folders.read(file)
            complete = {
                process
                for process, report in reports.items()
                if report.get("window") == self._window and report.get("complete")
            }
            if running <= complete or time.perf_counter() > deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_S)
        for process, report in reports.items():
            self._add(process, report)
            if process in running:
                continue
            if report.get("window") == self._window:
                self.killed += not report.get("complete")
            _remove(paths[process])

    def _add(self, process: int, report: dict[str, Any]) -> None:
        if report.get("window") == self._window:
            self.processes.add(process)
            number = self._numbers.get(process, report.get("worker"))
            self.merge.add({**report, "worker": number})


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()

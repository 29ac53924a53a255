"""Times every step of a cell by the wall clock, whether a profiler runs or not."""

from __future__ import annotations

import time
from array import array
from typing import Any


class StepTimer:
    """Notes when steps began and ended, at under 1 µs a step, and when a profiler ran.

    Parameters
    ----------
    limit : int
        Steps whose times are kept; later ones are only counted.
    """

    profiled = False
    """True once a profiler has run in this process."""

    def __init__(self, limit: int = 20_000) -> None:
        self.count = 0
        self.by_kind: dict[str, int] = {}
        """Number of steps of each kind."""
        self._profiled_before = StepTimer.profiled
        self._limit = limit
        self._since = time.perf_counter_ns()
        self._start = array("q")
        self._end = array("q")
        self._kind = array("H")
        self._kinds: dict[str, int] = {}
        self._windows: list[tuple[int, int]] = []
        self._window_begin: int | None = None

    @property
    def since_ns(self) -> int:
        """The moment from which the times count, by `time.perf_counter_ns`."""
        return self._since

    def stepped(self, start_ns: int, end_ns: int, kind: str) -> None:
        """A step has ended; times are of `time.perf_counter_ns`."""
        self.count += 1
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        if len(self._start) < self._limit:
            self._start.append(start_ns - self._since)
            self._end.append(end_ns - self._since)
            self._kind.append(self._kinds.setdefault(kind, len(self._kinds)))

    def window_begins(self) -> None:
        """A profiler is about to be started."""
        self._window_begin = time.perf_counter_ns() - self._since

    def window_ends(self) -> None:
        """A profiler has been stopped, or was not started after all."""
        StepTimer.profiled = True
        begin, self._window_begin = self._window_begin, None
        if begin is not None:
            self._windows.append((begin, time.perf_counter_ns() - self._since))

    def packed(self) -> dict[str, Any]:
        """The times as a recording stores them; empty without a step."""
        if not self.count:
            return {}
        # Late, for it imports numpy, and a cell may be recorded that does not.
        import numpy as np

        from nbprof.core.step_times import StepTimes

        rows = min(len(self._kind), len(self._end))
        windows = list(self._windows)
        if self._window_begin is not None:
            windows.append((self._window_begin, time.perf_counter_ns() - self._since))
        times = StepTimes(
            start=np.array(self._start[:rows], np.int64),
            end=np.array(self._end[:rows], np.int64),
            kind=np.array(self._kind[:rows], np.int32),
            kinds=list(self._kinds),
            windows=np.array(windows, np.int64).reshape(-1, 2),
            count=self.count,
            profiled_before=self._profiled_before,
        )
        return times.packed()

"""Contention for CPU cores during a recording.

Measures the cores that other processes used, and the time that threads of this one waited for one.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, NamedTuple

_IDLE = ("idle", "iowait")
_COUNTED_TWICE = ("guest", "guest_nice")
"""Linux counts the time of guests as user time too."""
_TASKS = Path("/proc/self/task")


class _Reading(NamedTuple):
    """CPU seconds since the machine, or the process, began.

    Attributes
    ----------
    time : float
    cores : int
        Cores that this process may run on.
    busy : float
        Time in which any process used these cores.
    process : float
        CPU time of this process and its children.
    threads : dict
        By thread, how long it had a core, and how long it was ready to run without one.
    """

    time: float
    cores: int
    busy: float
    process: float
    threads: dict[str, tuple[float, float]]


class Contention:
    """Measures contention from its creation to `measured`."""

    def __init__(self) -> None:
        self._begin: _Reading | None = None
        with contextlib.suppress(Exception):
            self._begin = _read()

    def measured(self) -> dict[str, float]:
        """Contention since the creation.

        Returns
        -------
        dict
            `cores`: those that this process may run on. `own_cores`, `other_cores`: the mean number
            of them that this process with its children, and the others, used. `waited_percent`, on
            Linux: share of the time in which threads of this process were ready to run but had no
            core. Empty if it cannot be measured.
        """
        with contextlib.suppress(Exception):
            return {} if self._begin is None else _between(self._begin, _read())
        return {}


def _between(begin: _Reading, end: _Reading) -> dict[str, float]:
    seconds = end.time - begin.time
    if seconds <= 0 or begin.cores != end.cores:
        return {}
    process = min(max(end.process - begin.process, 0.0) / seconds, float(end.cores))
    busy = min(max(end.busy - begin.busy, 0.0) / seconds, float(end.cores))
    measured = {
        "cores": float(end.cores),
        "own_cores": process,
        "other_cores": max(busy - process, 0.0),
    }
    ran = waited = 0.0
    for thread, (ran_by_now, waited_by_now) in end.threads.items():
        ran_before, waited_before = begin.threads.get(thread, (0.0, 0.0))
        ran += max(ran_by_now - ran_before, 0.0)
        waited += max(waited_by_now - waited_before, 0.0)
    if ran + waited > 0:
        measured["waited_percent"] = 100 * waited / (ran + waited)
    return measured


def _read() -> _Reading:
    import psutil

    process = psutil.Process()
    cores = psutil.cpu_times(percpu=True)
    if hasattr(process, "cpu_affinity"):
        allowed = process.cpu_affinity()
        cores = [times for core, times in enumerate(cores) if core in allowed]
    cpu_time = _cpu_time(process)
    for child in children_of(process.pid):
        # It may have ended meanwhile; then its time is in that of its parent.
        with contextlib.suppress(psutil.Error):
            cpu_time += _cpu_time(psutil.Process(child))
    busy = 0.0
    for times in cores:
        for name, seconds in times._asdict().items():
            if name not in _IDLE and name not in _COUNTED_TWICE:
                busy += seconds
    return _Reading(time.perf_counter(), len(cores), busy, cpu_time, _threads())


def children_of(process: int) -> list[int]:
    """The children of a process, and theirs."""
    if not Path(f"/proc/{process}/task/{process}/children").exists():
        import psutil

        # It looks through all processes of the machine, which takes as long as a small recording.
        return [child.pid for child in psutil.Process(process).children(recursive=True)]
    children: list[int] = []
    asked = [process]
    while asked:
        threads: list[Path] = []
        with contextlib.suppress(OSError):
            threads += Path(f"/proc/{asked.pop()}/task").iterdir()
        for thread in threads:
            # It may have ended meanwhile.
            with contextlib.suppress(OSError):
                new = [int(child) for child in (thread / "children").read_text().split()]
                children += new
                asked += new
    return children


def _cpu_time(process: Any) -> float:
    times = process.cpu_times()
    names = ("user", "system", "children_user", "children_system")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _threads() -> dict[str, tuple[float, float]]:
    """Seconds that each thread ran and waited for a core, by `schedstat` of Linux."""
    seconds = {}
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError, ValueError):
                ran, waited, _ = (task / "schedstat").read_text().split()
                seconds[task.name] = int(ran) / 1e9, int(waited) / 1e9
    return seconds

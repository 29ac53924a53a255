"""How much of the cores other processes used while a recording ran, and how long the threads of
this one waited for a core.
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

    `busy`: of the cores that this process may run on, whoever used them. `own`: of this process and
    its children. `ran` and `waited`: by thread, how long it had a core, and how long it was ready
    to run without one.
    """

    at: float
    cores: int
    busy: float
    own: float
    threads: dict[str, tuple[float, float]]


class Contention:
    """Reads the machine when it is made, and what happened since then when it is asked."""

    def __init__(self) -> None:
        self._begin: _Reading | None = None
        with contextlib.suppress(Exception):
            self._begin = _read()

    def measured(self) -> dict[str, float]:
        """What happened since: empty where it cannot be known.

        Returns
        -------
        dict
            `cores`: those that this process may run on. `own_cores`, `other_cores`: how many of
            them this process with its children, and the others, kept busy in the mean.
            `waited_percent`, on Linux: of the time in which threads of this process were ready to
            run, the part in which they had no core.
        """
        with contextlib.suppress(Exception):
            return {} if self._begin is None else _between(self._begin, _read())
        return {}


def _between(begin: _Reading, end: _Reading) -> dict[str, float]:
    seconds = end.at - begin.at
    if seconds <= 0 or begin.cores != end.cores:
        return {}
    own = min(max(end.own - begin.own, 0.0) / seconds, float(end.cores))
    busy = min(max(end.busy - begin.busy, 0.0) / seconds, float(end.cores))
    out = {"cores": float(end.cores), "own_cores": own, "other_cores": max(busy - own, 0.0)}
    ran, waited = (
        sum(
            max(now[i] - begin.threads.get(thread, (0.0, 0.0))[i], 0.0)
            for thread, now in end.threads.items()
        )
        for i in (0, 1)
    )
    if ran + waited > 0:
        out["waited_percent"] = 100 * waited / (ran + waited)
    return out


def _read() -> _Reading:
    import psutil

    process = psutil.Process()
    mine = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    each = psutil.cpu_times(percpu=True)
    cores = [times for at, times in enumerate(each) if mine is None or at in mine]
    own = _used(process)
    for child in _children(process.pid):
        # It may have ended meanwhile; then its time is in that of its parent.
        with contextlib.suppress(psutil.Error):
            own += _used(psutil.Process(child))
    busy = sum(
        value
        for times in cores
        for name, value in times._asdict().items()
        if name not in _IDLE and name not in _COUNTED_TWICE
    )
    return _Reading(time.perf_counter(), len(cores), busy, own, _threads())


def _children(process: int) -> list[int]:
    """The children of a process, and theirs."""
    if not Path(f"/proc/{process}/task/{process}/children").exists():
        import psutil

        # It looks through all processes of the machine, which takes as long as a small recording.
        return [child.pid for child in psutil.Process(process).children(recursive=True)]
    found: list[int] = []
    asked = [process]
    while asked:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{asked.pop()}/task").iterdir():
                new = [int(child) for child in (thread / "children").read_text().split()]
                found += new
                asked += new
    return found


def _used(process: Any) -> float:
    times = process.cpu_times()
    return float(
        sum(
            getattr(times, name, 0.0)
            for name in ("user", "system", "children_user", "children_system")
        )
    )


def _threads() -> dict[str, tuple[float, float]]:
    """Seconds that each thread ran, and that it waited for a core: Linux has both in
    `schedstat`.
    """
    out = {}
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError, ValueError):
                ran, waited, _ = (task / "schedstat").read_text().split()
                out[task.name] = int(ran) / 1e9, int(waited) / 1e9
    return out

"""Samples the host memory of this process and of its children, from the begin to the end of a cell.

Reading all of it is bounded: `statm` of Linux takes microseconds a process, and where a reading
takes longer, the next one is later. What pages are shared by how many processes costs the kernel a
walk through all of them, so it is asked rarely, and only of processes with children.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from nbprof.capture.contention import children_of

PERIOD_S = 0.1
"""From one sample to the next at first. When as many are stored as may be, every other one is
dropped, and the period doubles.
"""
_SAMPLES = 200
"""A sample may take the part 1/200 of the time until the next."""
_RARE = 500
"""Listing children, and asking for proportional memory, the part 1/500 each."""
_RARE_S = 1.0
_MOST_CHILDREN = 64
"""Children that are read; of more, those that were seen first."""


class HostMemoryRecorder:
    """Samples from `start` to `stop`, on a thread.

    Parameters
    ----------
    since_ns : int
        The moment 0, by `time.perf_counter_ns`.
    workers : callable
        Returns the processes that load batches for this one.
    period_s : float
    limit : int, optional
        Rows that are stored at most.
    """

    def __init__(
        self,
        since_ns: int,
        workers: Callable[[], Collection[int]] = tuple,
        period_s: float = PERIOD_S,
        limit: int | None = None,
    ) -> None:
        self._since_ns, self._workers, self._period_s = since_ns, workers, period_s
        self._limit_asked = limit
        self._numbers = [os.getpid()]
        self._names = [""]
        self._unread: set[int] = set()
        self._children: list[int] = []
        self._list_at = self._share_at = 0.0
        self._moments = 0
        self._rows = _Rows()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._highest = self._peak = -1
        self._with_children = Path("/proc/self/statm").exists()

    def start(self) -> None:
        """Take the first sample and begin. Never raises."""
        with contextlib.suppress(Exception):
            self._highest = _highest_bytes()
            # With the children that there are, such as workers of the cell before.
            with contextlib.suppress(Exception):
                self._list()
            self._sample()
            self._thread = threading.Thread(target=self._run, name="nbprof-memory", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Take the last sample and end. Never raises."""
        # A forked process has neither the thread nor its memory, and the lock may be held there.
        if os.getpid() != self._numbers[0]:
            return
        self._done.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with contextlib.suppress(Exception):
            thread.join(2)
            if thread.is_alive():
                return
            self._sample()
            highest = _highest_bytes()
            # The maximum of a process is that of its life: in the cell only if it rose there.
            if highest > self._highest >= 0:
                self._peak = highest

    def _run(self) -> None:
        wait_s = min(self._period_s, 0.02)
        while not self._done.wait(wait_s):
            began = time.thread_time()
            # A process may end while it is read.
            with contextlib.suppress(Exception):
                self._list()
                self._sample()
            wait_s = max(self._period_s, _SAMPLES * (time.thread_time() - began))

    def _list(self) -> None:
        """Look for children, if it is time to."""
        now, began = time.monotonic(), time.thread_time()
        if not self._with_children or now < self._list_at:
            return
        children = children_of(os.getpid())
        self._children = children[:_MOST_CHILDREN]
        self._unread.update(children[_MOST_CHILDREN:])
        self._list_at = now + max(_RARE_S, _RARE * (time.thread_time() - began))

    def _sample(self) -> None:
        """Read all processes once."""
        time_ns = time.perf_counter_ns() - self._since_ns
        now, began = time.monotonic(), time.thread_time()
        shares = bool(self._children) and now >= self._share_at
        for number in (self._numbers[0], *self._children):
            resident, shared = _resident(number, is_self=number == self._numbers[0])
            if resident < 0:
                # It has ended.
                continue
            process = self._index(number)
            if process is None:
                self._unread.add(number)
                continue
            proportional = _proportional(number) if shares else -1
            pinned = _pinned() if process == 0 else -1
            self._rows.add(time_ns, process, resident, shared, proportional, pinned)
        if shares:
            self._share_at = now + max(_RARE_S, _RARE * (time.thread_time() - began))
        self._moments += 1
        if len(self._rows) > self._limit():
            self._rows.thin(self._limit() // 2)
            self._period_s *= 2

    def _limit(self) -> int:
        """Rows that are stored: with as many again the next sample still fits."""
        if self._limit_asked is not None:
            return self._limit_asked
        from nbprof.core.host_memory import MOST

        return MOST - _MOST_CHILDREN - 1

    def _index(self, number: int) -> int | None:
        """The index of a process; None if there are too many."""
        from nbprof.core.host_memory import MOST_PROCESSES

        if number not in self._numbers:
            if len(self._numbers) >= MOST_PROCESSES:
                return None
            self._numbers.append(number)
            self._names.append(self._name(number))
        return self._numbers.index(number)

    def _name(self, number: int) -> str:
        from nbprof.core.host_memory import LOADER_WORKER

        with contextlib.suppress(Exception):
            if number in self._workers():
                return LOADER_WORKER
        module = sys.modules.get("multiprocessing.process")
        for process in list(getattr(module, "_children", ())):
            with contextlib.suppress(Exception):
                if process.pid == number:
                    return str(process.name)
        with contextlib.suppress(OSError):
            return Path(f"/proc/{number}/comm").read_text(errors="replace").strip()
        return ""

    def packed(self) -> dict[str, Any]:
        """The samples as a recording stores them; empty if there are none. Never raises."""
        with contextlib.suppress(Exception):
            return self._packed()
        return {}

    def _packed(self) -> dict[str, Any]:
        import numpy as np

        from nbprof.capture.bounds import machine_bytes
        from nbprof.core.host_memory import UNKNOWN, HostMemory, Process

        if not len(self._rows):
            return {}
        time_ns, process, *bytes_of = (np.array(each, np.int64) for each in self._rows.columns)
        resident, shared, proportional, pinned = (
            np.where(each < 0, UNKNOWN, each) for each in bytes_of
        )
        return HostMemory(
            tuple(map(Process, self._numbers, self._names)),
            time_ns,
            process.astype(np.int32),
            resident,
            shared,
            proportional,
            pinned,
            self._peak,
            machine_bytes(),
            self._with_children,
            len(self._unread - set(self._numbers)),
        ).packed()


class _Rows:
    """Rows of samples, by column."""

    def __init__(self) -> None:
        self.columns = [array("q") for _ in range(6)]

    def __len__(self) -> int:
        return len(self.columns[0])

    def add(self, *values: int) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)

    def thin(self, limit: int) -> None:
        """Keep the first, the last, and of each group of moments the one with most resident, so
        that there are no more than `limit` rows.
        """
        times, residents = self.columns[0], self.columns[2]
        total: dict[int, int] = {}
        for time_ns, resident in zip(times, residents, strict=True):
            total[time_ns] = total.get(time_ns, 0) + resident
        moments = list(total)
        size = max(2, -(-len(self) // limit))
        selected = {moments[0], moments[-1]}
        for first in range(1, len(moments) - 1, size):
            selected.add(
                max(moments[first : min(first + size, len(moments) - 1)], key=total.__getitem__)
            )
        rows = [row for row, time_ns in enumerate(times) if time_ns in selected]
        for index, column in enumerate(self.columns):
            self.columns[index] = array("q", map(column.__getitem__, rows))


def _resident(number: int, *, is_self: bool) -> tuple[int, int]:
    """Resident bytes of a process, and the part of them in files and shared memory; -1 if unknown.

    The number of a process that has ended may be that of another one: it is read only while it is
    listed as a child.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{number}/statm").read_text(encoding="ascii").split()
        page = os.sysconf("SC_PAGE_SIZE")
        if int(words[1]):
            return int(words[1]) * page, int(words[2]) * page
        # It has ended, and its parent does not know yet.
        return -1, -1
    if is_self and not Path("/proc/self").exists():
        with contextlib.suppress(Exception):
            import psutil

            return int(psutil.Process().memory_info().rss), -1
    return -1, -1


def _proportional(number: int) -> int:
    """Resident bytes, of which shared ones count in equal parts; -1 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{number}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return -1


def _highest_bytes() -> int:
    """The most resident bytes that this process has had; -1 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return -1


def _pinned() -> int:
    """Bytes of pinned host memory that PyTorch's allocator holds; -1 if unknown, as before PyTorch
    uses a GPU.
    """
    with contextlib.suppress(Exception):
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        stats = getattr(cuda, "host_memory_stats_as_nested_dict", None)
        if stats is not None and cuda is not None and cuda.is_initialized():
            return int(stats()["allocated_bytes"]["current"])
    return -1

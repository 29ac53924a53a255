"""Tasks of process pools: the functions that take the time of their workers, how busy these are,
and why a cell waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from nbprof.analysis.input.workers import line_inside, location
from nbprof.core.intervals import Intervals
from nbprof.core.pool_times import Pool, PoolTimes
from nbprof.core.worker_times import BatchTime, StageTotals, WorkerTotals
from nbprof.schema import frames

if TYPE_CHECKING:
    from nbprof.analysis.python import Python, TopFunction

_MS = 1e6
ENOUGH = 100
"""Timed tasks from which on they stand for the others."""
LONG_SHARE, LONG_FACTOR, FEWEST = 0.4, 3.0, 3
"""A task is what the others wait for if it takes this share of the time in which tasks are
unfinished, this many times the median, and is one of so many.
"""


@dataclass(frozen=True)
class Pools:
    """The pools of a recording.

    Attributes
    ----------
    recorded : PoolTimes
    cells : mapping
        Execution counts by the stem of a cell's file.
    """

    recorded: PoolTimes = field(default_factory=PoolTimes)
    cells: Mapping[str, int] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Names of the pools, numbered where several are of a kind."""
        kinds = [pool.kind for pool in self.recorded.pools]
        return [
            kind if kinds.count(kind) == 1 else f"{kind} {kinds[: index + 1].count(kind)}"
            for index, kind in enumerate(kinds)
        ]

    def workers(self) -> pd.DataFrame:
        """One row per worker process that was timed: `p.python.workers`."""
        names, rows = self.names(), []
        for worker in self.recorded.times.workers:
            use = PoolWork(self.recorded, worker.loader)
            unfinished = use.unfinished_ns if use.complete else None
            waiting = np.nan if unfinished is None else max(unfinished - worker.busy_ns, 0) / _MS
            busy = np.nan if not unfinished else 100 * worker.busy_ns / unfinished
            rows.append(
                {
                    "pool": names[worker.loader],
                    "process": str(worker.worker),
                    "tasks": worker.items,
                    "busy_ms": worker.busy_ns / _MS,
                    "busy_percent": min(busy, 100.0),
                    "waiting_ms": waiting,
                    "cpu_ms": worker.cpu_ns / _MS,
                    "memory_bytes": worker.memory_bytes or None,
                }
            )
        return frames.shaped("python.workers", pd.DataFrame(rows))

    def tasks(self) -> pd.DataFrame:
        """One row per function that ran as tasks of a pool: `p.python.tasks`."""
        names, rows = self.names(), []
        lines = line_inside(self.recorded.times, self.cells)
        stages = self.recorded.times.stages
        totals: dict[int, int] = {}
        for stage in stages:
            totals[stage.loader] = totals.get(stage.loader, 0) + stage.total_ns
        order = sorted(range(len(stages)), key=lambda i: (stages[i].loader, -stages[i].total_ns))
        for index in order:
            stage = stages[index]
            rows.append(
                {
                    "pool": names[stage.loader],
                    "function": stage.name,
                    "where": location(stage.file, stage.line, self.cells),
                    "calls": stage.calls,
                    "mean_ms": stage.total_ns / stage.calls / _MS if stage.calls else np.nan,
                    "longest_ms": stage.longest_ns / _MS,
                    "percent": 100 * stage.total_ns / (totals[stage.loader] or np.nan),
                    "inside": lines.get(index, ""),
                }
            )
        return frames.shaped("python.tasks", pd.DataFrame(rows))

    def pools(self) -> pd.DataFrame:
        """One row per pool that tasks were sent to: `p.python.pools`."""
        names, rows = self.names(), []
        for index, pool in enumerate(self.recorded.pools):
            if not pool.intervals:
                continue
            work = PoolWork(self.recorded, index)
            unfinished = work.unfinished_ns
            rows.append(
                {
                    "pool": names[index],
                    "processes": pool.processes,
                    "sent": pool.sent,
                    "timed": work.timed,
                    "unfinished_ms": np.nan if unfinished is None else unfinished / _MS,
                    "busy_percent": np.nan if work.busy is None else 100 * work.busy,
                    "longest_ms": work.longest_ns / _MS if work.timed else np.nan,
                }
            )
        return frames.shaped("python.pools", pd.DataFrame(rows))


class LongTask(NamedTuple):
    """A task, or a chunk of them, that takes much longer than the others.

    Attributes
    ----------
    ms : float
    share : float
        Of the time in which tasks of its pool were unfinished, 0 to 1.
    calls : int
        Calls of the person's function in it.
    chunks : int
        It is one of so many.
    """

    ms: float
    share: float
    calls: int
    chunks: int


class PoolWork:
    """Work of the workers of one pool.

    Parameters
    ----------
    recorded : PoolTimes
    index : int
        Number of the pool.
    """

    def __init__(self, recorded: PoolTimes, index: int) -> None:
        times = recorded.times
        self.pool: Pool = recorded.pools[index]
        self.workers: list[WorkerTotals] = [row for row in times.workers if row.loader == index]
        self._stages = [(i, row) for i, row in enumerate(times.stages) if row.loader == index]
        self._chunks: list[BatchTime] = [row for row in times.batches if row.loader == index]
        self._times = times

    @property
    def timed(self) -> int:
        """Calls of the person's functions whose time is known, alone or with their chunk."""
        return sum(row.items for row in self.workers)

    @property
    def complete(self) -> bool:
        """True if all calls that were sent were timed."""
        return bool(self.timed) and self.timed == self.pool.sent

    @property
    def unfinished_ns(self) -> int | None:
        """Time in which calls were unfinished; None if unknown."""
        return self.pool.unfinished_ns

    @property
    def busy_ns(self) -> int:
        """Time of all workers in tasks that were timed."""
        return sum(row.busy_ns for row in self.workers)

    @property
    def cpu(self) -> float:
        """Cores that a worker used in its tasks, 0 to 1."""
        return min(sum(row.cpu_ns for row in self.workers) / (self.busy_ns or 1), 1.0)

    @property
    def busy(self) -> float | None:
        """Share of the time of all its processes in tasks while any were unfinished, 0 to 1; None
        unless all tasks were timed.
        """
        unfinished = self.unfinished_ns
        if not self.complete or not unfinished or not self.pool.processes:
            return None
        return min(self.busy_ns / (unfinished * self.pool.processes), 1.0)

    @property
    def about_busy(self) -> float | None:
        """The same, estimated where some tasks were not timed; None if few were."""
        unfinished = self.unfinished_ns
        if self.busy is not None or self.timed < ENOUGH:
            return self.busy
        if not unfinished or not self.pool.processes:
            return None
        scale = self.pool.sent / self.timed
        return min(scale * self.busy_ns / (unfinished * self.pool.processes), 1.0)

    @property
    def longest_ns(self) -> int:
        """The longest call."""
        return max((stage.longest_ns for _, stage in self._stages), default=0)

    @property
    def starting_ns(self) -> int | None:
        """Until the first task began, from when it was sent; None if unknown, or if its processes
        had started before the recording.
        """
        if not self.complete or not self._chunks or not self.pool.intervals or not self.pool.fresh:
            return None
        return max(min(row.start_ns for row in self._chunks) - self.pool.intervals[0][0], 0)

    def heaviest(self) -> tuple[int, StageTotals] | None:
        """The function with the most time, by its number; None if none was timed."""
        return max(self._stages, key=lambda each: each[1].total_ns, default=None)

    def share_of(self, stage: StageTotals) -> float:
        """Its share of the time in functions, 0 to 1."""
        total = sum(row.total_ns for _, row in self._stages)
        return stage.total_ns / total if total else 0.0

    def long_task(self) -> LongTask | None:
        """The task that the end of the others waits for; None if none does, or it is unknown."""
        chunks, unfinished = self._chunks, self.unfinished_ns
        all_timed = self.complete and sum(row.items for row in chunks) == self.pool.sent
        if not all_timed or len(chunks) < FEWEST or not unfinished:
            return None
        longest = max(chunks, key=lambda row: row.busy_ns)
        typical = median(row.busy_ns for row in chunks)
        share = longest.busy_ns / unfinished
        if share < LONG_SHARE or longest.busy_ns < LONG_FACTOR * typical:
            return None
        return LongTask(longest.busy_ns / _MS, min(share, 1.0), longest.items, len(chunks))


class PoolWait(NamedTuple):
    """A wait of the cell for a pool.

    Attributes
    ----------
    percent : float
        Of a unit: time in which the thread of the cell waits in code of a pool while its tasks are
        unfinished.
    percent_of_all : float
        The same of all pools; the rest is of the one with most.
    function : TopFunction or None
        The person's line that waits.
    name : str
        Of the pool with most of that time.
    work : PoolWork
    code : str
        Its function with most time, with its place; "" if none was timed.
    sampled : str
        The line of that with at least half of its samples, and its share; else empty.
    """

    percent: float
    percent_of_all: float
    function: TopFunction | None
    name: str
    work: PoolWork
    code: str
    sampled: str


def waited(pools: Pools, python: Python, units: Intervals) -> PoolWait | None:
    """The wait for pools in some time; None without one, or if it is unknown.

    Parameters
    ----------
    pools : Pools
    python : Python
        Sampled stacks.
    units : Intervals
        Steps, in ns since 1970.
    """
    recorded = pools.recorded
    if any(pool.truncated for pool in recorded.pools) or not units.total():
        return None
    waits: list[tuple[float, TopFunction | None, int]] = []
    of_any: list[tuple[int, int]] = []
    for index, pool in enumerate(recorded.pools):
        if pool.intervals:
            of_any += pool.intervals
            unfinished = _union(pool.intervals).intersection(units)
            share, function = python.in_pools(unfinished)
            waits.append((share * unfinished.total(), function, index))
    if not waits:
        return None
    longest, function, index = max(waits, key=lambda each: each[0])
    if not longest:
        return None
    work = PoolWork(recorded, index)
    code, line, heaviest = "", "", work.heaviest()
    if heaviest is not None:
        number, stage = heaviest
        position = location(stage.file, stage.line, pools.cells, short=True)
        code = f"**{stage.name}**" + (f" ({position})" if position else "")
        line = line_inside(recorded.times, pools.cells, short=True).get(number, "")
    # Of each alone there may be too few samples.
    unfinished = _union(of_any).intersection(units)
    of_all = max(python.in_pools(unfinished)[0] * unfinished.total(), longest)
    return PoolWait(
        100 * longest / units.total(),
        100 * of_all / units.total(),
        function,
        pools.names()[index],
        work,
        code,
        line,
    )


def _union(intervals: Sequence[tuple[int, int]]) -> Intervals:
    when = np.array(intervals, np.int64)
    return Intervals.union(when[:, 0], when[:, 1])

"""Times of the tasks of process pools, as a recording stores them.

The times themselves are those of `nbprof.core.worker_times`, where `loader` is the number of a pool
and `worker` the ID of a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from nbprof.core import worker_times
from nbprof.core.worker_histogram import LONGEST
from nbprof.core.worker_times import Merge, WorkerTimes

VERSION = 1
MOST_POOLS = 200
_MOST_INTERVALS = 2_000
_LATEST_NS = 2**62


class Pool(NamedTuple):
    """A pool.

    Attributes
    ----------
    kind : str
        What people call it: `Pool`, `ProcessPoolExecutor`, `joblib`.
    processes : int
        The most worker processes that it had.
    sent : int
        Calls of the person's functions that were sent to its workers.
    intervals : tuple of (int, int)
        When any of them were unfinished, in ns since 1970; they do not overlap.
    truncated : bool
        True if there were too many intervals to store.
    fresh : bool
        True if its processes started while nbprof recorded.
    """

    kind: str
    processes: int
    sent: int
    intervals: tuple[tuple[int, int], ...]
    truncated: bool
    fresh: bool

    @property
    def unfinished_ns(self) -> int | None:
        """Time in which any were unfinished; None if unknown."""
        if self.truncated:
            return None
        return sum(end - start for start, end in self.intervals)


@dataclass(frozen=True)
class PoolTimes:
    """All of it; the pools by their number."""

    pools: tuple[Pool, ...] = ()
    times: WorkerTimes = field(default_factory=WorkerTimes)


class _Use(Protocol):
    kind: str
    processes: int
    sent: int
    truncated: bool
    fresh: bool


def packed(
    uses: Sequence[_Use], intervals: Sequence[Sequence[tuple[int, int]]], merge: Merge
) -> dict[str, Any]:
    """As plain values for JSON; empty if no task was sent.

    Parameters
    ----------
    uses : sequence
        The pools.
    intervals : sequence
        Of each pool, those of `Pool`.
    merge : Merge
        The reports of their workers.
    """
    if not any(intervals):
        return {}
    about = [{"dataset": use.kind[:100], "workers": use.processes, "prefetch": 0} for use in uses]
    return {
        "version": VERSION,
        "pools": [
            [
                *(use.kind[:100], use.processes, use.sent),
                *(list(map(list, when)), use.truncated, use.fresh),
            ]
            for use, when in zip(uses, intervals, strict=True)
        ],
        "times": merge.packed(about, {}),
    }


def unpacked(values: object) -> PoolTimes:
    """The times that `packed` packed; empty for another version or damaged values."""
    if not isinstance(values, dict) or values.get("version") != VERSION:
        return PoolTimes()
    try:
        pools = tuple(_pool(row) for row in values["pools"][:MOST_POOLS])
    except (KeyError, TypeError, ValueError):
        return PoolTimes()
    times = worker_times.unpacked(values.get("times"))
    if times.loaders and len(times.loaders) != len(pools):
        return PoolTimes()
    return PoolTimes(pools, times)


def _pool(row: Any) -> Pool:
    kind, processes, sent, intervals, truncated, fresh = row
    if not isinstance(kind, str) or len(kind) > LONGEST:
        raise ValueError("no pool")
    if not isinstance(truncated, bool) or not isinstance(fresh, bool):
        raise ValueError("no pool")
    if not _is_time(processes) or not _is_time(sent) or len(intervals) > _MOST_INTERVALS:
        raise ValueError("no pool")
    before, when = 0, []
    for start, end in intervals:
        if not _is_time(start) or not _is_time(end) or not before <= start <= end:
            raise ValueError("no intervals")
        when.append((start, end))
        before = end
    return Pool(kind, processes, sent, tuple(when), truncated, fresh)


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LATEST_NS

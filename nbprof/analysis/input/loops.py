"""Waits of a loop over a loader that faster or more workers would not shorten.

Every figure is a part of a measured wait of the loop: what workers do while it does not wait costs
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nbprof.analysis.input.workers import SlowItems, slow_items
from nbprof.core.worker_times import BatchWait, LoopTotals, SlowItem, WorkerTimes

_MS = 1e6


@dataclass(frozen=True)
class Held:
    """Waits for batches that a few slow items hold.

    Attributes
    ----------
    items : SlowItems
    ms : float
        Per step, while the loop waited, what these items took more than others.
    """

    items: SlowItems
    ms: float


@dataclass(frozen=True)
class Restarts:
    """Workers that start anew in each iteration over the loader.

    Attributes
    ----------
    count : int
        Iterations after the first.
    start_ms : float
        How long the loop waited for that in such an iteration, on average.
    ms : float
        The same per step.
    """

    count: int
    start_ms: float
    ms: float


@dataclass(frozen=True)
class Received:
    """Batches that come through a pipe, pickled.

    Attributes
    ----------
    batch_bytes : float
        Bytes of a batch.
    ms : float
        Per step, the time in which the loop receives and unpickles them.
    """

    batch_bytes: float
    ms: float


@dataclass(frozen=True)
class LoopWaits:
    """The waits of the loop over the loader that gave most batches, in ms per step.

    Attributes
    ----------
    held : Held or None
    restarts : Restarts or None
    received : Received or None
    workers : int
        Workers that the loader has.
    """

    held: Held | None = None
    restarts: Restarts | None = None
    received: Received | None = None
    workers: int = 0

    @property
    def ms(self) -> float:
        """All of it, per step."""
        parts = (self.held, self.restarts, self.received)
        return sum(part.ms for part in parts if part is not None)


def loop_waits(times: WorkerTimes, batches_per_step: float) -> LoopWaits:
    """The causes of the waits of the loop; empty if no batch was given.

    Parameters
    ----------
    times : WorkerTimes
    batches_per_step : float
    """
    if not times.loops or batches_per_step <= 0:
        return LoopWaits()
    totals = max(times.loops, key=lambda row: row.batches)
    if not totals.batches:
        return LoopWaits()
    first = [row for row in times.iterations if row.loader == totals.loader]
    steps = (totals.batches + len(first)) / batches_per_step
    return LoopWaits(
        _held(times, totals, steps),
        _restarts(times, totals.loader, steps),
        _received(totals, batches_per_step),
        times.loaders[totals.loader].workers,
    )


def _held(times: WorkerTimes, totals: LoopTotals, steps: float) -> Held | None:
    found = slow_items(times, totals.loader)
    if found is None:
        return None
    slow: dict[int, list[SlowItem]] = defaultdict(list)
    for item in times.slow:
        if item.loader == totals.loader and item.ns >= found.least_ms * _MS:
            slow[item.batch].append(item)
    median_ns = found.median_ms * _MS
    held_ns = sum(
        _held_ns(wait, slow[wait.batch], median_ns)
        for wait in times.waits
        if wait.loader == totals.loader
    )
    return Held(found, held_ns / _MS / steps)


def _held_ns(wait: BatchWait, items: list[SlowItem], median_ns: float) -> float:
    """The part of a wait that these items of its batch cause: time beyond that of other items.

    A batch of another iteration has the same number; its items were made at another time.
    """
    extra = overlap = 0.0
    for item in items:
        meanwhile = min(wait.start_ns + wait.ns, item.start_ns + item.ns)
        meanwhile -= max(wait.start_ns, item.start_ns)
        if meanwhile > 0:
            overlap += meanwhile
            extra += item.ns - median_ns
    return max(min(extra, overlap, wait.ns), 0.0)


def _restarts(times: WorkerTimes, loader: int, steps: float) -> Restarts | None:
    """Of iterations after the first: persistent workers would have been there."""
    began = sorted(
        (row for row in times.iterations if row.loader == loader), key=lambda row: row.began_ns
    )
    waited_ns = []
    for row in began[1:]:
        if row.ready_ns:
            ready_ns = row.began_ns + row.ready_ns
            making = min(row.made_ns, row.ready_ns)
            first = min(max(ready_ns - row.start_ns, 0), row.ns)
            waited_ns.append(making + first)
    if not waited_ns:
        return None
    total_ms = sum(waited_ns) / _MS
    return Restarts(len(waited_ns), total_ms / len(waited_ns), total_ms / steps)


def _received(totals: LoopTotals, batches_per_step: float) -> Received | None:
    if not totals.receive_ns:
        return None
    batch_ms = totals.receive_ns / _MS / totals.batches
    return Received(totals.received_bytes / totals.batches, batch_ms * batches_per_step)

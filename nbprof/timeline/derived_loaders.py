"""The lanes of the batches that DataLoaders made, by the times that their workers reported.

Workers are processes of their own, which the trace does not have. They report times since 1970, so
their batches can be placed where the trace states its own begin.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nbprof.analysis.input.workers import SLOW, median_ns
from nbprof.core.trace import Int64s, Trace
from nbprof.core.worker_times import IN_PROCESS, MOST_ROWS, BatchTime, SlowItem, WorkerTimes
from nbprof.dialects.environment import origin_ns
from nbprof.display.wording import millis, plural
from nbprof.timeline.derived import DerivedLines, Line
from nbprof.timeline.lanes import section

if TYPE_CHECKING:
    from nbprof.timeline.drawable import Drawable

_PS = 1_000
_MS = 1e6
_NEXT = re.compile(r"enumerate\(DataLoader\)#\w+\.__next__\Z")
"""Ops in which a loop waits for a batch, as PyTorch records them."""
_NEAR_NS = 1_000_000
"""Clocks of a wait, and of the op that the trace has of it, differ by less."""
_MOST_LANES = 16
"""Lanes of one worker; what does not fit overlaps others."""
_MOST_NEAR = 100
"""Ops around a wait that are looked at."""


def add(run: Drawable, derived: DerivedLines, span: tuple[int, int]) -> None:
    """Adds a lane for each worker of a loader, or a note that says why there is none.

    Parameters
    ----------
    run : Drawable
    derived : DerivedLines
    span : tuple of int
        Begin and end of the trace, ps.
    """
    times = run.worker_times
    if not times.batches:
        return
    origin = origin_ns(run.trace)
    reason = ""
    if len(run.hosts) != 1:
        reason = "the trace is of several hosts"
    elif not origin:
        reason = "the trace does not state when it began"
    else:
        window = _Window(origin, origin + span[0] // _PS, origin + span[1] // _PS)
        lanes = _Lanes(times, window)
        if lanes.drawn:
            _add_lanes(run, derived, lanes)
        else:
            reason = "by the clock of the machine, they were made before or after the trace"
    if reason:
        derived.notes.append(f"The batches of loaders are not drawn: {reason}.")


class _Window(NamedTuple):
    """Begin and end of the trace, and the moment of its time 0, in ns since 1970."""

    origin: int
    begin: int
    end: int

    def clip(self, start: int, took: int) -> tuple[int, int] | None:
        """Begin and end of the part in the window; None without one."""
        first, last = max(start, self.begin), min(start + took, self.end)
        return (first, last) if first < last else None


class _Lanes:
    """Batches by loader, worker and lane.

    Attributes
    ----------
    drawn : list of int
        Indices of the batches that lie in the window at least in part.
    by_worker : dict
        By loader and worker, its lanes, each a list of such indices in the order of time. There is
        more than one where batches overlap, as of two iterations over a loader at once.
    """

    def __init__(self, times: WorkerTimes, window: _Window) -> None:
        self.times, self.window = times, window
        self.drawn = [
            index
            for index, batch in enumerate(times.batches)
            if window.clip(batch.start_ns, batch.busy_ns) is not None
        ]
        by_worker: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index in sorted(self.drawn, key=lambda index: times.batches[index].start_ns):
            batch = times.batches[index]
            by_worker[batch.loader, batch.worker].append(index)
        self.by_worker = {
            key: self._without_overlap(rows) for key, rows in sorted(by_worker.items())
        }

    def _without_overlap(self, rows: list[int]) -> list[list[int]]:
        lanes: list[list[int]] = []
        ends: list[int] = []
        for index in rows:
            batch = self.times.batches[index]
            free = [lane for lane, end in enumerate(ends) if end <= batch.start_ns]
            if not free and len(lanes) == _MOST_LANES:
                free = [0]
            elif not free:
                free = [len(lanes)]
                lanes.append([])
                ends.append(0)
            lanes[free[0]].append(index)
            ends[free[0]] = batch.start_ns + batch.busy_ns
        return lanes


def _add_lanes(run: Drawable, derived: DerivedLines, lanes: _Lanes) -> None:
    times = lanes.times
    used_by = _used_by(run.trace, lanes)
    items = _items_by_batch(times)
    titles = _titles(times)
    for (loader, worker), rows_of_lanes in lanes.by_worker.items():
        title = "main process" if worker == IN_PROCESS else f"worker {worker}"
        for number, rows in enumerate(rows_of_lanes, 1):
            slices = _Slices(derived, lanes.window)
            for index in rows:
                slices.add_batch(times.batches[index], used_by.get(index, -1))
                for item in items.get(index, ()):
                    slices.add_item(item, times.batches[index])
            name = title if number == 1 else f"{title} ({number})"
            derived.add(slices.line(titles[loader], name, run.hosts[0]))
    derived.notes.append(_note(lanes))


def _titles(times: WorkerTimes) -> list[str]:
    """The heading of each loader, by the class of its dataset."""
    seen: Counter[str] = Counter()
    titles = []
    for number, loader in enumerate(times.loaders):
        kind = "PyDataset"
        if times.of_items(number):
            kind = "DataLoader"
        title = section(f"{kind} of {loader.dataset}" if loader.dataset else kind)
        seen[title] += 1
        titles.append(title if seen[title] == 1 else f"{title} ({seen[title]})")
    return titles


def _note(lanes: _Lanes) -> str:
    times, drawn = lanes.times, len(lanes.drawn)
    batches = sum(worker.batches for worker in times.workers)
    text = (
        "Batches of loaders are drawn when they were made, with the slowest of their items"
        f" where these took {SLOW} times the median or more."
    )
    if batches > len(times.batches):
        text += f" A recording has the times of {len(times.batches):,} of {batches:,} batches."
    if outside := len(times.batches) - drawn:
        lie = "lies" if outside == 1 else "lie"
        text += f" {plural(outside, 'batch', 'batches')} {lie} outside of the trace."
    return text


class _Slices:
    """The slices of one lane."""

    def __init__(self, derived: DerivedLines, window: _Window) -> None:
        self._derived, self._window = derived, window
        self._rows: list[tuple[int, int, int, int]] = []
        """Name, begin and end in ns since 1970, and the event that waited for it."""
        self._args: list[dict[str, str]] = []

    def add_batch(self, batch: BatchTime, used_by: int) -> None:
        """A batch, and the event of the trace that waited for it, or -1."""
        name, args = "batch", {}
        if batch.batch >= 0:
            name, args = f"batch {batch.batch}", {"batch": str(batch.batch)}
        if batch.items:
            name += f" ({plural(batch.items, 'item')})"
            args["items"] = f"{batch.items:,}"
        args["busy"] = millis(batch.busy_ns / _MS)
        if batch.worker != IN_PROCESS:
            args["worker"] = str(batch.worker)
        self._add(name, batch.start_ns, batch.busy_ns, args, used_by)

    def add_item(self, item: SlowItem, batch: BatchTime) -> None:
        """A slow item of a batch."""
        args = {"item": item.item, "took": millis(item.ns / _MS)}
        # Both are timed by themselves.
        start = max(item.start_ns, batch.start_ns)
        took = min(item.start_ns + item.ns, batch.start_ns + batch.busy_ns) - start
        self._add(f"item {item.item}", start, took, args)

    def _add(
        self, name: str, start: int, took: int, args: dict[str, str], used_by: int = -1
    ) -> None:
        part = self._window.clip(start, took)
        if part is None:
            return
        if part != (start, start + took):
            args["cut"] = "goes on outside of the trace"
        self._rows.append((self._derived.code(name), *part, used_by))
        self._args.append(args)

    def line(self, process: str, title: str, host: str) -> Line:
        rows = np.array(self._rows, np.int64).reshape(-1, 4)
        origin = self._window.origin
        return Line(
            process,
            title,
            "",
            "host",
            host,
            "-1",
            rows[:, 0],
            (rows[:, 1] - origin) * _PS,
            (rows[:, 2] - origin) * _PS,
            args=self._args,
            feeds=rows[:, 3],
        )


def _items_by_batch(times: WorkerTimes) -> dict[int, list[SlowItem]]:
    """Slow items by the index of their batch; without those whose batch has no times."""
    least_ns = [SLOW * median_ns(times, loader) for loader in range(len(times.loaders))]
    batches: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for index, batch in enumerate(times.batches):
        batches[batch.loader, batch.worker, batch.batch].append(index)
    result: dict[int, list[SlowItem]] = defaultdict(list)
    for item in times.slow:
        if not item.ns >= least_ns[item.loader]:
            continue
        middle = item.start_ns + item.ns // 2
        for index in batches.get((item.loader, item.worker, item.batch), ()):
            batch = times.batches[index]
            if batch.start_ns <= middle < batch.start_ns + batch.busy_ns:
                result[index].append(item)
                break
    return result


# The use of batches.


class _Wait(NamedTuple):
    """A wait of a loop for a batch, in ns since 1970."""

    start: int
    end: int
    batch: int


def _used_by(trace: Trace, lanes: _Lanes) -> dict[int, int]:
    """The event of the trace that waited for a batch, by the index of the batch.

    A batch has none where that is ambiguous.
    """
    ops = _Ops(trace, lanes.window.origin)
    if not len(ops.start):
        return {}
    times = lanes.times
    used_by: dict[int, int] = {}
    for index in lanes.drawn:
        batch = times.batches[index]
        if batch.worker == IN_PROCESS:
            used_by[index] = ops.around(batch.start_ns + batch.busy_ns // 2)
    for loader in range(len(times.loaders)):
        for wait, index in _matched(lanes, loader):
            used_by[index] = ops.during(wait)
    return used_by


class _Ops:
    """Ops of the trace in which a loop waits for a batch, by their begin, in ns since 1970."""

    def __init__(self, trace: Trace, origin: int) -> None:
        named = [bool(_NEXT.match(str(name))) for name in trace.names]
        codes = np.flatnonzero(np.array(named, np.bool_)).astype(trace.events.name.dtype)
        event = np.flatnonzero(np.isin(trace.events.name, codes))
        self.event = event[np.argsort(trace.events.start[event], kind="stable")]
        self.start: Int64s = trace.events.start[self.event] // _PS + origin
        self.end: Int64s = self.start + trace.events.duration[self.event] // _PS
        self._ends = np.sort(self.end)

    def around(self, time: int) -> int:
        """The one op that runs at a time; -1 if none or several do."""
        begun = int(np.searchsorted(self.start, time, side="right"))
        running = begun - int(np.searchsorted(self._ends, time))
        if running != 1 or self.end[begun - 1] < time:
            return -1
        return int(self.event[begun - 1])

    def during(self, wait: _Wait) -> int:
        """The one op that runs in a wait or, if the clock was read late, about then; -1 if none or
        several do.
        """
        near = _NEAR_NS
        first = int(np.searchsorted(self._ends, wait.start - near))
        stop = int(np.searchsorted(self.start, wait.end + near, side="right"))
        if stop - first == 1 and self.end[first] == self._ends[first]:
            return int(self.event[first])
        rows = np.arange(max(first, stop - _MOST_NEAR), stop)
        for mask in (
            (self.start[rows] >= wait.start) & (self.end[rows] <= wait.end),
            (self.end[rows] >= wait.start) & (self.start[rows] <= wait.end),
        ):
            if mask.any():
                return int(self.event[rows[mask][0]]) if mask.sum() == 1 else -1
        return -1


def _matched(lanes: _Lanes, loader: int) -> Iterator[tuple[_Wait, int]]:
    """The waits of a loop over a loader with workers, each with the index of its batch.

    Each iteration numbers its batches from 0 on. A wait is for the one batch of its number that was
    made after the iteration began and before the wait ended.
    """
    times = lanes.times
    if _is_ambiguous(lanes, loader):
        return
    by_number: dict[int, list[tuple[int, int]]] = defaultdict(list)
    """By number, the begin and the index of each batch."""
    for index in lanes.drawn:
        batch = times.batches[index]
        if batch.loader == loader and batch.worker != IN_PROCESS and batch.batch >= 0:
            by_number[batch.batch].append((batch.start_ns, index))
    for rows in by_number.values():
        rows.sort()
    began = sorted(row.began_ns for row in times.iterations if row.loader == loader)
    for since, waits in _by_iteration(_waits(times, loader), began):
        if any(after.batch <= before.batch for before, after in pairwise(waits)):
            # Two iterations at once.
            continue
        for wait in waits:
            rows = by_number.get(wait.batch, [])
            candidates = rows[bisect_left(rows, (since, 0)) : bisect_right(rows, (wait.end, 0))]
            finished = [index for _, index in candidates if _end(times, index) <= wait.end]
            if len(finished) == 1:
                yield wait, finished[0]


def _end(times: WorkerTimes, index: int) -> int:
    """When a batch was made, in ns since 1970, as far as two clocks agree."""
    batch = times.batches[index]
    return batch.start_ns + batch.busy_ns - _NEAR_NS


def _is_ambiguous(lanes: _Lanes, loader: int) -> bool:
    """True if a batch of a number may be of another iteration than it seems."""
    times = lanes.times
    if any(len(rows) > 1 for key, rows in lanes.by_worker.items() if key[0] == loader):
        # Workers of two iterations ran at once.
        return True
    if any(wait.batch < 0 for wait in times.waits if wait.loader == loader):
        return True
    batches = sum(worker.batches for worker in times.workers if worker.loader == loader)
    timed = sum(batch.loader == loader for batch in times.batches)
    iterations = sum(row.loader == loader for row in times.iterations)
    return len(times.iterations) >= MOST_ROWS or (batches > timed and iterations > 1)


def _waits(times: WorkerTimes, loader: int) -> list[_Wait]:
    """In the order of time; the first of each iteration is for its batch 0."""
    waits = [
        _Wait(row.start_ns, row.start_ns + row.ns, row.batch)
        for row in times.waits
        if row.loader == loader
    ]
    waits += [
        _Wait(row.start_ns, row.start_ns + row.ns, 0)
        for row in times.iterations
        if row.loader == loader
    ]
    return sorted(waits)


def _by_iteration(waits: Iterable[_Wait], began: list[int]) -> Iterator[tuple[int, list[_Wait]]]:
    """The begin of each iteration, 0 if that is unknown, and its waits."""
    groups: dict[int, list[_Wait]] = defaultdict(list)
    for wait in waits:
        groups[bisect_right(began, wait.start)].append(wait)
    for number, rows in sorted(groups.items()):
        yield (began[number - 1] if number else 0), rows

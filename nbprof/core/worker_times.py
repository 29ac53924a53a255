"""Times of the worker processes of loaders, as a recording stores them.

Durations are in ns, of the wall clock unless they say otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from nbprof.core.worker_histogram import LONGEST

VERSION = 2
MOST_WORKERS, MOST_ROWS, MOST_SLOW, MOST_BATCHES = 2_000, 2_000, 100, 20_000
MOST_WAITS = 1_000
"""The longest waits of loops."""
IN_PROCESS = -1
"""In place of the number of a worker: the process of the loop, which makes the batches of a loader
without workers.
"""
TF_DATA = "tf.data"
"""In place of the dataset of a loader: the functions that tf.data calls."""
READ_AHEAD = " (read ahead)"
"""After the dataset of a loader of grain: its threads and processes whose elements others make
batches of.
"""
_MOST_LINES = 10 * MOST_ROWS
"""Lines that are kept while reports are merged."""


class WorkerTotals(NamedTuple):
    """One worker of a loader, a process or a thread: all its processes together.

    Attributes
    ----------
    loader, worker : int
        Index of the loader, and the number of the worker in it, or `IN_PROCESS`.
    processes : int
        How many processes were started for it, one after another; 0 of a thread of this process.
    items, batches : int
        What it made; batches without items are of an unknown number of items.
    busy_ns, cpu_ns, delayed_ns : int
        Time in which it made batches, CPU time of its main thread meanwhile, and time in which it
        was ready to run without a core.
    waiting_ns : int
        Time in which the loader asked it for nothing; of `IN_PROCESS`, in which the loop did
        something else.
    timed_items, timed_busy_ns : int
        Items of the batches in which every call was timed, and the time of these batches.
    pickle_ns, pickled_bytes, shared_bytes : int
        CPU time in pickling batches, bytes that went through the queue, and those of tensors in
        shared memory.
    memory_bytes : int
        Largest resident memory seen, shared pages included; 0 where unknown.
    start_ns : int
        From when the loader began to start its workers until its processes were ready; sum over the
        processes.
    """

    loader: int
    worker: int
    processes: int
    items: int
    batches: int
    busy_ns: int
    cpu_ns: int
    delayed_ns: int
    waiting_ns: int
    timed_items: int
    timed_busy_ns: int
    pickle_ns: int
    pickled_bytes: int
    shared_bytes: int
    memory_bytes: int
    start_ns: int


_SUMS = tuple(
    name
    for name in WorkerTotals._fields
    if name not in ("loader", "worker", "processes", "memory_bytes")
)


class StageTotals(NamedTuple):
    """A stage of a loader's items, all workers together: see
    `nbprof.capture.loader_workers.stages.Stage`.
    """

    loader: int
    kind: str
    name: str
    module: str
    file: str
    line: int
    calls: int
    total_ns: int
    self_ns: int
    longest_ns: int


class StageLine(NamedTuple):
    """Samples of a line of the person's code in a stage, by index in `stages`."""

    stage: int
    function: str
    file: str
    line: int
    samples: int


class SlowItem(NamedTuple):
    """One of the slowest items of a loader: its index, when its worker began it, in ns since 1970,
    how long that took, and the number of its batch.
    """

    loader: int
    worker: int
    item: str
    ns: int
    batch: int
    start_ns: int


class BatchTime(NamedTuple):
    """A batch: its number in the iteration (-1 if unknown), when its worker began it, in ns since
    1970, how long that took, and its items.
    """

    loader: int
    worker: int
    batch: int
    start_ns: int
    busy_ns: int
    items: int


class LoopTotals(NamedTuple):
    """Waits of the loop over a loader, without those for the first batch of each iteration.

    Attributes
    ----------
    loader : int
    batches : int
    wait_ns : int
        Until it had them.
    receive_ns, received_bytes : int
        The part in which they came through the pipe from the workers and were unpickled, from their
        first byte on; 0 where a thread of PyTorch does that, to pin them.
    """

    loader: int
    batches: int
    wait_ns: int
    receive_ns: int
    received_bytes: int


class BatchWait(NamedTuple):
    """One of the longest waits of a loop: the number of the batch (-1 if unknown), since when, in
    ns since 1970, and how long.
    """

    loader: int
    batch: int
    start_ns: int
    ns: int


class Iteration(NamedTuple):
    """The beginning of an iteration over a loader.

    Attributes
    ----------
    loader : int
    began_ns, made_ns : int
        When its iterator began to be made, in ns since 1970, and how long the loop waited for that.
    start_ns, ns : int
        Since when, and how long, the loop waited for the first batch.
    ready_ns : int
        From `began_ns` until the worker of that batch had started; 0 if none had to.
    """

    loader: int
    began_ns: int
    made_ns: int
    start_ns: int
    ns: int
    ready_ns: int


class WorkerLoader(NamedTuple):
    """A loader with workers, and the histogram of the durations of its items by bucket of
    `nbprof.core.worker_histogram.bucket_of`.
    """

    dataset: str
    workers: int
    prefetch: int
    histogram: dict[int, int]


@dataclass(frozen=True)
class WorkerTimes:
    """All of it."""

    loaders: tuple[WorkerLoader, ...] = ()
    workers: tuple[WorkerTotals, ...] = ()
    stages: tuple[StageTotals, ...] = ()
    lines: tuple[StageLine, ...] = ()
    slow: tuple[SlowItem, ...] = ()
    batches: tuple[BatchTime, ...] = ()
    loops: tuple[LoopTotals, ...] = ()
    waits: tuple[BatchWait, ...] = ()
    iterations: tuple[Iteration, ...] = ()

    def of_items(self, loader: int) -> bool:
        """Return whether a loader makes its batches item by item, as a DataLoader of PyTorch does
        and a PyDataset of Keras does not.
        """
        return any(worker.loader == loader and worker.items for worker in self.workers)


class Merge:
    """Reports of worker processes, by loader, worker and stage, taken in one at a time.

    Its size is bounded by the loaders, workers and stages, not by the number of reports.
    """

    def __init__(self) -> None:
        self._workers: dict[tuple[int, int], dict[str, int]] = {}
        self._stages: dict[tuple[Any, ...], list[int]] = {}
        self._lines: dict[tuple[Any, ...], int] = {}
        self._histograms: dict[int, dict[str, int]] = {}
        self._slow: list[list[Any]] = []
        self._batches: list[list[Any]] = []
        self._ready: dict[tuple[int, int], int] = {}
        """How long the first worker took to start, by its loader and when that began."""

    def add(self, report: Mapping[str, Any]) -> None:
        """Take in a report; of one that is damaged, at most a part."""
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError, AttributeError):
            self._add(report)
            for other in report.get("others", ()):
                self._add(other)

    def _add(self, report: Mapping[str, Any]) -> None:
        loader = int(report["loader"])
        # No worker runs the functions of tf.data.
        if "worker" in report:
            self._add_batches(loader, int(report["worker"]), report)
        for stage in report["stages"]:
            key = (loader, *(stage[name] for name in StageTotals._fields[1:6]))
            sums = self._stages.setdefault(key, [0, 0, 0, 0])
            for index, name in enumerate(("calls", "total_ns", "self_ns")):
                sums[index] += stage[name]
            sums[3] = max(sums[3], stage["longest_ns"])
        for *stage, function, file, line, count in report["lines"]:
            key = ((loader, *stage), function, file, line)
            if key in self._lines or len(self._lines) < _MOST_LINES:
                self._lines[key] = self._lines.get(key, 0) + count

    def _add_batches(self, loader: int, worker: int, report: Mapping[str, Any]) -> None:
        """The batches of a worker."""
        _add_worker(self._workers, (loader, worker), report)
        histogram = self._histograms.setdefault(loader, {})
        for bucket, count in report["histogram"].items():
            histogram[bucket] = histogram.get(bucket, 0) + count
        for each in report["slow"]:
            values = [each[name] for name in SlowItem._fields[2:]]
            self._slow.append([loader, worker, *values])
        self._slow.sort(key=lambda row: -row[3])
        del self._slow[MOST_SLOW:]
        if worker == 0 and len(self._ready) < MOST_ROWS:
            self._ready[loader, int(report["began_ns"])] = int(report["start_ns"])
        room = MOST_BATCHES - len(self._batches)
        self._batches += [[loader, worker, *times] for times in report["batch_times"][:room]]

    def packed(
        self, loaders: Iterable[Mapping[str, Any]], loop: Mapping[str, list[list[int]]]
    ) -> dict[str, Any]:
        """All of it as plain values for JSON; empty without reports and waits.

        Parameters
        ----------
        loaders : iterable of mapping
            `dataset`, `workers` and `prefetch` of each loader, in the order of their numbers.
        loop : mapping
            `loops`, `waits` and `iterations`: rows of `LoopTotals`, `BatchWait` and `Iteration`,
            the last without `ready_ns`, or empty.
        """
        if not self._workers and not self._stages and not any(loop.values()):
            return {}
        number = {key: index for index, key in enumerate(self._stages)}
        in_stages = [
            [number[stage], function, file, line, count]
            for (stage, function, file, line), count in self._lines.items()
            if stage in number
        ]
        in_stages.sort(key=lambda row: -row[4])
        return {
            "version": VERSION,
            "loaders": [
                [
                    each["dataset"],
                    each["workers"],
                    each["prefetch"],
                    self._histograms.get(index, {}),
                ]
                for index, each in enumerate(loaders)
            ],
            "workers": [
                [loader, worker, *(sums[name] for name in WorkerTotals._fields[2:])]
                for (loader, worker), sums in sorted(self._workers.items())
            ],
            "stages": [[*key, *sums] for key, sums in self._stages.items()],
            "lines": in_stages[:MOST_ROWS],
            "slow": self._slow,
            "batches": sorted(self._batches, key=lambda row: row[3]),
            "loops": loop.get("loops", []),
            "waits": loop.get("waits", []),
            "iterations": [
                [*row, self._ready.get((row[0], row[1]), 0)] for row in loop.get("iterations", [])
            ],
        }


def merged(
    loaders: Iterable[Mapping[str, Any]],
    reports: Iterable[Mapping[str, Any]],
    loop: Mapping[str, list[list[int]]] = MappingProxyType({}),
) -> dict[str, Any]:
    """As plain values for JSON: the reports of all worker processes; see `Merge`."""
    merge = Merge()
    for report in reports:
        merge.add(report)
    return merge.packed(loaders, loop)


def _add_worker(
    workers: dict[tuple[int, int], dict[str, int]], key: tuple[int, int], report: Mapping[str, Any]
) -> None:
    values = {name: int(report[name]) for name in (*_SUMS, "memory_bytes")}
    sums = workers.setdefault(key, {})
    for name in _SUMS:
        sums[name] = sums.get(name, 0) + values[name]
    sums["memory_bytes"] = max(sums.get("memory_bytes", 0), values["memory_bytes"])
    sums["processes"] = sums.get("processes", 0) + int(report.get("processes", 1))


def unpacked(values: object) -> WorkerTimes:
    """The times that `merged` packed; empty for another version or damaged values."""
    if not isinstance(values, dict) or values.get("version") != VERSION:
        return WorkerTimes()
    try:
        times = WorkerTimes(
            tuple(_loader(row) for row in values["loaders"][:MOST_ROWS]),
            tuple(WorkerTotals(*row) for row in values["workers"][:MOST_WORKERS]),
            tuple(StageTotals(*row) for row in values["stages"][:MOST_ROWS]),
            tuple(StageLine(*row) for row in values["lines"][:MOST_ROWS]),
            tuple(SlowItem(*row) for row in values["slow"][:MOST_SLOW]),
            tuple(BatchTime(*row) for row in values["batches"][:MOST_BATCHES]),
            tuple(LoopTotals(*row) for row in values["loops"][:MOST_ROWS]),
            tuple(BatchWait(*row) for row in values["waits"][:MOST_WAITS]),
            tuple(Iteration(*row) for row in values["iterations"][:MOST_ROWS]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return WorkerTimes()
    return times if _valid(times) else WorkerTimes()


def _loader(row: Any) -> WorkerLoader:
    dataset, workers, prefetch, histogram = row
    return WorkerLoader(
        dataset, workers, prefetch, {int(bucket): count for bucket, count in histogram.items()}
    )


_TEXTS = {"kind", "name", "module", "file", "function", "item", "dataset"}
_MAY_BE_NEGATIVE = {"batch", "worker"}


def _valid(times: WorkerTimes) -> bool:
    rows: list[Any] = [
        *times.loaders,
        *times.workers,
        *times.stages,
        *times.lines,
        *times.slow,
        *times.batches,
        *times.loops,
        *times.waits,
        *times.iterations,
    ]
    return all(_valid_row(row, times) for row in rows)


def _valid_row(row: Any, times: WorkerTimes) -> bool:
    for name, value in row._asdict().items():
        if name == "histogram":
            if not all(_is_count(each) for pair in value.items() for each in pair):
                return False
        elif name in _TEXTS:
            if not isinstance(value, str) or len(value) > LONGEST:
                return False
        elif not _is_count(value, -1 if name in _MAY_BE_NEGATIVE else 0):
            return False
        if name == "loader" and value >= len(times.loaders):
            return False
        if name == "stage" and value >= len(times.stages):
            return False
    return True


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63

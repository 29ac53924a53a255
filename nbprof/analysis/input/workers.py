"""Work of the worker processes of loaders, and the number that would keep up with the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import PurePath
from typing import NamedTuple

import numpy as np
import pandas as pd

from nbprof.core.cells import stem, title
from nbprof.core.worker_histogram import middle_of
from nbprof.core.worker_times import IN_PROCESS, StageTotals, WorkerTimes, WorkerTotals

_MS = 1e6
_MAIN = "main process"
"""Where the loop makes the batches of a loader without workers."""
_LINES = 0.5
"""A line is named if it has at least this part of the samples of its stage."""
_NEARLY_ALL = 0.8
_SAMPLES = 4
"""A stage with fewer samples has no line."""
DATASET, TRANSFORM, COLLATE = "dataset", "transform", "collate"
FUNCTION, GENERATOR = "function", "generator"
"""Kinds of stages; the last two are what tf.data calls in Python."""
SLOW, OF_SLOWEST, SLOW_PART, SLOW_SHARE = 5, 0.25, 0.1, 0.2
"""Items are slow from this multiple of the median and this part of the slowest on, if at most that
part of the items is, and takes at least this share of the time more than the others do."""


def workers(times: WorkerTimes) -> pd.DataFrame:
    """One row per worker of a loader: `p.input_pipeline.workers`."""
    rows = times.workers
    busy, waiting = _column(rows, "busy_ns"), _column(rows, "waiting_ns")
    batches, items = _column(rows, "batches"), _column(rows, "items")
    memory = _column(rows, "memory_bytes")
    total = busy + waiting
    with np.errstate(invalid="ignore", divide="ignore"):
        busy_percent = 100 * busy / np.where(total > 0, total, np.nan)
        batch_ms = busy / _MS / np.where(batches > 0, batches, np.nan)
    return pd.DataFrame(
        {
            "loader": pd.Series([times.loaders[row.loader].dataset for row in rows], dtype=object),
            "worker": pd.Series([_name(row) for row in rows], dtype=object),
            # A PyDataset makes batches, of an unknown number of items.
            "items": pd.Series(items, dtype="Int64").mask((items == 0) & (batches > 0)),
            "batches": batches,
            "busy_ms": busy / _MS,
            "busy_percent": busy_percent,
            "batch_ms": batch_ms,
            "waiting_ms": waiting / _MS,
            "delayed_ms": _column(rows, "delayed_ns") / _MS,
            "restarts": np.maximum(_column(rows, "processes") - 1, 0),
            "start_ms": _column(rows, "start_ns") / _MS / np.maximum(_column(rows, "processes"), 1),
            "pickle_ms": _column(rows, "pickle_ns") / _MS,
            "pickled_bytes": _column(rows, "pickled_bytes"),
            "shared_bytes": _column(rows, "shared_bytes"),
            "memory_bytes": pd.Series(memory, dtype="Int64").mask(memory == 0),
        }
    )


def _name(row: WorkerTotals) -> str:
    if row.worker == IN_PROCESS:
        return _MAIN
    return f"thread {row.worker}" if _is_here(row) else str(row.worker)


def _is_here(row: WorkerTotals) -> bool:
    """True if the process of the loop made the batches, itself or in threads."""
    return row.worker == IN_PROCESS or not row.processes


def transforms(times: WorkerTimes, cells: Mapping[str, int]) -> pd.DataFrame:
    """One row per stage of a loader's items, most time first: `p.input_pipeline.transforms`.

    Parameters
    ----------
    times : WorkerTimes
    cells : mapping
        Execution counts by the stem of a cell's file.
    """
    order = sorted(
        range(len(times.stages)),
        key=lambda index: (times.stages[index].loader, -times.stages[index].self_ns),
    )
    return _stages(times, cells).iloc[order].reset_index(drop=True)


def flow(times: WorkerTimes, loader: int, cells: Mapping[str, int]) -> pd.DataFrame:
    """The rows of `transforms` of one loader, in the order in which items pass: the dataset, its
    transforms as they were found in it, and the collation. The index is that of `times.stages`.
    """
    kinds = (DATASET, TRANSFORM, COLLATE)
    stages = [index for index, stage in enumerate(times.stages) if stage.loader == loader]
    stages = [index for index in stages if times.stages[index].kind in kinds]
    order = sorted(stages, key=lambda index: kinds.index(times.stages[index].kind))
    return _stages(times, cells).loc[order]


def _stages(times: WorkerTimes, cells: Mapping[str, int]) -> pd.DataFrame:
    """The rows of `transforms` in the order of `times.stages`."""
    totals = [_timed(times, loader) for loader in range(len(times.loaders))]
    lines = lines_inside(times)
    rows = []
    for index, stage in enumerate(times.stages):
        timed = totals[stage.loader]
        items, busy_ns = timed.items, timed.busy_ns
        rows.append(
            (
                times.loaders[stage.loader].dataset,
                stage.kind,
                stage.name,
                location(stage.file, stage.line, cells),
                stage.calls,
                stage.self_ns / stage.calls / _MS if stage.calls else np.nan,
                stage.self_ns / items / _MS if items else np.nan,
                100 * stage.self_ns / busy_ns if busy_ns else np.nan,
                stage.longest_ns / _MS,
                _line_text(lines.get(index), cells),
            )
        )
    names = (
        "loader",
        "kind",
        "stage",
        "where",
        "calls",
        "per_call_ms",
        "per_item_ms",
        "percent",
        "longest_ms",
        "inside",
    )
    frame = pd.DataFrame(rows, columns=list(names))
    floats = ("per_call_ms", "per_item_ms", "percent", "longest_ms")
    kinds = dict.fromkeys(floats, "float64")
    texts = dict.fromkeys(("loader", "kind", "stage", "where", "inside"), object)
    return frame.astype({**texts, **kinds, "calls": "int64"})


def location(file: str, line: int, cells: Mapping[str, int], *, short: bool = False) -> str:
    """`data/transforms.py:31`, or `Cell [3]:7`; empty for code that is not Python."""
    if not file or not line:
        return ""
    name = title(file, cells)
    if short and not stem(file):
        name = PurePath(name).name
    return f"{name}:{line}"


@dataclass(frozen=True)
class Service:
    """Speed at which the workers of a loader make batches.

    Attributes
    ----------
    loader : int
        Index in `WorkerTimes.loaders`.
    batch_ms : float
        Time of a worker for a batch while it has a core.
    cores : float
        Cores that a worker keeps busy meanwhile.
    running : int
        Workers that made batches.
    """

    loader: int
    batch_ms: float
    cores: float
    running: int

    def needed(self, rest_ms: float) -> int | None:
        """The least number of workers that make a batch in the time of a step without its wait for
        input; None if that is unknown.
        """
        if rest_ms <= 0 or self.batch_ms <= 0:
            return None
        return max(ceil(self.batch_ms / rest_ms), 1)


def service(times: WorkerTimes) -> Service | None:
    """The loader whose workers were busiest; None without workers that made a batch.

    Threads are none: how many would keep up depends on how long each has the GIL.
    """
    busiest = None
    longest = 0
    for loader in range(len(times.loaders)):
        rows = [
            row
            for row in times.workers
            if row.loader == loader and row.batches and not _is_here(row)
        ]
        # A worker can only be late for a core while it makes a batch.
        busy = sum(max(row.busy_ns - row.delayed_ns, row.cpu_ns) for row in rows)
        batches = sum(row.batches for row in rows)
        if batches and busy > longest:
            longest = busy
            cores = min(sum(row.cpu_ns for row in rows) / busy, 1.0)
            busiest = Service(loader, busy / batches / _MS, cores, len(rows))
    return busiest


def made_in_process(times: WorkerTimes) -> int | None:
    """The loader whose batches the process of the loop makes, of those that do so for most of the
    time; None if there is none, or none has nearly all of that time.
    """
    busy: dict[int, int] = {}
    for row in times.workers:
        if _is_here(row) and row.batches:
            busy[row.loader] = busy.get(row.loader, 0) + row.busy_ns
    if not busy:
        return None
    loader = max(busy, key=lambda each: busy[each])
    return loader if busy[loader] >= _NEARLY_ALL * sum(busy.values()) else None


class _Timed(NamedTuple):
    """Items of the batches in which all calls were timed, these batches if they are of an unknown
    number of items (else 0), and the time of them.
    """

    items: int
    batches: int
    busy_ns: int


def _timed(times: WorkerTimes, loader: int) -> _Timed:
    rows = [row for row in times.workers if row.loader == loader]
    items, batches = sum(row.timed_items for row in rows), 0
    if not items:
        stages = [each for each in times.stages if each.loader == loader]
        batches = sum(each.calls for each in stages if each.kind == DATASET)
    return _Timed(items, batches, sum(row.timed_busy_ns for row in rows))


class Heaviest(NamedTuple):
    """A stage, its share of the workers' time (0 to 1), its ms per item or batch, and which of the
    two that is.
    """

    stage: StageTotals
    share: float
    ms: float
    per: str


def heaviest(times: WorkerTimes, loader: int) -> Heaviest | None:
    """The stage of a loader with the most time; None if none was timed."""
    stages = [stage for stage in times.stages if stage.loader == loader]
    timed = _timed(times, loader)
    count = timed.items or timed.batches
    if not stages or not count or not timed.busy_ns:
        return None
    stage = max(stages, key=lambda each: each.self_ns)
    share = stage.self_ns / timed.busy_ns
    return Heaviest(stage, share, stage.self_ns / count / _MS, "item" if timed.items else "batch")


class SlowItems(NamedTuple):
    """A few items that take much longer than the others.

    Attributes
    ----------
    one_in : int
        One item of so many is slow.
    item : str
        Index of the slowest.
    longest_ms, median_ms : float
        Its time, and the median of all items.
    least_ms : float
        Items are slow from this time on.
    """

    one_in: int
    item: str
    longest_ms: float
    median_ms: float
    least_ms: float


def median_ns(times: WorkerTimes, loader: int) -> float:
    """The median of the durations of a loader's items; NaN if none was timed."""
    histogram = sorted(times.loaders[loader].histogram.items())
    count, passed = sum(items for _, items in histogram), 0
    for bucket, items in histogram:
        passed += items
        if 2 * passed >= count:
            return middle_of(bucket)
    return np.nan


def slow_items(times: WorkerTimes, loader: int) -> SlowItems | None:
    """The slow items of a loader; None if none is, or many are."""
    histogram = sorted(times.loaders[loader].histogram.items())
    slowest = [row for row in times.slow if row.loader == loader]
    count = sum(items for _, items in histogram)
    if not count or not slowest:
        return None
    median = median_ns(times, loader)
    least = max(SLOW * median, OF_SLOWEST * slowest[0].ns)
    slow, excess, total = 0, 0.0, 0.0
    for bucket, items in histogram:
        duration = middle_of(bucket)
        total += items * duration
        if duration >= least:
            slow += items
            excess += items * (duration - median)
    # All times without a core may be what made them slow.
    excess -= sum(row.delayed_ns for row in times.workers if row.loader == loader)
    if not slow or slow > SLOW_PART * count or excess < SLOW_SHARE * total:
        return None
    return SlowItems(
        round(count / slow), slowest[0].item, slowest[0].ns / _MS, median / _MS, least / _MS
    )


def line_inside(
    times: WorkerTimes, cells: Mapping[str, int], *, short: bool = False
) -> dict[int, str]:
    """The lines of `lines_inside` as texts."""
    lines = lines_inside(times)
    return {index: _line_text(line, cells, short=short) for index, line in lines.items()}


def called_by_tf_data(times: WorkerTimes, kind: str) -> StageTotals | None:
    """The function of this kind that tf.data calls for nearly all the time of such functions; None
    if there is none.
    """
    stages = [stage for stage in times.stages if stage.kind == kind and stage.calls]
    stage = max(stages, key=lambda each: each.self_ns, default=None)
    if stage is None or stage.self_ns < _NEARLY_ALL * sum(each.self_ns for each in stages):
        return None
    return stage


class Inside(NamedTuple):
    """The line with most samples of a stage: its function, file and number, and its share of them
    (0 to 1).
    """

    function: str
    file: str
    line: int
    share: float


def lines_inside(times: WorkerTimes) -> dict[int, Inside]:
    """By index of a stage, the line with the majority of its samples."""
    samples: dict[int, int] = {}
    for row in times.lines:
        samples[row.stage] = samples.get(row.stage, 0) + row.samples
    named: dict[int, Inside] = {}
    for row in times.lines:
        total = samples[row.stage]
        if row.stage in named or total < _SAMPLES or row.samples < _LINES * total:
            continue
        named[row.stage] = Inside(row.function, row.file, row.line, row.samples / total)
    return named


def _line_text(line: Inside | None, cells: Mapping[str, int], *, short: bool = False) -> str:
    if line is None:
        return ""
    code = location(line.file, line.line, cells, short=short)
    return f"{line.function} ({code}): {round(100 * line.share)}%"


def _column(
    rows: tuple[WorkerTotals, ...], name: str
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([getattr(row, name) for row in rows], np.int64)

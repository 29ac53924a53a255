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
"""Kinds of stages."""
SLOW, OF_SLOWEST, SLOW_PART, SLOW_SHARE = 5, 0.25, 0.1, 0.2
"""Items are slow from this multiple of the median and this part of the slowest on, if at most that
part of the items is, and takes at least this share of the time more than the others do."""


def workers(times: WorkerTimes) -> pd.DataFrame:
    """One row per worker of a loader: `p.input_pipeline.workers`."""
    rows = times.workers
    busy, waiting = _column(rows, "busy_ns"), _column(rows, "waiting_ns")
    batches = _column(rows, "batches")
    memory = _column(rows, "memory_bytes")
    total = busy + waiting
    with np.errstate(invalid="ignore", divide="ignore"):
        busy_percent = 100 * busy / np.where(total > 0, total, np.nan)
        batch_ms = busy / _MS / np.where(batches > 0, batches, np.nan)
    return pd.DataFrame(
        {
            "loader": pd.Series([times.loaders[row.loader].dataset for row in rows], dtype=object),
            "worker": pd.Series([_name(row.worker) for row in rows], dtype=object),
            "items": _column(rows, "items"),
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


def _name(worker: int) -> str:
    return _MAIN if worker == IN_PROCESS else str(worker)


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
    lines = line_inside(times, cells)
    rows = []
    for index, stage in enumerate(times.stages):
        items, busy_ns = totals[stage.loader]
        rows.append(
            (
                times.loaders[stage.loader].dataset,
                stage.kind,
                stage.name,
                location(stage.file, stage.line, cells),
                stage.calls,
                stage.self_ns / items / _MS if items else np.nan,
                100 * stage.self_ns / busy_ns if busy_ns else np.nan,
                stage.longest_ns / _MS,
                lines.get(index, ""),
            )
        )
    names = (
        "loader",
        "kind",
        "stage",
        "where",
        "calls",
        "per_item_ms",
        "percent",
        "longest_ms",
        "inside",
    )
    frame = pd.DataFrame(rows, columns=list(names))
    kinds = dict.fromkeys(("per_item_ms", "percent", "longest_ms"), "float64")
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
    """The loader whose workers were busiest; None without workers that made a batch."""
    busiest = None
    longest = 0
    for loader in range(len(times.loaders)):
        rows = [
            row
            for row in times.workers
            if row.loader == loader and row.batches and row.worker != IN_PROCESS
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
    """The loader whose batches the loop makes itself, of those that do so for most of the time;
    None if there is none, or none has nearly all of that time.
    """
    busy: dict[int, int] = {}
    for row in times.workers:
        if row.worker == IN_PROCESS and row.batches:
            busy[row.loader] = busy.get(row.loader, 0) + row.busy_ns
    if not busy:
        return None
    loader = max(busy, key=lambda each: busy[each])
    return loader if busy[loader] >= _NEARLY_ALL * sum(busy.values()) else None


def _timed(times: WorkerTimes, loader: int) -> tuple[int, int]:
    rows: list[WorkerTotals] = [row for row in times.workers if row.loader == loader]
    return sum(row.timed_items for row in rows), sum(row.timed_busy_ns for row in rows)


class Heaviest(NamedTuple):
    """A stage, its share of the workers' time (0 to 1) and its ms per item."""

    stage: StageTotals
    share: float
    item_ms: float


def heaviest(times: WorkerTimes, loader: int) -> Heaviest | None:
    """The stage of a loader with the most time; None if none was timed."""
    stages = [stage for stage in times.stages if stage.loader == loader]
    items, busy_ns = _timed(times, loader)
    if not stages or not items or not busy_ns:
        return None
    stage = max(stages, key=lambda each: each.self_ns)
    return Heaviest(stage, stage.self_ns / busy_ns, stage.self_ns / items / _MS)


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
    """By stage, the line of its samples' majority, with its share."""
    samples: dict[int, int] = {}
    for row in times.lines:
        samples[row.stage] = samples.get(row.stage, 0) + row.samples
    named: dict[int, str] = {}
    for row in times.lines:
        total = samples[row.stage]
        if row.stage in named or total < _SAMPLES or row.samples < _LINES * total:
            continue
        share = round(100 * row.samples / total)
        place = location(row.file, row.line, cells, short=short)
        named[row.stage] = f"{row.function} ({place}): {share}%"
    return named


def _column(
    rows: tuple[WorkerTotals, ...], name: str
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([getattr(row, name) for row in rows], np.int64)

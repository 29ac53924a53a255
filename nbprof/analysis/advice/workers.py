"""Causes of a wait for the batches of a loader, from times measured where they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from nbprof.activity.unit import Unit
from nbprof.analysis.advice.cores import (
    FROM_LOADER,
    IN_PROCESS,
    NONE,
    RULES_ON_INPUT,
    WORKERS,
    Times,
)
from nbprof.analysis.input.workers import (
    DATASET,
    FUNCTION,
    GENERATOR,
    TRANSFORM,
    Heaviest,
    Service,
    called_by_tf_data,
    heaviest,
    lines_inside,
    location,
    made_in_process,
    service,
)
from nbprof.core.worker_times import IN_PROCESS as HERE
from nbprof.core.worker_times import READ_AHEAD, StageTotals, WorkerTimes
from nbprof.display import wording

SHARE = 0.3
"""A stage is named from this part of the workers' time on."""


@dataclass(frozen=True)
class Workers:
    """The workers of a recording, and the cells and steps that they worked for.

    Attributes
    ----------
    times : WorkerTimes
    cells : mapping
        Execution counts by the stem of a cell's file.
    batches_per_step : float
    py_datasets : frozenset of str
        Names of the classes of datasets that the program gave to Keras.
    of_grain : frozenset of str
        Names of the classes that loaders of grain read.
    """

    times: WorkerTimes = field(default_factory=WorkerTimes)
    cells: Mapping[str, int] = field(default_factory=dict)
    batches_per_step: float = 1.0
    py_datasets: frozenset[str] = frozenset()
    of_grain: frozenset[str] = frozenset()

    def is_py_dataset(self, loader: int) -> bool:
        """True if the loader with this index is a PyDataset of Keras."""
        return self.times.loaders[loader].dataset in self.py_datasets

    def is_of_grain(self, loader: int) -> bool:
        """True if the loader with this index is one of grain."""
        return self.times.loaders[loader].dataset in self.of_grain

    def threads_for(self, loader: int) -> int | None:
        """The loader that the threads are which read ahead for a loader of grain."""
        name = self.times.loaders[loader].dataset + READ_AHEAD
        names = [each.dataset for each in self.times.loaders]
        return names.index(name) if name in names else None


def keep_up(workers: Workers, times: Times) -> int | None:
    """The number of workers that make the batches of a step in its time without the wait; None if
    that is unknown.
    """
    speed = service(workers.times)
    if speed is None or workers.batches_per_step <= 0:
        return None
    rest = times.step - times.wait
    return speed.needed(rest / workers.batches_per_step)


def explained(findings: pd.DataFrame, workers: Workers, times: Times, unit: Unit) -> pd.DataFrame:
    """The findings, with what makes the batches does in the one on it."""
    speed = service(workers.times)
    if speed is not None:
        rows = findings["rule"] == WORKERS
        if workers.is_py_dataset(speed.loader) and _explains(workers, speed.loader, times):
            rows |= _on_py_dataset(findings, times)
        elif workers.is_of_grain(speed.loader) and _explains(workers, speed.loader, times):
            rows |= _on_grain(findings)
        findings = _with_workers(findings, rows, workers, speed, times, unit)
    loader = made_in_process(workers.times)
    if loader is None or (speed is not None and speed.loader == loader):
        return findings
    rows = findings["rule"] == IN_PROCESS
    if workers.is_py_dataset(loader):
        if not _explains(workers, loader, times):
            return findings
        rows |= _on_py_dataset(findings, times)
    elif workers.is_of_grain(loader):
        threads = workers.threads_for(loader)
        rows |= _on_grain(findings)
        if not _explains(workers, loader, times):
            if threads is None or not _threads_explain(workers, loader, threads, times):
                return findings
            loader = threads
    return _with_items(findings, rows, workers, loader)


def _explains(workers: Workers, loader: int, times: Times) -> bool:
    """True if making the batches takes a good part of the wait for them."""
    rows = [row for row in workers.times.workers if row.loader == loader and row.batches]
    # Keras takes the shapes of batches from some that it makes itself.
    rows = [row for row in rows if row.worker != HERE] or rows
    batches = sum(row.batches for row in rows)
    batch_ms = sum(row.busy_ns for row in rows) / 1e6 / max(batches, 1) / max(len(rows), 1)
    return batch_ms * workers.batches_per_step >= SHARE * times.wait


def _threads_explain(workers: Workers, loader: int, threads: int, times: Times) -> bool:
    """True if reading ahead takes a good part of the wait for the batches of a loader."""
    rows = workers.times.workers
    batches = sum(row.batches for row in rows if row.loader == loader)
    busy = [row.busy_ns for row in rows if row.loader == threads]
    if not batches or not busy:
        return False
    batch_ms = sum(busy) / 1e6 / batches / len(busy)
    return batch_ms * workers.batches_per_step >= SHARE * times.wait


def _on_grain(findings: pd.DataFrame) -> pd.Series:
    """Rows of findings on the batches of a loader of grain."""
    of_loader = findings["evidence"].astype(str).str.contains(f"{FROM_LOADER} grain.", regex=False)
    return findings["rule"].isin((NONE, *RULES_ON_INPUT)) & of_loader


def _on_py_dataset(findings: pd.DataFrame, times: Times) -> pd.Series:
    """Rows of findings on the batches of a PyDataset, if the program has one."""
    rules, of_loader = (
        findings["rule"],
        findings["evidence"].astype(str).str.contains(f"{FROM_LOADER} PyDataset", regex=False),
    )
    rows = rules.isin(RULES_ON_INPUT) & of_loader
    return rows | (rules == IN_PROCESS) if times.keras else rows


def _with_items(
    findings: pd.DataFrame, rows: pd.Series, workers: Workers, loader: int
) -> pd.DataFrame:
    """The findings, with what the training process does in those on batches that it makes."""
    heavy = heaviest(workers.times, loader)
    if not rows.any() or heavy is None or heavy.share < SHARE:
        return findings
    text = (
        f" **{100 * heavy.share:.0f}%** of the time of batches is {_subject(heavy, workers)},"
        f" **{wording.millis(heavy.ms)}** per {heavy.per}{_line(heavy.stage, workers)}."
    )
    return _with_text(findings, rows, text)


def _with_text(findings: pd.DataFrame, rows: pd.Series, text: str) -> pd.DataFrame:
    result = findings.copy()
    result.loc[rows, "evidence"] = result.loc[rows, "evidence"].astype(str) + text
    return result


def _with_workers(
    findings: pd.DataFrame,
    rows: pd.Series,
    workers: Workers,
    speed: Service,
    times: Times,
    unit: Unit,
) -> pd.DataFrame:
    """The findings, with what the workers do in those on them."""
    if not rows.any():
        return findings
    sentences = [_heaviest(workers, speed), _keeping_up(workers, speed, times, unit)]
    text = "".join(f" {sentence}" for sentence in sentences if sentence)
    return _with_text(findings, rows, text)


def _heaviest(workers: Workers, speed: Service) -> str:
    heavy = heaviest(workers.times, speed.loader)
    if heavy is None or heavy.share < SHARE:
        return ""
    return (
        f"Workers spend **{100 * heavy.share:.0f}%** of their time in {_subject(heavy, workers)},"
        f" **{wording.millis(heavy.ms)}** per {heavy.per}{_line(heavy.stage, workers)}."
    )


@dataclass(frozen=True)
class PythonOfInput:
    """The Python function, or the generator, that tf.data calls for nearly all the time of such.

    Attributes
    ----------
    text : str
        Its name and place.
    line : str
        The line with most of its samples; empty if unknown.
    call_ms, total_ms : float
        Time of a call, and of all of the recording.
    """

    text: str
    line: str
    call_ms: float
    total_ms: float


def python_of_input(workers: Workers) -> dict[str, PythonOfInput]:
    """The Python that tf.data calls, by kind: `FUNCTION` and `GENERATOR`."""
    by_kind = {}
    for kind in (FUNCTION, GENERATOR):
        stage = called_by_tf_data(workers.times, kind)
        if stage is not None:
            code = location(stage.file, stage.line, workers.cells, short=True)
            text = f"**{stage.name}** ({code})" if code else f"**{stage.name}**"
            total_ms = stage.self_ns / 1e6
            line = _line(stage, workers)
            by_kind[kind] = PythonOfInput(text, line, total_ms / stage.calls, total_ms)
    return by_kind


def _line(stage: StageTotals, workers: Workers) -> str:
    """The line with most samples of a stage."""
    sampled = lines_inside(workers.times).get(workers.times.stages.index(stage))
    if sampled is None:
        return ""
    code = location(sampled.file, sampled.line, workers.cells, short=True)
    return f", most of it in {sampled.function} ({code})" if code else ""


def _subject(heavy: Heaviest, workers: Workers) -> str:
    """A stage with its place in the code."""
    stage = heavy.stage
    code = location(stage.file, stage.line, workers.cells, short=True)
    code = f" ({code})" if code else ""
    subject = f"collating, **{stage.name}**"
    if stage.kind == TRANSFORM:
        subject = f"**{stage.name}**"
    elif stage.kind == DATASET:
        subject = f"the code of the dataset **{stage.name}** itself"
    return f"{subject}{code}"


def _keeping_up(workers: Workers, speed: Service, times: Times, unit: Unit) -> str:
    needed = keep_up(workers, times)
    if needed is None or needed <= speed.running:
        return ""
    return (
        f"A worker takes **{wording.millis(speed.batch_ms)}** for a batch:"
        f" **{wording.plural(needed, 'worker')}**, each with its core, would keep up with"
        f" {unit.the}, and **{speed.running}** {'is' if speed.running == 1 else 'are'}"
        " running."
    )

"""Causes of a wait for the batches of a DataLoader, from times measured where they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from nbprof.activity.unit import Unit
from nbprof.analysis.advice.cores import IN_PROCESS, WORKERS, Times
from nbprof.analysis.input.workers import (
    DATASET,
    TRANSFORM,
    Heaviest,
    Service,
    heaviest,
    location,
    made_in_process,
    service,
)
from nbprof.core.worker_times import WorkerTimes
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
    """

    times: WorkerTimes = field(default_factory=WorkerTimes)
    cells: Mapping[str, int] = field(default_factory=dict)
    batches_per_step: float = 1.0


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
    return _with_items(_with_workers(findings, workers, times, unit), workers)


def _with_items(findings: pd.DataFrame, workers: Workers) -> pd.DataFrame:
    """The findings, with what the training process does in the one on batches that it makes."""
    rows, loader = findings["rule"] == IN_PROCESS, made_in_process(workers.times)
    if loader is None or not rows.any():
        return findings
    heavy = heaviest(workers.times, loader)
    if heavy is None or heavy.share < SHARE:
        return findings
    text = (
        f" **{100 * heavy.share:.0f}%** of the time of batches is {_subject(heavy, workers)},"
        f" **{wording.millis(heavy.item_ms)}** per item."
    )
    return _with_text(findings, rows, text)


def _with_text(findings: pd.DataFrame, rows: pd.Series, text: str) -> pd.DataFrame:
    result = findings.copy()
    result.loc[rows, "evidence"] = result.loc[rows, "evidence"].astype(str) + text
    return result


def _with_workers(
    findings: pd.DataFrame, workers: Workers, times: Times, unit: Unit
) -> pd.DataFrame:
    """The findings, with what the workers do in the one on them."""
    speed = service(workers.times)
    rows = findings["rule"] == WORKERS
    if speed is None or not rows.any():
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
        f" **{wording.millis(heavy.item_ms)}** per item."
    )


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

"""The workers of a job beside each other, step by step: who is slow, by how much, and at what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.pods.own_time import COLLECTIVES
from nbprof.display import wording
from nbprof.display.codec import coded, short, smallest
from nbprof.tools.common import unit_of
from nbprof.tools.parts import Empty, no_table
from nbprof.tools.pods import cores, findings, heat
from nbprof.tools.pods.grid import Grid, mean
from nbprof.tools.pods.parts import Pods
from nbprof.tools.tables import floats, heads, table

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_BARS = 4_000
"""Bars of one worker and step in a report: of each step the slowest workers, and the fastest."""


def _slowest(grid: Grid, counted: npt.NDArray[np.bool_], with_waiting: bool, unit: Unit) -> str:
    """A sentence on the worker that is the slowest most often."""
    count, slowest_in = int(counted.sum()), _times_slowest(grid, counted)
    worst, times = int(slowest_in.argmax()), int(slowest_in.max())
    name = wording.one_line(grid.workers[worst])
    if not times and count == 1:
        return "Several workers are equally slow."
    if not times:
        return f"In each {unit.noun}, several workers are equally slow."
    if count == 1:
        return f"**{name}** is the slowest in the only {unit.noun}."
    if 2 * times > count:
        return f"**{name}** is the slowest in **{times:,} of {count:,}** {unit.plural}."
    no_worker = "With waiting included, no worker" if with_waiting else "No worker"
    return f"{no_worker} is the slowest in most {unit.plural}; {name} is in {times:,} of {count:,}."


MOST_STEPS = 4000
MOST_WORKERS = 3000


def payload(run: Run) -> Pods:
    """Every step's slowest worker, the bars that a report can carry, and one row per worker."""
    if not several(run):
        part = nothing(_why_not(run))
        if cores.several(run):
            part.cores = cores.payload(
                run, _of_hosts(run, np.zeros(0, np.int64)), np.zeros(0, np.int64)
            )
        return part
    grid = Grid(run)
    steps = grid.widest(MOST_STEPS)
    bars, first = grid.bars(steps, MOST_BARS)
    cause, cause_ms = grid.cause()
    slowest, rows = grid.slowest[steps], run.pods.iloc[bars]
    by_worker = _by_worker(grid)
    category_columns = [c.column for c in grid.categories]
    return Pods(
        empty=None,
        statement=statement(grid, _with_waiting(run), unit_of(run)),
        left_out=_left_out(grid, steps, len(bars), unit_of(run)),
        total=len(grid.workers),
        workers=[wording.one_line(name) for name in grid.workers],
        hosts=coded(grid.hosts),
        heat=heat.payload(grid),
        step=grid.steps[steps].astype(np.int32),
        count=smallest(grid.has_time.sum(axis=1)[steps]),
        slowest=smallest(slowest),
        slowest_ms=short(grid.time[steps, slowest]),
        fastest_ms=short(np.nanmin(grid.time[steps], axis=1)),
        median_ms=short(grid.median[steps]),
        spread_percent=short(grid.spread[steps]),
        start_ms=short(grid.start[steps, slowest]),
        cause=cause[steps],
        cause_ms=short(cause_ms[steps]),
        first=first.astype(np.uint32),
        worker=smallest(grid.column[bars]),
        time_ms=short(floats(rows["step_time_ms"])),
        categories={c.key: short(floats(rows[c.column])) for c in grid.categories},
        heads=heads("pods.frame", ("worker", "step_time_ms", *category_columns, "bottleneck")),
        table=table(by_worker.head(MOST_WORKERS), "pods.frame", _columns(grid)),
        typical={
            key: float(by_worker[key].median()) for key in ("mean_step_ms", *category_columns)
        },
        cores=cores.payload(run, _of_hosts(run, grid.row), steps),
        findings=findings.sentences(run),
        stragglers=findings.table_of(run, "stragglers"),
        stragglers_left_out=findings.left_out(run, "stragglers"),
        outliers=findings.table_of(run, "outliers"),
        outliers_left_out=findings.left_out(run, "outliers"),
        warmup=None if grid.counted.all() else (~grid.counted[steps]).astype(np.uint8),
    )


def several(run: Run) -> bool:
    """True if there are several workers to compare."""
    return len(run.pods) > 0 and run.pods["worker"].nunique() > 1


def has(run: Run) -> bool:
    """True if there are several workers, or several cores of one, to compare."""
    return several(run) or cores.several(run)


def _of_hosts(run: Run, row: npt.NDArray[np.int64]) -> pd.DataFrame:
    """The step of the view for each step of a host: ``host group at``; empty if the frame does not
    state it or no step is drawn.
    """
    if not {"host", "group"} <= set(run.pods.columns) or len(row) != len(run.pods):
        return pd.DataFrame(
            {
                "host": np.zeros(0, object),
                "group": np.zeros(0, np.int64),
                "at": np.zeros(0, np.int64),
            }
        )
    return run.pods[["host", "group"]].assign(at=row).drop_duplicates(["host", "group"])


def _with_waiting(run: Run) -> bool:
    """True if a finding already names who is slow at its own part of a step, since workers wait for
    each other in the rest.
    """
    ranks = run.pod_frames.stragglers
    return len(ranks) > 0 and bool(
        (ranks["straggler"].astype(bool) & (ranks["by"] == COLLECTIVES)).any()
    )


def statement(grid: Grid, with_waiting: bool = False, unit: Unit = MARKED) -> str:
    """Who is slow, and how far apart the workers are; **bold** where it matters."""
    # Of the steps that the table counts too, unless it counts none.
    counted = grid.counted if grid.counted.any() else ~grid.counted
    if unit.is_recording:
        return _of_recordings(grid)
    n = int(counted.sum())
    who = _slowest(grid, counted, with_waiting, unit)
    spread = grid.spread[grid.counted]
    if not np.isfinite(spread).any():
        return f"No {unit.noun} was recorded by more than one worker."
    # A spread that rounds to 0 is not a difference, and then nobody is the slowest.
    if float(np.nanmax(spread)) < 0.05:
        return f"All workers take the same time in {'the only' if n == 1 else 'every'} {unit.noun}."
    mean = float(np.nanmean(spread))
    widest = int(np.nanargmax(np.where(grid.counted, grid.spread, np.nan)))
    if n == 1:
        return f"{who} The fastest takes **{wording.percent(mean)}** less."
    return (
        f"{who} The fastest takes **{wording.percent(mean)}** less than the slowest on average, "
        f"{wording.percent(grid.spread[widest])} in {unit.noun} {grid.steps[widest]}."
    )


def _of_recordings(grid: Grid) -> str:
    """Lengths of recordings that are not divided into steps, which do not show who is slow."""
    longest, shortest = float(np.nanmax(grid.time)), float(np.nanmin(grid.time))
    return (
        f"The recordings of **{len(grid.workers):,}** workers take"
        f" **{wording.millis_two(shortest, longest, ' to ')}** from their first to their last event"
        " of work. They are not divided into steps, so this shows how long each was recorded, not"
        " which is slow."
    )


def _left_out(grid: Grid, steps: npt.NDArray[np.int64], bars: int, unit: Unit) -> str:
    parts = []
    if len(steps) < len(grid.steps):
        parts.append(
            f"the {len(steps):,} of {len(grid.steps):,} {unit.plural} whose workers differ most"
        )
    if bars < int(grid.has_time[steps].sum()):
        parts.append(f"the slowest workers and the fastest one of each {unit.noun}")
    if not parts:
        return ""
    return f"This report has {'; '.join(parts)}; p.pods.frame has all."


def _columns(grid: Grid) -> tuple[str, ...]:
    return (
        "worker",
        "worker_steps",
        "mean_step_ms",
        "over_median_percent",
        "times_slowest",
        *(c.column for c in grid.categories),
    )


def _by_worker(grid: Grid) -> pd.DataFrame:
    """One row per worker: means over the counted steps, slowest first."""
    time = grid.time[grid.counted]
    with np.errstate(invalid="ignore", divide="ignore"):
        over = 100 * (time / grid.median[grid.counted][:, None] - 1)
    frame = pd.DataFrame(
        {
            "worker": [wording.one_line(name) for name in grid.workers],
            "worker_steps": np.isfinite(time).sum(axis=0),
            "mean_step_ms": mean(time),
            "over_median_percent": mean(over),
            "times_slowest": _times_slowest(grid, grid.counted),
            **{
                c.column: mean(grid.of_time[grid.counted][:, :, i])
                for i, c in enumerate(grid.categories)
            },
        }
    )
    return frame.sort_values("mean_step_ms", ascending=False, kind="stable", na_position="last")


def _times_slowest(grid: Grid, among: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """By worker, in how many of these steps it alone took longest."""
    return np.bincount(grid.slowest[among & grid.one_slowest], minlength=len(grid.workers)).astype(
        np.int64
    )


def _why_not(run: Run) -> Empty:
    if run.pods.empty:
        return Empty(
            title="No steps to compare",
            text="Workers are compared step by step, and this run has no steps.",
        )
    return Empty(
        title="One worker in this run",
        text=(
            "This tab compares hosts, or devices that have their own steps: load the folder with"
            " the files of all of them."
        ),
    )


def nothing(empty: Empty | None = None) -> Pods:
    """The part without workers."""
    times, codes = np.zeros(0, np.float64), np.zeros(0, np.uint8)
    return Pods(
        empty=empty,
        statement="",
        left_out="",
        total=0,
        workers=[],
        step=np.zeros(0, np.int32),
        count=codes,
        slowest=codes,
        slowest_ms=times,
        fastest_ms=times,
        median_ms=times,
        spread_percent=times,
        start_ms=times,
        cause=codes,
        cause_ms=times,
        first=np.zeros(1, np.uint32),
        worker=codes,
        time_ms=times,
        categories={},
        heads=[],
        table=no_table(),
    )

"""The workers of a job beside each other, step by step: who is slow, by how much, and at what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.display import wording
from nbprof.display.categories import CATEGORIES, Category
from nbprof.display.codec import short, smallest
from nbprof.tools.pods import cores
from nbprof.tools.steps.payload import recorded
from nbprof.tools.tables import floats, heads, table

if TYPE_CHECKING:
    from nbprof.run.run import Run

MOST_BARS = 12_000
"""Bars of one worker and step in a report: of each step the slowest workers, and the fastest."""
MOST_STEPS = 4000
MOST_WORKERS = 3000

Floats = npt.NDArray[np.float64]


def payload(run: Run) -> dict[str, Any]:
    """The `Pods` part: every step's slowest worker, the bars that a report can carry, and one row per worker."""
    if not several(run):
        beside = cores.payload(run, _of_hosts(run, np.zeros(0, np.int64)), np.zeros(0, np.int64)) if cores.several(run) else None
        return {**nothing(_why_not(run)), **({"cores": beside} if beside else {})}
    grid = Grid(run)
    steps = grid.widest(MOST_STEPS)
    bars, first = grid.bars(steps, MOST_BARS)
    cause, cause_ms = grid.cause()
    slowest, rows = grid.slowest[steps], run.pods.iloc[bars]
    part: dict[str, Any] = {
        "empty": None,
        "statement": statement(grid),
        "left_out": _left_out(grid, steps, len(bars)),
        "total": len(grid.workers),
        "workers": [wording.one_line(name) for name in grid.workers],
        "step": grid.steps[steps].astype(np.int32),
        "count": smallest(grid.known.sum(axis=1)[steps]),
        "slowest": smallest(slowest),
        "slowest_ms": short(grid.time[steps, slowest]),
        "fastest_ms": short(np.nanmin(grid.time[steps], axis=1)),
        "median_ms": short(grid.median[steps]),
        "spread_percent": short(grid.spread[steps]),
        "start_ms": short(grid.start[steps, slowest]),
        "cause": cause[steps],
        "cause_ms": short(cause_ms[steps]),
        "first": first.astype(np.uint32),
        "worker": smallest(grid.column[bars]),
        "time_ms": short(floats(rows["step_time_ms"])),
        "categories": {c.key: short(floats(rows[c.column])) for c in grid.categories},
        "heads": heads("pods.frame", ("worker", "step_time_ms", *(c.column for c in grid.categories), "bottleneck")),
        "table": table(_by_worker(grid), "pods.frame", _columns(grid)),
    }
    if (beside := cores.payload(run, _of_hosts(run, grid.row), steps)) is not None:
        part["cores"] = beside
    if not grid.counted.all():
        part["warmup"] = (~grid.counted[steps]).astype(np.uint8)
    return part


def several(run: Run) -> bool:
    """Whether there is anyone to compare."""
    return len(run.pods) > 0 and run.pods["worker"].nunique() > 1


def has(run: Run) -> bool:
    """Whether there is anyone to compare: workers, or cores of one."""
    return several(run) or cores.several(run)


def _of_hosts(run: Run, row: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Which step each step of a host is: ``host group at``; empty where the frame does not say or no step is drawn."""
    if not {"host", "group"} <= set(run.pods.columns) or len(row) != len(run.pods):
        return pd.DataFrame({"host": np.zeros(0, object), "group": np.zeros(0, np.int64), "at": np.zeros(0, np.int64)})
    return run.pods[["host", "group"]].assign(at=row).drop_duplicates(["host", "group"])


class Grid:
    """Steps × workers as arrays; what a worker did not record is NaN.

    Attributes
    ----------
    steps : int64[steps]
    workers : list of str
        In natural order: 2 before 10.
    time, start : float64[steps, workers]
    known : bool[steps, workers]
    of_time : float64[steps, workers, categories]
        ms of each recorded category.
    counted : bool[steps]
        Steps that averages use: no warm-up, not cut off.
    row, column : int64[rows of Run.pods]
        Where each row of the frame stands.
    """

    def __init__(self, run: Run) -> None:
        frame = run.pods
        self.categories: list[Category] = recorded(frame)
        self.row, steps = pd.factorize(frame["step"])
        self.steps = np.asarray(steps, np.int64)
        found = pd.unique(frame["worker"])
        self.workers = sorted((str(name) for name in found), key=wording.natural)
        place = {name: i for i, name in enumerate(self.workers)}
        self.column = frame["worker"].map(place).to_numpy(np.int64)
        shape = (len(self.steps), len(self.workers))
        self.time, self.start = np.full(shape, np.nan), np.full(shape, np.nan)
        self.time[self.row, self.column] = floats(frame["step_time_ms"])
        self.start[self.row, self.column] = floats(frame["start_ms"])
        self.of_time = np.full((*shape, len(self.categories)), np.nan)
        for i, category in enumerate(self.categories):
            self.of_time[self.row, self.column, i] = floats(frame[category.column])
        self.known = np.isfinite(self.time)
        self.slowest = np.where(self.known, self.time, -np.inf).argmax(axis=1)
        self.median = np.nanmedian(self.time, axis=1)
        most, least = np.nanmax(self.time, axis=1), np.nanmin(self.time, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.spread = np.where(self.known.sum(axis=1) > 1, 100 * (most - least) / most, np.nan)
        self.counted = self._counted(run, frame)

    def _counted(self, run: Run, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        every = np.ones(len(self.steps), np.bool_)
        if not {"host", "group"} <= set(frame.columns) or not {"host", "group", "counted"} <= set(run.steps.columns):
            return every
        flags = run.steps.set_index(["host", "group"])["counted"].astype(bool)
        out = flags[~flags.index.duplicated()].reindex(pd.MultiIndex.from_frame(frame[["host", "group"]])).fillna(True).to_numpy(np.bool_)
        every[self.row[~out]] = False
        # A job of warm-up alone still has its means.
        return every if every.any() else ~every

    def cause(self) -> tuple[npt.NDArray[np.uint8], Floats]:
        """By step: in which category the slowest worker lies furthest over the median of all, and by how many ms.

        The category is an index into CATEGORIES + 1; 0 where it is over the median in none.
        """
        if not self.categories:
            return np.zeros(len(self.steps), np.uint8), np.full(len(self.steps), np.nan)
        middle = np.zeros((len(self.steps), len(self.categories)))
        for i in range(len(self.categories)):
            values = np.where(np.isfinite(self.of_time[:, :, i]), self.of_time[:, :, i], 0.0)
            middle[:, i] = np.nanmedian(np.where(self.known, values, np.nan), axis=1)
        own = np.nan_to_num(self.of_time[np.arange(len(self.steps)), self.slowest])
        over = own - middle
        which = over.argmax(axis=1)
        more = over[np.arange(len(over)), which]
        codes = np.array([CATEGORIES.index(c) + 1 for c in self.categories], np.uint8)[which]
        none = ~(more > 0)
        return np.where(none, 0, codes).astype(np.uint8), np.where(none, np.nan, more)

    def widest(self, most: int) -> npt.NDArray[np.int64]:
        """Steps to draw, in order: all, or the `most` with the largest spread."""
        if len(self.steps) <= most:
            return np.arange(len(self.steps))
        return np.sort(np.argsort(-np.nan_to_num(self.spread), kind="stable")[:most])

    def bars(self, steps: npt.NDArray[np.int64], most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of the frame to draw, by step and then by worker, and where the rows of each step begin and the last ones end."""
        position = np.full(len(self.steps), -1)
        position[steps] = np.arange(len(steps))
        rows = np.flatnonzero(position[self.row] >= 0)
        at, time = position[self.row[rows]], self.time[self.row[rows], self.column[rows]]
        order = np.lexsort((self.column[rows], -np.nan_to_num(time, nan=-np.inf), at))
        count = np.bincount(at, minlength=len(steps))
        rank = np.arange(len(rows)) - (np.cumsum(count) - count)[at[order]]
        if len(rows) > most:
            # The fastest shows how far apart they are.
            keep = max(2, most // len(steps))
            stays = (rank < keep - 1) | (rank == count[at[order]] - 1)
            order = order[stays]
        kept = order[np.lexsort((self.column[rows[order]], at[order]))]
        first = np.concatenate(([0], np.cumsum(np.bincount(at[kept], minlength=len(steps)))))
        return rows[kept], first


def statement(grid: Grid) -> str:
    """Who is slow, and how far apart the workers are; **bold** where it matters."""
    # Of the steps that the table counts too, unless it counts none.
    slowest = grid.slowest[grid.counted] if grid.counted.any() else grid.slowest
    n, which = len(slowest), np.bincount(slowest, minlength=len(grid.workers))
    worst, times = int(which.argmax()), int(which.max())
    name = wording.one_line(grid.workers[worst])
    if n == 1:
        who = f"**{name}** is the slowest in the only step."
    elif 2 * times > n:
        who = f"**{name}** is the slowest in **{times:,} of {n:,}** steps."
    else:
        who = f"No worker is the slowest in most steps; {name} is in {times:,} of {n:,}."
    spread = grid.spread[grid.counted]
    if not np.isfinite(spread).any():
        return f"{who} No step was recorded by more than one worker."
    # What rounds to nothing is no difference, and then nobody is the slowest.
    if float(np.nanmax(spread)) < 0.05:
        return "All workers take the same time in the only step." if n == 1 else "All workers take the same time in every step."
    mean, most = float(np.nanmean(spread)), int(np.nanargmax(np.where(grid.counted, grid.spread, np.nan)))
    if n == 1:
        return f"{who} The fastest takes **{wording.percent(mean)}** less."
    return (
        f"{who} The fastest takes **{wording.percent(mean)}** less than the slowest on average, "
        f"{wording.percent(grid.spread[most])} in step {grid.steps[most]}."
    )


def _left_out(grid: Grid, steps: npt.NDArray[np.int64], bars: int) -> str:
    parts = []
    if len(steps) < len(grid.steps):
        parts.append(f"the {len(steps):,} of {len(grid.steps):,} steps whose workers differ most")
    if bars < int(grid.known[steps].sum()):
        parts.append("the slowest workers and the fastest one of each step")
    if not parts:
        return ""
    return f"This report has {'; '.join(parts)}; p.pods.frame has all."


def _columns(grid: Grid) -> tuple[str, ...]:
    return ("worker", "worker_steps", "mean_step_ms", "over_median_percent", "times_slowest", *(c.column for c in grid.categories))


def _by_worker(grid: Grid) -> pd.DataFrame:
    """One row per worker: means over the counted steps, slowest first."""
    time = grid.time[grid.counted]
    with np.errstate(invalid="ignore", divide="ignore"):
        over = 100 * (time / grid.median[grid.counted][:, None] - 1)
    frame = pd.DataFrame(
        {
            "worker": [wording.one_line(name) for name in grid.workers],
            "worker_steps": np.isfinite(time).sum(axis=0),
            "mean_step_ms": _mean(time),
            "over_median_percent": _mean(over),
            "times_slowest": np.bincount(grid.slowest[grid.counted], minlength=len(grid.workers)),
            **{c.column: _mean(grid.of_time[grid.counted][:, :, i]) for i, c in enumerate(grid.categories)},
        }
    )
    return frame.sort_values("mean_step_ms", ascending=False, kind="stable", na_position="last").head(MOST_WORKERS)


def _mean(values: Floats) -> Floats:
    """Mean of each column of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    count = known.sum(axis=0)
    means: Floats = np.full(values.shape[1], np.nan)
    np.divide(np.where(known, values, 0.0).sum(axis=0), count, out=means, where=count > 0)
    return means


def _why_not(run: Run) -> dict[str, str]:
    if run.pods.empty:
        return {"title": "No steps to compare", "text": "Workers are compared step by step, and this run has no steps."}
    return {
        "title": "One worker in this run",
        "text": "This tab compares hosts, or devices that have their own steps: load the folder with the files of all of them.",
    }


def nothing(empty: dict[str, str] | None = None) -> dict[str, Any]:
    """A `Pods` part without workers."""
    none, count = np.zeros(0, np.float64), np.zeros(0, np.uint8)
    texts = {"statement": "", "left_out": "", "total": 0, "workers": [], "heads": [], "categories": {}}
    times = dict.fromkeys(("slowest_ms", "fastest_ms", "median_ms", "spread_percent", "start_ms", "cause_ms", "time_ms"), none)
    codes = dict.fromkeys(("count", "slowest", "cause", "worker"), count)
    made = {"step": np.zeros(0, np.int32), "first": np.zeros(1, np.uint32), "table": {"columns": [], "data": {}, "rows": 0}}
    return {"empty": empty, **texts, **times, **codes, **made}

"""Steps × workers as arrays: what the drawings of the tab are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.display import wording
from nbprof.display.categories import CATEGORIES, Category
from nbprof.tools.steps.payload import recorded
from nbprof.tools.tables import floats

if TYPE_CHECKING:
    from nbprof.run.run import Run

Floats = npt.NDArray[np.float64]

_NOTHING_MS = 1e-6
"""No file tells times apart that differ by less, and the arithmetic of floats makes them differ."""


class Grid:
    """Steps × workers as arrays; what a worker did not record is NaN.

    Attributes
    ----------
    steps : int64[steps]
    workers : list of str
        In natural order: 2 before 10.
    hosts : list of str
        The host of each worker.
    time, start : float64[steps, workers]
    known : bool[steps, workers]
    of_time : float64[steps, workers, categories]
        ms of each recorded category.
    slowest : int64[steps]
        The first worker that took longest.
    one_slowest : bool[steps]
        Whether it alone took that long, of several.
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
        workers = pd.unique(frame["worker"])
        self.workers = sorted((str(name) for name in workers), key=wording.natural)
        host_of = dict(zip(frame["worker"], frame["host"], strict=True)) if "host" in frame else {}
        self.hosts = [str(host_of.get(name, name)) for name in self.workers]
        columns = {name: i for i, name in enumerate(self.workers)}
        self.column = frame["worker"].map(columns).to_numpy(np.int64)
        shape = (len(self.steps), len(self.workers))
        self.time, self.start = np.full(shape, np.nan), np.full(shape, np.nan)
        self.time[self.row, self.column] = floats(frame["step_time_ms"])
        self.start[self.row, self.column] = floats(frame["start_ms"])
        self.of_time = np.full((*shape, len(self.categories)), np.nan)
        for i, category in enumerate(self.categories):
            self.of_time[self.row, self.column, i] = floats(frame[category.column])
        self.has_time = np.isfinite(self.time)
        filled = np.where(self.has_time, self.time, -np.inf)
        self.slowest = filled.argmax(axis=1)
        # Of several that take as long none is the slowest, and of one alone neither.
        second, first = (
            np.partition(filled, -2, axis=1)[:, -2:]
            if filled.shape[1] > 1
            else np.repeat(filled, 2, axis=1)
        ).T
        self.one_slowest = np.isfinite(second) & (np.nan_to_num(first - second) > _NOTHING_MS)
        self.median = np.nanmedian(self.time, axis=1)
        slowest_ms, fastest_ms = np.nanmax(self.time, axis=1), np.nanmin(self.time, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.spread = np.where(
                self.has_time.sum(axis=1) > 1, 100 * (slowest_ms - fastest_ms) / slowest_ms, np.nan
            )
        self.counted = self._counted(run, frame)

    def _counted(self, run: Run, frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
        every = np.ones(len(self.steps), np.bool_)
        if not {"host", "group"} <= set(frame.columns) or not {"host", "group", "counted"} <= set(
            run.steps.columns
        ):
            return every
        flags = run.steps.set_index(["host", "group"])["counted"].astype(bool)
        counted = (
            flags[~flags.index.duplicated()]
            .reindex(pd.MultiIndex.from_frame(frame[["host", "group"]]))
            .fillna(True)
            .to_numpy(np.bool_)
        )
        every[self.row[~counted]] = False
        # A job of warm-up alone still has its means.
        return every if every.any() else ~every

    def cause(self) -> tuple[npt.NDArray[np.uint8], Floats]:
        """By step: the category in which the slowest worker exceeds the median of all most, and by
        how many ms.

        The category is an index into CATEGORIES + 1; 0 where it is over the median in none.
        """
        if not self.categories:
            return np.zeros(len(self.steps), np.uint8), np.full(len(self.steps), np.nan)
        middle = np.zeros((len(self.steps), len(self.categories)))
        for i in range(len(self.categories)):
            values = np.where(np.isfinite(self.of_time[:, :, i]), self.of_time[:, :, i], 0.0)
            middle[:, i] = np.nanmedian(np.where(self.has_time, values, np.nan), axis=1)
        slowest_ms = np.nan_to_num(self.of_time[np.arange(len(self.steps)), self.slowest])
        over = slowest_ms - middle
        largest = over.argmax(axis=1)
        more = over[np.arange(len(over)), largest]
        codes = np.array([CATEGORIES.index(c) + 1 for c in self.categories], np.uint8)[largest]
        none = ~(more > 0)
        return np.where(none, 0, codes).astype(np.uint8), np.where(none, np.nan, more)

    def widest(self, limit: int) -> npt.NDArray[np.int64]:
        """Steps to draw, in order: all, or the `most` with the largest spread."""
        if len(self.steps) <= limit:
            return np.arange(len(self.steps))
        return np.sort(np.argsort(-np.nan_to_num(self.spread), kind="stable")[:limit])

    def bars(
        self, steps: npt.NDArray[np.int64], limit: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows of the frame to draw, by step and then by worker, and where the rows of each step
        begin and the last ones end.
        """
        position = np.full(len(self.steps), -1)
        position[steps] = np.arange(len(steps))
        rows = np.flatnonzero(position[self.row] >= 0)
        bar_step, time = position[self.row[rows]], self.time[self.row[rows], self.column[rows]]
        order = np.lexsort((self.column[rows], -np.nan_to_num(time, nan=-np.inf), bar_step))
        count = np.bincount(bar_step, minlength=len(steps))
        rank = np.arange(len(rows)) - (np.cumsum(count) - count)[bar_step[order]]
        if len(rows) > limit:
            # The fastest shows how far apart they are.
            keep = max(2, limit // len(steps))
            stays = (rank < keep - 1) | (rank == count[bar_step[order]] - 1)
            order = order[stays]
        ordered = order[np.lexsort((self.column[rows[order]], bar_step[order]))]
        first = np.concatenate(
            ([0], np.cumsum(np.bincount(bar_step[ordered], minlength=len(steps))))
        )
        return rows[ordered], first


def mean(values: Floats) -> Floats:
    """Mean of each column of what is known; NaN where nothing is."""
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    means: Floats = np.full(values.shape[1], np.nan)
    np.divide(np.where(finite, values, 0.0).sum(axis=0), count, out=means, where=count > 0)
    return means

"""The heat map of the tab: every worker by every step, small enough for a report.

What is drawn is how far a worker is from the median worker of the same step, of the step time and
of each category that tells workers apart. A value is a whole multiple of about a four-hundredth of
the median step time, which compresses to less than a byte a cell; `p.pods.frame` has the exact
ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.display import wording
from nbprof.display.codec import smallest
from nbprof.tools.pods import parts
from nbprof.tools.pods.grid import Floats, Grid, mean

MOST_CELLS = 1 << 17
"""Cells of one layer: 1,024 workers by 128 steps. More steps share a column."""
MOST_ROWS = 2048
FEW_CELLS = 1 << 14
"""Up to here each recorded category is there; beyond, those in which workers differ."""
MOST_LAYERS = 5
MISSING = 65535
_PARTS = 400
_LEAST_PERCENT = 5.0
"""Of the median step time: colours end there at the earliest, so that noise does not look like a
difference.
"""
_TELLING_PERCENT = 2.0
"""A worker that is so far from the median on average is slow."""


@dataclass
class Heat:
    """Columns of steps × rows of workers.

    Attributes
    ----------
    rows : int64[rows]
        Workers as `Grid.workers` counts them.
    first, last : int64[columns]
        The steps of each column, as `Grid.steps` counts them.
    step : int64[rows, columns]
        The step that each cell shows: of several the slowest on that worker.
    time : float64[rows, columns]
        ms; NaN where the worker did not record it.
    parts : float64[rows, columns, categories]
    counted : bool[columns]
    """

    rows: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]
    time: Floats
    parts: Floats
    counted: npt.NDArray[np.bool_]

    @property
    def per(self) -> int:
        """Steps of a column."""
        return int(self.last[0] - self.first[0]) + 1

    def values(self, category: int | None) -> Floats:
        """Ms of the step time, or of a category as the grid counts them; NaN where the worker did
        not record the step.
        """
        if category is None:
            return self.time
        return np.where(np.isfinite(self.time), np.nan_to_num(self.parts[:, :, category]), np.nan)

    def over(self, category: int | None) -> Floats:
        """Distance of each cell from the median of its column in percent of the median step."""
        values = self.values(category)
        with np.errstate(invalid="ignore", divide="ignore"):
            return 100 * (values - median(values)) / median(self.time)

    def mean(self, over: Floats) -> Floats:
        """By row, over the columns that count."""
        return mean(over[:, self.counted].T)


def binned(grid: Grid, most_cells: int = MOST_CELLS, most_rows: int = MOST_ROWS) -> Heat:
    """The grid with as few steps in a column as the number of cells allows, and the slowest workers
    where there are too many.
    """
    time = grid.time
    rows = np.arange(len(grid.workers))
    if len(rows) > most_rows:
        rows = np.sort(
            np.argsort(-np.nan_to_num(_slowness(time, grid.counted), nan=-np.inf), kind="stable")[
                :most_rows
            ]
        )
    steps = len(grid.steps)
    per = -(-steps * len(rows) // most_cells)
    first = np.arange(0, steps, per)
    last = np.minimum(first + per, steps) - 1
    step = first[None, :, None] + np.arange(per)[None, None, :]
    durations = np.where(
        step < steps,
        np.nan_to_num(time[np.minimum(step, steps - 1), rows[:, None, None]], nan=-1.0),
        -2.0,
    )
    slowest = first[None, :] + durations.argmax(axis=2)
    return Heat(
        rows=rows,
        first=first,
        last=last,
        step=slowest,
        time=time[slowest, rows[:, None]],
        parts=grid.of_time[slowest, rows[:, None]],
        counted=np.add.reduceat(grid.counted, first) > 0,
    )


def _slowness(time: Floats, counted: npt.NDArray[np.bool_]) -> Floats:
    """By worker: how much longer its steps take than on the median worker, in ms."""
    return mean((time - np.nanmedian(time, axis=1)[:, None])[counted])


def payload(grid: Grid, most_cells: int = MOST_CELLS) -> parts.Heat:
    """Layers of cells as whole numbers, by worker and then by column."""
    heat = binned(grid, most_cells)
    middle = median(heat.time)
    unit = _unit(middle, np.fmax.reduce(heat.time, axis=0))
    layers = [_layer("step_time", heat, None, unit)]
    for i, category in enumerate(grid.categories):
        layers.append(_layer(category.key, heat, i, unit))
    recorded = len(layers)
    if heat.time.size > FEW_CELLS:
        telling = sorted(layers[1:], key=lambda layer: -layer.limit_percent)[: MOST_LAYERS - 1]
        layers = [layers[0], *(layer for layer in telling if layer.limit_percent > _LEAST_PERCENT)]
    return parts.Heat(
        rows=smallest(heat.rows),
        first=grid.steps[heat.first].astype(np.int32),
        last=grid.steps[heat.last].astype(np.int32),
        unit_ms=unit.astype(np.float32),
        median_ms=middle.astype(np.float32),
        layers=layers,
        show=_telling(layers),
        note=_note(grid, heat, recorded - len(layers)),
        at=smallest((heat.step - heat.first[None, :]).ravel()) if heat.per > 1 else None,
        warmup=None if heat.counted.all() else (~heat.counted).astype(np.uint8),
    )


def _unit(middle: Floats, largest: Floats) -> Floats:
    """By column: 1, 2 or 5 × 10ⁿ ms, so that a value has no more digits than it is known to."""
    # Steps in which one worker takes a hundred times as long as the others are coarser.
    resolution = np.fmax(middle / _PARTS, largest / (MISSING - 1) * 2.5)
    resolution = np.where(resolution > 0, resolution, 1.0)
    power = 10.0 ** np.floor(np.log10(resolution))
    return np.asarray(
        power * np.select([resolution >= 5 * power, resolution >= 2 * power], [5.0, 2.0], 1.0)
    )


def median(values: Floats) -> Floats:
    """Over the workers; of a column that nobody recorded NaN."""
    medians: Floats = np.full(values.shape[1], np.nan)
    count = np.isfinite(values).sum(axis=0)
    recorded = np.flatnonzero(count)
    # Missing values are sorted behind the others. np.nanmedian takes ten times as long for a few
    # rows of many columns.
    ordered, last = np.sort(values[:, recorded], axis=0), count[recorded] - 1
    column = np.arange(len(recorded))
    medians[recorded] = (ordered[last // 2, column] + ordered[(last + 1) // 2, column]) / 2
    return medians


def limit(heat: Heat, over: Floats) -> float:
    """End of the colours of a layer: the value that one cell in a hundred exceeds, or the farthest
    worker on average.

    A single slow cell is then as dark as it gets, and does not bleach all others.
    """
    distances = np.abs(over[:, heat.counted])
    distances = distances[np.isfinite(distances)]
    by_worker = np.abs(heat.mean(over))
    by_worker = by_worker[np.isfinite(by_worker)]
    return max(
        float(np.percentile(distances, 99)) if len(distances) else 0.0,
        float(by_worker.max(initial=0.0)),
        _LEAST_PERCENT,
    )


def _layer(key: str, heat: Heat, category: int | None, unit: Floats) -> parts.HeatLayer:
    """One quantity of all cells; one cell in two hundred is below `low_ms`, and as many are above
    `high_ms`.
    """
    values, over = heat.values(category), heat.over(category)
    counted = values[:, heat.counted]
    counted = counted[np.isfinite(counted)]
    low, high = np.percentile(counted, (0.5, 99.5)).tolist() if len(counted) else (0.0, 1.0)
    codes = np.where(np.isfinite(values), np.round(np.nan_to_num(values) / unit), MISSING)
    return parts.HeatLayer(
        key=key,
        codes=codes.astype(np.uint16).ravel(),
        median_ms=median(values).astype(np.float32),
        mean_percent=heat.mean(over).astype(np.float32),
        limit_percent=limit(heat, over),
        low_ms=low,
        high_ms=max(high, low + _LEAST_PERCENT / 100 * float(np.nanmedian(median(heat.time)))),
    )


def _telling(layers: list[parts.HeatLayer]) -> str:
    """The layer that is shown first: the step time, unless workers hardly differ in it (they wait
    for each other) and one is slow in a category.
    """
    largest = [float(np.nanmax(layer.mean_percent, initial=0.0)) for layer in layers]
    if largest[0] >= _TELLING_PERCENT or max(largest) < max(_TELLING_PERCENT, 3 * largest[0]):
        return layers[0].key
    return layers[int(np.argmax(largest))].key


def _note(grid: Grid, heat: Heat, layers: int) -> str:
    sentences = []
    if heat.per > 1:
        sentences.append(
            f"A column is {heat.per:,} steps; a cell shows the slowest of them on that worker."
        )
    if len(heat.rows) < len(grid.workers):
        sentences.append(
            f"Showing the {len(heat.rows):,} slowest of {len(grid.workers):,} workers."
        )
    if layers:
        singular = "category in which workers differ least is"
        many = "categories in which workers differ least are"
        sentences.append(f"{wording.plural(layers, singular, many)} left out.")
    if not sentences:
        return ""
    return " ".join([*sentences, "p.pods.frame has all."])

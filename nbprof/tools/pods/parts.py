"""The payload of the tab Pods."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

from nbprof.display.codec import Coded
from nbprof.display.payload import CategoryKey, Codes, Marked, Part
from nbprof.tools.parts import Column, Tab, Table


class HeatLayer(Part):
    """A quantity of all cells."""

    key: str
    """"step_time", or the key of a category."""
    codes: npt.NDArray[np.uint16]
    """By row and then by column, in `unit_ms` of the column; 65535 where it was not recorded."""
    median_ms: npt.NDArray[np.float32]
    """By column: of the median worker."""
    mean_percent: npt.NDArray[np.float32]
    """By row: distance from the median worker, in percent of the median step time, mean over the
    columns that count.
    """
    limit_percent: float
    """Where the colours end."""
    low_ms: float
    high_ms: float


class Heat(Part):
    """Workers by steps as one picture."""

    rows: Codes
    """Workers, in the order of their names."""
    first: npt.NDArray[np.int32]
    """By column: numbers of its first and its last step."""
    last: npt.NDArray[np.int32]
    unit_ms: npt.NDArray[np.float32]
    median_ms: npt.NDArray[np.float32]
    layers: list[HeatLayer]
    show: str
    """The layer that is shown first."""
    note: str
    at: Codes | None = None
    """By cell: the step that it shows, from the first of its column; absent where a column is one
    step.
    """
    warmup: npt.NDArray[np.uint8] | None = None
    """By column: 1 where no step counts in averages."""


class Cores(Part):
    """The cores of TPUs."""

    kinds: list[str]
    """Columns of the time of a core, in stack order: those on which any core spent time."""
    heads: list[Column]
    """The columns of the table of one step."""
    table: Table
    """worker (the core), chip, mean_step_ms and the mean of each kind."""
    first: npt.NDArray[np.uint32]
    """The rows of step i of `Pods.step` are first[i] … first[i + 1]; empty where the report has the
    means alone.
    """
    core: Codes
    """Row of `table`."""
    time_ms: npt.NDArray[np.float32]
    parts: dict[str, npt.NDArray[np.float32]]
    note: str


class Pods(Tab):
    """Each step on each worker (a host, or a device that has its own steps)."""

    statement: Marked
    """Who is slow, and how far apart the workers are."""
    left_out: str
    total: int
    """Workers of the run."""
    workers: list[str]
    hosts: Coded | None = None
    """By worker: its host."""
    heat: Heat | None = None
    step: npt.NDArray[np.int32]
    """By step, in time order, as the following columns."""
    count: Codes
    """How many workers recorded it."""
    slowest: Codes
    """Index into `workers`."""
    slowest_ms: npt.NDArray[np.float64]
    fastest_ms: npt.NDArray[np.float64]
    median_ms: npt.NDArray[np.float64]
    spread_percent: npt.NDArray[np.float64]
    """Slowest less fastest, in percent of the slowest."""
    start_ms: npt.NDArray[np.float64]
    """Begin of the step on the slowest worker."""
    cause: npt.NDArray[np.uint8]
    """1 + index into CATEGORIES of the category in which the slowest is furthest over the median;
    0: none.
    """
    cause_ms: npt.NDArray[np.float64]
    first: npt.NDArray[np.uint32]
    """The bars of step i are first[i] … first[i + 1] of the following columns."""
    worker: Codes
    time_ms: npt.NDArray[np.float64]
    categories: dict[CategoryKey, npt.NDArray[np.float64]]
    heads: list[Column]
    """The columns of the table of one step."""
    table: Table
    """A row per worker, the slowest first."""
    typical: Annotated[dict[str, float], "Record<string, number | null>"] | None = None
    """By column of `table`: the median over the workers."""
    cores: Cores | None = None
    findings: list[Marked] | None = None
    """Who delays the others, what that costs, and what else would help."""
    stragglers: Table | None = None
    stragglers_left_out: str | None = None
    outliers: Table | None = None
    outliers_left_out: str | None = None
    warmup: npt.NDArray[np.uint8] | None = None
    """1: left out of the means of `table`."""

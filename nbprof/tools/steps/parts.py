"""The payload of the steps, which the tab Steps & input and the header of every report show."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nbprof.display.payload import CategoryKey, Part
from nbprof.tools.parts import Tab, Table


class Boundary(Part):
    """A boundary before the step of a row: an epoch, another loop, steps of another kind, or an
    evaluation.
    """

    row: int
    text: str


class Clock(Part):
    """The steps of the cell by the wall clock, recorded or not; of many, the longest of each few.

    `recorded` is 1 where a profiler ran. `step` counts the steps of the cell from 1.
    """

    step: npt.NDArray[np.int32]
    start_s: npt.NDArray[np.float64]
    ms: npt.NDArray[np.float64]
    recorded: npt.NDArray[np.uint8]
    scope: str


class Steps(Tab):
    """Times by step and category; a category that was not recorded is absent."""

    step: npt.NDArray[np.int32]
    name: list[str]
    start_ms: npt.NDArray[np.float64]
    step_time_ms: npt.NDArray[np.float64]
    categories: dict[CategoryKey, npt.NDArray[np.float64]]
    prefix: str
    """"train" in "32 steps, train 500–531"; "" when steps have only numbers."""
    hosts: list[str]
    """Where there are several."""
    noun: str | None = None
    """The word for one of them, where that is not "step"."""
    labels: dict[CategoryKey, str] | None = None
    """Other names of the categories."""
    warmup: npt.NDArray[np.uint8] | None = None
    """1: a step that is drawn, but left out of every average while nothing is selected."""
    left_out: str | None = None
    """With `warmup`: a sentence that says what is left out."""
    boundaries: list[Boundary] | None = None
    typical: int | None = None
    """Position of a step of median length; absent where there are few."""
    count: str | None = None
    """"2 steps on 2 ranks", where several hosts recorded."""
    host: npt.NDArray[np.uint16] | None = None
    """The host of each step, where there are several."""
    clock: Clock | None = None
    """Where steps ran without the profiler."""


class ServingTables(Part):
    """Iterations of an inference engine by kind, and kernel time by part of the model, a column a
    kind.
    """

    kinds: Table
    parts: Table

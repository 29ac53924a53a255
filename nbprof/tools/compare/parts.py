"""The payload of the tab Compare."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

from nbprof.display.payload import Marked, Part
from nbprof.tools.overview.parts import Advice
from nbprof.tools.parts import BarPart, Evidence, Table, UnitWords


class ComparedRun(Part):
    """A run of a comparison."""

    label: str
    facts: list[str]
    created: str
    times_ms: npt.NDArray[np.float64]
    """Of the steps in averages, in time order."""
    bare_ms: npt.NDArray[np.float64]
    """Of the steps that ran without the profiler, in time order."""
    advice: list[Advice]
    """The first finding, if there is one."""
    no_advice: str


class ComparedFigure(Part):
    """A figure before and after; None: not measured."""

    label: str
    before: float | None
    after: float | None
    unit: str
    digits: int
    note: str
    bar: list[BarPart] | None = None
    """Of the second run."""


class ComparedCategory(Part):
    """The time of a category before and after."""

    key: Annotated[str, 'CategoryKey | "step_time"']
    before_ms: float | None
    after_ms: float | None
    change_ms: float | None
    margin_ms: float | None
    """Half of the 95 % interval of the change."""
    change_percent: float | None
    real: bool | None
    """The interval excludes 0; None where there is none."""


class ComparedFinding(Part):
    """A finding of either run with the gain that each predicts."""

    title: str
    state: Annotated[str, '"gone" | "still found" | "new"']
    gain_is: str
    before_ms: float | None
    after_ms: float | None


class SmallChanges(Part):
    """Changes in µs below which a row is not shown at first."""

    ops: float
    kernels: float


class ComparedMemory(Part):
    """Memory before and after."""

    roles: Table
    moment: str
    """"at the peak", "at the snapshot" of PyTorch's allocator, or "as the compiler planned it"."""
    reason: str
    """Why the roles of a run are missing."""
    stacks: Table
    """What the blocks of two snapshots were allocated by."""
    stacks_left_out: int
    stacks_reason: str
    """Why stacks cannot be compared although a run has a snapshot."""


class ComparedCalls(Part):
    """The calls of two runs as one tree."""

    id: Annotated[str, '"python" | "device" | "host"']
    label: str
    per_step: bool
    """Times are per step; else of the whole profile."""
    calls: Table
    """Without a head: `_parent`, the row of the caller, and `_chance`, 1 where the change of its
    self time may be chance.
    """
    left_out: int
    """Frames that take too little time to be drawn."""


class Pair(Part):
    """Two runs side by side."""

    before: int
    """Indices of the runs."""
    after: int
    kind: Annotated[
        str, '"real" | "some" | "typical" | "serial" | "chance" | "none" | "same" | "unknown"'
    ]
    title: str
    headline: str
    detail: str
    evidence: list[Evidence]
    bare: bool
    """The verdict is of steps that ran without the profiler; categories are of recorded ones."""
    digits: int
    """Decimals of step times."""
    figures: list[ComparedFigure]
    categories: list[ComparedCategory]
    """With the step itself, whose key is "step_time"."""
    findings: list[ComparedFinding]
    findings_text: Marked
    """What those that are gone predicted, and the result."""
    per_step: bool
    """Times of ops and kernels are per step; else of the whole profile."""
    unit: UnitWords | None = None
    """What times are given per, where that is no step."""
    ops: Table
    """Without a head: `_category`, an index into CATEGORIES."""
    ops_left_out: int
    kernels: Table
    kernels_left_out: int
    small_us: SmallChanges
    calls: list[ComparedCalls]
    """Those that a run has; Python first."""
    calls_reason: str
    """Why sampled functions cannot be compared although a run has some."""
    memory: ComparedMemory
    markdown: str


class Compare(Part):
    """Runs side by side."""

    home: int
    """The run whose dashboard this is."""
    runs: list[ComparedRun]
    pairs: list[Pair]
    """Each two runs, in both directions; the one to show first is the first."""

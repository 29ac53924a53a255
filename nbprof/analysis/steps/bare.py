"""The step time without a profiler, from the steps of a cell that ran outside its recording.

The clock of a recording times every step of the cell, recorded or not. Where enough of them ran
while no profiler did, their median is the step time that the program has without it, and the
median of the recorded ones, by the same clock, tells what recording cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.analysis.compare.welch import effective_size, t_quantile
from nbprof.core.step_times import StepTimes
from nbprof.core.trace import Int64s
from nbprof.schema import frames

FEWEST = 8
"""Bare steps from which on their time is given."""
_SKIPPED = 2
"""Steps after a start or a stop of the profiler that pay for it."""
_SETTLED = 0.1
"""By which share of it the median of the earlier half of a stretch may differ from that of the
later one.
"""
_LEAST_RECORDED = 3
_GAP = 0.01
"""Time between two steps that follow each other, as a share of a step."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BareSteps:
    """The steps that ran without a profiler.

    Attributes
    ----------
    steps : int
        Number of those that count.
    median_ms, low_ms, high_ms : float
        Their median with its 95 % interval; NaN if unknown.
    recorded_ms : float
        The median of the recorded steps, by the same clock; NaN of fewer than three.
    reason : str
        Why the median is unknown; empty where it is known.
    """

    steps: int = 0
    median_ms: float = math.nan
    low_ms: float = math.nan
    high_ms: float = math.nan
    recorded_ms: float = math.nan
    reason: str = ""

    @property
    def slowdown(self) -> float | None:
        """The ratio of a recorded step to a bare one; None if unknown."""
        ratio = self.recorded_ms / self.median_ms
        return None if math.isnan(ratio) else ratio

    @property
    def most_slowdown(self) -> float | None:
        """The same with the lower end of the interval: by how much recording slows at most."""
        ratio = self.recorded_ms / self.low_ms
        return None if math.isnan(ratio) else ratio

    def to_dict(self) -> dict[str, Any]:
        """The keys of `p.overview`; None for what is unknown."""
        figures = {
            "bare_step_time_ms": self.median_ms,
            "bare_step_time_low_ms": self.low_ms,
            "bare_step_time_high_ms": self.high_ms,
        }
        answer: dict[str, Any] = {"bare_steps": self.steps}
        for key, value in figures.items():
            answer[key] = None if math.isnan(value) else value
        answer["recording_slowdown"] = self.slowdown
        answer["bare_step_time_reason"] = self.reason
        return answer


def measure(times: StepTimes | None, *, works_later: bool = False) -> BareSteps:
    """The bare steps of the kind that was recorded most.

    The interval is that of the order statistics of the median, by Student's approximation of the
    binomial distribution, for as many independent steps as the series is worth.

    Parameters
    ----------
    times : StepTimes or None
    works_later : bool
        True if a device works on a step after the program has ended it. Then a block of the
        program does not tell how long a step takes, unless one follows the other without a gap.
    """
    if times is None:
        return BareSteps(reason="the recording did not time the steps of the cell")
    recorded = times.recorded
    rows = times.kind == _main_kind(times.kind, recorded)
    if works_later and not _follow(times, np.flatnonzero(rows)):
        return BareSteps(reason="a marked block ends before the device has finished its work")
    duration = (times.end - times.start) / 1e6
    recorded_ms = _recorded(duration, np.flatnonzero(rows & recorded))
    stretches = [_settled(duration[bare]) for bare in _stretches(np.flatnonzero(rows), recorded)]
    values = np.concatenate([np.zeros(0), *stretches])
    if len(values) < FEWEST:
        ran = int((rows & ~recorded).sum())
        reason = f"only {ran} steps ran without the profiler" if ran else "every step was recorded"
        if ran >= FEWEST:
            reason = "the steps without the profiler had not settled to a steady time"
        return BareSteps(recorded_ms=recorded_ms, reason=reason)
    low, high = _interval(values)
    return BareSteps(len(values), float(np.median(values)), low, high, recorded_ms)


def _main_kind(kind: npt.NDArray[np.int32], recorded: npt.NDArray[np.bool_]) -> int:
    """The kind of most recorded steps; of all steps where none was recorded."""
    chosen = kind[recorded]
    if not len(chosen):
        chosen = kind
    return int(np.bincount(chosen).argmax()) if len(chosen) else 0


def _follow(times: StepTimes, rows: Int64s) -> bool:
    """True if most steps begin where the step before has ended."""
    if len(rows) < 2:
        return False
    gap = times.start[rows[1:]] - times.end[rows[:-1]]
    return float(np.median(np.abs(gap))) <= _GAP * float(np.median((times.end - times.start)[rows]))


def _recorded(duration: Floats, rows: Int64s) -> float:
    """The median of the recorded steps, without those that pay for the start."""
    rows = rows[_SKIPPED:] if len(rows) >= _LEAST_RECORDED + _SKIPPED else rows
    return float(np.median(duration[rows])) if len(rows) >= _LEAST_RECORDED else math.nan


def _stretches(rows: Int64s, recorded: npt.NDArray[np.bool_]) -> list[Int64s]:
    """The bare rows between recorded ones, each without the steps that pay for the profiler."""
    if not len(rows):
        return []
    is_recorded = recorded[rows]
    first = np.flatnonzero(np.diff(is_recorded, prepend=not is_recorded[0]))
    return [
        part[_SKIPPED:] for part in np.split(rows, first[1:]) if len(part) and not recorded[part[0]]
    ]


def _settled(duration: Floats) -> Floats:
    """The part of a stretch from which on the step time is steady; empty if it never is.

    A host runs ahead of its device until a queue is full, programs compile, caches fill: each
    changes the earlier steps of a stretch.
    """
    while len(duration) >= FEWEST:
        earlier, later = np.array_split(duration, 2)
        if _alike(earlier, later):
            return duration
        duration = later
    return duration[:0]


def _alike(earlier: Floats, later: Floats) -> bool:
    """True if the medians are nearly equal, or differ by no more than chance explains."""
    middle = float(np.median(later))
    if abs(float(np.median(earlier)) - middle) <= _SETTLED * middle:
        return True
    low, high = _interval(earlier)
    later_low, later_high = _interval(later)
    return low <= later_high and later_low <= high


def _interval(values: Floats) -> tuple[float, float]:
    """The 95 % interval of the median."""
    ordered, n = np.sort(values), len(values)
    worth = max(effective_size(values), 2.0)
    # Half the width in ranks: the deviation of a count of half of all values.
    width = t_quantile(0.975, max(worth - 1, 1.0)) * 0.5 * n / math.sqrt(worth)
    low = max(math.floor((n - 1) / 2 - width), 0)
    high = min(math.ceil((n - 1) / 2 + width), n - 1)
    return float(ordered[low]), float(ordered[high])


def frame(times: StepTimes | None) -> pd.DataFrame:
    """The public frame, `p.steps.clock`."""
    if times is None:
        return frames.empty("steps.clock")
    kinds = np.array([*times.kinds, ""], object)
    columns = {
        "step": np.arange(1, len(times.start) + 1),
        "kind": kinds[times.kind],
        "start_s": times.start / 1e9,
        "duration_ms": (times.end - times.start) / 1e6,
        "recorded": times.recorded,
    }
    return frames.build("steps.clock", columns, list(columns))

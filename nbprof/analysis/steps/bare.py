"""The step time without a profiler, from the steps of a cell that ran outside its recording.

The clock of a recording times every step of the cell, recorded or not. Where enough of them ran
while no profiler did, their median is the step time that the program has without it, and the
median of the recorded ones, by the same clock, tells what recording cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.activity.activity import Activity
from nbprof.analysis.compare.welch import effective_size, t_quantile
from nbprof.analysis.steps.step_rows import step_bounds
from nbprof.analysis.steps.steps import counted
from nbprof.analysis.steps.warmup import averaged
from nbprof.core.intervals import EMPTY, Intervals
from nbprof.core.step_times import StepTimes
from nbprof.core.trace import Int64s
from nbprof.display import wording
from nbprof.schema import frames

FEWEST = 8
"""Bare steps from which on their time is given."""
SKIPPED = 2
"""Steps after a start or a stop of the profiler that pay for it."""
_COMPILING, _RUN_AHEAD = 3, 32
"""Steps at the begin of a stretch that may take longer, and less long than the others; JAX
dispatches so many ahead.
"""
_PIECES = 4
"""Parts of a stretch that must take the same time."""
_SETTLED = 0.1
"""By which share the medians of two parts may differ."""
_EQUAL = 0.03
"""By which share the medians before and after a recording may differ to be those of equal steps."""
_CHANGED = 1.5
"""By which factor they differ where the program has changed, not only the load of its machine."""
_LEAST_RECORDED = 3
AHEAD = 0.97
"""Share of the device's work that a step takes at least by the host's clock, unless the host runs
ahead; the clock of a device varies by a few percent.
"""
_GAP = 0.1
"""Time between two steps that follow each other, as a share of a step."""

Overhead = tuple[float, float]
"""Time in the events of the profiler's own overhead: ms per counted step, and percent of the steps
in which nothing else was recorded.
"""
_MEASURED = "measured: the same cell ran steps without the profiler"
_STATED = "estimate, a lower bound: the profiler's own overhead events in the file"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BareSteps:
    """The steps that ran without a profiler.

    Attributes
    ----------
    steps : int
        Number of those that count.
    median_ms, low_ms, high_ms : float
        Their median with its 95 % interval, which holds those of the steps before and after the
        recording where their medians are not equal; NaN if unknown. Where these differ by more than
        chance explains, the mean of both medians.
    mean_ms : float
        Their mean, of which that of both sides counts half where these differ; NaN if unknown.
    recorded_ms : float
        The median of the recorded steps, by the same clock; NaN of fewer than three, and where the
        host ran ahead of its device.
    sides_ms : (float, float), optional
        The medians before and after the recording, where they differ.
    reason : str
        Why the median is unknown; empty where it is known.
    is_comparable : bool
        True if nothing but the profiler makes the recorded steps differ: they come right after bare
        ones, or are in the same epoch as they, and these did not change meanwhile.
    durations_ms : float64[n]
        The time of each of them, in time order.
    """

    steps: int = 0
    median_ms: float = math.nan
    low_ms: float = math.nan
    high_ms: float = math.nan
    mean_ms: float = math.nan
    recorded_ms: float = math.nan
    sides_ms: tuple[float, float] | None = None
    reason: str = ""
    is_comparable: bool = False
    durations_ms: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)

    @property
    def slowdown(self) -> float | None:
        """The ratio of a recorded step to a bare one; None if unknown."""
        return self._ratio(self.median_ms)

    @property
    def most_slowdown(self) -> float | None:
        """The same with the lower end of the interval: by how much recording slows at most."""
        return self._ratio(self.low_ms)

    @property
    def note(self) -> str:
        """That steps before and after the recording differ; empty where they do not."""
        if self.sides_ms is None:
            return ""
        before, after = map(wording.millis, self.sides_ms)
        return f"{before} before the recording and {after} after it"

    def _ratio(self, bare_ms: float) -> float | None:
        ratio = self.recorded_ms / bare_ms
        return ratio if self.is_comparable and not math.isnan(ratio) else None

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
        answer["bare_step_time_note"] = self.note
        return answer


def measure(
    times: StepTimes | None,
    *,
    borders: Sequence[int] = (),
    works_later: bool = False,
    runs_ahead: bool = False,
    stays_slow: bool = False,
    device_ms: float = 0.0,
) -> BareSteps:
    """The bare steps of the kind that averages are of.

    A program may change while it runs: its data are cached after the first epoch. So bare steps
    count only if they follow or precede recorded ones in the same epoch and their time is steady.
    Those before and after a recording may differ nevertheless, as others use the machine: neither
    tells then what the recorded ones would have taken, but what changes evenly is at the mean of
    both in between.

    The interval is that of the order statistics of the median, by Student's approximation of the
    binomial distribution, for as many independent steps as the series is worth.

    Parameters
    ----------
    times : StepTimes or None
    borders : sequence of int
        The first steps of epochs and loops, counted from 1.
    works_later : bool
        True if the program may end a step before its work has run. Then a block of the program
        does not tell how long a step takes, unless one follows the other nearly without a gap.
    runs_ahead : bool
        True if the host may dispatch steps ahead of what computes them: its first ones take less
        time then, until a queue is full.
    stays_slow : bool
        True if a profiler that has stopped goes on to slow the program, as CUPTI slows launches:
        then only steps count before which none has run in the process.
    device_ms : float
        Work of the busiest device per step, which recording does not make longer: a step that is
        shorter by the clock ends while the device still works on it.
    """
    if times is None:
        return BareSteps(reason="the recording did not time the steps of the cell")
    recorded = times.recorded
    rows = np.flatnonzero(times.kind == main_kind(times, recorded))
    duration = (times.end - times.start) / 1e6
    recorded_ms = _recorded(duration, rows[recorded[rows]])
    if recorded_ms < AHEAD * device_ms:
        # The host ran ahead while it was recorded.
        recorded_ms = math.nan
    if works_later and not _follow(times, rows):
        reason = "a marked block ends before the device has finished its work"
        return BareSteps(recorded_ms=recorded_ms, reason=reason)
    ran = int((~recorded[rows]).sum())
    if ran < FEWEST:
        reason = f"only {ran} steps ran without the profiler" if ran else "every step was recorded"
        return BareSteps(recorded_ms=recorded_ms, reason=reason)
    if not recorded[rows].any():
        reason = "the recorded steps came after those whose times are stored"
        return BareSteps(reason=reason)
    epoch = np.searchsorted(np.sort(np.asarray(borders, np.int64)), rows + 1, side="right")
    if stays_slow and times.profiled_before:
        reason = "an earlier recording in this process still slows the launches"
        return BareSteps(recorded_ms=recorded_ms, reason=reason)
    first_recorded = int(np.argmax(np.append(recorded, True)))
    parts: tuple[list[Floats], list[Floats]] = ([duration[:0]], [duration[:0]])
    for bare_rows in _beside_recorded(rows, recorded[rows], epoch):
        is_later = bool(bare_rows[0] > first_recorded)
        if not (is_later and stays_slow):
            parts[is_later].append(_steady(duration[bare_rows], runs_ahead=runs_ahead))
    before, after = map(np.concatenate, parts)
    if not len(before) + len(after):
        reason = "the steps beside the recorded ones had not settled to a steady time"
        if stays_slow and recorded[rows[0]]:
            reason = "after a recording launches stay slower, and no step ran before it"
        return BareSteps(recorded_ms=recorded_ms, reason=reason)
    sides = [side for side in (before, after) if len(side) and np.median(side) >= AHEAD * device_ms]
    if not sides:
        reason = "the host runs ahead of the device, so its clock does not tell how long steps take"
        return BareSteps(recorded_ms=recorded_ms, reason=reason)
    is_comparable = sides[0] is before or len(borders) > 0
    measured = _of_sides(sides)
    if measured.sides_ms is not None:
        is_comparable &= max(measured.sides_ms) <= _CHANGED * min(measured.sides_ms)
    return replace(measured, recorded_ms=recorded_ms, is_comparable=is_comparable)


def _of_sides(sides: Sequence[Floats]) -> BareSteps:
    """The time of the steps before and after a recording, or of those on one side."""
    values = np.concatenate(sides)
    bounds = [_interval(side, effective_size(side)) for side in sides]
    medians = [float(np.median(side)) for side in sides]
    is_equal = max(medians) <= (1 + _EQUAL) * min(medians)
    low, high = min(bounds)[0], max(high for _, high in bounds)
    if is_equal:
        low, high = _interval(values, effective_size(values))
    if is_equal or not _is_apart(*bounds):
        return BareSteps(
            steps=len(values),
            median_ms=float(np.median(values)),
            low_ms=low,
            high_ms=high,
            mean_ms=float(values.mean()),
            durations_ms=values,
        )
    before, after = medians
    return BareSteps(
        steps=len(values),
        median_ms=(before + after) / 2,
        low_ms=low,
        high_ms=high,
        mean_ms=float(np.mean([side.mean() for side in sides])),
        sides_ms=(before, after),
        durations_ms=values,
    )


def _is_apart(interval: tuple[float, float], other: tuple[float, float]) -> bool:
    """True if two intervals share nothing."""
    return interval[0] > other[1] or other[0] > interval[1]


def main_kind(times: StepTimes, of_steps: npt.NDArray[np.bool_]) -> int:
    """The kind that averages of some steps are of; of all steps where these are none."""
    if not of_steps.any():
        of_steps = ~of_steps
    time = np.bincount(times.kind[of_steps], (times.end - times.start)[of_steps])
    by_kind = {times.kinds[kind]: time[kind] for kind in np.flatnonzero(time)}
    if not by_kind:
        return 0
    return times.kinds.index(averaged(pd.Series(by_kind)))


def _follow(times: StepTimes, rows: Int64s) -> bool:
    """True if most steps begin where the step before has ended."""
    if len(rows) < 2:
        return False
    gap = times.start[rows[1:]] - times.end[rows[:-1]]
    return float(np.median(np.abs(gap))) <= _GAP * float(np.median((times.end - times.start)[rows]))


def _recorded(duration: Floats, rows: Int64s) -> float:
    """The median of the recorded steps, without those that pay for the start."""
    rows = rows[SKIPPED:] if len(rows) >= _LEAST_RECORDED + SKIPPED else rows
    return float(np.median(duration[rows])) if len(rows) >= _LEAST_RECORDED else math.nan


def _beside_recorded(
    rows: Int64s, is_recorded: npt.NDArray[np.bool_], epoch: Int64s
) -> list[Int64s]:
    """The bare rows of each epoch before, between and after its recorded ones, without the steps
    that pay for the profiler.
    """
    changes = (np.diff(is_recorded) != 0) | (np.diff(epoch) != 0)
    recorded_epochs = set(epoch[is_recorded].tolist())
    stretches = []
    for part in np.split(np.arange(len(rows)), np.flatnonzero(changes) + 1):
        if is_recorded[part[0]] or int(epoch[part[0]]) not in recorded_epochs:
            continue
        follows = part[0] > 0 and is_recorded[part[0] - 1]
        stretches.append(rows[part[SKIPPED if follows else 0 :]])
    return [part for part in stretches if len(part)]


def _steady(duration: Floats, *, runs_ahead: bool) -> Floats:
    """The part of a stretch in which the step time is steady; empty if it changes.

    A few first steps may take longer, for programs compile, and more of them less long where a host
    runs ahead of its device until a queue is full.
    """
    for skipped in (0, _COMPILING, _RUN_AHEAD) if runs_ahead else (0, _COMPILING):
        part = duration[skipped:]
        if len(part) < FEWEST:
            break
        if skipped == _RUN_AHEAD and not np.median(duration[:skipped]) < np.median(part):
            break
        pieces = np.array_split(part, min(max(len(part) // FEWEST, 2), _PIECES))
        if all(_alike(*pair) for pair in combinations(pieces, 2)):
            return part
    return duration[:0]


def _alike(earlier: Floats, later: Floats) -> bool:
    """True if the medians are nearly equal, or differ by no more than chance explains."""
    middle = float(np.median(later))
    if abs(float(np.median(earlier)) - middle) <= _SETTLED * middle:
        return True
    # As if steps were independent: where they are not, the time changes from step to step.
    low, high = _interval(earlier, len(earlier))
    later_low, later_high = _interval(later, len(later))
    return low <= later_high and later_low <= high


def _interval(values: Floats, worth: float) -> tuple[float, float]:
    """The 95 % interval of the median of values that are worth so many independent ones."""
    ordered, n = np.sort(values), len(values)
    # Half the width in ranks: the deviation of a count of half of all values.
    width = t_quantile(0.975, max(worth - 1, 1.0)) * 0.5 * n / math.sqrt(worth)
    low = max(math.floor((n - 1) / 2 - width), 0)
    high = min(math.ceil((n - 1) / 2 + width), n - 1)
    return float(ordered[low]), float(ordered[high])


def stated_overhead(activity: Activity, steps: pd.DataFrame) -> Overhead | None:
    """The overhead that the profiler recorded of itself; None without such events."""
    spans = activity.overheads
    used = counted(steps)
    if not len(spans) or not len(used):
        return None
    spent_ps = alone = length = 0
    work = activity.work
    for number, name in enumerate(activity.hosts):
        of_host = used[(used["host"] == name).to_numpy()]
        in_steps = Intervals.union(*step_bounds(of_host))
        rows = spans.host == number
        spent = Intervals.union(spans.start[rows], spans.end[rows]).intersection(in_steps)
        rows = work.host == number
        covered = Intervals.union(work.start[rows], work.end[rows]) if len(spent) else EMPTY
        length += in_steps.total()
        spent_ps += spent.total()
        alone += spent.difference(covered).total()
    return spent_ps / 1e9 / len(used), 100 * alone / max(length, 1)


def mean_overhead(values: list[Overhead | None]) -> Overhead | None:
    """The mean of hosts that have such events."""
    recorded_values = [value for value in values if value is not None]
    if not recorded_values:
        return None
    ms, percent = np.mean(recorded_values, axis=0).tolist()
    return ms, percent


def overhead(bare: BareSteps, stated: Overhead | None, *, has_steps: bool) -> dict[str, Any]:
    """The keys of `p.overview`: ms per step, and where they come from, or why there are none."""
    ms, source = None, "no steps were recorded"
    if bare.slowdown is not None and bare.slowdown >= 1:
        ms, source = bare.recorded_ms - bare.median_ms, _MEASURED
    elif stated is not None:
        ms, source = stated[0], _STATED
    elif has_steps:
        reason = bare.reason or "steps without the profiler took as long, or cannot be compared"
        source = f"the file has no overhead events, and {reason}"
    return {"recording_overhead_ms": ms, "recording_overhead_source": source}


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

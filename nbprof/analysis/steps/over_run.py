"""Slow steps at equal distances, and steps that take longer and longer, by the wall clock of all
steps of a cell.

Only the steps without a profiler are compared: a profiler slows those that it records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nbprof.analysis.steps.bare import AHEAD, SKIPPED, main_kind
from nbprof.analysis.steps.periodic import CHANCE, MOST_PERIOD, chance_of, rhythm
from nbprof.core.step_times import StepTimes
from nbprof.core.trace import Int64s

_FEWEST = 20
"""Steps that are compared."""
_LEAST_SLOW = 3
_MOST_CANDIDATES = 60
"""Numbers of slowest steps by which long distances are looked for."""
_PIECES = 12
"""Parts of the run whose medians are compared."""
_LEAST_IN_PIECE = 8
_RISING = 0.8
"""Kendall's rank correlation of these medians with time."""
_JUMP = 0.3
"""The part of the whole rise that may lie between two of them: more of it is a change, no trend."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Slow:
    """Slow steps, or long times between steps, at equal distances.

    Attributes
    ----------
    every : int
        The distance from one to the next, in steps.
    numbers : Int64s
        The numbers of the slow steps, or of those before a long time; of steps of the cell that ran
        without a profiler.
    steps : int
        Of how many of their kind.
    chance : float
        How likely steps in random order have such a rhythm; 0 where epochs explain it.
    extra_ms : float
        By how much they take longer than the others.
    share : float
        The part that this is of the time from the first step of the cell to the last.
    between : bool
        True if it passes between steps.
    of_others_ms : float
        Of a time between steps, the part in steps of other kinds, as of an evaluation.
    recorded : Int64s
        The numbers of those that were recorded: slow, and at the same distance.
    example : (int, int)
        Steps to record to see one of them.
    """

    every: int
    numbers: Int64s
    steps: int
    chance: float
    extra_ms: float
    share: float
    between: bool
    of_others_ms: float
    recorded: Int64s
    example: tuple[int, int]

    @property
    def per_step_ms(self) -> float:
        """The cost per step, on average."""
        return self.extra_ms * len(self.numbers) / self.steps


@dataclass(frozen=True)
class Slowing:
    """Steps that take longer and longer.

    Attributes
    ----------
    steps : int
    first_ms, last_ms : float
        The median of the first and of the last part of them.
    """

    steps: int
    first_ms: float
    last_ms: float


def slow(
    times: StepTimes | None, borders: Sequence[int] = (), device_ms: float = 0.0
) -> list[Slow]:
    """The rhythms of the steps without a profiler: of the slow ones, and of the times between them.

    Parameters
    ----------
    times : StepTimes or None
    borders : sequence of int
        The first steps of epochs and loops, counted from 1.
    device_ms : float
        Work of the busiest device per step: where steps are shorter, the host runs ahead, and a
        long one only waits for what the others left to do.
    """
    bare_rows = _bare_rows(times)
    if times is None or len(bare_rows) < _FEWEST:
        return []
    took = _ms(times.end - times.start)
    if np.median(took[bare_rows]) < AHEAD * device_ms:
        return []
    rhythms = []
    within = _rhythm(took[bare_rows])
    if within is not None:
        rhythms.append(_slow(times, bare_rows, took[bare_rows], within))
    # The last has none behind it.
    before, following = bare_rows[:-1], bare_rows[1:]
    gap = _ms(times.start[following] - times.end[before])
    between = _of_epochs(before, borders) or _rhythm(gap)
    if between is not None:
        rhythms.append(_slow(times, before, gap, between, following))
    return [each for each in rhythms if each is not None]


def slowing(times: StepTimes | None, device_ms: float = 0.0) -> Slowing | None:
    """The steps without a profiler where they take longer and longer, at an even pace."""
    bare_rows = _bare_rows(times)
    if times is None or len(bare_rows) < _PIECES * _LEAST_IN_PIECE:
        return None
    took = _ms(times.end - times.start)[bare_rows]
    if np.median(took) < AHEAD * device_ms:
        return None
    medians = np.array([np.median(piece) for piece in np.array_split(took, _PIECES)])
    earlier, later = np.triu_indices(_PIECES, 1)
    rising = np.sign(medians[later] - medians[earlier]).mean()
    if rising < _RISING or np.diff(medians).max() > _JUMP * (medians[-1] - medians[0]):
        return None
    return Slowing(len(took), float(medians[0]), float(medians[-1]))


def _ms(ns: Int64s) -> Floats:
    times: Floats = np.asarray(ns, np.float64) / 1e6
    return times


def _bare_rows(times: StepTimes | None) -> Int64s:
    """The rows of the longest part of the cell that ran without a profiler, of the main kind."""
    if times is None:
        return np.zeros(0, np.int64)
    recorded = times.recorded
    rows = np.flatnonzero(times.kind == main_kind(times, np.ones(len(recorded), np.bool_)))
    is_recorded = recorded[rows]
    parts = np.split(rows, np.flatnonzero(np.diff(is_recorded)) + 1)
    bare = [part for part in parts if len(part) and not recorded[part[0]]]
    longest = max(bare, key=len, default=rows[:0])
    if len(longest) and longest[0] != rows[0]:
        # The first ones pay for the end of the recording.
        return longest[SKIPPED:]
    return longest


def _rhythm(values: Floats) -> tuple[float, int, int] | None:
    """The chance, the distance and the first of the long values, of those that chance does not
    explain the rhythm with most time.
    """
    candidates = [rhythm(values)]
    for every in _long_distances(values):
        candidates.append(chance_of(values, [every], _longest(values)))
    likely = [each for each in candidates if each is not None and each[0] <= CHANCE]
    usual = float(np.median(values))

    def extra(each: tuple[float, int, int]) -> float:
        of_rhythm = values[each[2] :: each[1]]
        return (float(np.median(of_rhythm)) - usual) * len(of_rhythm)

    return max(likely, key=extra, default=None)


def _longest(values: Floats) -> int:
    """The longest distance of which `_LEAST_SLOW` fit."""
    return (len(values) - 1) // (_LEAST_SLOW - 1)


def _long_distances(values: Floats) -> list[int]:
    """Distances over `MOST_PERIOD` that the longest values may have."""
    order = np.argsort(-values, kind="stable")
    limit = min(_MOST_CANDIDATES, len(values) // MOST_PERIOD)
    distances = set()
    for count in range(_LEAST_SLOW, limit + 1):
        distances.add(int(np.median(np.diff(np.sort(order[:count])))))
    return [every for every in distances if MOST_PERIOD < every <= _longest(values)]


def _of_epochs(rows: Int64s, borders: Sequence[int]) -> tuple[float, int, int] | None:
    """The same of the times before the first steps of epochs; None unless all are as long."""
    # Borders count all steps from 1, and lie before the next one.
    last = np.searchsorted(rows, np.asarray(sorted(borders), np.int64) - 2, side="right") - 1
    last = np.unique(last[(last >= 0) & (last < len(rows) - 1)])
    lengths = np.unique(np.diff(last))
    return (0.0, int(lengths[0]), int(last[0])) if len(lengths) == 1 else None


def _slow(
    times: StepTimes,
    rows: Int64s,
    values: Floats,
    rhythm_of_values: tuple[float, int, int],
    following: Int64s | None = None,
) -> Slow | None:
    chance, every, first = rhythm_of_values
    since = np.arange(len(rows)) - first
    is_slow = (since >= 0) & (since % every == 0)
    extra_ms = float(np.median(values[is_slow]) - np.median(values[~is_slow]))
    total_ms = float(times.end.max() - times.start.min()) / 1e6
    if extra_ms <= 0 or total_ms <= 0:
        return None
    of_others, number = 0.0, int(rows[first]) + 1
    example = max(number - 2, 1), number
    if following is not None:
        of_others = _of_other_kinds(times, rows[is_slow], following[is_slow])
        example = max(number - 1, 1), int(following[first]) + 1
    recorded = _recorded(times, int(rows[first]), every, extra_ms, between=following is not None)
    return Slow(
        every=every,
        numbers=rows[is_slow] + 1,
        steps=len(rows),
        chance=chance,
        extra_ms=extra_ms,
        share=extra_ms * int(is_slow.sum()) / total_ms,
        between=following is not None,
        of_others_ms=of_others,
        recorded=recorded + 1,
        example=example,
    )


def _recorded(
    times: StepTimes, first: int, every: int, extra_ms: float, *, between: bool
) -> Int64s:
    """The rows of the recorded steps that are slow by the distance from the row of another one."""
    recorded = times.recorded
    rows = np.flatnonzero(times.kind == times.kind[first])
    values = _ms(times.end - times.start)[rows]
    if between:
        # Behind the last recorded step the recording is written.
        values = np.append(_ms(times.start[rows[1:]] - times.end[rows[:-1]]), 0.0)
        recorded = recorded & np.append(recorded[1:], False)
    turn = np.arange(len(rows)) - int(np.searchsorted(rows, first))
    is_due = turn % every == 0
    between_due = recorded[rows] & ~is_due
    if not between_due.any():
        between_due = ~is_due
    is_slow = is_due & recorded[rows] & (values - np.median(values[between_due]) >= extra_ms / 2)
    return rows[np.flatnonzero(is_slow)]


def _of_other_kinds(times: StepTimes, before: Int64s, following: Int64s) -> float:
    """The median time of steps of other kinds between two steps, in ms."""
    took = np.append(0.0, np.cumsum(_ms(times.end - times.start)))
    return float(np.median(took[following] - took[before + 1]))

"""Is a run slower than its baseline? The decision of a gate.

Steps of one recording vary less than recordings do, and recordings that are made in turn less than
runs at different times: by what other work does to caches and clocks meanwhile. By the spread
within one run of ten repeats, 7 of 120 runs of an unchanged program were slower (benchmarks/gate.py
measured it). So a baseline has several runs, each of several repeats; each run counts as one value,
and the noise is that of the values. The spread within runs is a floor below it, so that a few runs
which agree by chance do not look more certain than they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nbprof.analysis.compare.welch import TRIM, Floats, effective_size, interval
from nbprof.analysis.figures import mean

LEVEL = 0.99
"""Two-sided; a slowdown is found by chance in at most one of 200 comparisons of mean steps, and of
typical steps: in 1 % of both.
"""
LEAST = 10
"""Runs of a baseline: of fewer the spread is not known well enough. With three and five, 3 and 4.5
% of unchanged runs failed on a busy machine, with ten none of 200 (benchmarks/gate.py)."""
SLOWER, FINE, UNKNOWN = "slower", "fine", "unknown"


class Repeat(NamedTuple):
    """Step times of one recording, in ms.

    Attributes
    ----------
    mean, typical : float
        Of all steps, and of those without the fastest and the slowest fifth.
    error : float
        Standard error of the mean, from the steps alone, by their effective number.
    typical_error : float
        The same of the typical step (Yuen).
    steps : int
    """

    mean: float
    typical: float
    error: float
    typical_error: float
    steps: int


class Slowdown(NamedTuple):
    """The slowdown of a run against its baseline.

    Attributes
    ----------
    kind : str
        `slower`: more than chance, and by as much as is not allowed, or that cannot be excluded.
        `fine`: by less than that. `unknown`: neither can be said.
    of : str
        `mean` or `typical`: the step that the figures are of.
    before, after : float
        That step, in ms.
    change, margin : float
        Fractions of `before`; the margin is half of the 99 % interval, NaN where it is not known.
    """

    kind: str
    of: str
    before: float
    after: float
    change: float
    margin: float


def repeat(times: Floats) -> Repeat:
    """The figures of the step times of one recording, in time order, that a gate needs."""
    count = len(times)
    trimmed = int(TRIM * count)
    ordered = np.sort(times)
    remaining = ordered[trimmed : count - trimmed]
    worth = effective_size(times)
    bounded = np.clip(ordered, remaining[0], remaining[-1])
    error = typical_error = math.nan
    if count > 1 and len(remaining) > 1:
        error = math.sqrt(float(times.var(ddof=1)) / worth)
        squares = (count - 1) * float(bounded.var(ddof=1))
        of_mean = squares / (len(remaining) * (len(remaining) - 1))
        typical_error = math.sqrt(of_mean * count / worth)
    return Repeat(
        mean=float(times.mean()),
        typical=float(remaining.mean()),
        error=error,
        typical_error=typical_error,
        steps=count,
    )


def slowdown(
    before: Sequence[Sequence[Repeat]], after: Sequence[Repeat], allowed: float
) -> Slowdown:
    """Compares a run with the runs of the baseline.

    A run is slower if the interval of the slowdown is above 0 and includes a slowdown that is not
    allowed; fine if it excludes that; else the noise is too large to decide. Both the mean step and
    the typical one are compared: a regression may be in a few steps, and outliers may hide one in
    the mean.

    Parameters
    ----------
    before : sequence of sequence of Repeat
        The repeats of each run of the baseline, as it was recorded again and again.
    after : sequence of Repeat
    allowed : float
        The slowdown that is too much, as a fraction.
    """
    typical = _slowdown_of(before, after, "typical", "typical_error", allowed)
    of_means = _slowdown_of(before, after, "mean", "error", allowed)
    if of_means.kind == SLOWER and typical.kind != SLOWER:
        return of_means
    return typical


def _slowdown_of(
    before: Sequence[Sequence[Repeat]],
    after: Sequence[Repeat],
    figure: str,
    error: str,
    allowed: float,
) -> Slowdown:
    runs = [run for run in before if run]
    means = np.array([_mean(run, figure) for run in runs])
    was, now = mean(means), _mean(after, figure)
    change = now / was - 1
    if len(runs) < LEAST or not len(after):
        return Slowdown(UNKNOWN, figure, was, now, change, math.nan)
    between = float(means.var(ddof=1)), float(len(runs) - 1)
    # The repeats within the runs cannot make these less certain than they are.
    variances, freedoms_of_runs = zip(*(_variance(run, figure, error) for run in runs), strict=True)
    floor = float(np.mean(variances)), sum(freedoms_of_runs)
    noise = max(between, floor)
    within = _variance(after, figure, error)
    if within[0] > noise[0]:
        parts, freedoms = [noise[0] / len(runs), within[0]], [noise[1], within[1]]
    else:
        # One run more, drawn from the same noise.
        parts, freedoms = [noise[0] * (1 + 1 / len(runs))], [noise[1]]
    margin = interval(now - was, parts, freedoms, LEVEL).margin / was
    return Slowdown(_kind(change, margin, allowed), figure, was, now, change, margin)


def _mean(run: Sequence[Repeat], figure: str) -> float:
    return mean(_figures(run, figure))


def _figures(run: Sequence[Repeat], figure: str) -> Floats:
    return np.array([getattr(repeat, figure) for repeat in run], np.float64)


def _kind(change: float, margin: float, allowed: float) -> str:
    if change - margin > 0 and change + margin >= allowed:
        return SLOWER
    return FINE if change + margin < allowed else UNKNOWN


def _variance(run: Sequence[Repeat], figure: str, error: str) -> tuple[float, float]:
    """The variance of the mean of a run by its own repeats, not below that by their steps, and its
    degrees of freedom.
    """
    values, errors = _figures(run, figure), _figures(run, error)
    steps = sum(repeat.steps for repeat in run)
    of_steps = 0.0
    if not np.isnan(errors).all():
        of_steps = float(np.nanmean(errors**2)) / len(run)
    within = of_steps, float(max(steps - len(run), 1))
    if len(run) == 1:
        return max((0.0, 1.0), within)
    between = float(values.var(ddof=1)) / len(run), float(len(run) - 1)
    return max(between, within)

"""Is a run slower than its baseline, where both were recorded several times in turn? The decision of a gate.

Steps of one recording vary less than recordings do: the spread within a recording alone would call every second recording of the same
program a change. So each repeat counts as one value, and the noise between repeats is that of the values. The spread within the repeats
is a floor below it, so that a few repeats which agree by chance do not look more certain than their steps are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nbprof.analysis.compare.welch import TRIM, Floats, effective_size, interval

LEVEL = 0.99
"""Two-sided; a slowdown is found by chance in at most one of 200 comparisons of mean steps, and of typical steps: in 1 % of both."""
LEAST = 2
"""Repeats on a side: one shows nothing of the noise between repeats."""
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
    """How much slower a run is than its baseline.

    Attributes
    ----------
    kind : str
        `slower`: more than chance, and by as much as is not allowed, or that cannot be excluded. `fine`: by less than that.
        `unknown`: neither can be said.
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
    """What a gate needs of the step times of one recording, in time order."""
    count = len(times)
    cut = int(TRIM * count)
    ordered = np.sort(times)
    kept = ordered[cut : count - cut]
    worth = effective_size(times)
    bounded = np.clip(ordered, kept[0], kept[-1])
    known = count > 1 and len(kept) > 1
    return Repeat(
        mean=float(times.mean()),
        typical=float(kept.mean()),
        error=math.sqrt(float(times.var(ddof=1)) / worth) if known else math.nan,
        typical_error=math.sqrt((count - 1) * float(bounded.var(ddof=1)) / (len(kept) * (len(kept) - 1)) * count / worth)
        if known
        else math.nan,
        steps=count,
    )


def slowdown(before: Sequence[Repeat], after: Sequence[Repeat], allowed: float) -> Slowdown:
    """Whether the repeats `after` are slower than those of the baseline.

    With the interval of the slowdown, a run is slower if that lies above 0 and does not exclude the slowdown that is not allowed; fine if
    it excludes that; else the noise is too large to tell. The mean step and the typical one are asked: either may be slower, as a
    regression may be in a few steps. What outliers hide in the mean, the typical step tells.

    Parameters
    ----------
    before, after : sequence of Repeat
    allowed : float
        The slowdown that is too much, as a fraction.
    """
    typical = _one(before, after, "typical", "typical_error", allowed)
    mean = _one(before, after, "mean", "error", allowed)
    return mean if mean.kind == SLOWER and typical.kind != SLOWER else typical


def _one(before: Sequence[Repeat], after: Sequence[Repeat], of: str, error: str, allowed: float) -> Slowdown:
    sides = [
        (np.array([getattr(one, of) for one in side]), np.array([getattr(one, error) for one in side]), side) for side in (before, after)
    ]
    was, now = (float(values.mean()) for values, _, _ in sides)
    change = now / was - 1
    if min(len(before), len(after)) < LEAST:
        return Slowdown(UNKNOWN, of, was, now, change, math.nan)
    parts, freedoms = [], []
    for values, errors, side in sides:
        between = float(values.var(ddof=1)) / len(values)
        within = float(np.nanmean(errors**2)) / len(values) if not np.isnan(errors).all() else 0.0
        parts.append(max(between, within))
        freedoms.append(float(len(values) - 1 if between >= within else sum(one.steps for one in side) - len(values)))
    margin = interval(now - was, parts, freedoms, LEVEL).margin / was
    kind = SLOWER if change - margin > 0 and change + margin >= allowed else FINE if change + margin < allowed else UNKNOWN
    return Slowdown(kind, of, was, now, change, margin)

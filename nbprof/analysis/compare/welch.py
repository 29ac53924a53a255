"""Do two series of step times differ by more than chance? Welch's interval, and what outliers and
memory in the series do to it.

Sources: B. L. Welch, Biometrika 34 (1947) 28, with the degrees of freedom of F. E. Satterthwaite,
Biometrics Bulletin 2 (1946) 110; K. K. Yuen, Biometrika 61 (1974) 165, for trimmed means; G. V.
Bayley and J. M. Hammersley, Suppl. J. Royal Stat. Soc. 8 (1946) 184, for the effective size of an
autocorrelated series; DLMF 8.17.22 for the incomplete beta function behind Student's t.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
TRIM = 0.2
"""For a trimmed mean: this fraction of the steps is dropped at each end."""
LEAST_FOR_MEMORY = 8
"""Steps needed for a meaningful autocorrelation."""
_EPSILON = 1e-15


class Difference(NamedTuple):
    """The mean of `after` minus that of `before`.

    Attributes
    ----------
    change : float
    margin : float
        Half of the 95 % interval; NaN where one of the series has fewer than two values.
    freedom : float
        Degrees of freedom; NaN where there is no interval, infinite where nothing varies.
    """

    change: float
    margin: float
    freedom: float

    @property
    def has_interval(self) -> bool:
        """True if there is an interval."""
        return not math.isnan(self.margin)

    @property
    def real(self) -> bool:
        """True if the interval excludes 0."""
        return self.has_interval and abs(self.change) > self.margin


def welch(before: Floats, after: Floats, *, sizes: tuple[float, float] | None = None) -> Difference:
    """The difference of two means with its 95 % interval, for series of unequal variance and
    length.

    Parameters
    ----------
    before, after : float64[n]
    sizes : (float, float), optional
        How many independent values each series is worth; as many as it has when left out.
    """
    change = float(after.mean() - before.mean()) if len(before) and len(after) else math.nan
    if min(len(before), len(after)) < 2:
        return Difference(change, math.nan, math.nan)
    worth = sizes or (float(len(before)), float(len(after)))
    parts = [
        float(values.var(ddof=1)) / n for values, n in zip((before, after), worth, strict=True)
    ]
    return interval(change, parts, [n - 1 for n in worth])


def trimmed(
    before: Floats, after: Floats, *, sizes: tuple[float, float] | None = None
) -> Difference:
    """The difference of the means without the fastest and slowest 20 % of each series, with its 95
    % interval (Yuen).

    Parameters
    ----------
    before, after : float64[n]
    sizes : (float, float), optional
        As of `welch`.
    """
    if min(len(before), len(after)) < 2:
        return Difference(math.nan, math.nan, math.nan)
    means, parts, freedoms = [], [], []
    for values, worth in zip((before, after), sizes or (len(before), len(after)), strict=True):
        n = len(values)
        trimmed = int(TRIM * n)
        ordered = np.sort(values)
        remaining = n - 2 * trimmed
        means.append(float(ordered[trimmed : n - trimmed].mean()))
        bounded = np.clip(ordered, ordered[trimmed], ordered[n - trimmed - 1])
        part = (n - 1) * float(bounded.var(ddof=1)) / (remaining * (remaining - 1))
        parts.append(part * n / worth)
        freedoms.append(max(remaining * worth / n - 1, 1.0))
    return interval(means[1] - means[0], parts, freedoms)


def interval(
    change: float, parts: list[float], freedoms: list[float], level: float = LEVEL
) -> Difference:
    """An interval (of 95 %) from the variance of each mean and its degrees of freedom."""
    variance = sum(parts)
    if variance <= 0:
        return Difference(change, 0.0, math.inf)
    freedom = variance**2 / sum(part**2 / n for part, n in zip(parts, freedoms, strict=True))
    return Difference(change, t_quantile(0.5 + level / 2, freedom) * math.sqrt(variance), freedom)


def effective_size(values: Floats) -> float:
    """The number of independent values that a series in time order is worth: n (1 - r) / (1 + r),
    with r the correlation of neighbours.

    r counts only where it is larger than chance makes it (2 / sqrt(n)); steps that alternate are
    taken as independent. At least 2.
    """
    n = len(values)
    r = autocorrelation(values)
    if n < LEAST_FOR_MEMORY or not r > 2 / math.sqrt(n):
        return float(n)
    return max(2.0, n * (1 - r) / (1 + r))


def autocorrelation(values: Floats) -> float:
    """The correlation of each value with the next; NaN of fewer than three values, or of equal
    ones.
    """
    if len(values) < 3:
        return math.nan
    off = values - values.mean()
    total = float(off @ off)
    # Equal values differ from their mean by rounding.
    if total <= len(values) * (_EPSILON * float(np.abs(values).max())) ** 2:
        return math.nan
    return float(off[:-1] @ off[1:]) / total


def t_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t for a probability of 0.5…1."""
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability and high < 1e12:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (
            (middle, high) if t_probability(middle, freedom) < probability else (low, middle)
        )
    return (low + high) / 2


def t_probability(t: float, freedom: float) -> float:
    """Student's t: the probability of a draw below `t` (0 or more)."""
    return 1 - _beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = (
        math.exp(
            math.lgamma(a + b)
            - math.lgamma(a)
            - math.lgamma(b)
            + a * math.log(x)
            + b * math.log1p(-x)
        )
        / a
    )
    # The continued fraction of DLMF 8.17.22 by Lentz's method.
    tiny = 1e-300
    c, d = 1.0, 1 / _off_zero(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 1000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _off_zero(1 + factor * d, tiny)
            c = _off_zero(1 + factor / c, tiny)
            value *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return front * value


def _off_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny

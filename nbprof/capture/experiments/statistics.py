"""The median of differences of pairs, with an interval that outliers do not widen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Median(NamedTuple):
    """A median with its interval; infinite where there are too few values for the confidence."""

    value: float
    low: float
    high: float


def median_of(differences: NDArray[np.float64], confidence: float) -> Median:
    """The median of symmetric differences by Hodges and Lehmann, with the interval of Wilcoxon's
    signed-rank test.

    A turn that another process slowed is an outlier, which widens the interval of Student's t
    without bound.

    Parameters
    ----------
    differences : ndarray
    confidence : float
        Of the interval, 0 to 1.

    References
    ----------
    Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd edition, sections 3.2 and 3.3.
    """
    count = len(differences)
    rows, columns = np.triu_indices(count)
    means = np.sort((differences[rows] + differences[columns]) / 2)
    rank = _rank(count, (1 - confidence) / 2)
    value = float(np.median(means))
    if rank < 0:
        return Median(value, -np.inf, np.inf)
    return Median(value, float(means[rank]), float(means[-1 - rank]))


def _rank(count: int, tail: float) -> int:
    """The largest sum of signed ranks with at most this probability below or at it; -1 if none."""
    # ways[s]: subsets of the ranks 1 to `count` whose sum is s.
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
    probabilities = np.cumsum(ways) / 2.0**count
    return int(np.searchsorted(probabilities, tail, side="right")) - 1

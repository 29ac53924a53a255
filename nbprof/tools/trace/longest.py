"""Selection of the events of a report: the longest of each lane, fairly shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def longest(
    lanes: Sequence[tuple[npt.NDArray[np.int32], Ints]], always: set[int], limit: int
) -> list[Ints]:
    """Indices of the events to keep, ascending: all of the lanes in `always`, of the others the
    longest of each.

    Each lane may keep the same number; what a short lane does not need goes to the long ones. Of
    equally long events the first stays, which is the parent: so the parents of all that stay, stay
    too, and no slice hangs in the air. Where the lanes in `always` alone would take more than half
    of the budget, they are thinned too.

    Parameters
    ----------
    lanes : sequence of (lane int32[n], duration int64[n])
        Tables of events, each sorted by lane; a lane is in one of them.
    always : set of int
    limit : int
        How many to keep in all; only one event of each lane may make it more. 0 keeps none.
    """
    size = max((int(lane[-1]) + 1 for lane, _ in lanes if len(lane)), default=0)
    edges = [np.searchsorted(lane, np.arange(size + 1)) for lane, _ in lanes]
    counts = sum((np.diff(edge) for edge in edges), np.zeros(size, np.int64))
    if limit <= 0:
        return [np.zeros(0, np.int64) for _ in lanes]
    if counts.sum() <= limit:
        return [np.arange(len(lane)) for lane, _ in lanes]
    forced = np.isin(np.arange(size), list(always))
    # So many that they alone would fill the budget are thinned like the rest.
    first = share(np.where(forced, counts, 0), max(limit // 2, 1))
    quota = np.where(forced, first, share(np.where(forced, 0, counts), limit - int(first.sum())))
    return [
        _longest_of_each(edge, duration, quota)
        for edge, (_, duration) in zip(edges, lanes, strict=True)
    ]


def _longest_of_each(edges: npt.NDArray[np.intp], duration: Ints, quota: Ints) -> Ints:
    """The `quota[lane]` longest of each lane. A lane is partitioned around its threshold, never
    sorted.
    """
    # Of thousands of lanes each keeps one event: all of these at once.
    single = np.flatnonzero((quota == 1) & (np.diff(edges) > 1))
    retained: list[Ints] = [_single_longest(edges, single, duration)]
    quota = quota.copy()
    quota[single] = 0
    for count, first, stop in zip(
        quota.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True
    ):
        if count >= stop - first:
            retained.append(np.arange(first, stop))
        elif count > 0:
            values = duration[first:stop]
            least = np.partition(values, -count)[-count]
            longer = np.flatnonzero(values > least)
            equal = np.flatnonzero(values == least)[: count - len(longer)]
            retained.append(first + np.sort(np.concatenate([longer, equal])))
    return np.sort(np.concatenate(retained))


def _single_longest(edges: npt.NDArray[np.intp], lanes: Ints, duration: Ints) -> Ints:
    """The longest event of each of some lanes with events, the first of equals."""
    if not len(lanes):
        return np.zeros(0, np.int64)
    # The maxima of the other lanes are found too, and left.
    first = edges[np.flatnonzero(np.diff(edges))]
    maxima = np.maximum.reduceat(duration, first)
    rows = np.flatnonzero(duration == np.repeat(maxima, np.diff(first, append=len(duration))))
    return rows[np.searchsorted(rows, edges[lanes])]


def share(counts: npt.NDArray[Any], budget: int) -> Ints:
    """The number of events of each lane, so that the sum is at most the budget and every lane keeps
    at least one.
    """
    if counts.sum() <= budget:
        return counts.astype(np.int64)
    low, high = 1, max(int(counts.max()), 1)
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(counts, middle).sum() <= budget:
            low = middle
        else:
            high = middle - 1
    return np.minimum(counts.astype(np.int64), low)

"""The largest batch that fits: predicted at several sizes, never extrapolated."""

from __future__ import annotations

from collections.abc import Callable

LARGEST = 2**20
"""Batches are not searched beyond it."""


def largest_batch(needed: Callable[[int], int], capacity: int, start: int) -> int:
    """Largest batch whose need is at most the capacity; 0 if a batch of 1 does not fit.

    The need must grow with the batch. Each size that is tried lies where the straight line through
    the nearest ones that fit and do not fit meets the capacity, and the answer is a size that fits
    below one, larger by 1, that does not. `LARGEST` if that fits.

    Parameters
    ----------
    needed : callable
        Bytes for a batch of a size.
    capacity : int
    start : int
        The first size to try.
    """
    needs: dict[int, int] = {}

    def need(size: int) -> int:
        if size not in needs:
            needs[size] = needed(size)
        return needs[size]

    fitting, failing = 0, start
    while need(failing) <= capacity:
        fitting = failing
        if fitting >= LARGEST:
            return LARGEST
        failing = min(_next(needs, fitting, capacity), LARGEST)
    while failing - fitting > 1:
        guess = (fitting + failing) // 2
        if fitting:
            slope = (need(failing) - need(fitting)) / (failing - fitting)
            crossing = fitting + int((capacity - need(fitting)) / slope)
            guess = min(max(crossing, fitting + 1), failing - 1)
        if need(guess) <= capacity:
            fitting = guess
            if need(guess + 1) > capacity:
                return guess
            fitting = guess + 1
        else:
            failing = guess
    return fitting


def _next(needs: dict[int, int], fitting: int, capacity: int) -> int:
    """A size that may be too large, at least the double."""
    if len(needs) > 1:
        smaller = sorted(needs)[-2]
        slope = (needs[fitting] - needs[smaller]) / (fitting - smaller)
        if slope > 0:
            return max(2 * fitting, fitting + int((capacity - needs[fitting]) / slope) + 1)
    return 2 * fitting

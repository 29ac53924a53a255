"""Sums that a worker reports, and its memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Sampled:
    """A quantity that is measured so often that this takes no more than a share of the time of
    batches: a time, or bytes.

    Parameters
    ----------
    share : float
    cost_ns : float
        What it takes to measure it once.

    Attributes
    ----------
    count : int
        How often it was measured.
    cost_ns : float
        What it takes to measure it the next time.
    """

    def __init__(self, share: float, cost_ns: float) -> None:
        self._share, self.cost_ns = share, cost_ns
        self.count = 0
        self._sum = self._amount = 0
        self._spent_ns = 0.0
        # The first time costs what comes once, such as imports.
        self._first = self._first_amount = 0

    def is_due(self, busy_ns: int) -> bool:
        """Return whether it may be measured once more after so much time of batches."""
        return not self.count or self._spent_ns + self.cost_ns <= self._share * busy_ns

    def add(self, value: int, amount: int) -> None:
        """It was measured, for this amount of what it grows with."""
        self.count += 1
        self._spent_ns += self.cost_ns
        if self.count == 1:
            self._first, self._first_amount = value, amount
            return
        self._sum += value
        self._amount += amount

    def total(self, amount: int) -> int:
        """The sum for this amount: that of the first time, and for the rest as for what was
        measured; 0 before anything was.
        """
        measured_sum, measured = self._sum, self._amount
        if not measured:
            measured_sum, measured = self._first, self._first_amount
        if not measured:
            return 0
        return self._first + round(measured_sum * max(amount - self._first_amount, 0) / measured)


class Totals:
    """Sums over the batches of a window."""

    def __init__(self) -> None:
        self.items = self.batches = 0
        self.busy_ns = self.cpu_ns = self.waiting_ns = 0
        self.timed_items = self.timed_busy_ns = 0
        self.pickle_ns = self.pickled_bytes = self.shared_bytes = 0
        self.memory_bytes = self.delayed_ns = 0


def resident_bytes() -> int:
    """Memory of this process that is resident, that which it shares with others included; 0 where
    unknown.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0

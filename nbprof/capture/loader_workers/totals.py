"""Sums that a worker reports, and its memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Sampled:
    """A time that is measured so often that this takes no more than a share of the time of batches.

    Parameters
    ----------
    share : float
    cost_ns : float
        What it takes to measure it once.

    Attributes
    ----------
    count : int
        How often it was measured.
    """

    def __init__(self, share: float, cost_ns: float) -> None:
        self._share, self._cost_ns = share, cost_ns
        self.count = 0
        self._ns = self._amount = 0
        # The first time costs what comes once, such as imports.
        self._first_ns = self._first_amount = 0

    def is_due(self, busy_ns: int) -> bool:
        """Return whether it may be measured once more after so much time of batches."""
        return not self.count or (self.count + 1) * self._cost_ns <= self._share * busy_ns

    def add(self, took_ns: int, amount: int) -> None:
        """It was measured, for this amount of what it grows with."""
        self.count += 1
        if self.count == 1:
            self._first_ns, self._first_amount = took_ns, amount
            return
        self._ns += took_ns
        self._amount += amount

    def total_ns(self, amount: int) -> int:
        """The time for this amount: that of the first time, and for the rest as for what was
        measured; 0 before anything was.
        """
        ns, measured = self._ns, self._amount
        if not measured:
            ns, measured = self._first_ns, self._first_amount
        if not measured:
            return 0
        return self._first_ns + round(ns * max(amount - self._first_amount, 0) / measured)


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

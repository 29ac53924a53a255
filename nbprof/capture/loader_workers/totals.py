"""Sums that a worker reports, and its memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


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

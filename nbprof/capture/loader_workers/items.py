"""Durations of items: a histogram of bounded size, and the slowest ones."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable
from typing import Any

from nbprof.core.worker_histogram import bucket_of

MOST_SLOW = 40


class Items:
    """Durations of items."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all items."""
        self._histogram: dict[int, int] = {}
        self._slow: list[tuple[int, int, str, int, int]] = []
        self._count = 0

    def add(self, label: object, took_ns: int, batch: int) -> None:
        """An item took so long until now; `label` is its index, `batch` the number of its batch."""
        self.add_all([(label, time.perf_counter_ns() - took_ns, took_ns)], batch)

    def add_all(self, items: Iterable[tuple[object, int, int]], batch: int) -> None:
        """Of several items of one batch: the index, when it began by `perf_counter_ns`, and how
        long it took.
        """
        since_1970 = time.time_ns() - time.perf_counter_ns()
        histogram, slow = self._histogram, self._slow
        for label, began_ns, took_ns in items:
            self._count += 1
            bucket = bucket_of(took_ns)
            histogram[bucket] = histogram.get(bucket, 0) + 1
            if len(slow) >= MOST_SLOW and took_ns <= slow[0][0]:
                continue
            item = (took_ns, self._count, _text(label), batch, since_1970 + began_ns)
            if len(slow) < MOST_SLOW:
                heapq.heappush(slow, item)
            else:
                heapq.heapreplace(slow, item)

    def values(self) -> dict[str, Any]:
        """As plain values for JSON."""
        slow = [
            {"item": label, "ns": took, "batch": batch, "start_ns": start_ns}
            for took, _, label, batch, start_ns in sorted(self._slow, reverse=True)
        ]
        return {"histogram": dict(self._histogram), "slow": slow}


def _text(label: object) -> str:
    """The index of an item; nothing of other types, whose text may be long or be code of theirs."""
    if isinstance(label, (int, str, float)):
        return str(label)[:60]
    return type(label).__name__[:60]

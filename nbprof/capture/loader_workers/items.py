"""How long items took: a histogram of bounded size, and the slowest ones."""

from __future__ import annotations

import heapq
from typing import Any

MOST_SLOW = 40
_STEPS = 8
"""Buckets per power of two: an item is known to within 9 %."""


class Items:
    """Durations of items."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all items."""
        self._histogram: dict[int, int] = {}
        self._slow: list[tuple[int, int, str, int]] = []
        self._count = 0

    def add(self, label: object, took_ns: int, batch: int) -> None:
        """An item took so long; `label` is its index, `batch` the number of its batch."""
        self._count += 1
        bucket = bucket_of(took_ns)
        self._histogram[bucket] = self._histogram.get(bucket, 0) + 1
        slow = self._slow
        if len(slow) < MOST_SLOW:
            heapq.heappush(slow, (took_ns, self._count, _text(label), batch))
        elif took_ns > slow[0][0]:
            heapq.heapreplace(slow, (took_ns, self._count, _text(label), batch))

    def values(self) -> dict[str, Any]:
        """As plain values for JSON."""
        slow = [
            {"item": label, "ns": took, "batch": batch}
            for took, _, label, batch in sorted(self._slow, reverse=True)
        ]
        return {"histogram": dict(self._histogram), "slow": slow}


def bucket_of(took_ns: int) -> int:
    """The bucket of a duration: 8 of equal width to each power of two."""
    took_ns = max(took_ns, _STEPS)
    octave = took_ns.bit_length() - 1
    return octave * _STEPS + ((took_ns >> (octave - 3)) & (_STEPS - 1))


def middle_of(bucket: int) -> float:
    """The duration in ns in the middle of a bucket."""
    octave, step = divmod(bucket, _STEPS)
    return float((_STEPS + step + 0.5) * 2.0 ** (octave - 3))


def _text(label: object) -> str:
    """The index of an item; nothing of other types, whose text may be long or be code of theirs."""
    if isinstance(label, (int, str, float)):
        return str(label)[:60]
    return type(label).__name__[:60]

"""Limits and intervals of sampling the Python stacks of a recording."""

from __future__ import annotations

from collections.abc import Iterator

SWITCH_S = 0.001
"""Time that a thread can hold the GIL while the sampler waits for it."""
MOST_SAMPLES, MOST_ROWS = 20_000, 40_000
"""Samples, and stacks of threads in them. The sampler halves its rate when it reaches either."""
MOST_NODES = 50_000
"""Different calls in different callers."""
MOST_TEXT = 300
"""Length of the name of a file or function."""
INTERVAL_S = 0.01
LONGEST_S = 0.1
"""Least and most time between samples, on average."""
SHARE, FIRST_S = 0.003, 0.004
"""Share of a core that the sampling thread may use, and CPU seconds that it may use before: short
cells get their samples from these.
"""
_GOLDEN_RATIO = 0.6180339887498949


def jitter() -> Iterator[float]:
    """Factors for the time between samples, from 0.5 to 1.5 and 1 on average.

    Even intervals would meet a loop with the same period at the same line each time.
    """
    spread = 0.0
    while True:
        spread = (spread + _GOLDEN_RATIO) % 1.0
        yield 0.5 + spread

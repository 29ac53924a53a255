"""Which ranges the overview shows."""

from __future__ import annotations

import pandas as pd

from nbprof.tools.overview import ranges

TIMES = (
    "host_ms_per_step",
    "device_ms_per_step",
    "backward_host_ms_per_step",
    "backward_device_ms_per_step",
)


def shown(*rows):
    """Positions of the rows that are shown, given as (depth, ms per step) in preorder."""
    depth, ms = zip(*rows, strict=True)
    frame = pd.DataFrame({**dict.fromkeys(TIMES, ms), "depth": depth})
    return ranges._largest(ranges._longest_times(frame), frame["depth"].to_numpy(), 100.0)


def test_a_range_is_shown_with_those_around_it():
    # The time of the outer ones is not known.
    rows = (0, None), (1, None), (2, 50.0), (0, 0.0), (1, 20.0), (1, 0.0)
    assert shown(*rows) == [0, 1, 2, 3, 4]


def test_the_largest_are_shown_as_far_as_they_have_room():
    outer = [(0, float(ms)) for ms in range(1, ranges.MOST_ROWS + 4)]
    assert shown(*outer) == list(range(3, ranges.MOST_ROWS + 3))
    assert shown((0, 50.0), (0, 0.05)) == [0]

"""Borders of the analyses of waiting: ties between ranks, moments between steps, steps of even
number, launches as a kernel ends.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof.analysis.device_time import collectives, critical_path
from nbprof.analysis.steps.step_rows import step_rows
from tests.support.kineto import Kineto, profile
from tests.support.ranks import job


def test_of_ranks_that_took_equally_short_the_last_to_begin_was_last() -> None:
    match = np.array([0, 0, 0, 1, 1, -1])
    length = np.array([5, 5, 9, 4, 3, 1])
    start = np.array([10, 20, 30, 0, 0, 99])
    assert collectives._last(match, length, start).tolist() == [
        False,
        True,
        False,
        False,
        True,
        False,
    ]


def test_a_collective_that_begins_as_a_step_ends_is_of_the_next_or_of_none() -> None:
    host, start_ms = (
        np.array(["a", "a", "a", "a", "b"], object),
        np.array([0.0, 10.0, 15.0, 20.0, 5.0]),
    )
    steps = pd.DataFrame(
        {"host": ["a", "a"], "step": [1, 2], "start_ms": [0.0, 15.0], "step_time_ms": [10.0, 5.0]}
    )
    assert step_rows(host, start_ms, steps).tolist() == [0, -1, 1, -1, -1]


@pytest.mark.parametrize(("late", "waited_for"), [(100, []), (101, [1])])
def test_who_is_waited_for_costs_more_than_a_hundredth_of_the_step(
    tmp_path, late: float, waited_for: list[int]
) -> None:
    # Steps take 10,000 µs.
    rows = profile(tmp_path, *job((((1000,),), ((1000 + late,),)))).device_time.stragglers
    assert rows.loc[rows["waited_for"] & rows["step"].notna(), "rank"].tolist() == waited_for


@pytest.mark.parametrize(
    ("times", "chosen"), [([40, 10, 30, 20], 20), ([30, 10, 20], 20), ([5], 5)]
)
def test_the_step_of_median_length(times: list[int], chosen: int) -> None:
    steps = pd.DataFrame({"host": "a", "step": range(len(times)), "step_time_ms": times})
    row = critical_path.choose(steps, ["a"])
    assert row is not None
    assert row["step_time_ms"] == chosen


@pytest.mark.parametrize(
    ("called", "found"), [(54, "kernel_wait"), (55, "kernel_wait"), (56, "launch_delay")]
)
def test_a_launch_as_the_kernel_before_ends_was_not_waited_for(
    tmp_path, called: float, found: str
) -> None:
    file = Kineto()
    file.launched("a", 1, 5, 50)
    file.launched("b", called, 60, 40)
    pieces = profile(tmp_path, file).device_time.critical_path_pieces()
    assert pieces["kind"].tolist()[-2:] == [found, "compute"]

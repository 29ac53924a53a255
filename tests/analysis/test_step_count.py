"""The count of steps in words, of one host and of several."""

from __future__ import annotations

import pandas as pd
import pytest

from nbprof.analysis import step_count


@pytest.mark.parametrize(
    ("hosts", "of", "text", "most"),
    [
        ([], 1, "no steps", 0),
        (["a"], 1, "1 step", 1),
        (["a", "a"], 0, "2 steps", 2),
        (["rank 0", "rank 1"] * 2, 2, "2 steps on 2 ranks", 2),
        (["rank 0", "rank 0, w.json"], 2, "1 step on 2 ranks", 1),
        (["rank 0"] * 3 + ["rank 1"] * 2, 2, "2 to 3 steps on 2 ranks", 3),
        (["rank 0"] * 3, 4, "3 steps on 1 of 4 ranks", 3),
        (["worker-0", "worker-1"] * 1200, 2, "1,200 steps on 2 hosts", 1200),
    ],
)
def test_steps_of_hosts_are_not_added_up(hosts: list[str], of: int, text: str, most: int) -> None:
    steps = pd.DataFrame({"host": hosts})
    assert step_count.told(steps, of) == text
    assert step_count.most(steps) == most


def test_a_table_without_hosts_is_of_one() -> None:
    assert step_count.told(pd.DataFrame({"step": range(5)})) == "5 steps"

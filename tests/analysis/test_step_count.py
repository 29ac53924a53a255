"""The count of steps in words, of one host and of several."""

from __future__ import annotations

import pandas as pd
import pytest

from nbprof.analysis.steps import step_count
from tests.support.kineto import profile
from tests.support.ranks import job


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
    assert step_count.format_count(steps, of) == text
    assert step_count.longest(steps) == most


def test_a_table_without_hosts_is_of_one() -> None:
    assert step_count.format_count(pd.DataFrame({"step": range(5)})) == "5 steps"


def test_the_dashboard_counts_the_steps_of_one_rank(tmp_path):
    payload = profile(tmp_path, *job([[[100.0]] * 3, [[200.0]] * 3])).payload()
    assert payload["meta"]["facts"][0] == payload["steps"]["count"] == "3 steps on 2 ranks"
    texts = [one["text"] for one in payload["overview"]["confidence"]["evidence"]]
    assert "Only 3 steps on 2 ranks: capture 10 or more" in texts
    assert any(
        "of 6 steps, counted per rank" in text or "all 6 steps, counted per rank" in text
        for text in texts
    )


def test_top_ops_have_the_time_of_one_device_in_a_step_of_its_rank(tmp_path):
    top = profile(tmp_path, *job([[[100.0]] * 3, [[200.0]] * 3])).payload()["overview"]["top_ops"][
        "data"
    ]
    # The kernel takes 100 µs on each of the two; the collective 200 µs where it waits, and 100 µs
    # where it does not.
    assert sum(top["ms_per_step"]) == pytest.approx(0.1 + 0.15, rel=1e-3)

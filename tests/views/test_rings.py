"""The parts of rings: the largest by name, and the others as one."""

from __future__ import annotations

import pandas as pd
import pytest

from nbprof.tools import rings

SUMS = pd.Series({"gemm": 40.0, "relu": 40.0, "wmma": 20.0, "copy": 5.0})


def test_the_largest_have_names_and_the_others_are_one_part():
    assert rings.parts(SUMS, 2, 200.0) == [
        {"label": "gemm", "percent": 20.0, "kind": "rank"},
        {"label": "relu", "percent": 20.0, "kind": "rank"},
        {"label": "2 others", "percent": 12.5, "kind": "others"},
    ]


def test_a_single_other_has_its_name():
    assert [part["label"] for part in rings.parts(SUMS, 3)] == ["gemm", "relu", "wmma", "copy"]


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_parts_add_up_to_the_whole(most):
    assert sum(part["percent"] for part in rings.parts(SUMS, most)) == pytest.approx(100)


def test_of_nothing_there_are_no_parts_and_of_no_time_no_shares():
    assert rings.parts(pd.Series([], dtype="float64"), 5) == []
    assert rings.parts(pd.Series({"a": 0.0}), 5) == [{"label": "a", "percent": 0.0, "kind": "rank"}]

"""Repetition in sequences of events, with known periods."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.dialects import repeats

BODY = [0, 1, 2, *[3, 4, 5] * 12, 6, 7, *[8, 9, 10, 3] * 12, *[11] * 6]


def test_a_loop_is_found_between_what_runs_before_and_after_it():
    codes = np.array([20, 21, 22, *BODY * 10, 30, 31])
    found = repeats.find(codes)
    assert found is not None
    assert found.first.tolist() == [3 + len(BODY) * number for number in range(10)]
    assert found.length == len(BODY)
    assert found.end == 3 + 10 * len(BODY)
    assert found.agreement == pytest.approx(10 * len(BODY) / len(codes), abs=1e-9)


def test_layers_within_a_step_are_no_steps():
    found = repeats.find(np.array(BODY * 5))
    assert found is not None
    assert len(found.first) == 5


@pytest.mark.parametrize("body", [[*[0, 1] * 30, 0], [*[0, 1] * 30, 2], [2, *[0, 1, 1] * 25, 3, 3]])
def test_what_consists_of_unequal_layers_is_the_model_and_not_a_layer(body):
    found = repeats.find(np.array(body * 20))
    assert found is not None
    assert (len(found.first), found.length) == (20, len(body))
    assert found.agreement == 1


def test_inserted_events_cost_only_themselves():
    bodies = [[*BODY[:40], 99, *BODY[40:]] if number % 3 == 0 else BODY for number in range(10)]
    found = repeats.find(np.concatenate([np.array(body) for body in bodies]))
    assert found is not None
    assert len(found.first) == 10
    assert found.agreement > 0.99


def test_a_period_that_holds_for_less_than_nine_in_ten_events_is_not_claimed():
    before = list(range(100, 100 + 16))
    assert repeats.find(np.array([*before, *list(range(8)) * 18])) is not None
    before = list(range(100, 100 + 17))
    assert repeats.find(np.array([*before, *list(range(8)) * 18])) is None


@pytest.mark.parametrize(
    "codes",
    [
        [],
        [0, 0],
        [0] * 7,
        list(range(200)),
        [code for code in range(10) for _ in range(20)],
        [0, 1, 2, 3, 4] * 2,
        [0, 1] * 10 + [2, 3] * 10,
    ],
)
def test_what_does_not_repeat_is_not_claimed(codes):
    assert repeats.find(np.array(codes, np.int64)) is None


def test_random_events_do_not_repeat():
    random = np.random.default_rng(7)
    for kinds in (2, 5, 30):
        assert repeats.find(random.integers(0, kinds, 600)) is None


@given(
    st.lists(st.integers(0, 20), min_size=2, max_size=30, unique=True),
    st.integers(3, 12),
    st.integers(0, 3),
)
def test_any_body_of_distinct_events_is_found(body, count, before):
    codes = np.array([*range(100, 100 + min(before, len(body) * count // 10)), *body * count])
    found = repeats.find(codes)
    assert found is not None
    assert len(found.first) == count
    assert found.length == len(body)

"""Runs of integers and of equal rows, against a walk over them."""

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core import runs

CODES = st.lists(st.integers(0, 4), max_size=20)


@given(st.lists(st.tuples(st.integers(-5, 30), st.integers(0, 4)), max_size=10))
def test_ranges_follow_one_another(ranges):
    first, count = (np.array([row[at] for row in ranges], np.int64) for at in range(2))
    index, value = runs.expand(first, count)
    expected = [(at, low + n) for at, (low, size) in enumerate(ranges) for n in range(size)]
    assert list(zip(index.tolist(), value.tolist(), strict=True)) == expected


@given(CODES, st.data())
def test_a_run_begins_where_any_column_changes(codes, data):
    others = data.draw(st.lists(st.integers(0, 1), min_size=len(codes), max_size=len(codes)))
    rows = list(zip(codes, others, strict=True))
    lengths = [len(list(run)) for _, run in groupby(rows)]
    expected = [sum(lengths[:at]) for at in range(len(lengths))]
    assert (
        runs.run_starts(np.array(codes, np.int64), np.array(others, np.int64)).tolist() == expected
    )


@given(CODES)
def test_rows_by_code(codes):
    found = runs.rows_by_code(np.array(codes, np.int64))
    assert [rows.tolist() for rows in found] == [
        [at for at, code in enumerate(codes) if code == of]
        for of in range(max(codes, default=-1) + 1)
    ]

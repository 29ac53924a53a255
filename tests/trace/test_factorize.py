"""Rows that are alike have one number, counted in the order in which they first come, whichever way
they are found.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core import factorize

COLUMNS = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*[st.integers(-1, 6)] * width), max_size=40)
)


@pytest.mark.parametrize("dense", [0, 10_000], ids=["hashed", "in a table"])
@given(rows=COLUMNS)
def test_rows_are_numbered_as_they_first_come(dense, rows):
    width = len(rows[0]) if rows else 1
    columns = [np.array([row[at] for row in rows], np.int64) for at in range(width)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factorize, "_DENSE", dense)
        first, number = factorize.unique_rows(*columns)
    seen = list(dict.fromkeys(rows))
    assert number.tolist() == [seen.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in seen]


def test_a_column_with_numbers_below_minus_one_is_hashed():
    first, number = factorize.unique_rows(np.array([-5, 3, -5, 3, 3], np.int64))
    assert (first.tolist(), number.tolist()) == ([0, 1], [0, 1, 0, 1, 1])

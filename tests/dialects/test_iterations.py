"""Whether a loop waits for its items or computes them, by when its products ran."""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.dialects.iterations import Spans, compute_items

MS = 10**9
ASKED = np.arange(5) * 10 * MS
RECEIVED, ENDED = ASKED + 8 * MS, ASKED + 10 * MS


def spans(*lanes):
    """Spans of 5 iterations: for each lane the ms at which they begin and end in an iteration."""
    parts = [(lane, begin, end) for lane, (begin, end) in enumerate(lanes)]
    return Spans(
        np.repeat([lane for lane, _, _ in parts], 5),
        np.concatenate([ASKED + int(begin * MS) for _, begin, _ in parts]),
        np.concatenate([ASKED + int(end * MS) for _, _, end in parts]),
    )


@pytest.mark.parametrize(
    ("lanes", "computes"),
    [
        ([(1, 7)], True),
        ([(8.1, 9.9)], False),
        # Products on both sides: the larger part decides.
        ([(1, 4), (8.2, 9.8)], True),
        ([(1, 2), (8.2, 9.8)], False),
        # It runs on while the loop receives an item, so another thread does.
        ([(5, 9)], False),
        ([(1, 7), (5, 9)], True),
        # Two clocks differ by some µs.
        ([(1, 8.04)], True),
        ([(7.96, 9)], False),
        # Ops inside ops count once.
        ([(1, 2.5), (1, 2.5), (1, 2.5), (8.1, 9.9)], False),
    ],
)
def test_the_loop_computes_its_items_where_most_products_are(lanes, computes):
    assert compute_items(spans(*lanes), ASKED, RECEIVED, ENDED) is computes


def test_without_products_the_loop_waits():
    nothing = np.zeros(0, np.int64)
    assert not compute_items(Spans(nothing, nothing, nothing), ASKED, RECEIVED, ENDED)

"""XProf's step table with spans of no length is that of its sweep, boundary by boundary, which
takes ends before begins.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbprof.analysis.steps.steps import time_by_class
from nbprof.analysis.steps.xprof_steps import _prolonged

SPANS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 30),
        st.sampled_from([0, 0, 1, 3, 9]),
        st.sampled_from([10, 90, 110]),
    ),
    min_size=1,
    max_size=14,
)


def swept(spans):
    """Time by class, a counter a class: the current class is the last larger one that began, until
    its counter is back at 0.
    """
    marks = sorted([(s, 1, -c) for _, s, _, c in spans] + [(s + d, 0, -c) for _, s, d, c in spans])
    count, current, out = Counter(), 0, Counter()
    for (at, begins, cls), (until, *_) in itertools.pairwise(marks):
        cls = -cls
        count[cls] += 1 if begins else -1
        if begins:
            current = max(current, cls)
        elif cls == current and count[cls] == 0:
            current = max((c for c in count if c < cls and count[c] > 0), default=0)
        if current:
            out[current] += until - at
    return +out


@given(SPANS)
def test_spans_of_no_length_go_on_as_in_xprofs_sweep(spans):
    step, start, length = (np.array([s[k] for s in spans], np.int64) for k in range(3))
    cls = np.array([s[3] for s in spans], np.int16)
    end = _prolonged(step, start, start + length, cls)
    by_class = time_by_class(np.zeros(3, np.int64), np.full(3, 100), step, start, end, cls)
    for one in range(3):
        found = Counter({value: int(time[one]) for value, time in by_class.items()})
        assert +found == swept([s for s in spans if s[0] == one])

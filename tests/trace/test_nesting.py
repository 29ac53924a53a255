"""Nesting is held against the plain walk with a stack, on lanes with ties, overlaps and empty
events.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core import nesting
from nbprof.native import library

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 25), st.integers(0, 12)), max_size=60)


def walked(lane, start, duration):
    """Parents by the definition: pop what ends before the event does, what is left on top contains
    it.
    """
    ends = start + duration
    parent, stack, last = [], [], None
    for i, where in enumerate(lane):
        if where != last:
            stack, last = [], where
        while stack and ends[stack[-1]] < ends[i]:
            stack.pop()
        parent.append(stack[-1] if stack else -1)
        stack.append(i)
    return parent


LEFT_OUT = library.Loaded(None, "it was left out")


@pytest.fixture(params=["compiled", "numpy"])
def either(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(library, "load", lambda: LEFT_OUT)
    else:
        assert library.load().library is not None


@given(SPANS, st.sampled_from([1, 7, 1 << 16]), st.booleans())
def test_parents_depths_and_self_times_are_those_of_a_walk_with_a_stack(spans, chunk, compiled):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_CHUNK", chunk)
        if not compiled:
            patch.setattr(library, "load", lambda: LEFT_OUT)
        check(spans)


@given(SPANS, st.integers(0, 5))
def test_both_ways_give_the_same_where_events_run_over(spans, slack):
    lane, start, duration = columns(spans)
    found = nesting.parents(lane, start, duration, slack)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "load", lambda: LEFT_OUT)
        assert nesting.parents(lane, start, duration, slack).tolist() == found.tolist()
    assert found.dtype == np.int32


def columns(spans):
    spans = sorted(spans, key=lambda s: (s[0], s[1], -s[2]))
    lane, start, duration = np.array(spans, np.int64).reshape(-1, 3).T
    return lane.astype(np.int32), start, duration


def check(spans):
    lane, start, duration = columns(spans)
    parent = nesting.parents(lane, start, duration)
    expected = walked(lane.tolist(), start, duration)
    assert parent.tolist() == expected
    depth = nesting.depths(parent)
    own = nesting.self_times(parent, duration)
    for i, above in enumerate(expected):
        assert depth[i] == (0 if above < 0 else depth[above] + 1)
        assert own[i] == duration[i] - sum(
            int(duration[j]) for j, p in enumerate(expected) if p == i
        )


def test_depths_of_chains_whose_outermost_call_comes_last(either):
    parent = np.array([1, 2, -1, 4, -1], np.int32)
    assert nesting.depths(parent).tolist() == [2, 1, 0, 1, 0]


def test_a_lane_of_many_events_in_a_row_has_no_parents_and_no_wrap(either):
    count = 100_000
    start = np.arange(count, dtype=np.int64) * 10 - 2**62
    parent = nesting.parents(np.zeros(count, np.int32), start, np.full(count, 9, np.int64))
    assert (parent == -1).all()


def test_a_deep_stack_is_followed_to_its_end(either):
    count = 70_000
    start = np.arange(count, dtype=np.int64)
    parent = nesting.parents(np.zeros(count, np.int32), start, 2 * count - 2 * start)
    assert parent.tolist() == [-1, *range(count - 1)]
    assert nesting.depths(parent).tolist() == [min(i, 65535) for i in range(count)]

"""Hosts laid on one another: the offset found at once is that of trying all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbprof.analysis import notes
from nbprof.analysis.steps.pods import HostSteps, align, offset_by_overlap

STEPS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=8).map(
    sorted
)


def host(name, steps, numbers=None):
    begin = np.array([s for s, _ in steps], np.float64)
    end = begin + np.array([d for _, d in steps], np.float64)
    return HostSteps(
        name, begin, end, np.array(numbers if numbers is not None else range(len(steps)), np.int64)
    )


def tried(one, chief):
    """Every offset in turn, in the order of preference; the first of the best."""
    best, most = None, 0.0
    for k in [*range(len(chief.begin)), *range(-1, -len(one.begin), -1)]:
        pairs = [(i, i + k) for i in range(len(one.begin)) if 0 <= i + k < len(chief.begin)]
        overlap = sum(
            max(0.0, min(one.end[i], chief.end[j]) - max(one.begin[i], chief.begin[j]))
            for i, j in pairs
        )
        if overlap > most:
            best, most = k, overlap
    return best


@given(STEPS, STEPS)
def test_the_offset_is_the_best_of_all(a, b):
    one, chief = host("a", a), host("b", b)
    assert offset_by_overlap(one, chief) == tried(one, chief)


@given(st.lists(STEPS, min_size=1, max_size=4))
def test_common_steps_are_steps_of_every_host_that_takes_part(recordings):
    hosts = [host(str(i), steps) for i, steps in enumerate(recordings)]
    found = align(hosts)
    used = [(h, first) for h, first in zip(hosts, found.first, strict=True) if first is not None]
    assert found.steps > 0 or not used
    assert all(first >= 0 and first + found.steps <= len(h.begin) for h, first in used)
    # One step more at either end, and some host would not have it.
    if used:
        assert any(first == 0 for _, first in used)
        assert any(first + found.steps == len(h.begin) for h, first in used)


def test_one_number_for_two_steps_is_said():
    found = align(
        [
            host("a", [(0, 9), (10, 9), (20, 9)], [5, 6, 7]),
            host("b", [(1, 9), (11, 9), (21, 9)], [0, 1, 2]),
        ]
    )
    assert (found.steps, found.first) == (3, [0, 0])
    assert found.notes == [
        notes.steps_matched_by_time("step 0 of b", "step 5 of a", has_offsets=False)
    ]


def test_no_step_of_all_hosts_is_said():
    early = host("a", [(-30, 9), (-20, 9), (-10, 9), (0, 9)])
    late = host("c", [(20, 9), (30, 9), (40, 9), (50, 9)])
    found = align([early, host("b", [(0, 9), (10, 9), (20, 9)]), late])
    assert (found.steps, found.first) == (0, [None, None, None])
    assert [note for note in found.notes if note.level == "warning"] == [notes.no_common_step()]

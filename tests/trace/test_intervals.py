"""Each routine for intervals against a look at every instant."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof.core import intervals
from nbprof.core.intervals import Intervals

LATEST = 30
TIMES = range(-1, LATEST + 1)
SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda span: (span[0], span[0] + span[1])),
    max_size=12,
)
GROUPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 6)), max_size=14)


def columns(rows, width=2):
    return (np.array([row[at] for row in rows], np.int64) for at in range(width))


def instants(rows):
    """The set of instants that some intervals cover."""
    return {time for start, end in rows for time in range(start, end)}


def pairs(found):
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def union(rows, **options):
    return Intervals.union(*columns(rows), **options)


@given(SPANS)
def test_the_union_covers_what_any_interval_covers(rows):
    merged, separate = union(rows), union(rows, merge_touching=False)
    for found in (merged, separate):
        assert instants(pairs(found)) == instants(rows)
        assert found.total() == len(instants(rows)) == int(found.length.sum())
        assert (found.end > found.start).all()
    assert (merged.start[1:] > merged.end[:-1]).all()
    assert (separate.start[1:] >= separate.end[:-1]).all()
    # They are separate exactly where one begins at an instant up to which others reach, and over
    # which none does.
    edges = {start for start, end in rows if end > start}
    parted = {
        t
        for t in edges
        if t - 1 in instants(rows) and not any(start < t < end for start, end in rows)
    }
    assert {int(start) for start in separate.start} - {
        int(start) for start in merged.start
    } == parted


@given(st.lists(SPANS, max_size=3))
def test_the_union_of_several(parts):
    found = Intervals.union_of(union(rows) for rows in parts)
    assert instants(pairs(found)) == set().union(*(instants(rows) for rows in parts))
    assert (found.start[1:] > found.end[:-1]).all()


@given(SPANS, SPANS, st.booleans())
def test_what_two_have_in_common_and_what_only_one_has(one, other, merge):
    a, b = (union(rows, merge_touching=merge) for rows in (one, other))
    common, left = a.intersection(b), a.difference(b)
    assert instants(pairs(common)) == instants(one) & instants(other)
    assert a.overlap(b) == b.overlap(a) == common.total() == len(instants(one) & instants(other))
    assert instants(pairs(left)) == instants(one) - instants(other)
    assert left.total() == len(instants(one) - instants(other))


@given(SPANS, SPANS, st.booleans())
def test_the_part_before_a_moment_and_within_a_window(rows, windows, merge):
    found, covered = union(rows, merge_touching=merge), instants(rows)
    assert found.covered_until(np.array(TIMES)).tolist() == [
        len([t for t in covered if t < time]) for time in TIMES
    ]
    expected = [len(covered & set(range(*window))) for window in windows]
    assert found.covered_within(*columns(windows)).tolist() == expected
    index = found.index_at(np.array(TIMES)).tolist()
    assert [i >= 0 for i in index] == [time in covered for time in TIMES]
    assert all(
        found.start[i] <= time < found.end[i]
        for i, time in zip(index, TIMES, strict=True)
        if i >= 0
    )


@given(SPANS, SPANS)
def test_the_parts_of_windows_inside_and_outside(rows, windows):
    found, covered = union(rows), instants(rows)
    for pieces, expected in (
        (found.pieces_inside(*columns(windows)), covered),
        (found.pieces_outside(*columns(windows)), set(TIMES) - covered),
    ):
        assert pieces.row.tolist() == sorted(pieces.row.tolist())
        for at, window in enumerate(windows):
            rows_of = np.flatnonzero(pieces.row == at)
            parts = list(
                zip(pieces.start[rows_of].tolist(), pieces.end[rows_of].tolist(), strict=True)
            )
            assert instants(parts) == set(range(*window)) & expected
            assert sum(end - start for start, end in parts) == len(instants(parts))
            # A window without a length stays where it is in the middle of one.
            if window[0] == window[1]:
                assert len(parts) == int({window[0] - 1, window[0]} <= expected)


@given(SPANS, st.booleans(), st.booleans())
def test_gaps_lie_between_and_up_to_the_bounds(rows, low, high):
    found, covered = union(rows), instants(rows)
    gaps = found.gaps(*(bound if given else None for bound, given in ((0, low), (LATEST, high))))
    first = 0 if low else min(covered, default=LATEST)
    last = LATEST if high else max(covered, default=-1)
    bounded = bool(covered) or (low and high)
    assert instants(pairs(gaps)) == (set(range(first, last)) - covered if bounded else set())
    assert (gaps.end > gaps.start).all()


@pytest.mark.parametrize("few", [0, 256], ids=["end to end", "group by group"])
@given(rows=GROUPS)
def test_groups_are_as_each_by_itself(few, rows):
    group, start, length = columns(rows, 3)
    end = start + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(intervals, "_FEW_GROUPS", few)
        for merge in (True, False):
            found = intervals.union_by_group(group, start, end, merge_touching=merge)
            each = [
                Intervals.union(start[group == g], end[group == g], merge_touching=merge)
                for g in range(4)
            ]
            assert [
                pairs(intervals.GroupIntervals(*(c[found.group == g] for c in found)))
                for g in range(4)
            ] == [pairs(one) for one in each]
            assert found.totals(4).tolist() == [one.total() for one in each]
        order = np.lexsort((start, group))
        group, start, end = group[order], start[order], end[order]
        before = intervals.ends_before(end, group)
        expected = [
            max(end[:at][group[:at] == group[at]], default=np.iinfo(np.int64).min)
            for at in range(len(end))
        ]
        assert before.tolist() == expected
        gaps = intervals.gaps_between(start, end, group)
    idle = {
        (int(group[at]), int(expected[at]), int(start[at]))
        for at in range(len(end))
        if np.iinfo(np.int64).min < expected[at] < start[at]
    }
    assert (
        set(
            zip(group[gaps.following].tolist(), gaps.start.tolist(), gaps.end.tolist(), strict=True)
        )
        == idle
    )


def test_groups_far_apart_in_time_are_not_mixed_up(monkeypatch):
    monkeypatch.setattr(intervals, "_FEW_GROUPS", 0)
    far = np.iinfo(np.int64).max // 2
    group = np.array([0, 0, 1, 1, 2, 2])
    start = np.array([0, far - 5, 0, far - 5, 0, far - 5])
    end = start + 2
    found = intervals.union_by_group(group, start, end)
    assert found.totals(3).tolist() == [4, 4, 4]


@given(SPANS)
def test_one_at_a_time(rows):
    rows = sorted(rows)
    start, end = intervals.one_at_a_time(*columns(rows))
    seen = set()
    for (first, last), part in zip(
        zip(start.tolist(), end.tolist(), strict=True), rows, strict=True
    ):
        left = instants([part]) - seen
        # What is left of an interval is its last part, as those before it begin no later.
        assert instants([(first, last)]) == left
        seen |= instants([part])
    assert (start[1:] >= end[:-1]).all()


@given(GROUPS, GROUPS)
def test_the_interval_of_a_group_that_includes_a_moment(rows, moments):
    group, start, length = columns(rows, 3)
    end = start + length
    group[group == 3] = -1
    time_group, time, _ = columns(moments, 3)
    index = intervals.index_by_group((start, end), group, time, time_group)
    for at, moment, of in zip(index.tolist(), time.tolist(), time_group.tolist(), strict=True):
        begun = [(start[i], i) for i in range(len(rows)) if group[i] == of and start[i] <= moment]
        last = max(begun, default=(0, -1))[1]
        assert at == (last if last >= 0 and moment < end[last] else -1)


@given(GROUPS)
def test_the_least_value_that_covers_a_slot(rows):
    value, start, length = columns(rows, 3)
    end, slots = start + length, 1 + int((start + length).max(initial=0))
    least = intervals.least_covering(start, end, value, slots)
    for slot, found in enumerate(least.tolist()):
        around = value[(start <= slot) & (slot < end)]
        assert found == min(around.tolist(), default=-1)


@given(SPANS, SPANS)
def test_rows_of_a_table_keep_their_columns(rows, table):
    start, end = columns(table)
    frame = pd.DataFrame({"name": np.arange(len(table)), "start": start, "end": end})
    found = union(rows)
    for cut, pieces in (
        (found.rows_inside(frame), found.pieces_inside(start, end)),
        (found.rows_outside(frame), found.pieces_outside(start, end)),
    ):
        assert cut["name"].tolist() == pieces.row.tolist()
        assert (cut["start"].tolist(), cut["end"].tolist()) == (
            pieces.start.tolist(),
            pieces.end.tolist(),
        )
    assert pairs(Intervals.of_rows(frame)) == pairs(union(table))

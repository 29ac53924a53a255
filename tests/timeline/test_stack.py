"""Levels: slices of one level never overlap, children stay below what they lie in, and nested
slices are as deep as they lie.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.core.trace import Events
from nbprof.timeline import levels as module
from nbprof.timeline.levels import Stack, stack

Spans = list[tuple[int, int, int]]

spans = st.lists(
    st.tuples(st.sampled_from([0, 2, 3]), st.integers(-5, 40), st.integers(0, 25)), max_size=40
)


def events(of: Spans) -> Events:
    """Events of (lane, start, duration)."""
    rows = sorted(of, key=lambda row: (row[0], row[1], -row[2]))
    lane, start, duration = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    return Events(lane.astype(np.int32), np.arange(len(rows), dtype=np.int32), start, duration)


def first_fit(table: Events) -> tuple[list[int], int]:
    """Levels by looking at every pair, and how many do not lie right below their parent."""
    level: list[int] = []
    moved = 0
    for i in range(len(table)):
        parent = int(table.parent[i])
        lowest = at = level[parent] + 1 if parent >= 0 else 0
        while any(
            table.lane[j] == table.lane[i] and level[j] == at and table.end[j] > table.start[i]
            for j in range(i)
        ):
            at += 1
        level.append(at)
        moved += at > lowest
    return level, moved


def is_right(made: Stack) -> None:
    table = made.events
    seen = []
    for k, lane in enumerate(made.lanes.tolist()):
        rows = range(int(made.first_row[k]), int(made.first_row[k + 1]))
        assert made.flat[k] == (len(rows) == 1)
        for depth, row in enumerate(rows):
            at, stop = int(made.row[row]), int(made.row[row + 1])
            ids = np.arange(at, stop) if made.flat[k] else made.order[at:stop]
            assert len(ids)
            assert (table.lane[ids] == lane).all()
            assert (made.level[ids] == depth).all()
            assert (np.diff(ids) > 0).all()
            assert (table.end[ids][:-1] <= table.start[ids][1:]).all()
            seen.extend(ids.tolist())
    assert sorted(seen) == list(range(len(table)))
    inner = table.parent >= 0
    assert (made.level[inner] > made.level[table.parent[inner]]).all()


def test_clusters_of_a_lane_at_different_depths():
    """A lane whose events overlap partly at its top, and later four levels further down."""
    nest = [(0, 100 + i, 100 - 2 * i) for i in range(4)]
    table = events([(0, 0, 10), (0, 5, 10), *nest, (0, 110, 10), (0, 115, 10)])
    made = stack(table)
    is_right(made)
    assert (made.level.tolist(), made.moved) == first_fit(table)


@given(spans)
@settings(max_examples=300)
def test_as_first_fit_in_the_order_of_starts(of: Spans) -> None:
    made = stack(events(of))
    is_right(made)
    level, moved = first_fit(made.events)
    assert made.level.tolist() == level
    assert made.moved == moved
    assert made.moved_lanes == len(
        {int(made.events.lane[i]) for i in np.flatnonzero(made.level != made.events.depth)}
    )


@given(spans)
@settings(max_examples=200)
def test_the_walk_behind_many_levels_gives_the_same(of: Spans) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MANY", 1)
        made = stack(events(of))
    is_right(made)
    assert made.level.tolist() == first_fit(made.events)[0]


def test_what_nests_is_as_deep_as_it_lies_and_nothing_is_copied() -> None:
    table = events(
        [
            (0, 0, 100),
            (0, 10, 20),
            (0, 30, 20),
            (0, 12, 5),
            (0, 100, 0),
            (0, 40, 10),
            (1, 0, 4),
            (1, 4, 4),
        ]
    )
    made = stack(table)
    assert made.level is table.depth
    assert (made.moved, made.moved_lanes) == (0, 0)
    assert made.level.tolist() == [0, 1, 2, 1, 2, 1, 0, 0]
    assert made.flat.tolist() == [False, True]


def test_only_what_overlaps_partly_moves_and_takes_along_what_lies_in_it() -> None:
    #   0: [0......10]      1: [5.....15]   child of it [11..14]   far away nested [100..110] > [101..102]
    table = events([(0, 0, 10), (0, 2, 6), (0, 5, 10), (0, 11, 3), (0, 100, 10), (0, 101, 1)])
    made = stack(table)
    # [2..8] is in [0..10]; [5..15] overlaps both.
    assert made.level.tolist() == [0, 1, 2, 3, 0, 1]
    assert (made.moved, made.moved_lanes) == (1, 1)
    assert table.depth.tolist() == [0, 1, 0, 1, 0, 1]


def test_equal_and_empty_events_lie_in_one_another() -> None:
    assert stack(events([(0, 5, 3)] * 3)).level.tolist() == [0, 1, 2]
    assert stack(events([(0, 5, 0)] * 3)).level.tolist() == [0, 1, 2]
    is_right(stack(events([(0, 0, 5), (0, 5, 0), (0, 5, 5)])))


def test_no_events() -> None:
    made = stack(events([]))
    assert len(made.level) == len(made.lanes) == 0
    assert made.row.tolist() == made.bounds.tolist() == made.first_row.tolist() == [0]


@pytest.mark.parametrize("depth", [500, 70_000])
def test_deep_nesting(depth: int) -> None:
    at = np.arange(depth)
    table = Events(np.zeros(depth, np.int32), np.zeros(depth, np.int32), at, 2 * (depth - at))
    made = stack(table)
    assert made.level.tolist() == np.minimum(at, 65535).tolist()
    assert made.moved == 0


def test_a_staircase_is_stacked() -> None:
    at = np.arange(300)
    table = Events(np.zeros(300, np.int32), np.zeros(300, np.int32), at, np.full(300, 200))
    made = stack(table)
    is_right(made)
    # Each step runs for 200 of them; the 201st is free to start over.
    assert made.level.tolist() == (at % 200).tolist()
    assert made.moved == 298


def test_many_lanes() -> None:
    lane = np.repeat(np.arange(5000), 3)
    start = np.tile([0, 1, 5], 5000)
    duration = np.tile([10, 2, 8], 5000)
    made = stack(Events(lane.astype(np.int32), np.zeros(15000, np.int32), start, duration))
    assert made.level.reshape(-1, 3).tolist() == [[0, 1, 1]] * 5000
    assert (made.moved, made.moved_lanes) == (5000, 5000)


def test_at_the_end_of_time() -> None:
    last = 2**63 - 1
    table = events([(0, -10, 5), (0, last - 10, 10), (0, last - 5, 5), (0, last, 0)])
    assert stack(table).level.tolist() == [0, 0, 1, 2]

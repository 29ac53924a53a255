"""Neighbours of a slice against a look at all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.timeline import slices as module
from nbprof.timeline.levels import stack
from nbprof.timeline.slices import Direction, Slices
from tests.timeline.lanes import SPANS, TRACKS, Span, Track, timeline

TO: tuple[Direction, ...] = ("previous", "next", "parent", "child", "previous_same", "next_same")


def _expected(
    slices: Slices, order: list[Span], at: int, to: Direction, level: list[int]
) -> int | None:
    span = order[at]
    parent = slices.tracks.events.parent

    def key(i: int) -> tuple[int, int]:
        return order[i].start, i

    if to == "parent":
        return int(parent[at]) if parent[at] >= 0 else None
    if to == "child":
        inner = [i for i in range(len(order)) if parent[i] == at]
        return max(inner, key=lambda i: (order[i].duration, -i), default=None)
    if to in ("previous", "next"):
        among = [
            i for i in range(len(order)) if order[i].lane == span.lane and level[i] == level[at]
        ]
    else:
        kind = TRACKS[span.lane].kind
        among = [
            i
            for i in range(len(order))
            if order[i].name == span.name and TRACKS[order[i].lane].kind == kind
        ]
    if to.startswith("previous"):
        return max((i for i in among if key(i) < key(at)), key=key, default=None)
    return min((i for i in among if key(i) > key(at)), key=key, default=None)


@given(SPANS, st.integers(1, 4))
def test_neighbours_are_those_that_a_look_at_all_slices_finds(
    spans: list[Span], block: int
) -> None:
    slices, order = timeline(spans)
    levels = stack(slices.tracks.events).level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        slices = Slices(slices.tracks, lambda: (levels, np.zeros(0, np.uint16)))
        for at in range(len(order)):
            assert slices.ref(at)["depth"] == levels[at]
            for to in TO:
                assert slices.step(at, to) == _expected(slices, order, at, to, levels.tolist()), to


@given(SPANS, st.integers(0, 90), st.integers(1, 5))
def test_slices_that_reach_over_a_time_are_all_found(
    spans: list[Span], time: int, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        slices, order = timeline(spans)
        for lane in range(len(TRACKS)):
            expected = [
                i
                for i, s in enumerate(order)
                if s.lane == lane and s.start < time < s.start + s.duration
            ]
            assert slices.part_of(lane).reaching(lane, time).tolist() == expected


@given(SPANS, st.integers(0, 90), st.integers(0, 30), st.permutations(range(4)))
def test_the_first_slice_of_a_window_is_the_first_of_the_first_lane_that_has_one(
    spans: list[Span], low: int, length: int, lanes: list[int]
) -> None:
    slices, order = timeline(spans)
    starts = [
        (lane, i)
        for lane in lanes
        for i, s in enumerate(order)
        if s.lane == lane and low <= s.start <= low + length
    ]
    reach = [
        (lane, i)
        for lane in lanes
        for i, s in enumerate(order)
        if s.lane == lane and s.start < low < s.start + s.duration
    ]
    # What starts there comes before what reaches in from before, on the same lane.
    expected = next((i for lane in lanes for on, i in [*starts, *reach] if on == lane), None)
    assert slices.first(slices.ns(low), slices.ns(low + length), [*lanes]) == expected


def test_derived_slices_go_on_behind_the_recorded_ones() -> None:
    slices, _ = timeline(
        [Span(0, 0, 0, 5), Span(2, 1, 3, 5)],
        [*TRACKS, Track(derived=True)],
        extra=[Span(4, 1, 1, 9), Span(4, 1, 20, 2)],
    )
    assert slices.ref(2) == {
        "event": 2,
        "lane": 4,
        "depth": 0,
        "start_ns": 0.001,
        "duration_ns": 0.009,
        "name": "b",
    }
    assert slices.step(2, "next") == 3
    assert slices.step(3, "previous") == 2
    assert slices.step(2, "next_same") == 1
    assert slices.step(1, "next_same") == 3
    assert slices.step(3, "next_same") is None
    assert slices.first(0, 1, [4]) == 2


def test_an_event_that_does_not_exist_is_refused() -> None:
    slices, _ = timeline([Span(0, 0, 0, 5)])
    for event in (-1, 1, 10**12):
        with pytest.raises(IndexError, match="there are 1"):
            slices.ref(event)


def test_times_before_the_origin_and_at_the_end_of_what_a_number_holds() -> None:
    last = int(np.iinfo(np.int64).max)
    slices, _ = timeline([Span(0, 0, -700, 5), Span(0, 1, last - 700, 700)])
    assert slices.ref(0)["start_ns"] == 0
    assert slices.ref(1)["start_ns"] == last / 1000
    assert slices.ps(1e300) == last
    assert slices.ps(-1e300) == -last


def test_a_long_name_is_cut_in_lists() -> None:
    slices, _ = timeline([Span(0, 0, 0, 5)], names=("x" * 20_000,))
    assert slices.ref(0)["name"] == "x" * 2000
    assert slices.name(0) == "x" * 20_000


def test_of_many_names_the_slices_of_the_last_are_kept() -> None:
    slices, _ = timeline(
        [Span(0, i, i, 1) for i in range(30)], names=tuple(f"n{i}" for i in range(30))
    )
    for event in range(30):
        assert slices.same(event).tolist() == [event]
    assert len(slices._same) <= module._MOST_CACHED_NAMES
    assert slices.same(29) is slices.same(29)


@given(SPANS, SPANS, st.integers(-5, 70), st.integers(0, 30))
@settings(max_examples=200, deadline=None)
def test_lanes_of_a_range_are_those_with_a_slice_in_it(
    spans: list[Span], derived: list[Span], low: int, length: int
) -> None:
    extra = [Span(s.lane + 4, s.name, s.start, s.duration) for s in derived]
    slices, everything = timeline(spans, [*TRACKS, *TRACKS], extra=extra)
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of some lanes, of one, and of a part of one.
        patch.setattr(module, "_BLOCK", 4)
        found = slices.touching(low, low + length)
    high = low + length
    expected = {
        s.lane
        for s in everything
        if s.start < high and (s.start >= low or s.start + s.duration > low)
    }
    assert set(np.flatnonzero(found).tolist()) == expected

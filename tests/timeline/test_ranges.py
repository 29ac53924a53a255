"""Sums over a range of the timeline against sums made one slice at a time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbprof import load
from nbprof.timeline import ranges, sums
from tests.support.profiles import real
from tests.timeline.lanes import NAMES, SPANS, TRACKS, Span, Track, covered, timeline


def _inside(span: Span, low: int, high: int) -> int:
    return max(min(span.start + span.duration, high) - max(span.start, low), 0)


def _is_in(span: Span, low: int, high: int) -> bool:
    return (
        low <= span.start < high
        if not span.duration
        else span.start < high and span.start + span.duration > low
    )


@given(SPANS, st.integers(-5, 90), st.integers(1, 60), st.integers(1, 7))
def test_sums_of_a_range_are_those_of_its_slices(
    spans: list[Span], low: int, length: int, chunk: int
) -> None:
    high = low + length
    slices, order = timeline(spans)
    parent = slices.tracks.events.parent
    count: dict[tuple[str, str], int] = defaultdict(int)
    own: dict[tuple[str, str], int] = defaultdict(int)
    total: dict[tuple[str, str], int] = defaultdict(int)
    longest: dict[tuple[str, str], int] = defaultdict(int)
    for i, span in enumerate(order):
        if _is_in(span, low, high):
            name = NAMES[span.name], TRACKS[span.lane].kind
            children = sum(_inside(s, low, high) for k, s in enumerate(order) if parent[k] == i)
            count[name] += 1
            total[name] += _inside(span, low, high)
            own[name] += max(_inside(span, low, high) - children, 0)
            longest[name] = max(longest[name], span.duration)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "_CHUNK", chunk)
        found = ranges.range_info(slices, slices.ns(low), slices.ns(high), None)
    assert found["count"] == sum(count.values())
    assert {(s["name"], s["on"]): s["count"] for s in found["shares"]} == count
    assert {(s["name"], s["on"]): round(s["total_ns"] * 1000) for s in found["shares"]} == total
    assert {(s["name"], s["on"]): round(s["self_ns"] * 1000) for s in found["shares"]} == own
    assert {
        (s["name"], s["on"]): round(s["longest"]["duration_ns"] * 1000) for s in found["shares"]
    } == longest
    for share in found["shares"]:
        assert share["longest"]["name"] == share["name"]
        assert share["percent"] == pytest.approx(100 * share["self_ns"] * 1000 / length)
    assert [s["self_ns"] for s in found["shares"]] == sorted(
        (s["self_ns"] for s in found["shares"]), reverse=True
    )


@given(SPANS, st.integers(-5, 90), st.integers(1, 60))
def test_lanes_are_busy_and_devices_idle_for_as_long_as_their_slices_say(
    spans: list[Span], low: int, length: int
) -> None:
    high = low + length
    slices, order = timeline(spans)
    found = ranges.range_info(slices, slices.ns(low), slices.ns(high), None)

    def parts(lanes: set[int]) -> list[tuple[int, int]]:
        return [
            (max(s.start, low), min(s.start + s.duration, high)) for s in order if s.lane in lanes
        ]

    busy = {lane["lane"]: round(lane["busy_ns"] * 1000) for lane in found["lanes"]}
    assert busy == {lane: covered(parts({lane})) for lane in {s.lane for s in order}}
    devices = {s.lane for s in order} & {0, 1}
    assert [s["process"] for s in found["idle"]] == (["GPU 0"] if devices else [])
    if devices:
        assert found["idle"][0]["percent"] == pytest.approx(
            100 * (1 - covered(parts(devices)) / length)
        )


@given(SPANS, st.lists(st.integers(0, 39), max_size=12))
def test_a_set_of_slices_counts_each_once_and_whole(spans: list[Span], chosen: list[int]) -> None:
    slices, order = timeline(spans)
    ids = sorted({i % len(order) for i in chosen}) if order else []
    found = ranges.many_info(slices, [*ids, *ids])
    assert found["count"] == len(ids)
    total: dict[tuple[str, str], int] = defaultdict(int)
    for i in ids:
        total[NAMES[order[i].name], TRACKS[order[i].lane].kind] += order[i].duration
    assert {(s["name"], s["on"]): round(s["total_ns"] * 1000) for s in found["shares"]} == total
    if ids:
        assert found["from"] == slices.ns(min(order[i].start for i in ids))
        assert found["to"] == slices.ns(max(order[i].start + order[i].duration for i in ids))
        own = slices.tracks.events.self_time
        assert sum(s["self_ns"] for s in found["shares"]) == pytest.approx(
            sum(int(own[i]) for i in ids) / 1000
        )
    assert {lane["lane"]: lane["count"] for lane in found["lanes"]} == {
        lane: sum(order[i].lane == lane for i in ids) for lane in {order[i].lane for i in ids}
    }


def test_lanes_that_say_again_what_others_hold_are_left_out_unless_they_are_asked_for() -> None:
    tracks = [
        *TRACKS,
        Track("device", "XLA Modules", "GPU 0"),
        Track("host", "made here", derived=True),
        Track("steps", "Steps", "GPU 0"),
    ]
    slices, _ = timeline(
        [Span(i, 0, 0, 10) for i in range(5)], tracks, extra=[Span(5, 1, 0, 10), Span(6, 2, 0, 10)]
    )
    found = ranges.range_info(slices, 0, 1, None)
    assert [lane["lane"] for lane in found["lanes"]] == [0, 1, 2, 3]
    asked = ranges.range_info(slices, 0, 1, [6, 4, 5])
    assert [lane["lane"] for lane in asked["lanes"]] == [6, 4, 5]
    assert {s["name"] for s in asked["shares"]} == {"a", "b", "c"}
    assert asked["shares"][0]["longest"]["event"] in range(len(slices))
    assert asked["idle"] == []


def test_names_beyond_the_first_two_hundred_are_summed_up() -> None:
    names = tuple(f"n{i}" for i in range(300))
    slices, _ = timeline([Span(0, i, 1000 * i, 1 + i) for i in range(300)], names=names)
    found = ranges.range_info(slices, 0, slices.ns(slices.tracks.end), None)
    assert len(found["shares"]) == 200
    assert found["shares"][0]["name"] == "n299"
    assert found["others"] == {"names": 100, "count": 100, "self_ns": sum(range(1, 101)) / 1000}
    one_more = ranges.range_info(slices, 0, slices.ns(1000 * 200 + 500), None)
    assert len(one_more["shares"]) == 201
    assert one_more["others"] is None


def test_names_that_read_the_same_are_one_share() -> None:
    slices, _ = timeline(
        [Span(0, 0, 0, 5), Span(0, 1, 10, 50), Span(0, 2, 100, 7)], names=("same", "same", "else")
    )
    found = ranges.range_info(slices, 0, 1, None)
    assert [(s["name"], s["count"], s["longest"]["event"]) for s in found["shares"]] == [
        ("same", 2, 1),
        ("else", 1, 2),
    ]


def test_a_launch_that_is_called_like_its_kernel_is_a_share_of_its_own() -> None:
    slices, _ = timeline([Span(0, 0, 0, 100), Span(2, 0, 10, 30), Span(3, 0, 50, 20)])
    for found in (
        ranges.range_info(slices, 0, slices.ns(100), None),
        ranges.many_info(slices, [0, 1, 2]),
    ):
        assert [
            (s["on"], s["count"], s["percent"], s["longest"]["lane"]) for s in found["shares"]
        ] == [
            ("device", 1, 100, 0),
            ("host", 2, 50, 2),
        ]
        assert len({s["name"] for s in found["shares"]}) == 1
        assert found["count"] == 3


def test_a_kernel_of_tensorflow_takes_what_it_takes_alone() -> None:
    trace = load(real("tf-gpu/rtx5000-cnn-batch64")).trace
    kernel = trace.events(lane="Stream 19").iloc[0]
    start = kernel["start_us"] / 1000
    found = trace.range(start, start + kernel["duration_us"] / 1000).set_index("on")
    device = found.loc[["device"]]
    assert device["name"].tolist() == [kernel["name"]]
    assert device["self_us"].tolist() == pytest.approx([kernel["duration_us"]])
    assert device["percent"].tolist() == pytest.approx([100.0])
    # The host was still in the launch of that name.
    assert kernel["name"] in found.loc[["host"], "name"].tolist()


def test_a_range_of_no_length_or_without_lanes_is_empty() -> None:
    slices, _ = timeline([Span(0, 0, 0, 5)])
    for found in (
        ranges.range_info(slices, 0.002, 0.002, None),
        ranges.range_info(slices, 0, 1, []),
        ranges.many_info(slices, []),
    ):
        assert found["count"] == 0
        assert found["shares"] == []
    assert ranges.range_info(slices, 1.0, 0.0, None)["count"] == 1


def test_an_event_that_does_not_exist_is_refused() -> None:
    slices, _ = timeline([Span(0, 0, 0, 5)])
    with pytest.raises(IndexError, match="no event 7"):
        ranges.many_info(slices, [0, 7])


def test_times_at_the_end_of_what_a_number_holds_and_a_day_away() -> None:
    last = int(np.iinfo(np.int64).max)
    day = 86_400 * 10**12
    slices, _ = timeline([Span(0, 0, 0, 5), Span(0, 1, day, 0), Span(0, 2, last - 10, 10)])
    found = ranges.range_info(slices, 0.0, slices.ns(last), None)
    assert {s["name"]: s["count"] for s in found["shares"]} == {"a": 1, "b": 1, "c": 1}
    assert found["lanes"][0]["busy_ns"] == pytest.approx(0.015, abs=0.002)


def test_slices_nested_five_hundred_deep_have_the_part_inside() -> None:
    depth = 500
    slices, _ = timeline([Span(0, i % 5, i, 2 * depth - 2 * i) for i in range(depth)])
    found = ranges.range_info(slices, slices.ns(depth - 1), slices.ns(depth), None)
    assert found["count"] == depth
    # Only the innermost is at work in the middle.
    assert sum(s["self_ns"] for s in found["shares"]) == pytest.approx(0.001)
    assert sum(s["total_ns"] for s in found["shares"]) == pytest.approx(depth / 1000)

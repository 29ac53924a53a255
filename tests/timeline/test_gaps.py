"""When devices stand still, against a count of every moment."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.schema import frames
from nbprof.timeline import gaps
from tests.support.examples import examples
from tests.support.kineto import Kineto, profile
from tests.support.made import Made, runs
from tests.timeline.lanes import NAMES, SPANS, TRACKS, Span, Track, timeline


def _idle(spans: list[Span], lanes: set[int]) -> list[tuple[int, int]]:
    """Stretches between the first and the last work in which no lane has any."""
    work = sorted(
        {t for s in spans if s.lane in lanes for t in range(s.start, s.start + s.duration)}
    )
    return [(a + 1, b) for a, b in pairwise(work) if b > a + 1] if work else []


@given(SPANS)
def test_gaps_are_the_moments_between_the_work_of_a_device(spans: list[Span]) -> None:
    slices, order = timeline(spans)
    found, count = gaps.gaps(slices)
    expected = _idle(order, {0, 1})
    assert sorted((g.start, g.end) for g in found) == expected
    assert count == len(expected)
    assert [g.end - g.start for g in found] == sorted(
        (g.end - g.start for g in found), reverse=True
    )
    assert [(g.start, g.end) for g in gaps.gaps(slices, limit=2)[0]] == [
        (g.start, g.end) for g in found[:2]
    ]
    # What the host did meanwhile: most self time of a name on all threads.
    parent = slices.tracks.events.parent
    for gap in found:
        own: dict[str, int] = {}
        for i, span in enumerate(order):
            if TRACKS[span.lane].kind == "host":
                inside = [
                    max(min(s.start + s.duration, gap.end) - max(s.start, gap.start), 0)
                    for s in order
                ]
                children = sum(inside[k] for k in range(len(order)) if parent[k] == i)
                own[NAMES[span.name]] = own.get(NAMES[span.name], 0) + max(inside[i] - children, 0)
        most = max(own.values(), default=0)
        assert gap.self_time == most
        if most:
            assert own[gap.name] == most
            assert gap.event is not None
            assert slices.name(gap.event) == gap.name
        else:
            assert (gap.name, gap.event) == ("", None)


@given(SPANS, st.integers(0, 80), st.integers(1, 40))
def test_in_a_range_its_ends_bound_the_gaps(spans: list[Span], low: int, length: int) -> None:
    high = low + length
    slices, order = timeline(spans)
    found, _ = gaps.gaps(slices, slices.ns(low), slices.ns(high))
    busy = {t for s in order if s.lane in (0, 1) for t in range(s.start, s.start + s.duration)}
    idle = (
        {t for t in range(low, high) if t not in busy}
        if any(s.lane in (0, 1) for s in order)
        else set()
    )
    assert {t for g in found for t in range(g.start, g.end)} == idle
    assert all(g.end > g.start for g in found)


@given(SPANS, st.integers(0, 90))
def test_a_time_is_in_its_gap_or_next_to_it(spans: list[Span], time: int) -> None:
    slices, order = timeline(spans)
    expected = _idle(order, {0, 1})
    found = gaps.nearest(slices, slices.ns(time))
    if not expected:
        assert found is None
        return
    assert found is not None
    away = min(max(a - time, time - b, 0) for a, b in expected)
    assert max(found.start - time, time - found.end, 0) == away
    assert (found.start, found.end) in expected
    longest = gaps.nearest(slices, None)
    assert longest is not None
    assert longest.end - longest.start == max(b - a for a, b in expected)


def test_each_device_has_gaps_of_its_own_and_asks_its_own_host() -> None:
    tracks = [
        Track("device", "Stream 1", "GPU 0", "h1"),
        Track("device", "Stream 1", "GPU 1", "h2"),
        Track(host="h1"),
        Track(host="h2"),
    ]
    spans = [
        Span(0, 0, 0, 10),
        Span(0, 0, 30, 10),
        Span(1, 0, 0, 5),
        Span(1, 0, 50, 5),
        Span(2, 1, 0, 60),
        Span(3, 2, 0, 60),
    ]
    slices, _ = timeline(spans, tracks)
    answer = gaps.answer(slices, None, None, 10)
    assert answer["process"] == ["GPU 1", "GPU 0"]
    assert answer["host"] == ["h2", "h1"]
    assert answer["meanwhile"] == ["c", "b"]
    assert answer["start_ns"].tolist() == [0.005, 0.010]
    assert answer["duration_ns"].tolist() == [0.045, 0.020]
    assert answer["event"].tolist() == [5, 4]
    assert answer["total"] == 2
    only = gaps.nearest(slices, None, device="GPU 0")
    assert only is not None
    assert only.process == "GPU 0"
    assert gaps.nearest(slices, None, host="h3") is None


@settings(max_examples=examples(100))
@given(runs(gpu=True))
def test_the_frame_has_its_declared_columns_and_no_gap_overlaps_a_kernel(made: Made) -> None:
    run = made.profile().run
    frame = gaps.frame(run)
    assert frame.columns.tolist() == [c.name for c in frames.SCHEMA["trace.gaps"]]
    for column in frames.SCHEMA["trace.gaps"]:
        assert frame[column.name].dtype == np.dtype(column.dtype)
    assert (frame["duration_us"] > 0).all()
    assert frame["duration_us"].is_monotonic_decreasing
    assert (frame["meanwhile_us"].isna() == (frame["meanwhile"] == "")).all()
    events, lanes = run.trace.events, run.trace.lanes
    kernels = lanes["thread"].str.startswith("Stream").to_numpy()[events.lane]
    start, end = events.start[kernels] / 1e6, events.end[kernels] / 1e6
    for row in frame.itertuples():
        inside = (
            np.minimum(end, row.start_ms * 1000 + row.duration_us)
            - np.maximum(start, row.start_ms * 1000)
        ) > 1e-6
        assert not inside.any()


def test_a_profile_without_a_device_has_no_gaps() -> None:
    slices, _ = timeline([Span(2, 0, 0, 5), Span(2, 0, 50, 5)])
    assert gaps.gaps(slices) == ([], 0)
    assert gaps.nearest(slices, 10.0) is None
    assert gaps.answer(slices, None, None, 5)["total"] == 0


@pytest.mark.parametrize("most", [0, 3])
def test_only_the_gaps_that_are_listed_are_asked_about(most: int) -> None:
    slices, _ = timeline([Span(0, 0, 10 * i, 5) for i in range(10)])
    found, count = gaps.gaps(slices, limit=most)
    assert (len(found), count) == (most, 9)


def test_the_recorder_is_no_answer_to_what_the_host_did(tmp_path: Path) -> None:
    file = Kineto()
    file.add("PyTorch Profiler (0)", "Trace", 0, 1000, pid="Spans", tid="PyTorch Profiler")
    file.add(
        "Iteration Start: PyTorch Profiler",
        "Trace",
        0,
        1,
        pid="Traces",
        tid="Trace PyTorch Profiler",
    )
    file.add("Buffer Flush", "overhead", 600, 300, pid=-1, tid=0)
    file.op("aten::mm", 0, 10)
    file.op("next(loader)", 200, 250)
    for at in (100, 500, 950):
        file.kernel("gemm", at, 20)
    p = profile(tmp_path, file)
    first, second = (p.trace.gaps().set_index("start_ms")["meanwhile"][at] for at in (0.12, 0.52))
    # What the recorder itself costs is some work of the host; that it records is none.
    assert (first, second) == ("next(loader)", "Buffer Flush")
    assert set(p.trace.range(0.0, 1.0)["name"]) == {
        "next(loader)",
        "Buffer Flush",
        "gemm",
        "aten::mm",
    }

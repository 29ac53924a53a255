"""Windows of rows by bisection, against a look at every event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.timeline.index import Index
from nbprof.timeline.tracks import Tracks

from .test_stack import Spans, events, spans


def tracks_of(main: Spans, extra: Spans = ()) -> Tracks:  # type: ignore[assignment]
    """Tracks of (lane, start, duration); `extra` on lanes behind the others."""
    first, second = events(main), events([(lane + 10, *rest) for lane, *rest in extra])  # type: ignore[misc]
    names = np.array([f"op_{i}" for i in range(max(len(first), len(second), 1))], object)
    ends = np.concatenate([first.end, second.end])
    starts = np.concatenate([first.start, second.start])
    return Tracks(
        [],
        first,
        second,
        names,
        names,
        np.zeros(len(names), np.uint8),
        [],
        min(int(starts.min(initial=0)), 0),
        int(ends.max(initial=0)),
    )


@given(spans, spans, st.integers(-10, 50), st.integers(0, 30))
@settings(max_examples=200)
def test_windows_hold_what_starts_in_them_and_what_reaches_in(
    main: Spans, extra: Spans, at: int, width: int
) -> None:
    index = Index(tracks_of(main, extra))
    seen = []
    for lane in [*range(5), *range(10, 15)]:
        table = index.tracks.extra if lane >= 10 else index.tracks.events
        base = len(index.tracks.events) if lane >= 10 else 0
        for level in range(index.rows(lane)):
            ids = index.events(lane, level, 0, 10**9)
            seen.extend(ids.tolist())
            assert all(index.level(int(event)) == level for event in ids)
            first, last = index.window(lane, level, at, at + width)
            found = index.events(lane, level, first, last).tolist()
            start, end = table.start[ids - base], table.end[ids - base]
            inside = ((start >= at) & (start < at + width)) | ((start < at) & (end > at))
            assert found == ids[inside].tolist()
    assert sorted(seen) == list(range(len(main) + len(extra)))


def test_what_is_not_there_is_empty() -> None:
    index = Index(tracks_of([(0, 0, 5)]))
    assert index.rows(7) == 0
    assert index.window(7, 0, 0, 10) == index.window(0, 1, 0, 10) == (0, 0)
    assert len(index.events(7, 0, 0, 1)) == len(index.events(0, 1, 0, 1)) == 0
    with pytest.raises(IndexError):
        index.level(1)
    with pytest.raises(IndexError):
        index.level(-1)

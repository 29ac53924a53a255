"""Counters in bins, against a look at every sample."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nbprof.core.errors import NbprofError
from nbprof.timeline.bins import LEVELS, TILE
from nbprof.timeline.index import Index
from nbprof.timeline.tiles import tiles
from nbprof.timeline.tracks import Counter

from .test_index import tracks_of

Samples = list[tuple[int, float]]

LANE = 40


def counted(samples: Samples, end: int = 0) -> Index:
    tracks = tracks_of([(0, 0, end)] if end else [])
    time = np.array([at for at, _ in samples], np.int64)
    tracks.counters = [
        Counter(
            LANE, "memory", "bytes", time, np.array([value for _, value in samples], np.float64)
        )
    ]
    if len(time):
        tracks.origin = min(tracks.origin, int(time[0]))
    return Index(tracks)


def answered(index: Index, level: int, tile: int, tile_to: int) -> list[tuple[Any, ...]]:
    columns = tiles(index, {"level": level, "want": [[LANE, 0, 0, tile, tile_to]]})["counters"]
    assert set(columns["lane"].tolist()) <= {LANE}
    return list(
        zip(*(columns[name].tolist() for name in ("tile", "t", "low", "high", "last")), strict=True)
    )


@given(
    st.lists(st.tuples(st.integers(-50, 1500), st.integers(-9, 9)), min_size=1, max_size=30),
    st.integers(0, 2000),
    st.integers(LEVELS[0], -8),
)
@settings(max_examples=150, deadline=None)
def test_every_bin_is_what_a_look_at_every_sample_gives(
    samples: Samples, end: int, level: int
) -> None:
    samples = sorted(samples, key=lambda sample: sample[0])
    index = counted(samples, end)
    width, origin = 1000 * Fraction(2) ** level, index.tracks.origin
    until = max(samples[-1][0], end)
    expected = []
    for k in range(
        math.floor((samples[0][0] - origin) / width), math.floor((until - origin) / width) + 1
    ):
        begin = origin + k * width
        before = [value for at, value in samples if at < begin]
        inside = [value for at, value in samples if begin <= at < begin + width]
        if not before and not inside:
            continue
        anew = any(at == math.ceil(begin) for at, _ in samples if begin <= at < begin + width)
        values = inside if anew or not before else [before[-1], *inside]
        tile, place = divmod(k, TILE)
        t = np.float32(math.ceil(place * width) / 1000)
        expected.append((float(tile), t, min(values), max(values), (before + inside)[-1]))
    assert answered(index, level, 0, 100) == expected
    # Tiles are the same one by one.
    assert [row for tile in range(100) for row in answered(index, level, tile, tile)] == expected


@given(
    st.lists(st.tuples(st.integers(-50, 1500), st.integers(0, 100)), min_size=1, max_size=30),
    st.integers(-9, -6),
)
@example([(0, 0), (168, 1)], -9)
@settings(max_examples=100, deadline=None)
def test_means_of_a_share_are_those_of_its_time(samples: Samples, level: int) -> None:
    samples = sorted({at: float(value) for at, value in samples}.items())
    index = counted(samples)
    index.tracks.counters[0].unit = "percent"
    found = tiles(index, {"level": level, "want": [[LANE, 0, 0, -1, 4]]})["counters"]
    width = 1000 * Fraction(2) ** level
    for tile, t, mean, high in zip(
        *(found[name].tolist() for name in ("tile", "t", "mean", "high")), strict=True
    ):
        # A bin begins at the first whole ps in it, which may lie nearer to the next one's.
        k = tile * TILE + math.floor(round(t * 1000) / width)
        begin, end = (math.ceil(index.tracks.origin + edge * width) for edge in (k, k + 1))
        # A share is looked at moment by moment: it is nothing before the first sample.
        held = [
            next((value for at, value in reversed(samples) if at <= moment), 0.0)
            for moment in range(begin, end)
        ]
        assert mean == (pytest.approx(sum(held) / len(held), abs=1e-6) if held else high)


def test_other_counters_have_no_mean() -> None:
    assert np.isnan(
        tiles(counted([(0, 5)]), {"level": -6, "want": [[LANE, 0, 0, 0, 1]]})["counters"]["mean"]
    ).all()


def test_a_value_holds_until_the_end_of_the_profile() -> None:
    rows = answered(counted([(1500, 5.0), (1600, 2.0), (4000, 7.0)], end=6000), 0, 0, 0)
    assert rows == [
        (0, 1, 2, 5, 2),
        (0, 2, 2, 2, 2),
        (0, 3, 2, 2, 2),
        (0, 4, 7, 7, 7),
        (0, 5, 7, 7, 7),
        (0, 6, 7, 7, 7),
    ]


def test_what_is_no_number_is_left_out_beside_numbers() -> None:
    assert answered(counted([(0, 1.0), (10, math.nan), (20, 3.0)]), 0, 0, 0)[0][2:] == (1, 3, 3)


def test_at_the_end_of_time() -> None:
    last = 2**63 - 1
    rows = answered(counted([(0, 1.0), (last, 2.0)]), 44, 0, 9)
    assert rows[-1][2:] == (1, 2, 2)


def test_no_samples_and_too_many_tiles() -> None:
    assert answered(counted([]), 0, 0, 10) == []
    with pytest.raises(NbprofError, match="counter tiles"):
        answered(counted([(0, 1.0), (10**12, 2.0)]), 0, 0, 10**9)

"""Tiles against a look at every event."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.core.errors import NbprofError
from nbprof.core.trace import Events
from nbprof.timeline import coarse
from nbprof.timeline import tiles as module
from nbprof.timeline.bins import LEVELS, TILE
from nbprof.timeline.blocks import Blocks
from nbprof.timeline.index import Index
from nbprof.timeline.tiles import tiles

from .test_index import tracks_of
from .test_stack import Spans
from .test_stack import spans as small_spans

Mark = tuple[int, int, int, int, int, int]
"""First event, start, end (ps), longest event, count, busy."""

# Up to some tiles of the finest level.
spans = st.builds(
    lambda of, scale: [(lane, start * scale, duration * scale) for lane, start, duration in of],
    small_spans,
    st.sampled_from([1, 13, 40]),
)
some_levels = st.integers(LEVELS[0], 1)


def by_hand(index: Index, lane: int, depth: int, level: int, tile: int) -> list[Mark]:
    """The marks of one tile by a look at every event."""
    tracks = index.tracks
    base, table = (len(tracks.events), tracks.extra) if lane >= 10 else (0, tracks.events)
    bin_ = 1000 * Fraction(2) ** level
    begin = tracks.origin + tile * TILE * bin_
    out: list[Mark] = []
    merged: dict[int, list[int]] = defaultdict(list)
    for i in range(len(table)):
        if table.lane[i] != lane or index.level(base + i) != depth:
            continue
        start, duration = int(table.start[i]), int(table.duration[i])
        place = math.floor((start - begin) / bin_)
        if duration >= bin_:
            if (
                place < TILE
                and start + duration > begin
                and not (place < 0 and start + duration <= begin)
            ):
                out.append((i, start, start + duration, base + i, 1, 255))
        elif 0 <= place < TILE:
            merged[place].append(i)
    for ids in merged.values():
        lengths = [int(table.duration[i]) for i in ids]
        longest = ids[lengths.index(max(lengths))]
        busy = min(max(round(float(sum(lengths) / bin_ * 255)), 1), 255) if len(ids) > 1 else 255
        end = int(table.start[ids[-1]] + table.duration[ids[-1]])
        out.append((ids[0], int(table.start[ids[0]]), end, base + longest, len(ids), busy))
    return sorted(out)


def answered(
    index: Index, level: int, want: list[list[int]], **more: Any
) -> dict[tuple[int, int, int], list[tuple[Any, ...]]]:
    """The marks of an answer by (lane, depth, tile)."""
    answer = tiles(index, {"level": level, "want": want}, **more)
    rows = answer["rows"]
    out = {}
    if more.get("hits") is None or not len(more["hits"]):
        # Where nothing was found the column is not there, which saves its bytes.
        assert not len(answer["hit"])
        answer["hit"] = np.zeros(len(answer["start"]), np.uint8)
    columns = [
        answer[name].tolist()
        for name in ("start", "end", "event", "count", "busy", "hit", "name", "fill")
    ]
    size = 0
    for lane, depth, tile, first, count in zip(
        *(rows[name].tolist() for name in ("lane", "depth", "tile", "first", "count")), strict=True
    ):
        assert count > 0
        assert first == size
        size += count
        assert (lane, depth, tile) not in out
        out[lane, depth, int(tile)] = list(
            zip(*(column[first : first + count] for column in columns), strict=True)
        )
    assert all(len(column) == size for column in columns)
    return out


def everything(index: Index, level: int) -> list[list[int]]:
    """What to want to get all tiles of all rows."""
    tracks = index.tracks
    last = math.floor((tracks.end - tracks.origin) / (TILE * 1000 * Fraction(2) ** level))
    return [[lane, 0, 65535, 0, last] for lane in [0, 2, 3, 10, 12, 13]]


@given(spans, spans, some_levels)
@settings(max_examples=150, deadline=None)
def test_every_tile_is_what_a_look_at_every_event_gives(
    main: Spans, extra: Spans, level: int
) -> None:
    # Bins of picoseconds, and of more than all events take.
    index = Index(tracks_of(main, extra))
    found = answered(index, level, everything(index, level))
    tracks = index.tracks
    total = 0
    for lane, _, _, _, last in everything(index, level):
        for depth in range(index.rows(lane)):
            for tile in range(last + 1):
                expected = by_hand(index, lane, depth, level, tile)
                marks = found.pop((lane, depth, tile), [])
                begin = tracks.origin + tile * TILE * 1000 * Fraction(2) ** level
                assert [(m[0], m[1], m[2], m[3], m[4]) for m in marks] == [
                    (
                        np.float32(float(start - begin) / 1000),
                        np.float32(float(end - begin) / 1000),
                        event,
                        count,
                        busy,
                    )
                    for _, start, end, event, count, busy in expected
                ]
                total += sum(count for first, start, _, _, count, _ in expected if start >= begin)
    assert not found
    assert total == len(main) + len(extra)


@given(spans, spans, st.integers(0, 44), st.sampled_from([1, 3]))
@settings(max_examples=150, deadline=None)
def test_wide_bins_made_before_change_nothing(
    main: Spans, extra: Spans, level: int, events: int
) -> None:
    # Bins of ns.
    index, other = (
        Index(
            tracks_of(
                *(
                    [(lane, 900 * at, 900 * length) for lane, at, length in of]
                    for of in (main, extra)
                )
            )
        )
        for _ in "ab"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse, "LEAST", 2)
        patch.setattr(coarse, "EVENTS", events)
        for lane in range(14):
            for row in range(other.rows(lane)):
                table = other.table(lane)
                assert table is not None
                table.coarsen(lane, row, other.tracks.origin)
    want = everything(index, level)
    assert answered(other, level, want) == answered(index, level, want)


def test_empty_bins_of_a_long_row_read_no_place_of_another_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coarse, "LEAST", 2)
    monkeypatch.setattr(coarse, "EVENTS", 1)
    # A lane of one row, of which the order is never written, before one of two rows with a gap of
    # many bins.
    gap = [
        (0, 0, 1000),
        *((2, at * 10_000, 9000) for at in (*range(20), *range(100, 120))),
        (2, 0, 5000),
    ]
    index, other = Index(tracks_of(gap)), Index(tracks_of(gap))
    other.main.stack.order[:1] = 2**31 - 1
    for row in range(2):
        other.main.coarsen(2, row, other.tracks.origin)
    made = other.main.coarse[2, 0]
    assert (made.longest < 0).any()
    want = everything(index, made.level)
    assert answered(other, made.level, want) == answered(index, made.level, want)


@given(spans, some_levels, st.data())
@settings(max_examples=80, deadline=None)
def test_a_tile_is_the_same_however_it_is_asked_for(
    main: Spans, level: int, data: st.DataObject
) -> None:
    index = Index(tracks_of(main))
    whole = answered(index, level, everything(index, level))
    pieces: dict[Any, Any] = {}
    for lane, depth, tile in data.draw(st.permutations(list(whole))):
        pieces |= answered(index, level, [[lane, depth, depth, tile, tile]])
    assert pieces == whole


@given(spans, spans, some_levels, st.sets(st.integers(0, 79)))
@settings(max_examples=100, deadline=None)
def test_hits_are_marked_where_they_are_drawn(
    main: Spans, extra: Spans, level: int, chosen: set[int]
) -> None:
    index = Index(tracks_of(main, extra))
    hits = np.array(sorted(i for i in chosen if i < len(main) + len(extra)), np.int32)
    plain = answered(index, level, everything(index, level))
    marked = answered(index, level, everything(index, level), hits=hits)
    assert plain.keys() == marked.keys()
    for key, marks in marked.items():
        assert [mark[:5] for mark in marks] == [mark[:5] for mark in plain[key]]
        expected = by_hand(index, *key[:2], level, key[2])
        table = index.main if key[0] < 10 else index.extra
        row = index.events(key[0], key[1], 0, 10**6)
        for mark, (first, *_, count, _) in zip(marks, expected, strict=True):
            at = int(np.searchsorted(row, first + table.base))
            assert mark[5] == bool(set(row[at : at + count].tolist()) & set(hits.tolist()))


def crowd(count: int, seed: int = 1) -> Events:
    """A nested lane and a flat one with many events of mixed lengths."""
    random = np.random.default_rng(seed)
    gaps, lengths = (
        random.integers(1, 3000, count),
        random.integers(0, 4, count) ** 6 * random.integers(0, 60, count),
    )
    start = np.cumsum(gaps + lengths) - lengths
    whole = int(start[-1] + lengths[-1])
    lane = np.repeat([0, 1], [count + 1, count]).astype(np.int32)
    return Events(
        lane,
        np.zeros(2 * count + 1, np.int32),
        np.concatenate([[0], start, start]),
        np.concatenate([[whole], lengths, lengths]),
    )


@pytest.mark.parametrize("gathered", [0, 8192])
@pytest.mark.parametrize("level", [-3, 0, 4, 9])
def test_many_events(level: int, gathered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GATHERED", gathered)
    table = crowd(20_000)
    index = Index(tracks_of([]))
    tracks = index.tracks
    tracks.events, tracks.end = table, int(table.end.max())
    index = Index(tracks)
    last = tracks.end // int(TILE * 1000 * 2.0**level)
    bin_ = 1000 * 2.0**level
    for lane, depth, ids in ((0, 1, np.arange(1, 20_001)), (1, 0, np.arange(20_001, 40_001))):
        middle = last // 2
        some = answered(index, level, [[lane, depth, depth, middle - 3, middle + 3]])
        for tile in range(middle - 3, middle + 4):
            marks = some.get((lane, depth, tile), [])
            begin = tile * TILE * 1000 * 2.0**level
            start, duration = table.start[ids], table.duration[ids]
            inside = (start >= begin) & (start < begin + TILE * bin_)
            long = inside & (duration >= bin_)
            bins = ((start[inside & ~long] - begin) // bin_).astype(int)
            counts = np.bincount(bins, minlength=TILE)
            assert sum(m[3] for m in marks if m[0] >= 0) == inside.sum()
            short = [m for m in marks if m[0] >= 0 and table.duration[m[2]] < bin_]
            assert [m[3] for m in short] == counts[counts > 0].tolist()
            longest = np.zeros(TILE, np.int64)
            np.maximum.at(longest, bins, duration[inside & ~long])
            assert [int(table.duration[m[2]]) for m in short] == longest[counts > 0].tolist()
            busy = np.clip(
                np.rint(np.bincount(bins, duration[inside & ~long], TILE) * (255 / bin_)), 1, 255
            )
            assert [m[4] for m in short if m[3] > 1] == busy[counts > 1].tolist()
            assert sum(m[0] >= 0 and table.duration[m[2]] >= bin_ for m in marks) == long.sum()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=700), st.data())
@settings(max_examples=100, deadline=None)
def test_sums_and_longest_of_any_stretch(lengths: list[int], data: st.DataObject) -> None:
    duration = np.array(lengths)
    start = np.cumsum(duration) - duration
    count = len(lengths)
    index = Index(tracks_of([]))
    tracks = index.tracks
    tracks.events = Events(
        np.zeros(count, np.int32), np.zeros(count, np.int32), start * 2, duration
    )
    blocks = Blocks(Index(tracks).main.stack)
    flat = bool(Index(tracks).main.stack.flat[0])
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first, count - 1))
    order = np.arange(count) if flat else Index(tracks).main.stack.order
    rowed = duration[order]
    assert blocks.longest(np.array([first]), np.array([last]), flat).tolist() == [
        first + int(rowed[first : last + 1].argmax())
    ]
    assert blocks.sums(np.array([first]), np.array([last + 1]), flat).tolist() == [
        int(rowed[first : last + 1].sum())
    ]


def test_five_thousand_lanes_and_five_hundred_levels() -> None:
    tracks = tracks_of([])
    at = np.arange(500)
    lane = np.concatenate([np.zeros(500), np.repeat(np.arange(1, 5000), 2)]).astype(np.int32)
    start = np.concatenate([at * 1000, np.tile([0, 5_000_000], 4999)])
    duration = np.concatenate([10**7 - 2000 * at, np.tile([2_000_000, 1], 4999)])
    tracks.events, tracks.end = Events(lane, np.zeros(len(lane), np.int32), start, duration), 10**7
    index = Index(tracks)
    found = answered(
        index, 10, [[0, 0, 65535, 0, 0], *([k, 0, 9, 0, 0] for k in range(1, 3000, 3))]
    )
    assert [found[0, depth, 0][0][2] for depth in range(500)] == list(range(500))
    assert all([mark[3] for mark in found[k, 0, 0]] == [1, 1] for k in range(1, 3000, 3))
    assert len(found) == 500 + 1000


def test_a_lone_short_slice_a_day_away_is_drawn() -> None:
    day = 86_400 * 10**12
    index = Index(tracks_of([(0, 0, 1000), (0, day, 1), (2, 5, 100)]))
    level = 44
    assert answered(index, level, [[0, 0, 0, 0, 0]])[0, 0, 0][-1][:4] == (
        np.float32(day / 1000),
        np.float32(day / 1000),
        1,
        1,
    )
    fine = day // (TILE * 1000)
    with pytest.raises(NbprofError, match="More than 4,096 tiles"):
        tiles(index, {"level": 0, "want": [[0, 0, 9, 0, 2**53]]})
    marks = answered(index, 0, [[0, 0, 9, 0, 99], [0, 0, 9, fine - 99, 2**53]])
    assert sorted(tile for _, _, tile in marks) == [0, fine]
    assert marks[0, 0, fine] == [
        (0.0, np.float32(0.001), 1, 1, 255, 0, 1, marks[0, 0, fine][0][-1])
    ]


def test_at_the_ends_of_time() -> None:
    last = 2**63 - 1
    index = Index(tracks_of([(0, -1000, 10), (0, 0, 10), (0, last, 0), (2, last - 7000, 7000)]))
    for level in (-1, 0, 20, LEVELS[1]):
        width = TILE * 1000 * Fraction(2) ** level
        tile = math.floor((last + 1000) / width)
        found = answered(index, level, [[lane, 0, 9, tile - 1, tile + 5] for lane in (0, 2)])
        begin = tile * width - 1000
        zero = found[0, 0, tile][-1]
        assert zero[:2] == (np.float32(float(last - begin) / 1000),) * 2
        assert found[2, 0, tile][-1][1] == zero[1]


def test_columns_are_as_narrow_as_their_values() -> None:
    many = [(0, i, 1) for i in range(300)]
    index = Index(tracks_of(many))
    answer = tiles(index, {"level": 0, "want": [[0, 0, 0, 0, 0]]})
    assert answer["count"].tolist() == [300]
    assert (answer["count"].dtype, answer["name"].dtype) == (np.uint16, np.uint8)
    one = tiles(index, {"level": LEVELS[0], "want": [[0, 0, 0, 0, 0]]})
    assert one["count"].dtype == np.uint8
    assert one["event"].dtype == np.uint32


def test_texts_of_names_that_may_be_labelled() -> None:
    tracks = tracks_of([(0, 0, 8000), (0, 8000, 7999), (0, 20_000, 10)])
    tracks.names[0] = "x\n" * 5000
    index = Index(tracks)
    answer = tiles(index, {"level": 0, "want": [[0, 0, 0, 0, 0]]})
    assert answer["names"] == {"0": "x " * 100}
    assert answer["name"].tolist() == [0, 1, 2]
    tracks.category[1] = 4
    assert tiles(Index(tracks), {"level": 0, "want": [[0, 0, 0, 0, 0]]})["fill"][1] == 4
    assert (answer["fill"] >= 100).all()


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"level": 0},
        {"level": 0.5, "want": []},
        {"level": True, "want": []},
        {"level": LEVELS[0] - 1, "want": []},
        {"level": LEVELS[1] + 1, "want": []},
        {"level": 0, "want": [[0, 0, 0, 0]]},
        {"level": 0, "want": [[0, 0, 0, 0, "x"]]},
        {"level": 0, "want": [[0, 0, 0, 0, math.inf]]},
        {"level": -10, "want": [[0, 0, 0, 0, 10**30]]},
        {"level": -10, "want": [[1, 0, 0, 0, 4000], [0, 0, 0, 0, 4000]]},
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(request_: dict[str, Any]) -> None:
    index = Index(tracks_of([(0, 0, 10**9), (1, 0, 10**9)]))
    with pytest.raises(NbprofError, match=r"^[A-Z].*\.$"):
        tiles(index, request_)


def test_what_is_not_there_is_left_out() -> None:
    index = Index(tracks_of([(0, 0, 10)]))
    for want in (
        [],
        [[9, 0, 5, 0, 5]],
        [[0, 1, 70_000, 0, 5]],
        [[0, 0, 0, 3, 5]],
        [[0, 0, 0, -5, -1]],
        [[0, 3, 0, 0, 0]],
    ):
        answer = tiles(index, {"level": 0, "want": want})
        assert len(answer["start"]) == len(answer["rows"]["lane"]) == 0
        assert answer["names"] == {}

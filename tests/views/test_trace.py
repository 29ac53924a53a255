"""What a report holds of the trace: within its budget, with the density of the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nbprof.core.errors import NbprofError
from nbprof.core.trace import Events
from nbprof.display import codec
from nbprof.timeline.density import Density, bytes_of
from nbprof.timeline.lanes import Lane
from nbprof.timeline.levels import stack
from nbprof.timeline.tracks import Tracks
from nbprof.tools import dashboard as payload
from nbprof.tools.trace import density as rest
from nbprof.tools.trace import payload as trace
from nbprof.tools.trace.longest import longest
from tests.views import fake


def made(seed, count=2000, lanes=5, deep=False):
    random = np.random.default_rng(seed)
    lane = np.sort(random.integers(0, lanes, count)).astype(np.int32)
    start = random.integers(0, 10**9, count)
    duration = random.choice([0, 5, 1000, 10**6, 10**8 if deep else 10**5], count).astype(np.int64)
    order = np.lexsort((-duration, start, lane))
    return Events(
        lane[order], np.zeros(count, np.int32), start[order].astype(np.int64), duration[order]
    )


def by_sorting(lane, duration, always, quota):
    """The rule in words: all of some lanes, of the others the longest, of equals the first."""
    kept = []
    for number in np.unique(lane):
        rows = np.flatnonzero(lane == number)
        ranked = sorted(rows.tolist(), key=lambda i: (-duration[i], i))
        kept += ranked if number in always else ranked[:quota]
    return sorted(kept)


@pytest.mark.parametrize("seed", range(6))
def test_the_longest_of_each_lane_stay(seed):
    events = made(seed)
    (kept,) = longest([(events.lane, events.duration)], set(), 200)
    assert kept.tolist() == by_sorting(events.lane, events.duration, set(), 40)


def test_of_more_lanes_than_may_keep_one_event_each_keeps_its_longest():
    rng = np.random.default_rng(5)
    # Some lanes have no event, some one; many events are as long as others.
    lane = np.sort(rng.integers(0, 400, 900)).astype(np.int32)
    duration = rng.integers(0, 4, 900)
    assert len(np.unique(lane)) < 400
    assert (np.bincount(lane) == 1).any()
    (kept,) = longest([(lane, duration)], set(), 100)
    assert kept.tolist() == by_sorting(lane, duration, set(), 1)


def test_parents_of_all_that_stay_stay():
    events = made(1, deep=True)
    for most in (10, 100, 700):
        (kept,) = longest([(events.lane, events.duration)], set(), most)
        parents = events.parent[kept]
        assert np.isin(parents[parents >= 0], kept).all()
        assert len(kept) <= most


def test_steps_stay_unless_they_alone_fill_the_report():
    lane = np.repeat([0, 1], [50, 1000]).astype(np.int32)
    duration = np.arange(1050, dtype=np.int64)
    assert (longest([(lane, duration)], {0}, 200)[0] < 50).sum() == 50
    many = np.repeat([0, 1], [1000, 1000]).astype(np.int32)
    kept = longest([(many, np.arange(2000, dtype=np.int64))], {0}, 200)[0]
    assert len(kept) == 200
    assert (kept < 1000).sum() == 100
    assert [len(rows) for rows in longest([(lane, duration)], {0}, 0)] == [0]


def test_density_is_the_time_taken_of_each_part():
    events = made(3)
    density = Density(5, 40, 0, 10**9)
    density.add(events.lane, events.start, events.end)
    shares = density.shares()
    edges = np.linspace(0, 10**9, 41)
    for row, part in ((0, 0), (2, 17), (4, 39)):
        mine = events.lane == row
        over = np.minimum(events.end[mine], edges[part + 1]) - np.maximum(
            events.start[mine], edges[part]
        )
        assert shares[row, part] == pytest.approx(
            np.maximum(over, 0).sum() / (10**9 / 40), rel=1e-6, abs=1e-9
        )
    assert bytes_of(np.array([0.0, 1e-6, 0.5, 1.7])).tolist() == [0, 1, 128, 255]


def tracks(events):
    lanes = [
        Lane(i, "Host", f"thread {i}", "", "host", "h", "-1", 1)
        for i in range(int(events.lane.max()) + 1)
    ]
    none = np.zeros(0, np.int64)
    extra = Events(none.astype(np.int32), none.astype(np.int32), none, none)
    names = np.array(["op"], object)
    return Tracks(
        lanes, events, extra, names, names, np.zeros(1, np.uint8), [], 0, int(events.end.max())
    )


def test_the_rest_counts_all_that_is_left_out():
    events = made(5)
    (kept,) = longest([(events.lane, events.duration)], set(), 300)
    level = stack(events).level
    none = np.zeros(0, np.int64)
    out = rest.rest(tracks(events), [kept, none], [level, none.astype(np.uint16)], 1000)
    assert out["count"].sum() == len(events) - len(kept)
    assert len(out["busy"]) == out["bins"] * len(out["lane"]) <= rest.MOST_BYTES
    left = np.setdiff1d(np.arange(len(events)), kept)
    pairs, counts = np.unique(
        np.stack([events.lane[left], level[left]]), axis=1, return_counts=True
    )
    assert [out["lane"].tolist(), out["depth"].tolist()] == pairs.tolist()
    assert out["count"].tolist() == counts.tolist()
    assert out["from"] * 1000 == events.start[left].min()
    assert out["to"] * 1000 == events.end[left].max()


@pytest.mark.parametrize("at", [0, 500_000, 1_000_000])
def test_a_lone_instant_is_in_the_density(at):
    times = np.array([0, 999_999, at], np.int64)
    duration = np.array([1, 1, 0], np.int64)
    lane = np.array([0, 0, 1], np.int32)
    none = np.zeros(0, np.int64)
    out = rest.rest(
        tracks(Events(lane, lane, times, duration)),
        [none, none],
        [lane.astype(np.uint16) * 0, none.astype(np.uint16)],
        1,
    )
    seen = np.flatnonzero(out["busy"].reshape(2, -1)[1])
    assert seen.tolist() == [min(at * out["bins"] // 10**6, out["bins"] - 1)]


@pytest.mark.parametrize("lanes", [5000, 20_000])
def test_thousands_of_lanes_fit(lanes):
    events = made(2, count=100_000, lanes=lanes)
    (kept,) = longest([(events.lane, events.duration)], set(), 5000)
    none = np.zeros(0, np.int64)
    out = rest.rest(
        tracks(events), [kept, none], [stack(events).level, none.astype(np.uint16)], 1000
    )
    assert 0 < len(out["busy"]) <= rest.MOST_BYTES


def test_levels_beyond_255_are_told():
    count = 500
    run = fake.threaded([(i * 1000, (2 * count - i) * 10**6) for i in range(count)])
    part = codec.unpack(codec.pack(trace.payload(run)))
    (lane,) = part["lanes"]
    assert lane["depth"].dtype == np.uint16
    assert lane["depth"].tolist() == list(range(count))
    assert lane["depths"] == count


def test_partial_overlaps_lie_on_levels_of_their_own_and_are_told():
    part = trace.payload(
        fake.threaded([(0, 10 * 10**6), (5 * 10**6, 10 * 10**6), (8 * 10**6, 10**6)])
    )
    (lane,) = part["lanes"]
    spans = sorted(
        zip(
            lane["depth"].tolist(),
            lane["start"].values.tolist(),
            lane["duration"].tolist(),
            strict=True,
        )
    )
    for (a, start, took), (b, after, _) in pairwise(spans):
        assert a != b or start + took <= after
    assert any("partially" in note for note in part["notes"])


def test_events_far_from_the_others_are_told():
    part = trace.payload(fake.traced(steps=20, far=True))
    assert [note for note in part["notes"] if "far from the others" in note]
    assert not [
        note for note in trace.payload(fake.run())["notes"] if "far from the others" in note
    ]


def test_a_long_counter_keeps_its_peak():
    from nbprof.timeline.tracks import Counter

    value = np.random.default_rng(0).random(12_345)
    value[7_777] = 5.0
    counter = Counter(9, "Memory", "bytes", np.arange(12_345, dtype=np.int64) * 1000, value)
    drawn_time, drawn_value = trace._samples(counter, 0)
    assert len(drawn_time.values) <= trace.MOST_SAMPLES
    assert drawn_value.max() == 5.0
    assert drawn_time.values[np.argmax(drawn_value)] == 7_777.0
    assert (np.diff(drawn_time.values) > 0).all()


def test_a_long_counter_holds_what_it_ended_at_while_nothing_happens():
    from nbprof.timeline.tracks import Counter

    time = np.arange(3000, dtype=np.int64) * 1000
    time[1500:] += 10**9
    value = np.tile([1.0, 9.0, 4.0], 1000)
    drawn_time, drawn_value = trace._samples(Counter(9, "Memory", "bytes", time, value), 0)
    before = np.searchsorted(drawn_time.values, time[1500] / 1000) - 1
    assert drawn_value[before] == value[1499]


def test_a_long_share_of_time_is_the_mean_of_equal_parts():
    from nbprof.timeline.tracks import Counter

    rng = np.random.default_rng(3)
    time = np.cumsum(rng.integers(1, 50, 4001)) * 1000
    value = np.append(rng.random(4000) * 100, 0.0)
    # A gap in the middle: nothing ran for a tenth of the time.
    time[2000:] += (time[-1] - time[0]) // 9
    value[1999] = 0.0
    drawn_time, mean = trace._samples(Counter(9, "Busy", "percent", time, value), int(time[0]))
    at = drawn_time.values * 1000 + time[0]
    assert len(at) <= trace.MOST_SAMPLES
    assert (mean[:-1] * np.diff(at)).sum() == pytest.approx(
        (value[:-1] * np.diff(time)).sum(), rel=1e-3
    )
    inside = (at[:-1] >= time[1999]) & (at[1:] <= time[2000])
    assert inside.sum() > 40
    assert not mean[:-1][inside].any()


def test_long_names_are_cut():
    run = fake.run()
    run.trace.display[2] = "x" * 20_000
    assert max(map(len, trace.payload(run)["names"])) == trace.MOST_NAME


def test_a_report_holds_as_many_events_as_asked_for():
    run = fake.run()
    few = payload.dashboard(run, events=30)
    assert few["trace"]["shown"] <= 30 < few["trace"]["total"]
    assert few["trace"]["rest"]["count"].sum() == few["trace"]["total"] - few["trace"]["shown"]
    assert "about 30" in few["meta"]["receipt"][-1]["text"]
    none = payload.dashboard(run, events=0)["trace"]
    assert none["shown"] == 0
    assert [lane["id"] for lane in none["lanes"]] == [lane["id"] for lane in few["trace"]["lanes"]]


@pytest.mark.parametrize(
    ("given", "most"),
    [
        (None, 20_000),
        (0, 0),
        (7, 7),
        (1e5, 100_000),
        (np.int32(9), 9),
        (np.float64(12), 12),
        (10**30, 2**63 - 1),
    ],
)
def test_a_number_of_events_may_have_any_type(given, most):
    assert payload.budget(given) == most


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(
            (-1, "-1"),
            (2.5, "2.5"),
            (float("nan"), "nan"),
            (float("inf"), "inf"),
            ("many", "'many'"),
            ("100", "'100'"),
        ),
        *(
            (True, "True"),
            ([5], "[5]"),
            (np.float32(0.5), "0.5"),
            ("x" * 5000, "'" + "x" * 59 + "…"),
        ),
    ],
)
def test_what_is_no_number_of_events_is_a_sentence(given, said):
    with pytest.raises(NbprofError) as raised:
        payload.dashboard(fake.run(), events=given)
    assert (
        str(raised.value)
        == f"events= takes the number of trace events to keep, a whole number of 0 or more, not {said}"
    )


def test_rows_of_tables_know_their_longest_call():
    whole = payload.dashboard(fake.run())
    table = whole["ops"]["table"]["data"]
    names = [table["op"]["values"][code] for code in table["op"]["codes"]]
    longest_calls = {
        name: (float(at), float(took))
        for name, at, took in zip(names, table["_at_ms"], table["_for_ms"], strict=True)
    }
    assert longest_calls["sequential/dense/_Send"] == (4.75, 0.5)
    # The third step waits longest.
    assert longest_calls["Iterator::Root::Prefetch::Map"] == (16.0, 4.25)
    assert whole["kernels"]["table"]["data"]["_at_ms"].tolist() == [5.25, 6.25]

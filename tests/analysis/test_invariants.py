"""What holds of every profile, whatever is in it: parts add up, nothing is below zero, and nothing
depends on how it was read.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbprof.activity.activity import CATEGORIES, CATEGORY_OF_CLASS
from nbprof.analysis.steps.steps import summary
from nbprof.analysis.sweep import layers_of, times
from nbprof.core import nesting
from nbprof.core.errors import ReadError
from nbprof.core.intervals import Intervals
from nbprof.formats.chrome import bytes as chrome_bytes
from nbprof.formats.chrome import document as chrome_document
from nbprof.formats.xspace import batches as xspace_batches
from nbprof.native import wire as native_wire
from nbprof.profiles.load import load
from nbprof.profiles.profile import Profile
from nbprof.tools.memory.payload import sample
from tests.support import kineto
from tests.support.examples import examples
from tests.support.made import UNIT, Made, nested, opened, runs
from tests.support.profiles import real

TIMES = [f"{c}_ms" for c in CATEGORIES]
RECORDED = sorted(
    p
    for p in (Path(__file__).parents[1] / "data").rglob("*.*")
    if p.name.endswith((".pb", ".json.gz"))
)
REAL = (
    *(
        "tf-gpu/rtx5000-cnn-batch64",
        "tf-gpu/t4-one-step",
        "tf-gpu/v100x8-collectives",
        "tf-cpu/prefetch-example",
    ),
    *(
        "tf-cpu/prefetch-128-empty-gpu-plane",
        "jax/gtx1080ti-reactant",
        "jax/mi300-jax08_attention",
        "jax/tpu-v6e-inference",
    ),
)
EXAMPLES = settings(
    deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow]
)
# Each of them opens a run twice and makes all of its frames.
PAIRS = settings(EXAMPLES, max_examples=examples(30))


def ps(values) -> np.ndarray:
    """Times in ms as whole ps: exact below 2^53 ps, two hours."""
    return np.rint(pd.Series(values, dtype="f8").fillna(0.0).to_numpy() * 1e9).astype(np.int64)


def length(spans) -> int:
    """How long at least one of some (begin, end) goes on."""
    total, reached = 0, None
    for begin, end in sorted(spans):
        if reached is not None:
            begin = max(begin, reached)
        total += max(end - begin, 0)
        reached = end if reached is None else max(reached, end)
    return total


# What holds of any profile.


def steps_hold(p: Profile) -> None:
    frame = p.run.steps
    if not len(frame):
        return
    assert (frame["step_time_ms"] > 0).all()
    parts = np.column_stack([ps(frame[c]) for c in TIMES])
    assert (parts >= 0).all()
    assert parts.sum(axis=1).tolist() == ps(frame["step_time_ms"]).tolist(), (
        "the parts of a step are its time, to the ps"
    )
    told = p.steps.summary.set_index("category")
    assert told.loc[list(CATEGORIES), "percent"].sum() == pytest.approx(100)
    assert (told["min_ms"].fillna(0) <= told["max_ms"].fillna(0) + 1e-12).all()
    assert told.loc["step_time", "percent"] == pytest.approx(100)


def swept(p: Profile) -> list[dict[str, int]]:
    """The parts of each step, from one instant at which something begins or ends to the next; times
    in ps.
    """
    work = p.run.activity.work.frame()
    rows = list(
        zip(*(work[c].tolist() for c in ("host", "group", "start", "end", "cls")), strict=True)
    )
    out = []
    frame = p.run.steps
    for host, group, at, time in zip(
        frame["host"], frame["group"], ps(frame["start_ms"]), ps(frame["step_time_ms"]), strict=True
    ):
        mine = [
            (s, e, c) for h, g, s, e, c in rows if (p.run.activity.hosts[h], g) == (host, group)
        ]
        cuts = sorted(
            {at, at + time, *(t for s, e, _ in mine for t in (s, e) if at < t < at + time)}
        )
        parts: dict[str, int] = defaultdict(int)
        for begin, end in itertools.pairwise(cuts):
            inside = [c for s, e, c in mine if s <= begin and end <= e]
            parts[CATEGORY_OF_CLASS[max(inside)] if inside else "other"] += int(end - begin)
        out.append(dict(parts))
    return out


def ops_hold(p: Profile) -> None:
    for table, whole in ((p.ops.frame, False), (p.ops.with_idle, True)):
        assert table["rank"].tolist() == list(range(1, len(table) + 1))
        assert table["where"].tolist() == sorted(table["where"]), "the device first, then the host"
        for where, side in table.groupby("where"):
            assert (side["self_us"] >= 0).all()
            assert (side["self_us"].diff().dropna() <= 1e-9).all(), "the largest first"
            share = side["cumulative_fraction"].to_numpy()
            assert (np.diff(share) >= -1e-12).all()
            if side["self_us"].sum():
                assert side["self_fraction"].sum() == pytest.approx(1)
                assert share[-1] == pytest.approx(1)
            counted = side[side["op"] != "IDLE"]
            assert (counted["occurrences"] > 0).all()
            # Of a host without recorded ops nothing tells when it was idle.
            idle_known = where == "device" or p.run.activity.has_host_ops
            assert (len(counted) < len(side)) == (whole and idle_known)
    idle = p.ops.with_idle
    assert (idle.loc[idle["op"] == "IDLE", "self_us"] >= 0).all()


def input_holds(p: Profile) -> None:
    frame, five = p.input_pipeline.frame, p.input_pipeline.categories
    assert (frame["self_ms"] >= 0).all()
    assert (frame["self_ms"] <= frame["total_ms"] + 1e-9).all()
    known = five["time_ms"].dropna()
    assert (known >= 0).all()
    assert len(known) == len(five) or p.run.activity.framework.title == "JAX"
    if frame["self_ms"].sum():
        assert frame["self_percent"].sum() == pytest.approx(100)
    if five["time_ms"].sum():
        assert five["percent"].sum() == pytest.approx(100)


def kernels_hold(p: Profile) -> None:
    table = p.kernels.frame
    if not len(table):
        return
    assert table["rank"].tolist() == list(range(1, len(table) + 1))
    assert (table["total_us"].diff().dropna() <= 1e-9).all()
    ns = p.run.activity.kernels.frame()["duration"] // 1000
    assert table["occurrences"].sum() == len(ns)
    assert table["total_us"].sum() == pytest.approx(ns.sum() / 1000)
    count = table["occurrences"]
    assert (table["min_us"] <= table["avg_us"] + 1e-3).all()
    assert (table["avg_us"] <= table["max_us"] + 1e-9).all()
    # The average is in whole ns, as XProf's.
    assert (table["avg_us"] * count <= table["total_us"] + 1e-6).all()
    assert (table["total_us"] < (table["avg_us"] + 1e-3) * count + 1e-6).all()


def memory_holds(p: Profile) -> None:
    rows = p.memory.timeline
    if not len(rows):
        return
    assert (rows["in_use_bytes"] >= 0).all()
    assert rows["time_ms"].is_monotonic_increasing
    freed = rows["event"] == "deallocation"
    assert (rows.loc[freed, "allocated_bytes"] <= 0).all()
    assert (rows.loc[~freed, "allocated_bytes"] >= 0).all()
    alive = p.memory.peak
    for one in p.memory.summary.to_dict("records"):
        mine = rows[rows["memory_id"] == one["memory_id"]]
        assert one["peak_bytes"] == mine["in_use_bytes"].max()
        assert one["allocations"] + one["deallocations"] == len(mine)
        if pd.notna(one["lifetime_peak_bytes"]):
            assert one["lifetime_peak_bytes"] >= one["peak_bytes"]
        held = alive[alive["memory_id"] == one["memory_id"]]
        assert (held["allocated_bytes"] > 0).all()
        total = int((held["allocated_bytes"] * held["occurrences"]).sum())
        assert total == one["peak_bytes"], "what was alive at the peak is what was in use"


def overview_holds(p: Profile) -> None:
    told = p.overview
    for name, value in told.items():
        if name.endswith("_percent") and value is not None:
            assert -1e-9 <= value <= 100 + 1e-9, name
    for pair in (
        ("device_busy_percent", "device_idle_percent"),
        ("compute_16bit_percent", "compute_32bit_percent"),
    ):
        values = [told[name] for name in pair]
        assert values == [None, None] or sum(values) == pytest.approx(100)
    sides = [told[f"{side}_op_percent"] for side in ("host", "device")]
    if None not in sides and sum(sides):
        assert sum(sides) == pytest.approx(100)


def all_holds(p: Profile) -> None:
    for check in (steps_hold, ops_hold, input_holds, kernels_hold, memory_holds, overview_holds):
        check(p)


@EXAMPLES
@given(runs())
def test_every_frame_of_a_made_run_adds_up(made):
    all_holds(made.profile())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_every_frame_of_our_recordings_adds_up(path):
    all_holds(load(path))


@pytest.mark.parametrize("name", REAL)
def test_every_frame_of_real_profiles_adds_up(name):
    all_holds(load(real(name)))


# Straight loops.


@EXAMPLES
@given(runs())
def test_the_parts_of_a_step_are_those_of_a_sweep_in_a_straight_loop(made):
    p = made.profile()
    frame = p.run.steps
    found = [
        {c: int(t) for c in CATEGORIES if (t := ps([row[f"{c}_ms"]])[0])}
        for row in frame.to_dict("records")
    ]
    assert found == swept(p)


SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.sampled_from([10, 90, 110, 140])),
    max_size=25,
)


@given(SPANS, st.lists(st.integers(0, 90), max_size=6), st.randoms())
def test_at_each_instant_the_largest_class_counts_in_any_order(spans, cuts, chance):
    chance.shuffle(spans)
    start, length_, cls = (np.array([s[k] for s in spans], np.int64) for k in range(3))
    columns = start, start + length_, cls
    largest = {}
    for begin, ticks, value in sorted(spans, key=lambda span: span[2]):
        largest |= dict.fromkeys(range(begin, begin + ticks), value)
    covered = layers_of(*columns)
    assert list(covered) == sorted(covered, reverse=True)
    for value, intervals in covered.items():
        pairs = zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)
        inside = [t for begin, stop in pairs for t in range(begin, stop)]
        assert inside == sorted(t for t, cls in largest.items() if cls >= value)
    total = times(covered, Intervals.total)
    assert {value: time for value, time in total.items() if time} == Counter(largest.values())
    begin = np.array(sorted(cuts), np.int64)
    within = times(covered, lambda times: times.covered_within(begin, begin + 7))
    for value, time in within.items():
        assert time.tolist() == [
            sum(largest.get(t) == value for t in range(cut, cut + 7)) for cut in begin.tolist()
        ]


@given(nested())
def test_self_times_are_the_time_in_which_the_thread_is_busy(spans):
    spans.sort(key=lambda s: (s[0], -s[1]))
    start, duration = (np.array([s[k] for s in spans], np.int64) for k in range(2))
    own = nesting.self_times(
        nesting.parents(np.zeros(len(spans), np.int32), start, duration), duration
    )
    assert own.sum() == length([(s, s + d) for s, d in spans])
    for i, (begin, long) in enumerate(spans):
        # Equal spans lie in one another, the later in the earlier.
        inside = [
            (s, s + d)
            for j, (s, d) in enumerate(spans)
            if begin <= s and s + d <= begin + long and (s, d, j) != (begin, long, i)
        ]
        inside = (
            [x for x in inside if x != (begin, begin + long)]
            if (begin, long) not in spans[i + 1 :]
            else [(begin, begin + long)]
        )
        assert own[i] == long - length(inside)


@given(nested(), st.integers(1, 3))
def test_ops_of_a_thread_and_its_idle_time_make_up_its_extent(spans, copies):
    threads = [[("b/Add:Add", begin, long) for begin, long in spans]] * copies
    table = Made([], threads).profile().ops.with_idle.set_index("op")["self_us"]
    busy = length([(s, s + d) for s, d in spans]) * UNIT * copies
    extent = (
        (max(s + d for s, d in spans) - min(s for s, _ in spans)) * UNIT * copies if spans else 0
    )
    assert table.get("b/Add", 0.0) == pytest.approx(busy / 1e6)
    assert (
        table["IDLE" if spans else table.index[0]] == pytest.approx((extent - busy) / 1e6)
        if len(table)
        else not spans
    )


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=20))
def test_ops_that_overlap_partly_have_no_time_below_zero(spans):
    made = Made([], [[("b/Add:Add", begin, long) for begin, long in spans]])
    p = made.profile()
    rows, idle = p.run._host_ops
    assert (rows["own"] >= 0).all()
    assert (rows["own"] <= rows["end"] - rows["start"]).all()
    extent = max(s + d for s, d in spans) - min(s for s, _ in spans)
    assert idle == max(extent * UNIT - rows["own"].sum(), 0)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 60), st.integers(0, 12)),
        min_size=1,
        max_size=20,
    )
)
def test_idle_of_a_device_is_the_time_in_which_no_stream_ran(spans):
    """PyTorch: each instant counts once, however many streams run."""
    trace = kineto.Kineto()
    trace.step(1, 0, 100)
    op = trace.op("aten::mm", 0, 90)
    for stream, begin, long in spans:
        trace.launched(f"gemm_{stream}", begin, begin, long, op, stream=stream)
    p = opened(trace.encode(), "host.pt.trace.json", "chrome")
    table = p.ops.with_idle
    idle = table[(table["where"] == "device") & (table["op"] == "IDLE")]["self_us"]
    extent = max(b + d for _, b, d in spans) - min(b for _, b, _ in spans)
    assert idle.tolist() == pytest.approx([extent - length([(b, b + d) for _, b, d in spans])])
    step = p.steps.frame
    if len(step):
        computed = length([(b, min(b + d, 100)) for _, b, d in spans])
        assert step["device_compute_ms"].iloc[0] * 1000 == pytest.approx(computed)


# How the file was written and read.


def frames(p: Profile) -> dict[str, pd.DataFrame]:
    return {
        "steps": p.steps.frame,
        "summary": p.steps.summary,
        "ops": p.ops.with_idle,
        "input": p.input_pipeline.frame,
        "categories": p.input_pipeline.categories,
        "pipelines": p.tf_data.pipelines,
        "nodes": p.tf_data.nodes,
        "kernels": p.kernels.frame,
        "timeline": p.memory.timeline,
        "memory": p.memory.summary,
        "peak": p.memory.peak,
        "pods": p.pods.frame,
        "advice": p.advice,
        "top ops": p.overview["top_ops"],
    }


def equal(ours: dict[str, pd.DataFrame], other: dict[str, pd.DataFrame]) -> None:
    for name, frame in ours.items():
        pd.testing.assert_frame_equal(frame, other[name], obj=name)


@PAIRS
@given(runs(), st.randoms())
def test_the_order_of_lines_in_the_file_changes_nothing(made, chance):
    order = list(range(made.lines))
    chance.shuffle(order)
    equal(frames(made.profile()), frames(made.profile(order)))


@PAIRS
@given(runs(), st.integers(1, 4), st.sampled_from([(1, 2), (3, 5), (16, 64)]))
def test_threads_and_batches_of_the_reader_change_nothing(made, threads, sizes):
    plain = frames(made.profile())
    with (
        mock.patch.multiple(
            xspace_batches, _THREADS=threads, _FEWEST_EVENTS=sizes[0], MOST_EVENTS=sizes[1]
        ),
        mock.patch.object(native_wire, "_ROOM", 5),
    ):
        equal(plain, frames(made.profile()))


@st.composite
def torch_runs(draw):
    trace = kineto.Kineto()
    for number in range(draw(st.integers(0, 3))):
        trace.step(number, 100 * number, 90)
    for _ in range(draw(st.integers(0, 12))):
        at = draw(st.integers(0, 280))
        op = trace.op(
            draw(st.sampled_from(["aten::mm", "aten::add", "aten::relu"])),
            at,
            draw(st.integers(1, 20)),
            draw(st.integers(1, 2)),
        )
        if draw(st.booleans()):
            trace.launched(
                "gemm",
                at,
                at + draw(st.integers(0, 9)),
                draw(st.integers(0, 30)),
                op,
                stream=draw(st.integers(6, 7)),
            )
    return trace


@PAIRS
@given(torch_runs(), st.integers(1, 4), st.sampled_from([64, 300, 4096]))
def test_threads_and_stretches_of_the_reader_of_chrome_traces_change_nothing(trace, threads, size):
    data = trace.encode()
    plain = opened(data, "host.pt.trace.json", "chrome")
    all_holds(plain)
    with (
        mock.patch.multiple(chrome_document, _THREADS=threads, STRETCH=size, _LARGE=1),
        mock.patch.object(chrome_bytes, "CHUNK", size),
    ):
        equal(frames(plain), frames(opened(data, "host.pt.trace.json", "chrome")))


# Values that are known.


def test_the_deviation_is_that_of_a_sample():
    steps = pd.DataFrame(
        {
            "step_time_ms": [10.0, 12.0, 14.0],
            "warmup": False,
            "counted": True,
            **dict.fromkeys(TIMES, 0.0),
        }
    )
    assert summary(steps).set_index("category").loc["step_time", "sd_ms"] == 2.0


@pytest.mark.parametrize(
    ("count", "narrow", "width"), [(2500, 500, 2), (1001, 999, 1), (3000, 1000, 3), (1999, 1, 1)]
)
def test_a_timeline_is_sampled_in_boxes_as_xprof_does_it(count, narrow, width):
    """`narrow` boxes of `width` rows, then boxes of one more, 1000 in all."""
    rising = np.arange(count, dtype=float)
    kept = sample(rising)
    assert len(kept) == 1000
    sizes = np.diff(np.append(-1, kept))
    assert sizes.tolist() == [width] * narrow + [width + 1] * (1000 - narrow)


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 20))
def test_a_sampled_timeline_keeps_its_peak_and_its_order(values, most):
    kept = sample(np.array(values, float), most)
    assert len(kept) == min(len(values), most)
    assert (np.diff(kept) > 0).all()
    if values:
        assert max(np.array(values)[kept]) == max(values)


def test_a_run_that_is_no_json_is_no_profile():
    with pytest.raises(ReadError):
        opened(
            json.dumps({"traceEvents": "none"}).encode()[:-3] + b"\xff",
            "host.pt.trace.json",
            "chrome",
        )

"""tf.data's analysis, held against a walk that follows its definition call by call.

XProf 2.24 has the tool but does not offer it, so that the peer is the definition itself: slow,
simple, and written without looking at ours.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.analysis.input import tf_data
from nbprof.core.errors import NbprofError
from tests.parity.peer import NAMES, profile
from tests.support.build import profile as made
from tests.support.examples import examples
from tests.support.xspace import MS, PlaneWriter, xspace

ITERATOR = re.compile(r"(Reduce)?Iterator::")
US = 1_000_000


class Walk:
    """Iterator calls of a trace as objects, with what lies below each."""

    def __init__(self, trace, host):
        self.calls = {}
        below, rows, names = {}, [], trace.names[trace.events.name]
        values = {key: trace.arg(key, -1) for key in ("id", "parent_id", "element_id")}
        lanes = trace.lanes
        mine = [
            h == host and kind == "host"
            for h, kind in zip(lanes["host"], lanes["kind"], strict=True)
        ]
        for at in range(len(trace.events)):
            if mine[trace.events.lane[at]] and (
                ITERATOR.match(names[at]) or names[at].endswith(("Produce", "Consume"))
            ):
                begin = int(trace.events.start[at])
                facts = {key: int(column[at]) for key, column in values.items()}
                rows.append(
                    (
                        int(trace.events.lane[at]),
                        begin,
                        begin + int(trace.events.duration[at]),
                        at,
                        names[at],
                        facts,
                    )
                )
        above, made_by = {}, {}
        for lane in {row[0] for row in rows}:
            open_ = []
            for _, begin, end, at, name, facts in [row for row in rows if row[0] == lane]:
                if not ITERATOR.match(name):
                    continue
                while open_ and self.calls[open_[-1]][1] < end:
                    open_.pop()
                above[at] = open_[-1] if open_ else None
                self.calls[at] = begin, end, facts["id"], facts["parent_id"], name
                below.setdefault(above[at], []).append(at)
                open_.append(at)
        around = trace.events.parent
        for _, _, _, at, name, facts in rows:
            if name.endswith("Produce") and facts["element_id"] != -1:
                inside = [c for c in self.calls if around[c] == at]
                if inside:
                    key = self.calls[inside[0]][3], facts["element_id"]
                    made_by.setdefault(key, []).append(inside[0])
        for _, _, _, at, name, facts in rows:
            taker = int(around[at])
            if name.endswith("Consume") and taker in self.calls:
                for child in made_by.get((self.calls[taker][2], facts["element_id"]), []):
                    if child != taker and child not in below.setdefault(taker, []):
                        below[taker].append(child)
        self.below = below

    def visit(self, at, seen, only_overlapping, depth=0):
        if at in seen and seen[at] <= depth:
            return seen
        seen[at] = depth
        begin, end = self.calls[at][:2]
        if depth < tf_data.MAX_DEPTH:
            for child in self.below.get(at, []):
                a, b = self.calls[child][:2]
                if not only_overlapping or min(b, end) > max(a, begin):
                    self.visit(child, seen, only_overlapping, depth + 1)
        return seen

    def own(self, at):
        begin, end = self.calls[at][:2]
        cuts = sorted(
            {
                begin,
                end,
                *(
                    min(max(t, begin), end)
                    for c in self.below.get(at, [])
                    for t in self.calls[c][:2]
                ),
            }
        )
        spans = [self.calls[c][:2] for c in self.below.get(at, [])]
        return sum(b - a for a, b in pairwise(cuts) if not any(x <= a and b <= y for x, y in spans))

    def own_by_sum(self, at):
        begin, end = self.calls[at][:2]
        inner = [
            max(0, min(self.calls[c][1], end) - max(self.calls[c][0], begin))
            for c in self.below.get(at, [])
        ]
        return end - begin - sum(inner)

    def pipelines(self):
        """By label: (the calls of the root, longest first), each with its iterators: id -> (total,
        own, count, first, blocking).
        """
        name_of, above_of = {}, {}
        for _, _, ident, parent, name in self.calls.values():
            name_of.setdefault(ident, name)
            above_of.setdefault(ident, parent)
        out, count = {}, {}
        for root in sorted(i for i, name in name_of.items() if len(name.split("::")) == 2):
            device = any(
                above_of[i] == root and name.startswith("Iterator::Prefetch::Generator")
                for i, name in name_of.items()
            )
            side = "Device" if device else "Host"
            label = f"{side}:{count.get(side, 0)}"
            count[side] = count.get(side, 0) + 1
            calls = [at for at, call in self.calls.items() if call[2] == root]
            calls.sort(key=lambda at: (self.calls[at][0] - self.calls[at][1], self.calls[at][0]))
            out[label] = [(at, self.parts(at)) for at in calls]
        return out, name_of

    def parts(self, root):
        blocking = self.visit(root, {}, only_overlapping=True)
        parts = {}
        for at in self.visit(root, {}, only_overlapping=False):
            begin, end, ident = self.calls[at][:3]
            total, own, count, first, blocks = parts.get(ident, (0, 0, 0, 2**62, False))
            parts[ident] = (
                total + end - begin,
                own + self.own(at),
                count + 1,
                min(first, begin),
                blocks or at in blocking,
            )
        return parts


def compare(p):
    """Every figure of our frames against the walk; gives how many calls were compared."""
    compared = 0
    pipelines, nodes, calls = (
        frame.set_index(["host", "pipeline"])
        for frame in (p.tf_data.pipelines, p.tf_data.nodes, p.tf_data.calls)
    )
    labels = set()
    for host in p.hosts:
        walk = Walk(p.run.trace, host)
        expected, name_of = walk.pipelines()
        for label, listed in expected.items():
            labels.add((host, label))
            row, mine = pipelines.loc[(host, label)], calls.loc[[(host, label)]]
            time = [walk.calls[at][1] - walk.calls[at][0] for at, _ in listed]
            assert mine["duration_us"].tolist() == [t / 1e6 for t in time]
            assert mine["rank"].tolist() == list(range(len(time)))
            assert (row["calls"], row["slow_calls"]) == (len(time), sum(t > 50 * US for t in time))
            figures = (sum(time) / len(time) / 1e6, min(time) / 1e6, max(time) / 1e6)
            assert (row["mean_us"], row["min_us"], row["max_us"]) == pytest.approx(
                figures, rel=1e-12
            )
            together = {}
            for rank, (_, parts) in enumerate(listed):
                compared += 1
                most = max(own for _, own, _, _, blocking in parts.values() if blocking)
                assert mine["bottleneck_us"].iloc[rank] == most / 1e6
                worst = {name_of[i] for i, part in parts.items() if part[4] and part[1] == most}
                assert mine["bottleneck_path"].iloc[rank] in worst
                for ident, part in parts.items():
                    old = together.get(ident, (0, 0, 0, 2**62, False))
                    sums = [a + b for a, b in zip(old[:3], part[:3], strict=True)]
                    together[ident] = (*sums, min(old[3], part[3]), old[4] or part[4])
                if rank in (0, len(listed) // 2, len(listed) - 1):
                    nodes_are(p.tf_data.call(label, rank=rank, host=host), parts, name_of)
            assert (row["bottleneck_path"], row["bottleneck_us"]) == (
                mine["bottleneck_path"].iloc[0],
                mine["bottleneck_us"].iloc[0],
            )
            nodes_are(nodes.loc[[(host, label)]], together, name_of)
    assert labels == set(pipelines.index)
    return compared


def nodes_are(frame, parts, name_of):
    assert sorted(frame["id"]) == sorted(map(str, parts))
    for row in frame.itertuples():
        total, own, count, first, blocking = parts[int(row.id)]
        assert (row.long_name, row.calls, row.blocking) == (name_of[int(row.id)], count, blocking)
        assert (row.total_ms, row.self_ms, row.start_ms) == (total / 1e9, own / 1e9, first / 1e9)
    most = max(own for _, own, _, _, blocking in parts.values() if blocking)
    worst = frame[frame["bottleneck"]]
    assert worst["blocking"].tolist() == [True]
    assert worst["self_ms"].tolist() == [most / 1e9]


@pytest.mark.parametrize("name", NAMES)
def test_real_profiles(name):
    p = profile(name)
    assert compare(p) == len(p.tf_data.calls)
    slowest = p.tf_data.pipelines["max_us"]
    assert slowest.is_monotonic_decreasing


def test_the_real_profiles_have_calls():
    counts = {name: len(profile(name).tf_data.calls) for name in NAMES}
    assert sum(n > 0 for n in counts.values()) >= 6
    assert counts["tf-gpu/rtx5000-cnn-batch8"] == 21


PART = st.tuples(
    st.integers(0, 3),  # lane
    st.integers(0, 400),  # start in us
    st.integers(0, 200),  # duration in us
    st.sampled_from([1, 2, 3, 4, 5, "Produce", "Consume"]),
    st.integers(1, 3),  # element
)
NAME = {
    1: "Iterator::Root",
    2: "Iterator::Root::A",
    3: "Iterator::Root::A::B",
    4: "Iterator::Root::C",
    5: "ReduceIterator::Model",
}
ABOVE = {1: 0, 2: 1, 3: 2, 4: 1, 5: 0}


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(PART, max_size=25))
def test_random_calls(tmp_path_factory, parts):
    host = PlaneWriter("/host:CPU")
    for lane in range(4):
        events = []
        for _, start, length, kind, element in [part for part in parts if part[0] == lane]:
            if isinstance(kind, int):
                facts = {"id": kind, "parent_id": ABOVE[kind]}
                events.append(host.event(NAME[kind], start * US, length * US, **facts))
            else:
                events.append(
                    host.event(f"Prefetch{kind}", start * US, length * US, element_id=element)
                )
        host.line(f"thread {lane}", events, line_id=lane + 1)
    p = made(tmp_path_factory.mktemp("random"), xspace(host))
    compare(p)
    for frame in (
        p.tf_data.nodes,
        *(p.tf_data.call(c.pipeline, rank=c.rank) for c in p.tf_data.calls.itertuples()),
    ):
        assert (frame["self_ms"] >= 0).all()
        assert (frame["self_ms"] <= frame["total_ms"]).all()


def pipeline(*extra, root=100):
    """Root 0..root us asks Map 5..(root - 10), which takes two elements that run at once on threads
    of their own.
    """
    host = PlaneWriter("/host:CPU")
    main = [
        host.event("Iterator::Root", 0, root * US, id=1),
        host.event(
            "Iterator::Root::ParallelBatch",
            5 * US,
            (root - 15) * US,
            id=2,
            parent_id=1,
            parallelism=2,
            batch_size=2,
        ),
        host.event("ParallelBatchConsume", 6 * US, US, element_id=7),
        *[host.event(*event) for event in extra],
    ]
    host.line("main", main, line_id=1)
    for lane, begin in ((2, 10), (3, 20)):
        events = [
            host.event("ParallelBatchProduce", begin * US, 52 * US, element_id=7),
            host.event(
                "Iterator::Root::ParallelBatch::Map", (begin + 1) * US, 50 * US, id=3, parent_id=2
            ),
        ]
        host.line(f"pool {lane}", events, line_id=lane)
    return xspace(host)


def test_time_in_which_several_inputs_ran_is_taken_off_once(tmp_path):
    """Of ParallelBatch's 85 us, 60 (11 to 71) are covered by its two inputs of 50 us; a sum of the
    overlaps would leave -15.
    """
    p = made(tmp_path, pipeline())
    nodes = p.tf_data.nodes.set_index("iterator")
    assert nodes["self_ms"].to_dict() == pytest.approx(
        {"Root": 0.015, "ParallelBatch": 0.025, "Map": 0.1}
    )
    assert nodes.loc["Map", "calls"] == 2
    walk = Walk(p.run.trace, "host-a")
    assert min(walk.own_by_sum(at) for at in walk.calls) == -15 * US
    row = p.tf_data.pipelines.iloc[0]
    assert (row["bottleneck"], row["bottleneck_us"], row["max_us"]) == ("Map", 100.0, 100.0)
    assert nodes["critical"].all()


def test_what_was_made_before_it_was_asked_for_blocks_nothing(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "main",
        [
            host.event("Iterator::Root", 500 * US, 60 * US, id=1),
            host.event(
                "Iterator::Root::Prefetch", 501 * US, 10 * US, id=2, parent_id=1, buffer_size=2
            ),
            host.event("PrefetchConsume", 502 * US, US, element_id=3),
        ],
        line_id=1,
    )
    host.line(
        "ahead",
        [
            host.event("PrefetchProduce", 0, 400 * US, element_id=3),
            host.event("Iterator::Root::Prefetch::Map", 0, 390 * US, id=3, parent_id=2),
        ],
        line_id=2,
    )
    p = made(tmp_path, xspace(host))
    nodes = p.tf_data.nodes.set_index("iterator")
    assert nodes["blocking"].to_dict() == {"Root": True, "Prefetch": True, "Map": False}
    assert p.tf_data.pipelines["bottleneck"].tolist() == ["Root"]
    assert p.tf_data.pipelines["bottleneck_us"].tolist() == [50.0]
    assert nodes.loc["Map", "total_ms"] == pytest.approx(0.39)


@pytest.mark.parametrize(("us", "bound"), [(50, False), (51, True)])
def test_a_call_of_50_us_is_no_bottleneck(tmp_path, us, bound):
    host = PlaneWriter("/host:CPU")
    host.line(
        "main",
        [
            host.event("Iterator::Root", 0, us * US, id=1),
            host.event("Iterator::Root", 90 * US, 10 * US, id=1),
        ],
    )
    p = made(tmp_path, xspace(host))
    summary = p.tf_data.summary
    assert summary["input_bound"] is bound
    assert f"{us}.0 µs" in summary["statement"]
    assert p.tf_data.pipelines["slow_calls"].tolist() == [int(bound)]
    assert ("not a bottleneck" in p.tf_data.pipelines["advice"].iloc[0]) is not bound


def test_device_pipelines_are_named_and_do_not_bind(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = [
        host.event("Iterator::Prefetch", 0, 9 * MS, id=4),
        host.event("Iterator::Prefetch::Generator", 0, 8 * MS, id=5, parent_id=4),
        host.event("Iterator::Model", 20 * MS, 30 * US, id=9),
        host.event("Iterator::Model", 30 * MS, 40 * US, id=2),
    ]
    host.line("main", events)
    p = made(tmp_path, xspace(host))
    assert p.tf_data.pipelines["pipeline"].tolist() == ["Device:0", "Host:0", "Host:1"]
    assert p.tf_data.summary["input_bound"] is False
    assert p.tf_data.summary["pipeline"] == "Host:0"


def test_a_device_pipeline_alone_tells_nothing_of_the_host(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = [
        host.event("Iterator::Prefetch", 0, 9 * MS, id=4),
        host.event("Iterator::Prefetch::Generator", 0, 8 * MS, id=5, parent_id=4),
    ]
    host.line("main", events)
    p = made(tmp_path, xspace(host))
    assert p.tf_data.summary["input_bound"] is None
    assert "Only device pipelines" in p.tf_data.summary["statement"]


def test_hosts_are_combined_the_slowest_first(tmp_path):
    from nbprof import load

    for name, us in (("a", 60), ("b", 700)):
        host = PlaneWriter("/host:CPU")
        host.line(
            "main",
            [
                host.event("Iterator::Root", 0, us * US, id=1),
                host.event("Iterator::Root::Map", 0, us * US, id=2, parent_id=1),
            ],
        )
        (tmp_path / f"{name}.xplane.pb").write_bytes(xspace(host, hostname=name))
    p = load(tmp_path)
    assert p.tf_data.pipelines[["host", "pipeline", "max_us"]].to_numpy().tolist() == [
        ["b", "Host:0", 700.0],
        ["a", "Host:0", 60.0],
    ]
    assert p.tf_data.summary["host"] == "b"
    with pytest.raises(NbprofError, match="rank"):
        p.tf_data.call("Host:0", rank=1, host="a")
    with pytest.raises(NbprofError, match="Host:3"):
        p.tf_data.call("Host:3")
    assert p.tf_data.call("Host:0")["total_ms"].tolist() == [0.7, 0.7], (
        "of pipelines of one name that of the slowest call"
    )


def test_a_loop_over_a_dataset_inside_a_function_is_read(tmp_path):
    host = PlaneWriter("/host:CPU")
    events = [
        host.event("ReduceIterator::Root", 0, 90 * US, id=1),
        host.event("ReduceIterator::Root::Map", 0, 80 * US, id=2, parent_id=1),
        host.event("MakeIterator::MapDataset", 200 * US, 80 * US),
    ]
    host.line("main", events)
    p = made(tmp_path, xspace(host))
    assert p.tf_data.nodes["iterator"].tolist() == ["Root", "Map"]


def test_calls_that_take_from_each_other_in_a_circle_end(tmp_path):
    host = PlaneWriter("/host:CPU")
    for lane, (mine, other, element) in enumerate([(1, 2, 5), (2, 1, 6)]):
        name = "Iterator::Root" if mine == 1 else "Iterator::Root::Map"
        events = [
            host.event("AProduce", 0, 100 * US, element_id=element),
            host.event(name, US, 90 * US, id=mine, parent_id=other),
            host.event("AConsume", 2 * US, US, element_id=11 - element),
        ]
        host.line(f"t{lane}", events, line_id=lane + 1)
    p = made(tmp_path, xspace(host))
    assert p.tf_data.nodes["calls"].tolist() == [1, 1]
    assert compare(p) == 1


def test_no_iterators_is_said(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("main", [host.event("a:A", 0, MS)])
    p = made(tmp_path, xspace(host))
    assert p.tf_data.summary["input_bound"] is None
    assert "tf.data" in p.tf_data.summary["statement"]
    assert p.tf_data.pipelines.empty
    assert p.tf_data.calls.empty
    assert np.array_equal(p.tf_data.nodes.columns, tf_data.NODES)

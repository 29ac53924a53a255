"""What a report says belongs together is what `Links` says of each event, as far as both ends are
there.
"""

from __future__ import annotations

import numpy as np
import pytest

import nbprof
from nbprof.display import codec
from nbprof.timeline import arrows
from nbprof.timeline.arrows import KINDS
from nbprof.timeline.links import MOST
from nbprof.tools.trace import payload as trace
from nbprof.tools.trace.longest import longest
from tests.support.kineto import PID, Kineto
from tests.support.kineto import profile as torch_profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, training_run, xspace
from tests.timeline.test_links import gpu, named, opened, torch


def flows_of_file():
    """Arrows of a plain trace: ids used again, ids that are large, a step between, a launch that
    states no correlation.
    """
    file = Kineto()
    for i, (name, tid) in enumerate(
        (("a", 1), ("b", 2), ("a2", 1), ("b2", 2), ("a3", 1), ("b3", 2), ("c3", 3))
    ):
        file.add(name, "cat", 100 * i, 50, tid=tid)
    for ident, category, points in (
        (4, "x", (("s", 1, 10), ("f", 2, 110))),
        (4, "x", (("s", 1, 210), ("f", 2, 310))),
        (2**61, "x", (("s", 1, 410), ("t", 2, 510), ("f", 3, 610))),
        (2**61, "fwdbwd", (("s", 1, 20), ("f", 2, 320))),
        (4, "ac2g", (("s", 1, 30), ("f", 2, 120))),
    ):
        for phase, tid, ts in points:
            file.events.append(
                {
                    "ph": phase,
                    "id": ident,
                    "pid": PID,
                    "tid": tid,
                    "ts": ts,
                    "cat": category,
                    "name": category,
                    "bp": "e",
                }
            )
    return file


def sent():
    """Numbers of flows in an XSpace: 5 goes on twice, 6 only comes, 7 comes back to its own."""
    host = PlaneWriter("/host:CPU")
    out, into, both = 2, 1, 3
    host.line(
        "a",
        [
            host.event(f"a{i}", i * MS, MS // 2, flow=n << 2 | bits)
            for i, (n, bits) in enumerate([(5, out), (6, into), (7, 0)])
        ],
    )
    more = [(5, both), (5, into), (7, 0), (6, 0)]
    host.line(
        "b",
        [
            host.event(f"b{i}", (i + 4) * MS, MS // 2, flow=n << 2 | bits)
            for i, (n, bits) in enumerate(more)
        ],
        line_id=2,
    )
    return xspace(host)


def compared(run, kept, step=1):
    """What is said of all at once, against what is said of each."""
    links = run.timeline.links
    found = arrows.arrows(links, kept, np.zeros(0, np.int64))
    mine = {event: set() for event in kept.tolist()}
    for kind, start, finish in zip(
        found.kind.tolist(), found.start.tolist(), found.finish.tolist(), strict=True
    ):
        for event in (start, finish):
            mine[event].add((KINDS[kind], start, finish))
    calls = dict(zip(found.work.tolist(), found.call.tolist(), strict=True))
    seen = 0
    for place, event in list(enumerate(kept.tolist()))[::step]:
        said = links.arrows(event)
        if len(said) < MOST:
            assert mine[event] == {arrow for arrow in said if arrow[1] in mine and arrow[2] in mine}
        launch = links.launch(event)
        assert calls.get(event) == (
            launch[0] if launch is not None and launch[0] not in mine else None
        )
        device = links.on_device[links.events.lane[event]]
        assert [*found.op, ""][found.op_of[place]] == (links.op(event) if device else "")
        seen += len(mine[event])
    return found, seen


MADE = {
    "launches": lambda folder: opened(folder, gpu(launches=3, kernels=2)),
    "a launch of many": lambda folder: opened(folder, gpu(kernels=70)),
    "producers": lambda folder: opened(folder, training_run(steps=3)),
    "sequence": lambda folder: torch_profile(folder, torch(sequence=True)).run,
    "fwdbwd": lambda folder: torch_profile(folder, torch(flows=True)).run,
    "flows": lambda folder: torch_profile(folder, flows_of_file()).run,
    "flow numbers": lambda folder: opened(folder, sent()),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_all_at_once_is_as_each_alone(tmp_path, make):
    run = make(tmp_path)
    size = len(run.trace.events)
    found, seen = compared(run, np.arange(size))
    assert seen > 0
    assert found.left_out == 0
    random = np.random.default_rng(size)
    for share in (0.2, 0.5, 0.8):
        compared(run, np.flatnonzero(random.random(size) < share))
    compared(run, np.zeros(0, np.int64))


REAL = [
    "tf-gpu/v100x8-collectives",
    "tf-gpu/t4-one-step",
    "jax/mi300-jax08_attention",
    "jax/tpu-v6e-inference",
    "kineto/v100-resnet50-workers4",
    "kineto/mi300-ddp-resnet18",
]


@pytest.mark.parametrize("name", REAL)
def test_real_profiles(name):
    run = nbprof.load(real(name)).run
    events = run.timeline.tracks.events
    (kept,) = longest([(events.lane, events.duration)], set(), 3000)
    _, seen = compared(run, kept, 20)
    assert seen > 0


def test_too_many_arrows_are_counted(tmp_path, monkeypatch):
    run = opened(tmp_path, gpu(launches=5))
    every = np.arange(len(run.trace.events))
    monkeypatch.setattr(arrows, "MOST_ARROWS", 3)
    found = arrows.arrows(run.timeline.links, every, np.zeros(0, np.int64))
    assert (len(found.kind), found.left_out) == (3, 2)
    assert "2 more arrows" in trace.payload(run)["lacks"]


def test_a_report_holds_launches_and_ops(tmp_path):
    run = opened(tmp_path, gpu(launches=2))
    part = codec.unpack(codec.pack(trace.payload(run)))
    links = part["links"]
    pairs = [(named(run, "cuLaunchKernel", i), named(run, f"kernel{i}")) for i in range(2)]
    assert links["kind"].tolist() == [0, 0]
    assert list(zip(links["from"].tolist(), links["to"].tolist(), strict=True)) == sorted(
        pairs, key=lambda pair: pair[1]
    )
    lane = next(lane for lane in part["lanes"] if pairs[0][1] in lane["event"].tolist())
    assert [part["names"][code - 1] for code in lane["op"].tolist()] == ["a/MatMul", "a/MatMul"]
    assert len(part["category"]) == len(part["names"])
    assert part["lacks"] == ["arguments"]


def test_of_a_launch_that_is_left_out_the_lane_and_the_delay_are_known(tmp_path):
    file = Kineto()
    for i in range(40):
        file.launched("gemm", 100 * i, 100 * i + 30, i + 1)
    run = torch_profile(tmp_path, file).run
    part = codec.unpack(codec.pack(trace.payload(run, 20)))
    links = part["links"]
    kept = {event for lane in part["lanes"] for event in lane["event"].tolist()}
    assert len(links["work"]) > 0
    for work, lane, delay in zip(
        links["work"].tolist(), links["on"].tolist(), links["delay"].tolist(), strict=True
    ):
        call, later = run.timeline.links.launch(work)
        assert call not in kept
        assert lane == run.trace.events.lane[call]
        assert delay * part["tick_ns"] == later // 1000
    assert "arrows to slices that it leaves out" in part["lacks"]


def test_a_profile_without_arguments_lacks_nothing():
    from tests.views import fake

    assert trace.payload(fake.threaded([(0, 1000)]))["lacks"] == []


def test_frames_of_python_are_stacks(tmp_path):
    assert "stacks" in trace.payload(torch_profile(tmp_path, torch()).run)["lacks"]

"""The tracks of made and of real profiles: order and headings, lanes derived from kernels,
counters.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import nbprof
from nbprof.core.codec import values
from nbprof.core.trace import Events
from nbprof.timeline import counting, derived_gpu
from nbprof.timeline.derived import OPS, SCOPES, STEPS, DerivedLines, chains, runs
from nbprof.timeline.tracks import tracks
from tests.support.kineto import Kineto
from tests.support.kineto import profile as torch_profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, gpu_run, training_run, xspace

DETAIL = "regs:32 static_shared:16 dynamic_shared:0 grid:4,1,1 block:128,1,1 occ_pct:75"


def opened(folder, data, name="host-a.xplane.pb"):
    path = folder / name
    path.write_bytes(data)
    return nbprof.load(path).run


def slices(made, title, process=None):
    """(name, start, end) of a lane made here, in order; times in ms."""
    lane = next(
        at for at in made.lanes if at.name == title and (process is None or at.process == process)
    )
    rows = np.flatnonzero(made.extra.lane == lane.id)
    assert len(rows) == lane.events
    events = made.extra
    return [
        (str(made.names[events.name[k]]), float(events.start[k] / MS), float((events.start[k] + events.duration[k]) / MS)) for k in rows
    ]  # fmt: skip


def jax_gpu(**streams):
    """A GPU on which kernels of compiled programs ran; of each stream (start, end, args)."""
    gpu = PlaneWriter("/device:GPU:0", {"device_vendor": "Nvidia"})
    for i, (name, kernels) in enumerate(streams.items()):
        events = [
            gpu.event(f"k{j}", a * MS, (b - a) * MS, kernel_details=DETAIL, **args)
            for j, (a, b, args) in enumerate(kernels)
        ]
        gpu.line(name, events, line_id=i + 1)
    return xspace(gpu)


def hlo(op, program=7, **more):
    """What an op of a program states; one that is called like a function of jax.numpy, so that its
    runs are no steps.
    """
    return {"hlo_op": op, "hlo_module": "jit_add", "program_id": program, **more}


def test_equal_neighbours_are_one_slice_and_a_module_ends_the_ops(tmp_path):
    kernels = [
        (0, 1, hlo("fusion")), (1, 2, hlo("fusion")), (3, 4, hlo("dot.1")), (5, 6, hlo("dot.1", 8)), (6, 7, hlo("call::inner", 8)),
        (8, 9, hlo("call::other", 8)),
    ]  # fmt: skip
    made = tracks(opened(tmp_path, jax_gpu(s1=kernels)))
    assert slices(made, "XLA modules") == [("jit_add", 0, 4), ("jit_add", 5, 9)]
    assert slices(made, "XLA ops") == [
        ("fusion", 0, 2), ("dot.1", 3, 4), ("dot.1", 5, 6), ("call", 6, 9), ("inner", 6, 7), ("other", 8, 9)
    ]  # fmt: skip
    full = {str(made.full[c]) for c in made.extra.name}
    assert {"jit_add(7)", "jit_add(8)"} <= full
    assert any("XLA modules" in note for note in made.notes)


def test_framework_ops_and_nested_scopes_of_what_kernels_state(tmp_path):
    kernels = [
        (0, 1, {"tf_op": "a/b/MatMul:MatMul"}), (1, 2, {"tf_op": "a/b/MatMul:MatMul"}), (2, 3, {"tf_op": "a/c/Add:AddV2"}),
        (3, 4, {}), (5, 6, {"tf_op": "a/c/Add:AddV2"}), (7, 8, {"tf_op": "Relu:Relu"}), (8, 9, {"tf_op": "a/c/Add:AddV2"}),
    ]  # fmt: skip
    made = tracks(opened(tmp_path, jax_gpu(s1=kernels)))
    # A kernel that states nothing changes nothing; an op without a scope leaves the scopes as they
    # are.
    assert slices(made, SCOPES) == [("a", 0, 9), ("b", 0, 2), ("c", 2, 9)]
    assert slices(made, OPS) == [("MatMul", 0, 2), ("AddV2", 2, 6), ("Relu", 7, 8), ("AddV2", 8, 9)]
    lanes = [(lane.name, lane.derived) for lane in made.lanes if lane.process == "GPU 0"]
    assert lanes == [(SCOPES, True), (OPS, True), ("s1", False), ("Busy", False)]


def test_steps_of_a_device_end_what_is_equal(tmp_path):
    kernels = [
        (i, i + 1, {"tf_op": "a/Add:AddV2", "group_id": i // 2, "correlation_id": i + 1})
        for i in range(4)
    ]
    made = tracks(opened(tmp_path, jax_gpu(s1=kernels)))
    assert slices(made, STEPS) == [("0", 0, 2), ("1", 2, 4)]
    assert slices(made, OPS) == [("AddV2", 0, 2), ("AddV2", 2, 4)]
    assert slices(made, SCOPES) == [("a", 0, 2), ("a", 2, 4)]


def test_each_stream_has_lines_of_its_own_the_busiest_the_plain_names(tmp_path):
    few, many = [(0, 9, hlo("a"))], [(i, i + 1, hlo(f"b{i}")) for i in range(3)]
    made = tracks(opened(tmp_path, jax_gpu(s1=few, s2=many)))
    names = [(lane.name, lane.note, lane.folded) for lane in made.lanes if lane.derived]
    assert names == [
        ("XLA modules", "s2", False), ("XLA ops", "s2", False), ("XLA modules · s1", "", True), ("XLA ops · s1", "", True)
    ]  # fmt: skip
    assert slices(made, "XLA ops · s1") == [("a", 0, 9)]


def test_a_profile_without_devices_has_the_steps_of_its_host(tmp_path):
    run = opened(tmp_path, training_run(steps=4))
    made = tracks(run)
    assert [(lane.process, lane.name) for lane in made.lanes] == [
        ("Host", "Steps"), ("Host", "python"), ("Host", "tf_pool"), ("Host", "Memory in use, mklcpu")
    ]  # fmt: skip
    assert [name for name, _, _ in slices(made, STEPS)] == run.steps["name"].tolist()
    assert [start for _, start, _ in slices(made, STEPS)] == pytest.approx(
        run.steps["start_ms"].tolist()
    )
    events = made.extra
    order = np.lexsort((-events.duration, events.start, events.lane))
    assert (order == np.arange(len(events))).all()


def test_lanes_made_here_come_behind_those_of_the_trace(tmp_path):
    run = opened(tmp_path, gpu_run())
    made = tracks(run)
    ids = [lane.id for lane in made.lanes]
    assert len(set(ids)) == len(ids)
    assert all(lane.id >= len(run.trace.lanes) for lane in made.lanes if lane.kind == "counter")
    assert {c.id for c in made.counters} == {
        lane.id for lane in made.lanes if lane.kind == "counter"
    }
    assert len(made.names) == len(made.full) == len(made.category) >= len(run.trace.names)


def test_busy_is_the_union_of_all_streams():
    events = Events(
        *(np.array(v) for v in ([0, 0, 1], [0, 0, 0])),
        np.array([0, 600, 200]),
        np.array([200, 400, 100]),
    )
    time, value = counting.busy(events, [0, 1])
    edges = np.append(time, 1000)
    assert (np.diff(edges) * value / 100).sum() == pytest.approx(700)
    at = np.searchsorted(time, [100, 250, 450, 800], side="right") - 1
    assert value[at].tolist() == [100, 100, 0, 100]
    assert value[-1] == 0
    assert time[0] == 0


def test_busy_against_a_plain_count():
    random = np.random.default_rng(5)
    start = np.sort(random.integers(0, 5000, 300))
    duration = random.integers(0, 40, 300)
    on = np.zeros(6000, bool)
    for a, d in zip(start.tolist(), duration.tolist(), strict=True):
        on[a : a + d] = True
    events = Events(np.zeros(300, np.int32), np.zeros(300, np.int32), start, duration)
    time, value = counting.busy(events, [0])
    assert ((value >= 0) & (value <= 100)).all()
    assert (np.diff(np.append(time, 6000)) * value / 100).sum() == pytest.approx(on.sum())


def test_levels_that_are_alike_above_only():
    levels, names = chains([(1, 2, 3), (1, 2), (1, 4, 3)])
    start = np.arange(3) * 10
    what, first, last, _ = runs(
        [level[[0, 1, 2]] for level in levels], start, start + 10, np.zeros(3, np.int64)
    )
    assert list(zip(names[what].tolist(), first.tolist(), last.tolist(), strict=True)) == [
        (1, 0, 30), (2, 0, 20), (4, 20, 30), (3, 0, 10), (3, 20, 30)
    ]  # fmt: skip


def torch_run(folder):
    file = Kineto()
    for step in range(2):
        at = 1000.0 * step
        file.step(step, at, 900)
        linear = file.op("aten::linear", at + 10, 50)
        file.add("nn.Module: Linear_0", "python_function", at + 5, 80, args={"Python id": step + 1})
        inner = file.op("aten::addmm", at + 15, 30)
        assert linear < inner
        file.launched("gemm_a", at + 20, at + 100, 40, inner)
        file.launched("gemm_b", at + 25, at + 140, 40, inner)
        relu = file.op("aten::relu", at + 200, 20)
        file.launched("relu", at + 205, at + 300, 10, relu)
    return torch_profile(folder, file).run


def test_what_the_program_launched_lies_on_the_device(tmp_path):
    made = tracks(torch_run(tmp_path))
    us = 1e-3
    assert slices(made, "Ops") == [
        (name, pytest.approx((at + a) * us), pytest.approx((at + b) * us))
        for at in (0, 1000)
        for name, a, b in (
            ("aten::linear", 100, 180),
            ("aten::addmm", 100, 180),
            ("aten::relu", 300, 310),
        )
    ]
    assert [name for name, _, _ in slices(made, "Modules")] == ["Linear_0", "Linear_0"]
    assert slices(made, STEPS, "GPU 0") == [
        ("ProfilerStep#0", pytest.approx(0.1), pytest.approx(0.31)), ("ProfilerStep#1", pytest.approx(1.1), pytest.approx(1.31))
    ]  # fmt: skip
    assert [lane.name for lane in made.lanes if lane.process == "GPU 0"] == [
        STEPS,
        "Modules",
        "Ops",
        "Stream 7",
        "Busy",
    ]


def test_counters_of_the_file_are_lanes(tmp_path):
    file = Kineto()
    file.step(0, 0, 900)
    file.op("aten::add", 10, 20)
    for at, value in ((5, 1), (500, 3)):
        file.events.append(
            {"ph": "C", "name": "queue", "pid": 100, "ts": at, "args": {"depth": value}}
        )
    made = tracks(torch_profile(tmp_path, file).run)
    counter = next(c for c in made.counters if c.label == "queue depth")
    assert (counter.unit, counter.value.tolist()) == ("count", [1, 3])
    assert np.diff(counter.time).tolist() == [495_000_000]
    assert next(lane for lane in made.lanes if lane.id == counter.id).kind == "counter"


def test_memory_is_what_the_timeline_of_memory_says(tmp_path):
    run = opened(tmp_path, training_run(steps=3))
    counter = next(c for c in tracks(run).counters if c.unit == "bytes")
    assert counter.value.tolist() == [100, 0] * 3
    assert (counter.time / 1e9).tolist() == pytest.approx(run.memory_timeline["time_ms"].tolist())


def again(run):
    """The lines of the GPUs of a run as if none had been recorded, and those recorded: sets of
    (name, start, end).
    """
    trace, lanes = run.trace, run.trace.lanes
    gpus = []
    for number, plane in enumerate(trace.planes):
        mine = [i for i in range(len(lanes)) if lanes["plane"].iloc[i] == number]
        streams = [i for i in mine if lanes["kind"].iloc[i] == "device" and lanes["events"].iloc[i]]
        if re.match(r"/device:GPU:\d+\Z", plane.name) and streams:
            gpus.append(
                derived_gpu.Gpu(
                    number,
                    streams,
                    set(),
                    str(lanes["host"].iloc[mine[0]]),
                    int(lanes["device"].iloc[mine[0]]),
                )
            )
    made = DerivedLines()
    derived_gpu._Gpus(run, made, gpus, 1).add()
    out = {}
    for line in made.lines:
        here = {
            (made.full[n], int(a), int(b))
            for n, a, b in zip(line.name, line.start, line.end, strict=True)
        }
        kind = line.title.partition(" · ")[0]
        out.setdefault((line.process, kind), set()).update(here)
    recorded = {}
    events = trace.events
    for title, kind in (
        ("Steps", STEPS),
        ("TensorFlow Ops", OPS),
        ("TensorFlow Name Scope", SCOPES),
    ):
        for i in np.flatnonzero((lanes["thread"] == title).to_numpy()):
            rows = np.flatnonzero(events.lane == i)
            recorded[lanes["process"].iloc[i], kind] = {
                (str(trace.names[events.name[k]]), int(events.start[k]), int(events.start[k] + events.duration[k])) for k in rows
            }  # fmt: skip
    return out, recorded


@pytest.mark.parametrize(
    ("name", "ops", "scopes"),
    [
        ("rtx5000-cnn-batch64", 0, 0),
        # Scopes: recorders of that time let a scope go on behind an op of fewer scopes; today's,
        # and this, begin it anew.
        ("rtx5000-cnn-batch512", 0, 2),
        ("v100x8-collectives", 0, 4),
        # Ops: these took names with a "-" (LayoutOptimizer) for no op, wrote them in full and gave
        # them no scopes; and they put the ops of all streams on one line, where those of one stream
        # cut or join those of another.
        ("rtx5000-cnn-batch8", 0, 91),
        ("t4-one-step", 1, 6),
    ],
)
def test_lines_made_anew_are_those_that_the_recorder_made(name, ops, scopes):
    made, recorded = again(nbprof.load(real(f"tf-gpu/{name}")).run)
    assert recorded
    missing = {STEPS: 0, OPS: 0, SCOPES: 0}
    for (process, kind), there in recorded.items():
        mine = made[process, kind]
        if kind == STEPS:
            assert {span[1:] for span in mine} == {span[1:] for span in there}
            continue
        missing[kind] += len(there - mine)
    assert missing == {STEPS: 0, OPS: ops, SCOPES: scopes}


def test_steps_that_the_recorder_numbers_have_the_names_of_the_table():
    run = nbprof.load(real("tf-gpu/rtx5000-cnn-batch64")).run
    made = tracks(run)
    lane = next(lane for lane in made.lanes if lane.kind == "steps")
    rows = np.flatnonzero(made.events.lane == lane.id)
    assert [str(made.names[made.events.name[k]]) for k in rows] == run.steps["name"].tolist()


def test_many_hosts_have_their_name_in_front():
    made = tracks(nbprof.load(real("kineto/a100-nccl-ranks")).run)
    headings = list(dict.fromkeys(lane.process for lane in made.lanes))
    assert headings[:2] == ["rank 0 · GPU 0", "rank 1 · GPU 1"]
    assert {h.partition(" · ")[0] for h in headings} == {"rank 0", "rank 1"}
    first = [lane.name for lane in made.lanes if lane.process == headings[0]]
    assert first[:2] == [STEPS, "Ops"]
    assert first[-1] == "Busy"


def test_a_tpu_is_busy_while_an_op_runs(tmp_path):
    core = PlaneWriter("/device:TPU:0")
    core.line("XLA Modules", [core.event("jit_add(1)", 0, 10 * MS)], line_id=2)
    core.line(
        "XLA Ops", [core.event("%dot", 0, 4 * MS), core.event("%add", 6 * MS, 2 * MS)], line_id=3
    )
    made = tracks(opened(tmp_path, xspace(core)))
    counter = next(c for c in made.counters if c.label == "Busy")
    assert (np.diff(np.append(counter.time, 10 * MS)) * counter.value / 100).sum() == pytest.approx(
        6 * MS
    )
    # What a TPU writes are its own lines: none is derived.
    assert not any(lane.derived for lane in made.lanes if lane.kind == "device")


def test_what_was_derived_comes_back_from_the_cache(tmp_path):
    run = opened(tmp_path, jax_gpu(s1=[(i, i + 1, hlo(f"op.{i % 2}")) for i in range(6)]))
    kept = {}
    run.persist = lambda name, compute: kept.setdefault(name, compute())
    first = tracks(run)
    blocks = []
    stored = values.encode(
        kept["timeline_derived"], lambda block: blocks.append(block.copy()) or len(blocks) - 1
    )
    back = values.decode(json.loads(json.dumps(stored)), blocks.__getitem__)
    run.persist = lambda name, compute: back
    again_ = tracks(run)
    assert len(first.extra) == 7
    assert first.lanes == again_.lanes
    assert first.notes == again_.notes
    for column in ("lane", "name", "start", "duration"):
        assert (getattr(first.extra, column) == getattr(again_.extra, column)).all()
    assert (first.names == again_.names).all()


def test_the_busiest_thread_is_open_also_where_one_event_is_a_day_away(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("work", [host.event("e", j * MS, MS // 2) for j in range(100)], line_id=1)
    host.line("late", [host.event("e", 86_400_000 * MS, MS)], line_id=2)
    made = tracks(opened(tmp_path, xspace(host)))
    assert [(lane.name, lane.folded) for lane in made.lanes] == [("work", False), ("late", True)]


def test_five_thousand_lanes_keep_their_order_and_all_but_eight_are_folded(tmp_path):
    host = PlaneWriter("/host:CPU")
    for i in range(5000):
        host.line(
            f"t{i}",
            [host.event("e", j * MS, (i % 7 + 1) * MS // 10) for j in range(3)] if i % 2 else [],
            line_id=i + 1,
        )
    made = tracks(opened(tmp_path, xspace(host)))
    assert [lane.name for lane in made.lanes] == [f"t{i}" for i in range(5000) if i % 2]
    assert sum(not lane.folded for lane in made.lanes) == 8
    assert {int(lane.name[1:]) % 7 for lane in made.lanes if not lane.folded} == {6}


def test_a_step_has_one_name_everywhere():
    p = nbprof.load(real("tf-gpu/rtx5000-cnn-batch64"))
    run, steps = p.run, p.run.steps
    assert (
        steps["name"].tolist()
        == [f"train {n}" for n in range(499, 520)]
        == [f"train {n}" for n in steps["step"]]
    )
    lane = next(lane for lane in run.timeline.tracks.lanes if lane.kind == "steps")
    drawn = p.trace.events(lane=lane.id)
    assert drawn["name"].tolist() == steps["name"].tolist()
    for event, name, step in zip(drawn["event"], steps["name"], steps["step"], strict=True):
        info = run.timeline.answer({"ask": "slice", "event": int(event)})
        assert info["step"] == info["full_name"] == info["slice"]["name"] == name
        assert (
            run.timeline.answer({"ask": "locate", "kind": "step", "step": int(step)})["text"]
            == f"Step {name}."
        )
    first = p.trace.events(kind="device").query("duration_us > 0").iloc[0]
    assert (
        run.timeline.answer({"ask": "slice", "event": int(first["event"])})["step"]
        in steps["name"].tolist()
    )


def test_the_mark_of_a_step_is_no_op_of_a_device():
    p = nbprof.load(real("kineto/v100-resnet50-workers0"))
    lanes = {lane.name: lane for lane in p.run.timeline.tracks.lanes if lane.process == "GPU 0"}
    ops = p.trace.events(lane=lanes["Ops"].id)["name"]
    assert ops.str.startswith("aten::").any()
    assert ops[ops.str.startswith("ProfilerStep#")].tolist() == []
    assert p.trace.events(lane=lanes["Steps"].id)["name"].str.startswith("ProfilerStep#").all()

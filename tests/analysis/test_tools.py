from __future__ import annotations

from functools import cache

import pytest

from nbprof.schema import frames
from tests.support.build import profile
from tests.support.frames import OF_A_PROFILE, public
from tests.support.made import opened
from tests.support.xspace import MS, PlaneWriter, gpu_run, training_run, xspace


# Opened once for all frames.
@pytest.mark.parametrize(
    "make",
    [
        cache(lambda: opened(training_run(5))),
        cache(lambda: opened(gpu_run())),
        cache(lambda: opened(xspace(PlaneWriter("/host:CPU")))),
    ],
)
@pytest.mark.parametrize("name", OF_A_PROFILE)
def test_public_frames_begin_with_their_declared_columns(make, name):
    frame = public(make(), name)
    declared = [c.name for c in frames.SCHEMA[name]]
    assert [c for c in frame.columns if c in declared] == declared


def test_self_time_of_ops_leaves_out_the_ops_inside(tmp_path):
    ops = profile(tmp_path, training_run(5)).ops.frame.set_index("op")
    assert ops.loc["Iterator::Root", "total_us"] == 20_000
    assert ops.loc["Iterator::Root", "self_us"] == 5_000
    assert ops.loc["Iterator::Root::Map", "self_us"] == 15_000
    assert ops.loc["dense/MatMul", "type"] == "MatMul"
    assert ops.loc["dense/MatMul", "self_fraction"] == pytest.approx(25 / 45)
    assert ops["cumulative_fraction"].iloc[-1] == pytest.approx(1.0)


def test_idle_fills_what_no_op_used(tmp_path):
    p = profile(tmp_path, training_run(5))
    idle = p.ops.with_idle.set_index("op").loc["IDLE"]
    # The pool's ops run from 0 to 49 ms, for 45 of them; the main thread holds no framework op.
    assert idle["self_us"] == pytest.approx(4_000)
    assert idle["occurrences"] == 0


def test_the_time_of_ops_that_overlap_in_part_is_the_later_ones(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("a:A", 0, 10 * MS),
            host.event("b:B", 5 * MS, 10 * MS),
            host.event("c:C", 20 * MS, MS),
        ],
    )
    ops = profile(tmp_path, xspace(host)).ops.frame
    assert ops.set_index("op")["self_us"].to_dict() == {"a": 5_000, "b": 10_000, "c": 1_000}


def test_input_work_is_split_by_kind(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "t",
        [
            host.event("Iterator::Root::TFRecord", 0, MS),
            host.event("Iterator::Root::Prefetch::TFRecord", 2 * MS, 2 * MS),
            host.event("Iterator::Root::Map", 5 * MS, 3 * MS),
        ],
    )
    time = profile(tmp_path, xspace(host)).input_pipeline.categories.set_index("category")[
        "time_ms"
    ]
    assert time["demanded_file_read"] == 1.0
    assert time["advanced_file_read"] == 2.0
    assert time["preprocessing"] == 3.0


def test_the_tf_data_bottleneck_is_found_and_named(tmp_path):
    p = profile(tmp_path, training_run(5))
    nodes = p.tf_data.nodes.set_index("iterator")
    assert nodes.loc["Map", "bottleneck"]
    assert nodes.loc["Map", "parent"] == nodes.loc["Root", "id"]
    assert nodes.loc["Root", "self_ms"] == pytest.approx(5.0)
    assert nodes["critical"].all()
    assert p.tf_data.pipelines["slow_calls"].tolist() == [5]
    rules = p.advice.set_index("rule")
    assert rules.loc["map_serial", "gain_ms_per_step"] == pytest.approx(4.0)
    assert "num_parallel_calls" in rules.loc["map_serial", "fix"]
    assert rules.loc["prefetch_missing", "gain_ms_per_step"] == pytest.approx(4.0)


def test_work_on_other_threads_is_followed_by_element_ids(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line(
        "consumer",
        [
            host.event("Iterator::Root", 0, 9 * MS, id=1),
            host.event("Iterator::Root::ParallelMapV2", 0, 8 * MS, id=2, parent_id=1),
            host.event("ParallelMapConsume", 0, 8 * MS, element_id=5),
        ],
        line_id=1,
    )
    host.line(
        "producer",
        [
            host.event("ParallelMapProduce", 0, 7 * MS, element_id=5),
            host.event("Iterator::Root::ParallelMapV2::Range", 0, 6 * MS, id=3, parent_id=2),
        ],
        line_id=2,
    )
    nodes = profile(tmp_path, xspace(host)).tf_data.nodes.set_index("iterator")
    assert nodes.loc["Range", "calls"] == 1
    assert nodes.loc["ParallelMapV2", "self_ms"] == pytest.approx(2.0)
    assert nodes.loc["Range", "bottleneck"]


def test_kernels_carry_launch_shape_and_tensor_cores(tmp_path):
    kernels = profile(tmp_path, gpu_run()).kernels.frame.set_index("kernel")
    row = kernels.loc["sgemm"]
    assert (
        row["registers"],
        row["static_shared_bytes"],
        row["block"],
        row["grid"],
        row["occupancy_percent"],
    ) == (
        32,
        16,
        "128,1,1",
        "4,1,1",
        75.0,
    )
    assert row["op_tensor_core_eligible"]
    assert not row["uses_tensor_core"]
    assert kernels.loc["volta_h884gemm_fp16", "uses_tensor_core"]
    assert kernels["total_us"].sum() == 4_000


def test_memory_knows_what_was_freed_and_what_lived_at_the_peak(tmp_path):
    p = profile(tmp_path, training_run(5))
    timeline = p.memory.timeline
    freed = timeline[timeline["event"] == "deallocation"]
    assert freed["op"].tolist() == ["dense/MatMul"] * 5, "a free states the op of its allocation"
    assert freed["allocated_bytes"].tolist() == [-100] * 5
    row = p.memory.summary.iloc[0]
    assert (
        row["peak_bytes"],
        row["allocations"],
        row["deallocations"],
        row["peak_fragmentation"],
    ) == (100, 5, 5, 0.25)
    peak = p.memory.peak
    assert peak["op"].tolist() == ["dense/MatMul"]
    assert (peak["allocated_bytes"] * peak["occurrences"]).sum() == row["peak_bytes"]


def test_the_verdict_names_the_largest_part_with_its_evidence(tmp_path):
    p = profile(tmp_path, training_run(12))
    o = p.overview
    assert o["bound"] == "host_compute"
    assert o["verdict_text"].startswith("50%")
    assert o["confidence"] == "high"
    few = profile(tmp_path, training_run(3)).overview
    assert few["confidence"] == "medium"
    assert any("capture 10 or more" in t for ok, t in few["confidence_evidence"] if not ok)


def test_without_steps_the_recording_is_the_unit(tmp_path):
    host = PlaneWriter("/host:CPU")
    host.line("t", [host.event("a:A", 0, MS)])
    p = profile(tmp_path, xspace(host))
    assert p.overview["unit"]["kind"] == "recording"
    assert p.overview["bound"] == "host_compute"
    assert p.overview["step_time_ms"] == pytest.approx(1.0)
    assert len(p.ops.frame) == 1
    assert not len(p.advice)


def test_events_can_be_asked_for_by_name_time_and_arg(tmp_path):
    p = profile(tmp_path, training_run(5))
    found = p.trace.events(name="train", between=(12.0, 21.0), args=("step_num",))
    assert found["step_num"].tolist() == [1, 2]
    assert found["duration_us"].tolist() == [10_000.0, 10_000.0]

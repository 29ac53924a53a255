"""Device work that was launched before the recording began: of no step, of no mean, and told."""

from __future__ import annotations

import pytest

from tests.support.kineto import Kineto, load, profile
from tests.support.profiles import real

GEMM = "sgemm_128x64_nn"
OLD = "elementwise_kernel_old"


def ahead(backlog: int = 3, steps: int = 4, **metadata: object) -> Kineto:
    """Steps whose host takes 10 µs and whose device takes 40 µs; before them 30 µs of device work
    for each kernel of the backlog.
    """
    k = Kineto(**metadata)
    k._correlation = 1000
    for i in range(backlog):
        k.kernel(OLD, 5 + 30 * i, 30, correlation=990 + i)
    busy = 5.0 + 30 * backlog
    for i in range(steps):
        k.step(i, 10.0 * i, 10)
        op = k.op("aten::mm", 10.0 * i + 1, 4)
        k.launched(GEMM, 10.0 * i + 2, busy, 40, op)
        k.memory(10.0 * i + 3, 64, 4096 + 64 * i, 64 * (i + 1), 1024, device=0)
        busy += 40
    return k


def test_a_step_has_only_the_device_work_that_it_launched(tmp_path):
    p = profile(tmp_path, ahead())
    steps = p.steps.frame
    assert steps["step_time_ms"].tolist() == pytest.approx([0.040] * 4)
    assert steps["start_ms"].tolist() == pytest.approx([0.095, 0.135, 0.175, 0.215])
    assert steps["device_compute_ms"].tolist() == pytest.approx([0.040] * 4)
    assert p.steps.summary.set_index("category").loc[
        "step_time", ["mean_ms", "sd_ms"]
    ].tolist() == pytest.approx([0.040, 0.0])


def test_the_backlog_is_a_row_of_its_own(tmp_path):
    p = profile(tmp_path, ahead())
    row = p.steps.backlog.iloc[0]
    assert (row["host"], row["device_events"]) == ("host0", 3)
    assert row[["start_ms", "time_ms", "busy_ms", "device_compute_ms"]].tolist() == pytest.approx(
        [0.005, 0.090, 0.090, 0.090]
    )
    assert (
        "3 device events (0.09 ms in which a device was busy) were launched before the recording began: not counted in any step; "
        "the first step begins when they have ended (p.steps.backlog)."
    ) in str(p.receipt)
    assert "unlaunched_work" not in set(p.receipt.notes["key"])
    assert p.kernels.frame["occurrences"].sum() == 7


def test_no_figure_a_step_holds_it(tmp_path):
    p = profile(tmp_path, ahead())
    top = p.overview["top_ops"].set_index("op")
    assert top.loc["aten::mm", ["self_ms", "ms_per_step"]].tolist() == pytest.approx([0.160, 0.040])
    assert top.loc[OLD, ["self_ms", "ms_per_step"]].tolist() == pytest.approx([0.090, 0.0])
    assert (p.overview["step_time_ms"], p.overview["device_busy_percent"]) == pytest.approx(
        (0.040, 100.0)
    )
    assert set(p.run.kernels_in_steps["kernel"]) == {GEMM}
    assert "0.04 ms per step" in [figure["note"] for figure in p.payload()["kernels"]["figures"]]


def test_allocations_are_of_the_step_that_the_host_was_in(tmp_path):
    p = profile(tmp_path, ahead())
    assert p.memory.timeline["step"].tolist() == [0, 1, 2, 3]


def test_each_rank_has_its_own_backlog(tmp_path):
    ranks = [ahead(n, distributedInfo={"rank": i, "world_size": 2}) for i, n in enumerate((2, 0))]
    p = profile(tmp_path, *ranks)
    assert p.steps.backlog[["host", "device_events"]].values.tolist() == [["rank 0", 2]]
    assert p.steps.frame["step_time_ms"].tolist() == pytest.approx([0.040] * 8, abs=0.0051)
    assert "2 device events of rank 0 (0.06 ms in which a device was busy) were launched" in str(
        p.receipt
    )


def test_work_whose_launch_was_lost_within_the_recording_is_of_the_step_in_which_it_began(tmp_path):
    k = ahead(backlog=0)
    k._correlation += 1
    k.kernel(GEMM, 175, 10, correlation=k._correlation, stream=9)
    p = profile(tmp_path, k)
    assert p.steps.backlog.empty
    assert "1 of 5 device events (20 %) have no launch in this profile" in str(p.receipt)


def test_old_work_on_a_stream_of_its_own_delays_no_step(tmp_path):
    k = ahead(backlog=0)
    k.kernel(OLD, 0, 10_000, correlation=7, stream=20)
    p = profile(tmp_path, k)
    assert len(p.steps.frame) == 4
    assert p.steps.frame["device_compute_ms"].tolist() == pytest.approx([0.040] * 4)
    assert p.steps.backlog["time_ms"].tolist() == pytest.approx([10.0])


def test_without_ids_what_began_before_anything_else_is_older(tmp_path):
    k = ahead(backlog=0)
    k.kernel(OLD, -3, 2)
    p = profile(tmp_path, k)
    assert p.steps.backlog["device_events"].tolist() == [1]


@pytest.mark.parametrize(
    ("name", "first", "others", "events"),
    [
        ("findings/D1-first-step/resnet_act_checkpoint.json.gz", 18.98, [18.98, 18.55], 968),
        ("findings/D1-first-step/rank0.json.gz", 216.29, [215.57, 216.52, 216.21, 212.52], 872),
        (
            "findings/D7-tensor-cores/worker0.pt.trace.json.gz",
            129.98,
            [158.50, 140.33, 163.13, 141.41, 159.07],
            733,
        ),
    ],
)
def test_first_steps_of_real_recordings(name, first, others, events):
    p = load(real(name))
    assert p.steps.frame["step_time_ms"].tolist() == pytest.approx([first, *others], abs=0.01)
    assert p.steps.backlog["device_events"].tolist() == [events]

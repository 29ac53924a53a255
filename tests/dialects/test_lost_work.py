"""Steps of which the recorder lost device work are marked, named, and in no average."""

from __future__ import annotations

import pytest

from tests.support.kineto import Kineto, profile

STEPS, LAUNCHES, STEP_US = 8, 10, 1_000.0


def training(lost: dict[int, int], *, ahead: bool = False, silent: int = 0) -> Kineto:
    """Steps with 10 kernels that take 60 % of each; of some steps the first kernels are lost, and
    the last ones launch nothing.

    With `ahead` the host runs ahead, and the device is never idle.
    """
    k = Kineto()
    kernel_us = 100.0 if ahead else 60.0
    for step in range(STEPS):
        begin = 500 + step * STEP_US
        k.step(step, begin, STEP_US)
        k.op("aten::relu", begin + 5, 10)
        for i in range(LAUNCHES if step < STEPS - silent else 0):
            at = begin + 20 + (20 if ahead else 100) * i * 0.9
            call = k.call("cudaLaunchKernel", at, 4, k.op("aten::mm", at - 1, 6))
            if i >= lost.get(step, 0):
                k.kernel(
                    "gemm",
                    900 + step * STEP_US + i * kernel_us if ahead else at + 10,
                    kernel_us,
                    call,
                )
    return k


def counted(p) -> list[int]:
    steps = p.steps.frame
    return steps.loc[steps["counted"], "step"].tolist()


def lost(p) -> list[int]:
    steps = p.steps.frame
    return steps.loc[steps["lost"], "step"].tolist()


def test_a_step_whose_kernels_were_lost_is_in_no_average(tmp_path):
    p = profile(tmp_path, training({3: 10, 5: 4}))
    assert lost(p) == [3, 5]
    assert counted(p) == [0, 1, 2, 4, 6, 7]
    assert p.overview["device_busy_percent"] == pytest.approx(60)
    assert (
        "2 steps lost device work, 14 of 20 launches have none (ProfilerStep#3, ProfilerStep#5): shown, but not averaged."
        in str(p.receipt)
    )
    assert (
        p.payload()["steps"]["left_out"]
        == "Averages exclude 2 steps (the recorder lost device work)."
    )


def test_the_step_after_is_left_out_where_it_begins_with_the_work_before(tmp_path):
    p = profile(tmp_path, training({3: 10}, ahead=True))
    assert lost(p) == [3, 4]
    said = "1 step lost device work, 10 of 10 launches have none (ProfilerStep#3): shown, but not averaged. Nor is ProfilerStep#4:"
    assert said in str(p.receipt)
    assert p.steps.summary.set_index("category").loc["step_time", "mean_ms"] == pytest.approx(
        1.0, abs=0.15
    )


def test_few_lost_kernels_change_no_step(tmp_path):
    assert not lost(profile(tmp_path, training({})))


def test_last_steps_without_launches_are_not_averaged(tmp_path):
    p = profile(tmp_path, training({}, silent=3))
    assert lost(p) == [5, 6, 7]
    assert p.overview["device_busy_percent"] == pytest.approx(60)
    assert "3 steps at the end have neither launches nor device work" in str(p.receipt)


def test_where_all_steps_lost_work_they_are_what_there_is(tmp_path):
    p = profile(tmp_path, training(dict.fromkeys(range(STEPS), 3)))
    assert not lost(p)
    assert len(counted(p)) == STEPS
    assert "8 steps lost device work, 24 of 80 launches have none" in str(p.receipt)
    assert "no step is complete" in str(p.receipt)


def test_most_steps_without_their_work_make_no_verdict(tmp_path):
    p = profile(tmp_path, training(dict.fromkeys(range(2, STEPS), 10)))
    assert counted(p) == [0, 1]
    assert (p.overview["verdict"], p.overview["bound"]) == ("Device work not recorded", None)
    assert not len(p.advice)


def test_a_slice_named_as_its_launch_is_no_kernel(tmp_path):
    """A graph of HIP that runs as long as the recording, and steps that launch nothing more: no
    verdict on the device.
    """
    k = Kineto()
    for step in range(12):
        begin = 1_000 + 5_000.0 * step
        k.step(step, begin, 4_900)
        k.op("aten::add", begin + 100, 300)
        for i in range(3 if step < 3 else 0):
            k.launched(
                "gemm",
                begin + 1_000 + 200 * i,
                begin + 1_020 + 200 * i,
                150,
                k.op("aten::mm", begin + 998 + 200 * i, 9),
            )
    k.kernel("hipGraphLaunch", 1_300, 59_000, k.call("hipGraphLaunch", 1_150, 20), stream=9)
    p = profile(tmp_path, k)
    assert p.overview["verdict"] == "Device work not recorded"
    assert not len(p.advice)
    assert p.kernels.by_name()["kernel"].tolist() == ["gemm"]
    assert len(p.steps.frame) == 12
    assert counted(p) == [1, 2]
    assert p.overview["device_busy_percent"] == pytest.approx(100 * 0.45 / 4.9, abs=0.5)
    assert (
        "1 device event is named as the call that launches (hipGraphLaunch; 59.00 ms on GPU 0"
        in str(p.receipt)
    )

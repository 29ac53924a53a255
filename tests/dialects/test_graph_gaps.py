"""Gaps of microseconds between the nodes of one replayed graph are the recorder's: they count with
the graph, and not as other time.
"""

from __future__ import annotations

import pytest

from tests.support.kineto import Kineto, profile

STEPS, NODES, NODE_US = 4, 50, 10.0


def replays(gap: float, *, branch: bool = False) -> Kineto:
    """A replay a step, of kernels with a gap between two; with `branch` a second stream of the
    graph runs meanwhile.
    """
    k = Kineto()
    length = 100 + NODES * (NODE_US + gap)
    for step in range(STEPS):
        begin = 500 + step * length
        k.step(step, begin, length)
        launch = k.call("cudaGraphLaunch", begin + 10, 10)
        for i in range(NODES):
            k.kernel(
                "gemm",
                begin + 50 + i * (NODE_US + gap),
                NODE_US,
                launch,
                **{"graph node id": i + 1},
            )
        if branch:
            k.kernel(
                "side",
                begin + 50,
                NODES * (NODE_US + gap) - gap,
                launch,
                stream=8,
                **{"graph node id": NODES + 1},
            )
    return k


def parts(p) -> dict[str, float]:
    steps = p.steps.frame
    return {
        name: float(steps[f"{name}_ms"].mean())
        for name in ("step_time", "device_compute", "other", "host_compute", "kernel_launch")
    }


@pytest.mark.parametrize("gap", [1.0, 4.0, 9.0])
def test_gaps_of_the_recorder_count_with_the_graph(tmp_path, gap):
    p = profile(tmp_path, replays(gap))
    got = parts(p)
    busy_ms = NODES * NODE_US / 1e3
    assert got["device_compute"] == pytest.approx(busy_ms + (NODES - 1) * gap / 1e3)
    # Before and after the replay.
    assert got["other"] + got["kernel_launch"] == pytest.approx((100 + gap) / 1e3)
    # What ran is what ran.
    assert p.overview["device_busy_percent"] == pytest.approx(100 * busy_ms / got["step_time"])
    assert p.kernels.by_name()["total_us"].sum() == pytest.approx(STEPS * NODES * NODE_US)


def test_a_longer_gap_is_a_wait_of_the_graph(tmp_path):
    got = parts(profile(tmp_path, replays(25.0)))
    assert got["device_compute"] == pytest.approx(NODES * NODE_US / 1e3)


def test_work_of_another_branch_is_itself(tmp_path):
    got = parts(profile(tmp_path, replays(4.0, branch=True)))
    assert got["device_compute"] == pytest.approx((NODES * NODE_US + (NODES - 1) * 4.0) / 1e3)


def test_gaps_between_kernels_that_were_launched_one_by_one_are_other_time(tmp_path):
    k = Kineto()
    for step in range(STEPS):
        begin = 500 + step * 1_000.0
        k.step(step, begin, 1_000)
        for i in range(50):
            k.launched("gemm", begin + 2 * i, begin + 200 + 14 * i, 10)
    assert parts(profile(tmp_path, k))["device_compute"] == pytest.approx(0.5)

"""Launches while a graph is captured: nothing runs for them, and nothing was lost."""

from __future__ import annotations

import pytest

from tests.support.kineto import BACKWARD, MAIN, Kineto, load, profile
from tests.support.profiles import real


def capturing(
    prefix: str = "cuda", ends_on: int = MAIN, *, begins: bool = True, ends: bool = True
) -> Kineto:
    """A step of 1 ms: a kernel, a capture of 800 µs with launches of two threads and a copy in it,
    and two kernels of the graph.
    """
    k = Kineto()
    k.step(0, 0, 1000)
    k.launched("sgemm_128x64_nn", 10, 20, 30, k.op("aten::mm", 5, 20))
    if begins:
        k.call(f"{prefix}StreamBeginCapture", 100, 5)
    for i in range(20):
        k.op("aten::add", 110 + 30 * i, 25)
        k.call(f"{prefix}LaunchKernel", 112 + 30 * i, 5)
        k.call(f"{prefix}LaunchKernel", 113 + 30 * i, 5, tid=BACKWARD)
    k.call(f"{prefix}MemcpyAsync", 800, 5)
    # Another stream than the one that is captured.
    k.launched("sgemm_128x64_nn", 820, 825, 10)
    if ends:
        k.call(f"{prefix}StreamEndCapture", 890, 10, tid=ends_on)
    graph = k.call(f"{prefix}GraphLaunch", 910, 10)
    for at in (930, 950):
        k.kernel("sgemm_128x64_nn", at, 20, correlation=graph)
    return k


CAPTURED = "41 calls that launch, copy or fill were captured into a graph and not run (1 capture of 0.80 ms)"


@pytest.mark.parametrize("prefix", ["cuda", "hip"])
@pytest.mark.parametrize("ends_on", [MAIN, BACKWARD])
def test_captured_launches_are_no_loss(tmp_path, prefix, ends_on):
    p = profile(tmp_path, capturing(prefix, ends_on))
    assert CAPTURED in str(p.receipt)
    assert not {"lost_launches", "copies_without_work"} & set(p.receipt.notes["key"])
    assert (p.run.activity.launches.frame()["target"] >= 0).all()


def test_the_time_of_a_capture_is_that_of_making_a_program(tmp_path):
    p = profile(tmp_path, capturing())
    step = p.steps.frame.iloc[0]
    # The kernel that ran meanwhile on another stream counts as what it is.
    assert step["compile_ms"] == pytest.approx(0.789)
    assert step["device_compute_ms"] == pytest.approx(0.080)
    assert step["kernel_launch_ms"] == pytest.approx(0.012)
    assert not set(p.advice["rule"]) & {"compile", "kernel_launch", "host_ops", "small_batch"}
    assert (p.overview["bound"], p.overview["verdict"]) == ("compile", "Capture-bound")
    assert p.overview["verdict_text"] == "79% of step time is spent capturing a graph"
    assert "compil" not in p.overview["verdict_detail"]


@pytest.mark.parametrize(("begins", "ends", "ms"), [(False, True, "0.89"), (True, False, "0.82")])
def test_a_capture_that_the_recording_saw_one_end_of(tmp_path, begins, ends, ms):
    k = capturing(begins=begins, ends=ends)
    receipt = str(profile(tmp_path, k).receipt)
    assert (
        f"41 calls that launch, copy or fill were captured into a graph and not run (1 capture of {ms} ms)"
        in receipt
    )


def test_launches_outside_of_a_capture_are_lost(tmp_path):
    k = capturing()
    k.call("cudaLaunchKernel", 990, 5)
    assert "1 of 5 launches (20 %) have no device activity in this profile" in str(
        profile(tmp_path, k).receipt
    )


def test_a_real_capture():
    p = load(real("findings/D4-graph-capture/bs_32_rank0.json.gz"))
    assert (
        "544 calls that launch, copy or fill were captured into a graph and not run (1 capture of 30.61 ms)"
        in str(p.receipt)
    )
    assert "copies_without_work" not in set(p.receipt.notes["key"])
    assert p.advice.empty

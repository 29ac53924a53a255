"""The critical path: its pieces follow each other and add up to the step, and it goes where the
waiting was.
"""

from __future__ import annotations

import random
from bisect import bisect_left

import numpy as np
import pytest

from nbprof.analysis.device_time.critical_path import _NONE, _Last, _Thread
from nbprof.profiles.load import load as load_any
from tests.support.kineto import BACKWARD, Kineto, load, profile
from tests.support.profiles import real

FILES = (
    "kineto/v100-resnet50-workers0/worker0.1623143089861.pt.trace.json.gz",
    "kineto/h100-bert/h100_bert.pt.trace.json.gz",
    "kineto/a100-nccl-ranks/sampled_rank-0.json.gz",
)


def kinds(pieces):
    return pieces.groupby("kind")["duration_us"].sum().to_dict()


def no_gaps(pieces, start_ms, time_ms):
    assert pieces["start_ms"].iloc[0] == pytest.approx(start_ms, abs=1e-6)
    ends = pieces["start_ms"] + pieces["duration_us"] / 1e3
    np.testing.assert_allclose(pieces["start_ms"].iloc[1:], ends.iloc[:-1], atol=1e-6)
    assert pieces["duration_us"].sum() / 1e3 == pytest.approx(time_ms, abs=1e-6)
    assert (pieces["duration_us"] > 0).all()


@pytest.mark.parametrize("name", FILES)
def test_the_pieces_of_every_step_add_up_to_it(name):
    p = load(real(name))
    for step in p.steps.frame.itertuples():
        no_gaps(
            p.device_time.critical_path_pieces(step.step, step.host),
            step.start_ms,
            step.step_time_ms,
        )
    assert p.device_time.critical_path["percent"].sum() == pytest.approx(100)


def test_an_xspace_profile_has_one_too():
    p = load_any(real("tf-gpu/rtx5000-cnn-batch64"))
    step = p.steps.frame.iloc[3]
    no_gaps(
        p.device_time.critical_path_pieces(step["step"]), step["start_ms"], step["step_time_ms"]
    )


def test_slow_launches_lead_to_the_host(tmp_path):
    file = Kineto()
    file.step(0, 0, 100)
    for i in range(10):
        op = file.op(f"aten::op{i}", 10 * i, 9)
        file.launched("k", 10 * i + 6, 10 * i + 8, 1, op)
    found = kinds(profile(tmp_path, file).device_time.critical_path_pieces())
    # The device is waited for by nobody: the step ends on the host.
    assert "compute" not in found
    assert found == pytest.approx({"op": 80, "launch": 10, "host": 10})


def test_a_full_queue_leads_through_the_kernels(tmp_path):
    file = Kineto()
    file.step(0, 0, 20)
    for i in range(10):
        op = file.op(f"aten::op{i}", 2 * i, 2)
        file.launched(f"k{i}", 2 * i, 5 + 50 * i, 49, op)
    p = profile(tmp_path, file)
    found = kinds(p.device_time.critical_path_pieces())
    assert found == pytest.approx(
        {"launch": 1, "launch_delay": 4, "compute": 490, "kernel_wait": 9}
    )
    top = p.device_time.critical_path.iloc[0]
    assert (top["kind"], top["total_us"], top["op"]) == ("compute", 49, "aten::op0")


def test_a_host_that_waits_for_the_device_waits_for_the_last_kernel(tmp_path):
    file = Kineto()
    file.step(0, 0, 200)
    op = file.op("aten::mm", 0, 10)
    file.launched("long", 2, 5, 100, op)
    file.call("cudaDeviceSynchronize", 20, 90)
    file.op("aten::add", 150, 50)
    found = kinds(profile(tmp_path, file).device_time.critical_path_pieces())
    # From 0: op, launch, delay; the kernel to 105; 5 µs of the call after it; nothing to 150; the
    # op.
    assert found == pytest.approx(
        {"op": 52, "launch": 1, "launch_delay": 2, "compute": 100, "wait": 5, "host": 40}
    )


def test_another_stream_that_ended_just_before_was_waited_for(tmp_path):
    file = Kineto()
    file.step(0, 0, 10)
    calls = [file.call("cudaLaunchKernel", i, 1) for i in range(3)]
    file.kernel("a", 5, 10, calls[0], stream=7)
    file.kernel("ncclDevKernel_AllReduce(x)", 6, 94, calls[1], stream=20)
    file.kernel("b", 102, 20, calls[2], stream=7)
    found = kinds(profile(tmp_path, file).device_time.critical_path_pieces())
    assert found == pytest.approx(
        {"launch": 2, "launch_delay": 4, "communication": 94, "kernel_wait": 2, "compute": 20}
    )


def test_a_thread_without_work_waits_for_the_one_that_works(tmp_path):
    file = Kineto()
    file.step(0, 0, 100)
    file.op("forward", 0, 20)
    file.op("backward", 25, 50, tid=BACKWARD)
    file.op("optimizer", 80, 20)
    file.launched("k", 90, 92, 1)
    pieces = profile(tmp_path, file).device_time.critical_path_pieces()
    ops = pieces[pieces["kind"] == "op"].groupby("name")["duration_us"].sum().to_dict()
    assert ops == pytest.approx({"forward": 20, "backward": 50, "optimizer": 19})
    assert kinds(pieces)["host"] == pytest.approx(10)


def test_waiting_for_input_is_input(tmp_path):
    file = Kineto()
    file.step(0, 0, 100)
    file.note("enumerate(DataLoader)#_X.__next__", 0, 70)
    op = file.op("aten::mm", 70, 30)
    file.launched("k", 80, 90, 5, op)
    assert kinds(profile(tmp_path, file).device_time.critical_path_pieces())[
        "input"
    ] == pytest.approx(70)


def test_without_steps_it_is_of_the_whole_recording(tmp_path):
    file = Kineto()
    op = file.op("aten::mm", 10, 30)
    file.launched("k", 20, 30, 100, op)
    pieces = profile(tmp_path, file).device_time.critical_path_pieces()
    assert kinds(pieces) == pytest.approx(
        {"op": 10, "launch": 1, "launch_delay": 9, "compute": 100}
    )


def test_where_no_launch_is_known_it_runs_on_the_device(tmp_path):
    file = Kineto()
    file.step(0, 0, 300)
    file.op("aten::mm", 0, 300)
    file.kernel("a", 20, 100)
    file.kernel("b", 130, 50)
    file.kernel("c", 250, 40)
    found = kinds(profile(tmp_path, file).device_time.critical_path_pieces())
    # 10 µs between a and b are what kernels take; of the 70 before c nothing is known, nor of what
    # comes before a and after c.
    assert found == pytest.approx({"compute": 190, "kernel_wait": 10, "unknown": 70 + 20 + 10})


@pytest.mark.parametrize("seed", range(100))
def test_the_thread_that_worked_last_is_that_of_a_search_of_all_of_them(seed):
    draw = random.Random(seed)
    threads = {}
    for lane in draw.sample(range(100), draw.randint(0, 5)):
        cuts = sorted(draw.sample(range(30), 2 * draw.randint(1, 6)))
        threads[lane] = _Thread(cuts[::2], cuts[1::2])
    last = _Last(threads)
    for time in range(-1, 32):
        best, to = _NONE, -1
        for lane, thread in threads.items():
            at = bisect_left(thread.start, time) - 1
            if at >= 0 and min(thread.end[at], time) > best:
                best, to = min(thread.end[at], time), lane
        assert last.before(time) == (best, to)

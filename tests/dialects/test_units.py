"""The unit of recordings without marked steps: repeats, calls, or the recording."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nbprof.activity.unit import CALL, ITERATION, RECORDING, STEP
from nbprof.core.loop_times import Loop, LoopTimes
from nbprof.sources.recording import CaptureInfo
from tests.support.kineto import Kineto, profile

KERNELS = ("gemm", "relu", "norm", "gemm_tn", "add")


def loop_of_kernels(count: int, *, marked: bool = False, before: int = 0) -> Kineto:
    """A loop that launches five kernels of 10 µs each in iterations of 100 µs, behind some
    others.
    """
    k = Kineto()
    for number in range(before):
        op = k.op(f"aten::setup_{number}", 10.0 * number, 8)
        k.launched(f"setup_{number}", 10.0 * number + 1, 10.0 * number + 2, 5, op)
    start = 10.0 * before
    for number in range(count):
        begin = start + 100.0 * number
        if marked:
            k.step(number, begin, 100)
        for position, name in enumerate(KERNELS):
            op = k.op(f"aten::{name}", begin + 15 * position, 10)
            k.launched(name, begin + 15 * position + 2, begin + 15 * position + 5, 10, op)
    return k


def loop_of_ops(count: int) -> Kineto:
    k = Kineto()
    for number in range(count):
        begin = 1000.0 * number
        k.op("aten::linear", begin, 700)
        k.op("aten::relu", begin + 700, 200)
        k.op("aten::sum", begin + 900, 50)
    return k


def test_marked_steps_are_steps(tmp_path):
    p = profile(tmp_path, loop_of_kernels(6, marked=True))
    assert p.overview["unit"] == {"kind": STEP, "how": "", "agreement": None}


def test_kernels_that_repeat_are_iterations(tmp_path):
    p = profile(tmp_path, loop_of_kernels(6))
    unit = p.overview["unit"]
    assert unit["kind"] == ITERATION
    assert unit["agreement"] == pytest.approx(1.0)
    steps = p.steps.frame
    assert len(steps) == 6
    assert steps["step_time_ms"].tolist()[:5] == pytest.approx([0.100] * 5)
    assert steps["device_compute_ms"].tolist() == pytest.approx([0.050] * 6)
    assert "sequence of 5 kernels" in str(p.receipt)
    assert "fits 100% of the events" in str(p.receipt)


def test_what_comes_before_the_repeats_lowers_their_agreement_until_they_are_no_unit(tmp_path):
    assert profile(tmp_path, loop_of_kernels(6, before=2)).overview["unit"][
        "agreement"
    ] == pytest.approx(30 / 32)
    assert profile(tmp_path, loop_of_kernels(6, before=4)).overview["unit"]["kind"] == RECORDING


def test_ops_that_repeat_on_the_cpu_are_iterations(tmp_path):
    p = profile(tmp_path, loop_of_ops(7))
    assert p.overview["unit"]["kind"] == ITERATION
    assert p.steps.frame["step_time_ms"].tolist() == pytest.approx([1.0] * 6 + [0.95])


def test_calls_of_a_module_are_calls(tmp_path):
    k = Kineto()
    for number in range(5):
        begin = 1000.0 * number
        k.add(
            "nn.Module: Net_0",
            "python_function",
            begin,
            800,
            args={"Python id": number, "Python module id": 0},
        )
        k.op("aten::linear", begin + 10, 300)
        k.op("aten::relu", begin + 400, 300)
    p = profile(tmp_path, k)
    assert p.overview["unit"]["kind"] == CALL
    assert p.steps.frame["step_time_ms"].tolist() == pytest.approx([0.8] * 5)
    assert "5 calls of the module Net_0" in str(p.receipt)


def test_a_recording_in_which_nothing_repeats_is_the_unit(tmp_path):
    k = Kineto()
    for number, name in enumerate(("aten::linear", "aten::relu", "aten::softmax", "aten::sum")):
        op = k.op(name, 100.0 * number, 60)
        k.launched(f"kernel_{number}", 100.0 * number + 10, 100.0 * number + 30, 20, op)
    p = profile(tmp_path, k)
    o = p.overview
    assert o["unit"]["kind"] == RECORDING
    assert o["steps"] == 1
    # From the first op at 0 to the end of the last one at 360 µs.
    assert o["step_time_ms"] == pytest.approx(0.360)
    assert o["device_busy_percent"] == pytest.approx(100 * 80 / 360)
    assert o["verdict"] != "Unknown"
    assert "step" not in o["verdict_text"]
    assert "In these 0.36 ms the GPU works for 0.08 ms (22%)." in o["verdict_detail"]
    assert o["top_ops"]["ms_per_step"].sum() == pytest.approx(0.080)


def test_a_recording_without_work_says_so(tmp_path):
    k = Kineto()
    k.add("PyTorch Profiler (0)", "trace", 0, 1000)
    k.add("Iteration Start: PyTorch Profiler", "", 0, None)
    p = profile(tmp_path, k)
    assert p.overview["verdict"] == "No work recorded"
    assert p.steps.frame.empty


def test_several_hosts_are_shown_by_their_recordings(tmp_path):
    p = profile(tmp_path, loop_of_kernels(6), loop_of_kernels(6))
    assert p.overview["unit"]["kind"] == RECORDING
    assert len(p.steps.frame) == 2


def test_a_host_without_marks_beside_one_with_marks_has_no_unit(tmp_path):
    p = profile(tmp_path, loop_of_kernels(6), loop_of_kernels(6, marked=True))
    assert p.overview["unit"]["kind"] == STEP
    assert set(p.steps.frame["host"]) == {"host1"}


EPOCH = 1_700_000_000_000_000_000


def with_loop(
    k: Kineto, starts_us: list[float], items_us: list[float], end_us: float
) -> CaptureInfo:
    """What a recording keeps of a loop whose iterations begin at some moments of a trace."""
    k.metadata["baseTimeNanoseconds"] = EPOCH
    asked = np.array(starts_us) * 1000
    got, ended = np.array(items_us) * 1000, np.append(asked[1:], end_us * 1000)
    loop = Loop(
        "123",
        1,
        2,
        "for x in data:",
        "for",
        1,
        len(asked),
        int(ended[-1] - asked[0]),
        int((got - asked).sum()),
    )
    columns = (column.astype(np.int64) + EPOCH for column in (asked, got, ended))
    times = LoopTimes(
        EPOCH, EPOCH + int(end_us * 1000), [loop], np.zeros(len(asked), np.int32), *columns
    )
    return CaptureInfo(backend="torch", loops=json.loads(json.dumps(times.packed())))


def recorded(folder, k: Kineto, info: CaptureInfo):
    from nbprof.core.files import LocalFile, RunFiles
    from nbprof.profiles.profile import Profile
    from nbprof.run.run import Run

    path = folder / "host0.pt.trace.json"
    path.write_bytes(k.encode())
    return Profile(Run.read(RunFiles("run", folder, (LocalFile(path),), 0.0, "chrome"), info))


def irregular() -> Kineto:
    """Ops that do not repeat, over 4 ms."""
    k = Kineto()
    for number in range(8):
        k.op(f"aten::op{number}", 500.0 * number + 100, 300)
    return k


def test_iterations_of_the_recorded_loop_are_the_unit_and_their_waits_are_input(tmp_path):
    k = irregular()
    info = with_loop(k, [0, 1000, 2000, 3000], [100, 1100, 2100, 3100], 4000)
    p = recorded(tmp_path, k, info)
    assert p.overview["unit"]["kind"] == ITERATION
    assert p.overview["unit"]["agreement"] is None
    steps = p.steps.frame
    assert steps["step_time_ms"].tolist() == pytest.approx([1.0] * 4)
    assert steps["input_ms"].tolist() == pytest.approx([0.1] * 4)
    assert steps["host_compute_ms"].tolist() == pytest.approx([0.6] * 4)
    assert "4 iterations of the loop in line 2" in str(p.receipt)


def test_marks_of_the_program_come_before_the_loop(tmp_path):
    k = loop_of_kernels(6, marked=True)
    p = recorded(tmp_path, k, with_loop(k, [0, 300], [0, 300], 600))
    assert p.overview["unit"]["kind"] == STEP
    assert len(p.steps.frame) == 6


def test_a_loop_on_another_clock_is_left_out(tmp_path):
    k = irregular()
    info = with_loop(k, [0, 1000, 2000], [0, 1000, 2000], 3000)
    k.metadata["baseTimeNanoseconds"] = EPOCH - 10**15
    assert recorded(tmp_path, k, info).overview["unit"]["kind"] == RECORDING

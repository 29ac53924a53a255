"""What a step consists of without a profiler, and gains as parts of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import nbprof
from nbprof.activity.activity import CATEGORIES
from nbprof.analysis.steps import bare, bare_parts
from nbprof.analysis.steps.bare import BareSteps
from nbprof.analysis.steps.bare_parts import RecordingCost
from nbprof.core.sidecar import SIDECAR
from nbprof.sources.recording import CaptureInfo
from nbprof.tools.common import gain_unit
from tests.analysis.test_bare import noisy, step_times
from tests.support import kineto


def categories(**ms):
    return {**dict.fromkeys(CATEGORIES, 0.0), **ms}


def measured(bare_ms, recorded_ms, **changes):
    known = {
        "steps": 50,
        "median_ms": bare_ms,
        "mean_ms": bare_ms,
        "low_ms": bare_ms * 0.99,
        "high_ms": bare_ms * 1.01,
        "recorded_ms": recorded_ms,
        "is_comparable": True,
    }
    return BareSteps(**{**known, **changes})


def parts(bare_ms, recorded, cost, *, device=False, most_ms=math.inf):
    total = sum(recorded.values())
    costs = RecordingCost(cost, most_ms)
    return bare_parts.parts(measured(bare_ms, total), recorded, costs, device=device)


def test_categories_add_up_to_the_bare_step_and_the_device_keeps_its_time():
    recorded = categories(device_compute=2.0, host_compute=5.0, kernel_launch=2.0, other=1.0)
    cost = categories(host_compute=500.0, kernel_launch=300.0, other=200.0)
    found = parts(6.0, recorded, cost, device=True)
    assert found.step_ms == pytest.approx(6.0)
    assert found.bare["device_compute"] == 2.0
    assert all(0 <= found.bare[name] <= recorded[name] for name in CATEGORIES)


def test_a_wait_and_long_ops_keep_their_time():
    # 1,000 short ops beside a few that compute for long, and a wait for a worker's batch.
    recorded = categories(host_compute=6.0, input=20.0, other=4.0)
    cost = categories(host_compute=1000.0, input=5.0, other=500.0)
    found = parts(26.0, recorded, cost)
    assert found.step_ms == pytest.approx(26.0)
    assert found.bare["input"] == pytest.approx(20.0, abs=0.1)
    assert found.of_events(3.0, 0.0) == 3.0


def test_if_nearly_all_is_overhead_each_part_loses_the_same_share():
    recorded = categories(host_compute=3.0, other=1.0)
    found = parts(0.4, recorded, categories(host_compute=1000.0))
    assert found.bare["host_compute"] == pytest.approx(0.3)
    assert found.bare["other"] == pytest.approx(0.1)
    assert found.of_events(1.0, 100.0) == pytest.approx(0.1)


def test_without_a_profiler_a_device_may_work_throughout():
    recorded = categories(device_compute=6.0, output=0.1, host_compute=4.0)
    found = parts(6.0, recorded, categories(host_compute=1000.0), device=True)
    assert found.step_ms == pytest.approx(6.0)
    assert found.bare["host_compute"] == 0.0
    assert found.of_categories(2.0, "host_compute") == 0.0


def test_recording_that_costs_nothing_changes_nothing():
    recorded = categories(device_compute=6.0, host_compute=4.0)
    found = parts(10.05, recorded, categories(host_compute=1000.0), device=True)
    assert found.step_ms == pytest.approx(10.05)
    assert found.bare["host_compute"] == pytest.approx(4.0, rel=0.01)


def test_a_difference_that_its_events_cannot_cost_is_taken_from_all_parts():
    # 1,000 ops in the input, of at most 5 µs each; other processes took the rest of the 40 ms.
    recorded = categories(host_compute=45.0, input=35.0)
    found = parts(40.0, recorded, categories(input=1000.0), most_ms=0.005)
    assert found.step_ms == pytest.approx(40.0)
    assert found.bare["input"] == pytest.approx(40.0 * 30 / 75)
    assert found.of_events(35.0, 1000.0) == pytest.approx(found.bare["input"])
    # A bound that is not reached changes nothing.
    small = parts(78.0, recorded, categories(input=1000.0), most_ms=0.005)
    assert small.bare["host_compute"] == pytest.approx(45.0)
    assert small.bare == parts(78.0, recorded, categories(input=1000.0)).bare


def test_uneven_steps_are_compared_by_their_means_if_they_are_as_uneven_without_recording():
    # Every fifth step waits for 20 ms more, whether it is recorded or not.
    recorded = categories(host_compute=10.0, other=4.0)
    steps = measured(8.0, 10.0, mean_ms=12.1)
    found = bare_parts.parts(
        steps, recorded, RecordingCost(categories(host_compute=900.0)), device=False
    )
    assert found.reason == ""
    assert found.is_mean
    assert found.step_ms == pytest.approx(12.1)
    assert found.bare["other"] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (BareSteps(reason="every step was recorded"), "every step was recorded"),
        (measured(5.0, 10.0, is_comparable=False), "what recording cost is unknown"),
        (measured(5.0, 12.0), "uneven in another way"),
        (measured(12.0, 10.0), "took longer without recording"),
    ],
)
def test_what_a_bare_step_consists_of_is_unknown(steps, reason):
    recorded = categories(host_compute=9.0, other=1.0)
    costs = RecordingCost(categories(host_compute=1.0))
    found = bare_parts.parts(steps, recorded, costs, device=False)
    assert reason in found.reason
    assert not found.bare
    assert bare_parts.frame(found, set(CATEGORIES)).empty


# Of PyTorch 2.11 on an H200: recorded parts, what recording costs in them, the bare step, and of
# AdamW with a loop over parameters what its `step` takes.
_LOOP = categories(device_compute=1.075, host_compute=12.465, kernel_launch=5.338, other=7.260)
_LOOP_COST = categories(device_compute=93, host_compute=2532, kernel_launch=448, other=525)
_VIEWS = categories(
    device_compute=0.001, host_compute=1.705, kernel_launch=0.051, input=0.050, other=0.651
)
_VIEWS_COST = categories(host_compute=902, kernel_launch=1, input=1, other=310)


def test_the_gain_of_an_optimizer_as_measured_on_a_gpu():
    found = parts(8.62, _LOOP, _LOOP_COST, device=True)
    # One that updates all parameters in one kernel, or in few: 3.8 and 3.5 ms less.
    assert found.of_events(12.826, 1958.0) == pytest.approx(3.8, rel=0.1)


def test_no_part_exceeds_a_step_of_ops_that_launch_nothing():
    found = parts(0.45, _VIEWS, _VIEWS_COST, device=True)
    assert found.step_ms == pytest.approx(0.45)
    assert found.of_categories(1.705, "host_compute") < 0.35


def recorded_profile(folder, bare_ms, *, step_ms=1.0, ops=1, busy_us=100):
    """Steps in which the host runs ops for 0.8 of the time before the device works."""
    k = kineto.Kineto()
    length = 1000.0 * step_ms
    k.add("Activity Buffer Request", "overhead", 10, 30, pid=-1, tid=0)
    for i in range(12):
        start = length * i
        k.step(i, start, length)
        each = 0.8 * length / ops
        for n in range(ops - 1):
            k.op("aten::t", start + each * n, each * 0.9)
        last = start + each * (ops - 1)
        op = k.op("aten::mm", last, each * 0.9)
        k.launched("gemm", last + each * 0.5, start + 0.8 * length, busy_us, op=op)
    (folder / "host.pt.trace.json").write_bytes(k.encode())
    times = step_times([*noisy(bare_ms, 40), *noisy(step_ms, 12, 1)], (40, 52))
    info = CaptureInfo(backend="torch", step_times=times.packed())
    (folder / SIDECAR).write_text(json.dumps(info.to_dict()))
    return nbprof.load(folder)


def test_gains_are_parts_of_the_bare_step(tmp_path):
    p = recorded_profile(tmp_path, 0.4, ops=50)
    frame = p.steps.bare.set_index("category")
    assert frame.loc["step_time", "bare_ms"] == pytest.approx(p.overview["bare_step_time_ms"])
    assert frame["bare_ms"].drop("step_time").sum() == pytest.approx(
        frame.loc["step_time", "bare_ms"]
    )
    assert frame.loc["device_compute", "bare_ms"] == frame.loc["device_compute", "recorded_ms"]
    assert not frame.loc[["step_time", "device_compute"], "estimated"].any()
    assert frame.loc["host_compute", "estimated"]
    row = p.advice.set_index("rule").loc["host_ops"]
    assert row["gain_of_ms"] == pytest.approx(p.overview["bare_step_time_ms"])
    assert row["gain_ms_per_step"] <= frame.loc["host_compute", "bare_ms"]
    assert row["evidence"].endswith("Times are as recorded, where a step takes **1.00 ms**.")
    assert gain_unit(p.overview, row.to_dict()).per == "of 0.40 ms per step without recording"
    part = p.payload().overview.bare
    assert part.step_ms == pytest.approx(p.overview["bare_step_time_ms"])
    assert sum(time.ms for time in part.categories) == pytest.approx(part.step_ms)
    assert part.note.startswith("Without recording, a step takes 0.40 ms: measured.")


def test_without_bare_steps_gains_are_recorded_time(tmp_path):
    p = recorded_profile(tmp_path, 0.4, ops=50)
    p.run.capture.step_times = {}
    (tmp_path / SIDECAR).write_text(json.dumps(p.run.capture.to_dict()))
    p = nbprof.load(tmp_path)
    row = p.advice.set_index("rule").loc["host_ops"]
    assert np.isnan(row["gain_of_ms"])
    assert row["gain_ms_per_step"] > 0.5
    assert p.steps.bare.empty
    assert p.overview["bare_parts_reason"]
    assert p.payload().overview.bare is None
    assert gain_unit(p.overview, row.to_dict()).per is None


def test_a_rule_speaks_where_the_bare_step_proves_that_the_device_waits(tmp_path):
    silent = tmp_path / "assumed"
    silent.mkdir()
    p = recorded_profile(silent, 0.95, ops=50, busy_us=450)
    assert "host_ops" in set(p.advice["rule"])
    p.run.capture.step_times = {}
    (silent / SIDECAR).write_text(json.dumps(p.run.capture.to_dict()))
    # By the most that recording may cost, the device might work throughout.
    assert "host_ops" not in set(nbprof.load(silent).advice["rule"])


def test_a_rule_is_silent_where_the_device_works_throughout_the_bare_step(tmp_path):
    p = recorded_profile(tmp_path, 0.46, ops=50, busy_us=450)
    assert not {"host_ops", "kernel_launch"} & set(p.advice["rule"])


def test_what_recording_cost(tmp_path):
    measured_folder, stated = tmp_path / "measured", tmp_path / "stated"
    measured_folder.mkdir()
    stated.mkdir()
    p = recorded_profile(measured_folder, 0.4)
    assert p.overview["recording_overhead_ms"] == pytest.approx(0.6, rel=0.02)
    assert p.overview["recording_overhead_source"].startswith("measured")
    p = recorded_profile(stated, 0.4)
    (stated / SIDECAR).unlink()
    p = nbprof.load(stated)
    # The 30 µs that the profiler took for itself in 12 steps.
    assert p.overview["recording_overhead_ms"] == pytest.approx(0.03 / 12)
    assert p.overview["recording_overhead_source"].startswith("estimate")


def test_what_recording_cost_is_unknown(tmp_path):
    k = kineto.Kineto()
    for i in range(5):
        k.step(i, 100.0 * i, 100)
        k.op("aten::mm", 100.0 * i, 90)
    overview = kineto.profile(tmp_path, k).overview
    assert overview["recording_overhead_ms"] is None
    assert "no overhead events" in overview["recording_overhead_source"]


@pytest.mark.parametrize(
    ("steps", "ms", "source"),
    [
        (measured(8.0, 10.0), 2.0, "measured"),
        (measured(10.2, 10.0), None, "took as long"),
        (measured(8.0, 10.0, is_comparable=False), None, "cannot be compared"),
    ],
)
def test_what_recording_cost_follows_only_from_steps_that_can_be_compared(steps, ms, source):
    answer = bare.overhead(steps, None, has_steps=True)
    assert answer["recording_overhead_ms"] == ms
    assert source in answer["recording_overhead_source"]


def test_the_profilers_own_work_is_no_work_of_the_program(tmp_path):
    def recorded(name, overhead):
        k = kineto.Kineto()
        for i in range(10):
            k.step(i, 1000.0 * i, 1000)
            k.launched(
                "gemm", 1000.0 * i, 1000.0 * i + 20, 200, op=k.op("aten::mm", 1000.0 * i, 20)
            )
            if overhead:
                k.add("Buffer Flush", "overhead", 1000.0 * i + 300, 600, pid=-1, tid=0)
        folder = tmp_path / name
        folder.mkdir()
        return kineto.profile(folder, k)

    without, there = recorded("without", overhead=False), recorded("with", overhead=True)
    assert there.overview["recording_overhead_ms"] == pytest.approx(0.6)
    assert there.ops.frame["op"].tolist() == without.ops.frame["op"].tolist()
    assert there.overview["device_busy_percent"] == without.overview["device_busy_percent"]
    unexplained = [
        p.overview["checks"].set_index("check")["percent"]["all_others"] for p in (without, there)
    ]
    assert unexplained[0] - unexplained[1] == pytest.approx(60.0)
    # Nor may it be a wait for input.
    levels = [p.input_pipeline.summary["level"] for p in (without, there)]
    assert levels == ["potential", "potential"]
    statements = [p.input_pipeline.summary["statement"] for p in (without, there)]
    assert statements[0].startswith("78.0%")
    assert statements[1].startswith("18.0%")


_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def slowed(folder, cost_us):
    """Steps that wait 2 ms for a batch, then run 150 ops of 8 µs, 1 µs apart, and 4 of 600 µs;
    recording adds a cost to each of them, 60 % of it before the op, and five times that to the
    wait.
    """
    k, now = kineto.Kineto(), 0.0
    bare_ms = (2000 + 150 * 9 + 4 * 600 + 4) / 1000
    lengths = []
    for i in range(12):
        begin = now
        k.note(_LOADER, now + 3 * cost_us, 2000 + 2 * cost_us)
        now += 2000 + 5 * cost_us
        for length in [8] * 150 + [600] * 4:
            k.op("aten::mul", now + 1 + 0.6 * cost_us, length + 0.4 * cost_us)
            now += 1 + length + cost_us
        k.step(i, begin, now - begin)
        lengths.append((now - begin) / 1000)
    (folder / "host.pt.trace.json").write_bytes(k.encode())
    times = step_times([*noisy(bare_ms, 40), *lengths], (40, 52))
    info = CaptureInfo(backend="torch", step_times=times.packed())
    (folder / SIDECAR).write_text(json.dumps(info.to_dict()))
    return nbprof.load(folder)


@pytest.mark.parametrize(
    ("cost_us", "share"), [(0.5, 0.01), (5.0, 0.05), (20.0, 0.15), (50.0, 0.4)]
)
def test_parts_of_steps_that_a_profiler_slows_by_a_known_time_an_op(tmp_path, cost_us, share):
    p = slowed(tmp_path, cost_us)
    frame = p.steps.bare.set_index("category")
    assert p.overview["bare_step_time_ms"] == pytest.approx(5.754, rel=0.005)
    assert frame.loc["input", "bare_ms"] == pytest.approx(2.0, rel=0.05)
    assert frame.loc["host_compute", "bare_ms"] == pytest.approx(3.6, rel=share)
    # As recorded it is worse.
    recorded = frame.loc["host_compute", "recorded_ms"]
    assert abs(frame.loc["host_compute", "bare_ms"] - 3.6) < recorded - 3.6 + 0.02

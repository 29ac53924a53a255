"""The step time without a profiler, from the steps of a cell that ran outside its recording."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import nbprof
from nbprof.analysis.steps import bare
from nbprof.core.sidecar import SIDECAR
from nbprof.core.step_times import MOST, StepTimes
from nbprof.sources.recording import CaptureInfo
from tests.support import kineto

MS = 10**6


def step_times(durations, recorded, *, kinds=("train",), kind=None, gap=0):
    """Steps of so many ms one after the other, of which those from…until are recorded."""
    duration = np.round(np.asarray(durations, float) * MS).astype(np.int64)
    end = np.cumsum(duration + gap)
    start = end - duration
    first, last = recorded
    windows = np.zeros((0, 2), np.int64)
    if last > first:
        windows = np.array([[start[first], end[last - 1]]])
    kind = np.zeros(len(start), np.int32) if kind is None else np.asarray(kind, np.int32)
    return StepTimes(start, end, kind, list(kinds), windows, len(start))


def noisy(ms, count, seed=0):
    return ms * (1 + 0.01 * np.random.default_rng(seed).standard_normal(count))


def test_the_median_of_the_steps_outside_of_the_recording_and_what_recording_cost():
    durations = np.concatenate([noisy(12, 20), noisy(19, 20, 1), noisy(12, 60, 2)])
    measured = bare.measure(step_times(durations, (20, 40)))
    assert measured.reason == ""
    # Without two after the end of the recording.
    assert measured.steps == 78
    assert measured.median_ms == pytest.approx(12, rel=0.005)
    assert measured.low_ms < measured.median_ms < measured.high_ms
    assert measured.high_ms - measured.low_ms < 0.15
    assert measured.recorded_ms == pytest.approx(19, rel=0.01)
    assert measured.slowdown == pytest.approx(19 / 12, rel=0.01)
    assert measured.most_slowdown > measured.slowdown


def test_the_interval_holds_the_true_median_about_as_often_as_it_says():
    rng, inside = np.random.default_rng(3), 0
    for _ in range(300):
        durations = np.concatenate([np.full(3, 9.0), rng.lognormal(1.0, 0.3, 33)])
        measured = bare.measure(step_times(durations, (0, 3)))
        inside += measured.low_ms <= np.exp(1.0) <= measured.high_ms
    assert 0.92 * 300 < inside < 300


def test_steps_before_it_is_steady_do_not_count():
    # A compilation, then a host that runs ahead of its device until the queue is full.
    durations = [900.0, *noisy(2, 20), *noisy(10, 60, 1), *noisy(15, 5, 2)]
    times = step_times(durations, (81, 86))
    measured = bare.measure(times, runs_ahead=True)
    assert (measured.steps, measured.reason) == (49, "")
    assert measured.median_ms == pytest.approx(10, rel=0.01)
    # Ops that run where they are called: others took the cores from then on.
    assert "settled" in bare.measure(times).reason


def test_a_program_that_changes_is_not_taken_for_the_cost_of_recording():
    # Recorded is a part of the first epoch, after which the data are cached.
    cached = [*noisy(10, 60), *noisy(5, 200, 1)]
    assert bare.measure(step_times(cached, (0, 20))).reason == (
        "the steps beside the recorded ones had not settled to a steady time"
    )
    measured = bare.measure(step_times(cached, (0, 20)), borders=[1, 61])
    assert measured.median_ms == pytest.approx(10, rel=0.01)
    assert measured.slowdown == pytest.approx(1, rel=0.02)
    # Where epochs are unknown, steps on one side alone do not tell why they differ.
    measured = bare.measure(step_times(cached, (0, 60)))
    assert measured.median_ms == pytest.approx(5, rel=0.01)
    assert measured.slowdown is None
    assert "settled" in bare.measure(step_times(cached, (0, 60)), borders=[1, 61]).reason


def test_steps_before_and_after_the_recording_that_differ_are_both_said():
    # Others began to use the machine meanwhile, and what it was like in between is not known.
    durations = [*noisy(10, 30), *noisy(14, 20, 1), *noisy(12, 40, 2)]
    measured = bare.measure(step_times(durations, (30, 50)))
    assert measured.steps == 68
    assert measured.median_ms == pytest.approx(11, rel=0.01)
    assert measured.low_ms == pytest.approx(10, rel=0.01)
    assert measured.high_ms == pytest.approx(12, rel=0.01)
    assert measured.slowdown == pytest.approx(14 / 11, rel=0.02)
    assert measured.to_dict()["bare_step_time_note"] == (
        f"{measured.sides_ms[0]:.2f} ms before the recording and {measured.sides_ms[1]:.2f} ms"
        " after it"
    )


def test_where_steps_after_the_recording_take_far_less_its_cost_is_unknown():
    durations = [*noisy(10, 30), *noisy(12, 20, 1), *noisy(5, 40, 2)]
    measured = bare.measure(step_times(durations, (30, 50)))
    assert (measured.low_ms, measured.high_ms) == pytest.approx((5, 10), rel=0.01)
    assert measured.slowdown is None


def test_the_interval_holds_both_sides_where_chance_may_explain_that_they_differ():
    rng = np.random.default_rng(5)
    before, after = rng.lognormal(np.log(10), 0.4, 30), rng.lognormal(np.log(11.5), 0.4, 40)
    measured = bare.measure(step_times([*before, *noisy(14, 20), *after], (30, 50)))
    assert measured.sides_ms is None
    assert measured.median_ms == pytest.approx(np.median(measured.durations_ms))
    for side in (before, after[2:]):
        assert measured.low_ms < np.median(side) < measured.high_ms


def test_steps_that_differ_by_chance_or_hardly_are_one_series():
    for after in (10.0, 10.2):
        durations = [*noisy(10, 30), *noisy(14, 20, 1), *noisy(after, 40, 2)]
        measured = bare.measure(step_times(durations, (30, 50)))
        assert measured.sides_ms is None
        assert measured.note == ""
        assert measured.median_ms == pytest.approx(np.median(measured.durations_ms))


def test_a_profiler_that_goes_on_to_slow_the_program_leaves_the_steps_before_it():
    durations = [*noisy(10, 30), *noisy(19, 20, 1), *noisy(13, 40, 2)]
    measured = bare.measure(step_times(durations, (30, 50)), stays_slow=True)
    assert (measured.steps, measured.median_ms) == (30, pytest.approx(10, rel=0.01))
    measured = bare.measure(step_times(durations[30:], (0, 20)), stays_slow=True)
    assert "launches stay slower" in measured.reason
    again = replace(step_times(durations, (30, 50)), profiled_before=True)
    assert "earlier recording" in bare.measure(again, stays_slow=True).reason
    assert bare.measure(again).reason == ""


@pytest.mark.parametrize(
    ("durations", "recorded", "reason"),
    [
        (np.full(20, 5.0), (0, 20), "every step was recorded"),
        (np.full(20, 5.0), (0, 15), "only 5 steps ran without the profiler"),
        (1.5 ** np.arange(60), (0, 4), "had not settled"),
    ],
)
def test_too_few_or_unsteady_steps_tell_nothing(durations, recorded, reason):
    measured = bare.measure(step_times(durations, recorded))
    assert reason in measured.reason
    assert measured.slowdown is None
    answer = measured.to_dict()
    assert answer["bare_step_time_ms"] is None
    assert answer["recording_slowdown"] is None


def test_recorded_steps_behind_those_that_are_stored_tell_nothing():
    times = step_times(noisy(4, 40), (0, 0))
    measured = bare.measure(replace(times, count=90_000))
    assert "came after" in measured.reason
    assert measured.to_dict()["recording_slowdown"] is None


def test_no_clock_is_said():
    assert "did not time" in bare.measure(None).reason
    assert bare.frame(None).empty


def test_only_steps_of_the_recorded_kind_count():
    kind = [0] * 10 + [1] * 30 + [0] * 30
    durations = [*noisy(8, 10), *np.full(30, 1.0), *noisy(5, 30, 1)]
    times = step_times(durations, (0, 10), kinds=("train", "test"), kind=kind)
    measured = bare.measure(times)
    assert measured.median_ms == pytest.approx(5, rel=0.01)
    # Without two, for the last recorded step of the kind came right before.
    assert measured.steps == 28


def test_blocks_with_time_between_them_tell_nothing_of_a_device_that_works_later():
    times = step_times(noisy(4, 40), (0, 10), gap=MS)
    assert "before the device" in bare.measure(times, works_later=True).reason
    assert bare.measure(times).reason == ""
    followed = step_times(noisy(4, 40), (0, 10))
    assert bare.measure(followed, works_later=True).reason == ""


def test_a_host_that_runs_ahead_of_its_device_does_not_tell_how_long_a_step_takes():
    # Launches take 1.4 ms, but the device works for 10 ms on each step; the queue is not full yet.
    times = step_times([*noisy(1.4, 25), *noisy(2, 15, 1), *noisy(1.4, 25, 2)], (25, 40))
    assert "runs ahead" in bare.measure(times, device_ms=10.0).reason
    assert bare.measure(times, device_ms=1.3).reason == ""
    # The queue was full until the profiler waited for the device.
    times = step_times([*noisy(10, 25), *noisy(2, 15, 1), *noisy(1.4, 25, 2)], (25, 40))
    measured = bare.measure(times, device_ms=9.9)
    assert (measured.median_ms, measured.slowdown) == (pytest.approx(10, rel=0.01), None)


def test_they_are_stored_and_read_again():
    times = step_times(noisy(4, 40), (5, 10), kinds=("train", "test"), kind=[0, 1] * 20)
    again = StepTimes.unpacked(json.loads(json.dumps(times.packed())))
    for name in ("start", "end", "kind", "windows"):
        assert getattr(again, name).tolist() == getattr(times, name).tolist(), name
    assert (again.kinds, again.count) == (times.kinds, times.count)
    assert not again.profiled_before
    assert StepTimes.unpacked(replace(times, profiled_before=True).packed()).profiled_before
    assert again.recorded.tolist() == [5 <= i < 10 for i in range(40)]
    table = bare.frame(again)
    assert table["recorded"].sum() == 5
    assert table["duration_ms"].iloc[0] == pytest.approx((times.end - times.start)[0] / MS)


@pytest.mark.parametrize(
    "change",
    [
        {"count": -1},
        {"count": 3},
        {"rows": MOST + 1},
        {"rows": True},
        {"kinds": "train"},
        {"kinds": [1]},
        {"kinds": []},
        {"windows": [[3, 1]]},
        {"windows": [[1]]},
        {"windows": None},
        {"times": "!"},
        {"times": None},
    ],
)
def test_damaged_times_are_none(change):
    packed = step_times(noisy(4, 40), (5, 10)).packed()
    assert StepTimes.unpacked(packed) is not None
    assert StepTimes.unpacked({**packed, **change}) is None
    assert StepTimes.unpacked([packed]) is None


def recorded_profile(folder, bare_ms):
    """Steps of 1 ms, whose host runs ops for 0.4 ms before the device is busy for 0.6 ms; the same
    cell ran others without the profiler.
    """
    k = kineto.Kineto()
    for i in range(12):
        start = 1000.0 * i
        k.step(i, start, 1000)
        k.launched("gemm", start + 380, start + 385, 600, op=k.op("aten::mm", start, 383))
    (folder / "host.pt.trace.json").write_bytes(k.encode())
    times = step_times([*noisy(bare_ms, 20), *noisy(1.0, 12, 1), *noisy(bare_ms, 20, 2)], (20, 32))
    info = CaptureInfo(backend="torch", step_times=times.packed())
    (folder / SIDECAR).write_text(json.dumps(info.to_dict()))
    return nbprof.load(folder)


def evidence_on_recording(p):
    texts = [text for _, text in p.overview["confidence_evidence"]]
    return [text for text in texts if text.startswith("Recording")]


def test_a_device_stays_idle_without_a_recording_that_costs_little(tmp_path):
    p = recorded_profile(tmp_path, 0.95)
    assert p.overview["bare_step_time_ms"] == pytest.approx(0.95, rel=0.01)
    assert p.overview["recording_slowdown"] == pytest.approx(1 / 0.95, rel=0.01)
    assert evidence_on_recording(p) == []
    assert len(p.steps.clock) == 52
    average = next(f for f in p.payload().overview.figures if f.key == "step_time")
    assert "median without recording 0.95 [" in average.note
    clock = p.payload().steps.clock
    assert clock.recorded.tolist() == [0] * 20 + [1] * 12 + [0] * 20
    assert clock.scope.startswith("52 steps, 12 recorded; without recording the median is 0.95 ms")


def test_of_many_steps_the_longest_of_a_few_are_drawn(tmp_path):
    p = recorded_profile(tmp_path, 0.95)
    durations = np.full(9_000, 1.0)
    durations[4321] = 50.0
    p.run.capture.step_times = step_times(durations, (4000, 4012)).packed()
    clock = p.payload().steps.clock
    assert len(clock.ms) == 1_800
    assert (clock.ms.max(), clock.recorded.sum()) == (50.0, 3)
    assert clock.step[np.argmax(clock.ms)] == 4321


def test_a_clock_whose_steps_were_all_recorded_is_not_drawn(tmp_path):
    p = recorded_profile(tmp_path, 0.95)
    p.run.capture.step_times = step_times(np.full(30, 1.0), (0, 30)).packed()
    assert p.payload().steps.clock is None


def test_a_device_that_recording_made_wait_is_said_to_be_busy_without_it(tmp_path):
    p = recorded_profile(tmp_path, 0.61)
    [text] = evidence_on_recording(p)
    assert text == (
        "Recording makes a step 1.65 times as long: the device, busy for 60% of step time here,"
        " is busy for 99% without it"
    )


def test_without_a_clock_the_most_that_recording_costs_is_assumed(tmp_path):
    p = recorded_profile(tmp_path, 0.95)
    p.run.capture.step_times = {}
    (tmp_path / SIDECAR).write_text(json.dumps(p.run.capture.to_dict()))
    [text] = evidence_on_recording(nbprof.load(tmp_path))
    assert text.startswith("Recording slows the host by up to 2.5 times")


def profile_of_host(folder, bare_ms, in_ops_ms):
    """Steps of 1 ms, of which so many are in ops that compute, on a machine without a device."""
    k = kineto.Kineto()
    for i in range(12):
        start = 1000.0 * i
        k.step(i, start, 1000)
        k.op("aten::mm", start, 1000 * in_ops_ms)
    (folder / "host.pt.trace.json").write_bytes(k.encode())
    times = step_times([*noisy(bare_ms, 20), *noisy(1.0, 12, 1), *noisy(bare_ms, 20, 2)], (20, 32))
    info = CaptureInfo(backend="torch", step_times=times.packed())
    (folder / SIDECAR).write_text(json.dumps(info.to_dict()))
    return nbprof.load(folder)


def test_steps_that_differ_are_shown_as_such(tmp_path):
    p = profile_of_host(tmp_path, 0.9, 0.5)
    durations = [*noisy(0.9, 20), *noisy(1.0, 12, 1), *noisy(0.8, 20, 2)]
    p.run.capture.step_times = step_times(durations, (20, 32)).packed()
    (tmp_path / SIDECAR).write_text(json.dumps(p.run.capture.to_dict()))
    p = nbprof.load(tmp_path)
    note = p.overview["bare_step_time_note"]
    assert re.fullmatch(r"0\.(89|90) ms before the recording and 0\.80 ms after it", note)
    average = next(f for f in p.payload().overview.figures if f.key == "step_time")
    assert average.note.endswith(f"]: {note}")
    assert p.payload().steps.clock.scope.endswith(f"]: {note}")


def test_what_bounds_a_program_on_the_host_may_be_the_recording(tmp_path):
    # Ops take 0.9 ms while they are recorded, and at least 0.9 - 0.7 = 0.2 ms of 0.3 ms else.
    assert evidence_on_recording(profile_of_host(tmp_path, 0.3, 0.9)) == []
    [text] = evidence_on_recording(profile_of_host(tmp_path, 0.1, 0.9))
    assert re.fullmatch(
        r"Recording makes a step (9\.9\d|10\.\d\d) times as long: without it, other host time, 10% of"
        r" step time here, may be the largest part",
        text,
    )
    # Steps that are faster while they are recorded prove no cost.
    assert evidence_on_recording(profile_of_host(tmp_path, 1.2, 0.9)) == []


def test_a_comparison_is_of_the_steps_without_the_profiler(tmp_path):
    profiles = []
    for name, bare_ms, memory in (("before", 0.95, False), ("after", 0.8, True)):
        (tmp_path / name).mkdir()
        p = recorded_profile(tmp_path / name, bare_ms)
        p.run.capture.options = {"memory": memory, "shapes": True}
        profiles.append(p)
    c = nbprof.compare(*profiles)
    verdict = c.verdict.iloc[0]
    assert (verdict["verdict"], verdict["steps_are"]) == ("real", "bare")
    assert verdict["before_ms"] == pytest.approx(0.95, rel=0.01)
    assert verdict["speedup"] == pytest.approx(0.95 / 0.8, rel=0.01)
    assert verdict["recorded_before_ms"] == verdict["recorded_after_ms"] == pytest.approx(1.0)
    assert (verdict["before_steps"], verdict["recorded_reason"]) == (20, "")
    assert verdict["headline"].endswith("per step without recording)")
    # What only a recording shows stays as it was recorded.
    step = c.categories.set_index("category").loc["step_time"]
    assert (step["before_ms"], step["change_ms"]) == (pytest.approx(1.0), 0.0)
    figures = c.figures.set_index("figure")
    assert figures.loc["bare_step_time", "after"] == pytest.approx(0.8, rel=0.01)
    assert figures.loc["step_time", "after"] == pytest.approx(1.0)
    text = c.text()
    assert "Step, unrecorded    0.95" in text
    assert "Step, recorded" in text
    assert "memory False before, True after" in text
    assert "| ms per step, while recorded | Before |" in c.markdown()
    part = c.payload().compare
    assert part.pairs[0].bare
    assert [len(run.bare_ms) for run in part.runs] == [20, 20]
    assert "ms per step, while recorded" in c.save(tmp_path / "c.html").read_text()


def test_a_comparison_says_which_run_has_no_bare_steps(tmp_path):
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before, after = (recorded_profile(tmp_path / name, 0.9) for name in ("before", "after"))
    after.run.capture.step_times = step_times(np.full(30, 1.0), (0, 30)).packed()
    after.run.memo.values.pop("bare_steps", None)
    c = nbprof.compare(before, after)
    verdict = c.verdict.iloc[0]
    assert verdict["steps_are"] == "recorded"
    assert verdict["recorded_reason"].endswith(": every step was recorded")
    assert not c.payload().compare.pairs[0].bare
    assert "while recorded" not in c.markdown()

"""What the clock of all steps shows that the recording does not."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import nbprof
from nbprof.analysis.memory.growth import Growth
from nbprof.analysis.steps import over_run
from nbprof.core.sidecar import SIDECAR
from nbprof.core.step_times import StepTimes
from nbprof.sources.recording import CaptureInfo
from nbprof.tools import header
from tests.analysis.test_bare import MS, step_times
from tests.support import kineto

RECORDED = (0, 24)


def around(ms, count, seed=0, spread=0.05):
    return ms * np.random.default_rng(seed).lognormal(0, spread, count)


def unrecorded(durations, **more):
    return [
        slow
        for slow in over_run.slow(step_times(durations, RECORDED), **more)
        if not len(slow.recorded)
    ]


@pytest.mark.parametrize("every", [30, 95, 500])
def test_slow_steps_at_equal_distances_that_the_recording_lacks(every):
    durations = around(10, 2000)
    durations[every - 1 :: every] += 200
    [slow] = unrecorded(durations)
    assert (slow.every, slow.between) == (every, False)
    # The steps behind the recording, counted from 1.
    assert slow.numbers.tolist() == list(range(every, 2001, every))
    assert slow.example == (every - 2, every)
    assert slow.extra_ms == pytest.approx(200, rel=0.02)
    assert slow.per_step_ms == pytest.approx(200 / every, rel=0.06)
    count = 2000 // every
    assert slow.share == pytest.approx(200 * count / (10 * 2000 + 200 * count), rel=0.03)


def test_those_of_which_one_was_recorded_are_told_apart():
    durations = around(10, 2000)
    durations[19::20] += 200
    [slow] = over_run.slow(step_times(durations, RECORDED))
    assert slow.recorded.tolist() == [20]


def test_a_first_step_that_is_not_slow_is_none_of_them():
    # A validation behind steps 100, 200, …: the first step of the cell is as far from the others.
    durations = around(10, 1000)
    durations[100::100] += 200
    [slow] = over_run.slow(step_times(durations, RECORDED))
    assert (slow.recorded.tolist(), slow.example) == ([], (99, 101))


def test_time_between_epochs_is_found_by_their_first_steps():
    # Two epochs that follow: too few for a rhythm of unknown steps.
    gaps = np.zeros(300)
    gaps[[99, 199]] = 3000.0
    times = with_gaps(around(10, 300), gaps)
    assert over_run.slow(times) == []
    [slow] = over_run.slow(times, [1, 101, 201])
    assert (slow.every, slow.between, slow.chance) == (100, True, 0.0)
    assert slow.numbers.tolist() == [100, 200]
    assert slow.example == (99, 101)
    assert slow.extra_ms == pytest.approx(3000, rel=0.01)
    # Epochs of different lengths have no distance.
    assert over_run.slow(times, [1, 101, 150, 201]) == []


def with_gaps(durations, gaps, kind=None):
    duration = (durations * MS).astype(np.int64)
    gap = (gaps * MS).astype(np.int64)
    end = np.cumsum(duration + gap) - gap
    start = end - duration
    if kind is None:
        kind = np.zeros(len(start), np.int32)
    windows = np.array([[start[0], end[RECORDED[1] - 1]]])
    return StepTimes(start, end, kind, ["train", "test"], windows, len(start))


def test_steps_of_an_evaluation_are_named_and_the_range_goes_around_them():
    kind = np.array(([0] * 100 + [1] * 20) * 4, np.int32)
    times = with_gaps(around(10, len(kind)), np.zeros(len(kind)), kind)
    [slow] = over_run.slow(times, [1, 121, 241, 361])
    assert (slow.every, slow.between) == (100, True)
    assert slow.of_others_ms == pytest.approx(200, rel=0.03)
    assert slow.extra_ms == pytest.approx(200, rel=0.03)
    assert slow.example == (99, 121)


def test_a_time_between_epochs_that_was_recorded_is_one_of_them():
    kind = np.array(([0] * 100 + [1] * 20) * 6, np.int32)
    times = with_gaps(around(10, len(kind)), np.zeros(len(kind)), kind)
    borders = [1, 121, 241, 361, 481, 601]
    [slow] = over_run.slow(times, borders)
    begin, end = slow.example
    window = np.array([[times.start[begin - 1], times.end[end - 1]]])
    # Most recorded steps are of the evaluation, but most of the cell is training.
    [again] = over_run.slow(replace(times, windows=window), borders)
    assert again.recorded.tolist() == [100]


def test_a_slow_step_that_was_recorded_as_was_advised_is_one_of_them():
    durations = around(10, 2000)
    durations[499::500] += 400
    [slow] = unrecorded(durations)
    begin, end = slow.example
    [again] = over_run.slow(step_times(durations, (begin - 1, end)))
    assert again.recorded.tolist() == [end]


def controls(rng, count):
    even = rng.lognormal(2, 0.1, count)
    yield even
    yield rng.lognormal(2, 0.5, count)
    # Collections of garbage at random, and about every 45 steps.
    often = even.copy()
    often[rng.integers(0, count, count // 40 + 1)] += 20
    yield often
    about = even.copy()
    at = np.cumsum(rng.integers(30, 60, count // 45))
    about[at[at < count]] += 15
    yield about
    yield even * (1 + 0.2 * np.sin(np.arange(count) / 50))
    slower = even.copy()
    slower[count // 2 :] *= 1.5
    yield slower
    faster = even.copy()
    faster[: count // 5] *= 2
    yield faster


def test_steady_noisy_and_interrupted_steps_have_no_rhythm_and_do_not_slow_down():
    rng = np.random.default_rng(0)
    for _ in range(25):
        for durations in controls(rng, int(rng.integers(60, 2500))):
            times = step_times(durations, RECORDED)
            # Of a hundred such runs chance alone gives one, of next to no time.
            assert all(slow.share < 0.01 for slow in over_run.slow(times))
            slowing = over_run.slowing(times)
            assert slowing is None or slowing.last_ms < 1.2 * slowing.first_ms


def test_steps_that_take_longer_and_longer():
    durations = around(10, 2000, spread=0.2) * np.linspace(1, 2, 2000)
    slowing = over_run.slowing(step_times(durations, RECORDED))
    assert slowing.steps == 1974
    assert slowing.first_ms == pytest.approx(10.5, rel=0.05)
    assert slowing.last_ms == pytest.approx(19.5, rel=0.05)


def test_a_host_that_runs_ahead_tells_nothing_of_its_steps():
    # Every tenth step prints a number, and waits for what the others launched.
    durations = around(1, 1000)
    durations[29::30] += 270
    assert unrecorded(durations, device_ms=10.0) == []
    assert len(unrecorded(durations, device_ms=1.0)) == 1
    rising = step_times(around(1, 1000) * np.linspace(1, 2, 1000), RECORDED)
    assert over_run.slowing(rising, 10.0) is None


def test_few_steps_tell_nothing():
    assert over_run.slow(None) == []
    assert over_run.slow(step_times(around(10, 40), RECORDED)) == []
    assert over_run.slowing(None) is None
    assert over_run.slowing(step_times(around(10, 100), RECORDED)) is None


def recorded(folder, durations, body=lambda k, number, begin: None, **facts):
    """24 steps of 10 ms that were recorded, of a cell whose steps took so long."""
    k = kineto.Kineto()
    at = 0.0
    for number in range(1, 25):
        took = 1000.0 * durations[number - 1]
        k.step(number, at, took)
        k.op("aten::mm", at + 10, 9000)
        body(k, number, at + 9100)
        at += took
    folder.mkdir(exist_ok=True)
    (folder / "host.pt.trace.json").write_bytes(k.encode())
    info = CaptureInfo(
        backend="torch",
        step_times=step_times(durations, RECORDED).packed(),
        window=[1, 24],
        steps_seen=len(durations),
        ended_before=True,
        **facts,
    )
    (folder / SIDECAR).write_text(json.dumps(info.to_dict()))
    return nbprof.load(folder)


def test_the_finding_says_what_it_costs_and_how_to_record_one(tmp_path):
    durations = around(10, 2000)
    durations[499::500] += 400
    row = (
        recorded(tmp_path / "a", durations, by="cell")
        .advice.set_index("rule")
        .loc["slow_unrecorded"]
    )
    assert row["evidence"].startswith("Every **500th** step takes **400")
    assert "(**4** times in **1,974** steps without the profiler)" in row["evidence"]
    assert "**7%** of the time from the first step of the cell to the last" in row["evidence"]
    assert "None of that was recorded." in row["evidence"]
    assert row["fix"] == "-%%nbprof\n+%%nbprof --steps 498:500"
    assert np.isnan(row["gain_ms_per_step"])
    row = (
        recorded(tmp_path / "b", durations, by="block")
        .advice.set_index("rule")
        .loc["slow_unrecorded"]
    )
    assert row["fix"] == (
        '-with nbprof.profile():\n+with nbprof.profile(steps="498:500"):\n     train()'
    )


def test_what_runs_in_the_one_that_was_recorded_is_named(tmp_path):
    durations = around(10, 2000)
    durations[19::20] += 30

    def save(k, number, begin):
        if number == 20:
            k.op("aten::save", begin, 29_000)

    advice = recorded(tmp_path, durations, save).advice.set_index("rule")
    assert "slow_unrecorded" not in advice.index
    text = advice.loc["periodic", "evidence"]
    assert "Every **20th** step takes **30" in text
    assert "(**99** of **1974** steps)" in text
    assert "aten::save takes **29.00 ms** more there" in text


def test_steps_that_slow_down_are_a_finding(tmp_path):
    durations = around(10, 2000) * np.linspace(1, 1.5, 2000)
    text = recorded(tmp_path, durations).advice.set_index("rule").loc["slowing", "evidence"]
    assert text.startswith("Over **1,974** steps without the profiler the step time rose from")


def test_steady_steps_have_no_finding(tmp_path):
    rules = set(recorded(tmp_path, around(10, 2000)).advice["rule"])
    assert rules.isdisjoint({"slow_unrecorded", "slowing", "periodic"})


def test_memory_does_not_grow_on_where_later_steps_ran(tmp_path, monkeypatch):
    # A thousand steps more would fill it.
    growing = Growth("CPU", 24, 1.0, 1000.0, grown=24_000, peak=1_000_000, capacity=2_000_000)
    monkeypatch.setattr("nbprof.run.frames.advice.growth.find", lambda *_: growing)
    few = recorded(tmp_path / "a", around(10, 26)).run
    assert (few.step_times.later, few._growth()) == (2, growing)
    many = recorded(tmp_path / "b", around(10, 2000)).run
    assert (many.step_times.later, many._growth()) == (1976, None)


def test_a_failure_after_the_recording_is_not_at_its_peak(tmp_path):
    run = recorded(
        tmp_path,
        around(10, 2000),
        cell_failed=True,
        out_of_memory=True,
        error="cell failed in step 2,001, after 2,000 complete steps: MemoryError",
        steps_marked=24,
    ).run
    assert not header.out_of_memory(run)
    assert header.notice(run).text == (
        "The recording had ended before, so the cause is not in it; it has 24 steps."
    )
    assert header.facts(run)[0] == "24 steps of 2,000"

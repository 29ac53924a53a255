"""Host memory over a cell: by moment and process, growth per step, and the advice on it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nbprof import load
from nbprof.analysis.memory import host
from nbprof.core.host_memory import UNKNOWN, HostMemory, Process
from nbprof.core.step_times import StepTimes
from tests.capture.test_load_back import recorded

MIB = 2**20
MS = 10**6


def step_times(count=400, windows=((0, 0),), step_ms=50):
    """Steps one after another."""
    start = np.arange(count, dtype=np.int64) * step_ms * MS
    return StepTimes(
        start,
        start + step_ms * MS,
        np.zeros(count, np.int32),
        ["train"],
        np.array(windows, np.int64).reshape(-1, 2),
        count,
    )


def samples(resident, shared=None, gap_ms=100, **facts):
    """Samples of one process."""
    resident = np.asarray(resident, np.int64)
    unknown = np.full(len(resident), UNKNOWN, np.int64)
    return HostMemory(
        (Process(7, ""),),
        np.arange(len(resident), dtype=np.int64) * gap_ms * MS,
        np.zeros(len(resident), np.int32),
        resident,
        unknown if shared is None else np.asarray(shared, np.int64),
        unknown,
        unknown,
        **facts,
    )


def growing(each_mib=1, count=400, gap_ms=100):
    """A process that keeps so much of each step of 50 ms."""
    moment = np.arange(count * 50 // gap_ms)
    return 1000 * MIB + (moment * gap_ms // 50) * int(each_mib * MIB)


def test_growth_per_step_is_what_a_step_keeps():
    found = host.growth(samples(growing()), step_times())
    assert found.steps == 320
    assert found.each == pytest.approx(MIB, rel=0.02)
    assert found.rising == 1
    assert found.jump < 0.12


def test_growth_while_a_profiler_runs_is_not_the_programs():
    """The profiler of steps 0 to 200 keeps a MiB of each; the program keeps nothing."""
    resident = growing()
    resident[100:] = 1000 * MIB
    times = step_times(windows=[(0, 10_000 * MS)])
    found = host.growth(samples(resident), times)
    assert found.steps < 200
    assert found.each == 0
    # All steps recorded: nothing is known.
    assert host.growth(samples(growing()), step_times(windows=[(0, 20_000 * MS)])) is None


def test_growth_in_mapped_files_is_none():
    resident = growing()
    found = host.growth(samples(resident, shared=resident - 900 * MIB), step_times())
    assert found.each == 0


@pytest.mark.parametrize(("steps", "gap_ms"), [(10, 20), (400, 2000)])
def test_growth_of_few_steps_or_samples_is_unknown(steps, gap_ms):
    resident = np.full(20_000 // gap_ms, 1000 * MIB)
    assert host.growth(samples(resident, gap_ms=gap_ms), step_times(steps)) is None
    assert host.growth(None, step_times()) is None
    assert host.growth(samples(resident), None) is None


def test_frames_hold_each_sample_and_each_process():
    memory = HostMemory(
        (Process(7, ""), Process(9, "Loader worker")),
        np.array([0, 100, 100, 200, 200], np.int64) * MS,
        np.array([0, 0, 1, 0, 1], np.int32),
        np.array([10, 20, 8, 30, 6], np.int64) * MIB,
        np.array([1, 1, 2, 1, 2], np.int64) * MIB,
        np.array([UNKNOWN, UNKNOWN, UNKNOWN, 25 * MIB, 3 * MIB], np.int64),
        np.array([UNKNOWN, 4, UNKNOWN, 8, UNKNOWN], np.int64),
        peak=33 * MIB,
    )
    times = step_times(2, windows=[(90 * MS, 120 * MS)], step_ms=90)
    rows = host.frame(memory, times)
    assert rows["process"].tolist() == [7, 7, 9, 7, 9]
    assert rows["name"].tolist()[1:3] == ["This process", "Loader worker"]
    assert rows["step"].tolist()[:3] == [1, 2, 2]
    assert rows["step"].isna().tolist() == [False, False, False, True, True]
    assert rows["recorded"].tolist() == [False, True, True, False, False]
    assert rows["proportional_bytes"].isna().sum() == 3
    processes = host.processes(memory, times).set_index("name")
    assert processes.loc["All processes", "peak_bytes"] == 36 * MIB
    assert processes.loc["All processes", "proportional_bytes"] == 28 * MIB
    assert processes.loc["This process", "peak_bytes"] == 33 * MIB
    assert np.isnan(processes.loc["This process", "peak_time_ms"])
    assert processes.loc["This process", "pinned_bytes"] == 8
    assert pd.isna(processes.loc["Loader worker", "pinned_bytes"])
    assert processes.loc["Loader worker", "peak_time_ms"] == 100
    assert processes["growth_bytes_per_step"].isna().all()


def profile(folder, memory, times):
    return load(
        recorded(folder, host_memory=memory.packed(), step_times=times.packed(), cell_s=20.0)
    )


def test_a_profile_shows_it_and_says_what_grows(tmp_path):
    memory = samples(growing(), peak=1500 * MIB, capacity=16_000 * MIB)
    found = profile(tmp_path / "grows", memory, step_times())
    assert len(found.memory.host) == len(memory)
    own = found.memory.host_processes.iloc[0]
    assert own["growth_bytes_per_step"] == pytest.approx(MIB, rel=0.02)
    advice = found.advice.set_index("rule")
    text = advice.loc["host_memory_growth", "evidence"]
    assert "**1.00 MiB** per step" in text
    assert "more steps" in text
    part = found.payload().memory.host
    assert part.processes.rows == 1
    assert len(part.time_s) == len(memory)
    assert part.process.max() == memory.resident.max()


def test_a_cache_that_fills_or_a_single_jump_is_no_growth(tmp_path):
    filled = growing()
    filled[60:] = filled[60]
    jumped = np.full(len(filled), 1000 * MIB)
    jumped[120:] += 500 * MIB
    for name, resident in (("filled", filled), ("jumped", jumped)):
        found = profile(tmp_path / name, samples(resident), step_times())
        assert "host_memory_growth" not in set(found.advice["rule"])


def test_a_profile_without_samples_has_empty_frames(tmp_path):
    found = load(recorded(tmp_path / "none"))
    assert not len(found.memory.host)
    assert not len(found.memory.host_processes)
    assert found.payload().memory.host is None

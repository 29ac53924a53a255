"""Enough of a cell: when the recording of marked steps ends, with made-up times."""

from __future__ import annotations

import sys
import threading
import types

import numpy as np
import pandas as pd
import pytest

import nbprof
from nbprof.analysis.steps.warmup import warming
from nbprof.capture import bounds
from nbprof.capture import session as room
from nbprof.capture.block import profile
from nbprof.capture.enough import Enough, trains, warmup_steps
from nbprof.capture.options import ALL, Options
from nbprof.capture.session import Session
from nbprof.core.errors import CaptureError
from nbprof.sources.recording import CaptureInfo
from tests.capture.notes import keys, text_of
from tests.capture.test_windows import Stub

S = 10**9


def ended_after(durations, *, kinds=None, gap=0.0, enough=None, full_at=None):
    """The step after which enough is known, and why; None if it never is."""
    enough = enough or Enough()
    now = 5 * S
    for number, duration in enumerate(durations, 1):
        kind = kinds[number - 1] if kinds else "train"
        if number == full_at:
            enough.grown = 400_000_000
        end = now + round(duration * S)
        if enough.stepped(kind, now, end):
            return number, enough.why
        now = end + round(gap * S)
    return None


@pytest.mark.parametrize(
    ("durations", "step", "why"),
    [
        ([0.1] * 100, 30, "30 steps after warm-up had taken 3.0 s"),
        ([0.5] * 100, 20, "20 steps after warm-up had taken 10.0 s"),
        ([0.001] * 10_000, 3000, "3,000 steps after warm-up had taken 3.0 s"),
        # One that compiles is none of them, nor are two.
        ([60.0] + [0.1] * 100, 31, "30 steps after warm-up had taken 3.0 s"),
        ([60.0, 20.0] + [0.2] * 100, 22, "20 steps after warm-up had taken 4.0 s"),
        # Never fewer than two after warm-up; whether the first is one shows when three are known.
        ([5.0] * 100, 3, "steps after warm-up had taken 15.0 s"),
        ([60.0] + [5.0] * 100, 3, "steps after warm-up had taken 10.0 s"),
        ([30.0] + [10.0] * 100, 3, "steps after warm-up had taken 20.0 s"),
        ([1.0] * 100, 10, "steps after warm-up had taken 10.0 s"),
    ],
)
def test_so_many_steps_that_last_so_long_are_enough(durations, step, why):
    assert ended_after(durations) == (step, why)


def test_shorter_cells_are_recorded_whole():
    assert ended_after([0.1] * 29) is None
    assert ended_after([0.3] * 19) is None
    assert ended_after([60.0, 20.0]) is None
    assert ended_after([5.0, 5.0]) is None


def test_an_asked_warmup_is_not_counted():
    assert ended_after([0.1] * 100, enough=Enough(10))[0] == 40
    assert ended_after([0.1] * 200, enough=Enough(90))[0] == 120
    assert ended_after([0.1] * 80, enough=Enough(90)) is None
    assert ended_after([60.0] + [0.1] * 100, enough=Enough(0))[0] == 7


def test_about_a_million_events_are_the_most_after_three_seconds():
    slow = [0.4] * 100
    why = "the process had grown by 381.47 MiB, as by a million events"
    assert ended_after(slow, full_at=3) == (8, why)
    assert ended_after(slow, full_at=12) == (12, why)
    assert ended_after(slow, full_at=30)[0] == 20
    # There are two whole steps after the warm-up in any case.
    assert ended_after([60.0] + [1.6] * 100, full_at=1) == (3, why)


def test_blocks_with_time_in_between_end_by_the_time_that_passed():
    # Of JAX a block returns before its work is done.
    assert ended_after([0.0001] * 1000, gap=0.1)[0] == 101
    assert ended_after([0.0001] * 19, gap=10) is None


def test_evaluations_are_no_steps_of_training():
    # Their steps are within the most that is recorded, but not enough by themselves.
    kinds = (["train"] * 10 + ["test"] * 40) * 10
    assert ended_after([0.1] * 500, kinds=kinds)[0] == 100
    kinds = (["train"] * 30 + ["test"] * 10) * 10
    assert ended_after([0.09] * 400, kinds=kinds)[0] == 44
    # A cell that evaluates, and one that does so before it trains.
    assert ended_after([0.1] * 100, kinds=["test"] * 100)[0] == 30
    kinds = ["test"] * 200 + ["train"] * 100
    assert ended_after([0.1] * 300, kinds=kinds, enough=Enough(trains=True))[0] == 230
    # Steps may have any other name.
    assert ended_after([0.1] * 100, kinds=["step"] * 100, enough=Enough(trains=True))[0] == 30


def test_cells_that_train_are_known_by_what_they_call():
    assert trains("model.evaluate(data)\nmodel.fit(data)")
    assert trains("train_one_epoch(model)")
    assert not trains("model.evaluate(data)  # before model.fit(data)")
    assert not trains("train = 3\nmodel.predict(x_train)")


def test_the_warmup_is_that_of_the_analysis():
    rng = np.random.default_rng(0)
    for _ in range(400):
        times = rng.lognormal(0, 0.3, rng.integers(2, 24))
        times[: rng.integers(0, 4)] *= rng.uniform(1, 12)
        ns = [int(time * S) for time in times]
        steps = pd.DataFrame({"host": "", "kind": "train", "step_time_ms": ns})
        flags = warming(steps.assign(cut=False, traces=False), None)
        assert warmup_steps(ns) == flags.sum(), times


def test_each_of_many_names_of_steps_is_followed_or_none():
    enough = Enough()
    now = 0
    for number in range(1000):
        enough.stepped(f"step {number}", now, now + S)
        now += S
    assert len(enough._series) <= 101


class Clock:
    """Stands in for the clock of steps: each takes as long as is said, and as long to the next."""

    def __init__(self, monkeypatch, step_s):
        self._now, self._each = 10**12, round(step_s * S)
        monkeypatch.setattr(
            "nbprof.capture.clock.time",
            types.SimpleNamespace(perf_counter_ns=self.tick, perf_counter=lambda: self._now / 1e9),
        )

    def tick(self):
        self._now += self._each
        return self._now


@pytest.fixture
def stub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))
    stub = Stub()
    monkeypatch.setattr(room, "_make_backend", lambda module: stub)
    return stub


def recorded(rounds, error=None, **options):
    session = Session(Options(backend="tensorflow", **options)).start()
    for _ in nbprof.steps(range(rounds)):
        pass
    session.stop(error)
    return session


def test_the_rest_of_the_cell_runs_without_the_profiler(stub, monkeypatch):
    Clock(monkeypatch, 0.12)
    session = recorded(100)
    info = session.recording.info
    assert stub.calls == ["start", "stop on MainThread"]
    assert (info.window, info.steps_marked, info.steps_seen) == ([1, 25], 25, 100)
    assert text_of(info.notes, "recorded_enough") == (
        "steps 1 to 25 were recorded, until 25 steps after warm-up had taken 3.0 s;"
        " 75 later steps ran without the profiler, and nothing after step 25 was recorded;"
        ' steps="all" records the whole block'
    )
    assert info.ended_before
    assert info.step_times["count"] == 100
    # On disk since the end of the recording, and completed at the end of the cell.
    assert CaptureInfo.read(session.recording.path).steps_seen == 100


def test_the_facts_are_on_disk_when_the_recording_has_ended(stub, monkeypatch):
    Clock(monkeypatch, 0.12)
    session = Session(Options(backend="tensorflow")).start()
    for _ in nbprof.steps(range(26)):
        pass
    info = CaptureInfo.read(session.windows.recordings[0].path)
    assert "no further step ran" in text_of(info.notes, "recorded_enough")
    session.stop()


@pytest.mark.parametrize(
    "options", [{"steps": ALL}, {"steps": (1, None)}, {"seconds": 10_000.0}, {"steps": (1, 90)}]
)
def test_who_says_what_to_record_gets_that(stub, monkeypatch, options):
    Clock(monkeypatch, 0.12)
    session = recorded(90, **options)
    info = session.recording.info
    assert (info.window, info.steps_seen) == ([1, 90], 90)
    assert "recorded_enough" not in keys(info.notes)


def test_a_short_cell_is_recorded_to_its_end(stub, monkeypatch):
    Clock(monkeypatch, 0.12)
    session = recorded(24)
    assert session.recording.info.window == [1, 24]
    assert not session.recording.info.ended_before
    assert "recorded_enough" not in keys(session.recording.info.notes)


def test_a_cell_that_fails_later(stub, monkeypatch):
    Clock(monkeypatch, 0.12)
    session = recorded(60, error=MemoryError("out of memory"))
    info = session.recording.info
    assert (info.cell_failed, info.out_of_memory, info.ended_before) == (True, True, True)
    assert info.error == "cell failed after 60 complete steps: MemoryError: out of memory"


def test_only_the_thread_that_started_it_can_end_some_profilers(stub, monkeypatch):
    Clock(monkeypatch, 0.12)
    stub.ends_anywhere = False
    session = Session(Options(backend="tensorflow")).start()

    def train(count):
        for _ in nbprof.steps(range(count)):
            pass

    other = threading.Thread(target=train, args=(40,))
    other.start()
    other.join()
    assert session.windows.recording
    train(2)
    assert not session.windows.recording
    session.stop()
    assert stub.calls[-1] == "stop on MainThread"
    assert session.recording.info.window == [1, 41]


def test_a_fault_in_the_counting_is_not_the_programs(stub, monkeypatch):
    def fails(*_):
        raise RuntimeError("a fault")

    monkeypatch.setattr(Enough, "stepped", fails)
    assert recorded(60).recording.info.window == [1, 60]


def test_what_cannot_be_ended_early_is_recorded_whole(stub, monkeypatch):
    Clock(monkeypatch, 0.12)
    stub.records_all = True
    assert recorded(60).recording.info.window == [1, 60]


def test_the_growth_of_the_process_bounds_the_number_of_events(stub, monkeypatch):
    # Without the growth it would be 20 steps.
    Clock(monkeypatch, 0.4)
    stub.bytes_per_event = 400
    session = Session(Options(backend="tensorflow")).start()
    steps = iter(nbprof.steps(range(60)))
    for _ in range(9):
        next(steps)
    session.windows._grew(399_999_999)
    next(steps)
    assert session.windows.recording
    session.windows._grew(400_000_000)
    next(steps)
    assert not session.windows.recording
    steps.close()
    session.stop()
    text = text_of(session.recording.info.notes, "recorded_enough")
    assert ", until the process had grown by 381.47 MiB, as by a million events;" in text


def test_the_bounds_tell_the_growth_since_the_first_step(monkeypatch):
    monkeypatch.setattr(bounds, "PERIOD_S", 0.001)
    sizes = iter([5e6, 1e6, 1e6])
    monkeypatch.setattr(bounds, "_resident", lambda process: int(next(sizes, 3e6)))
    told, seen = [], threading.Event()

    def grew(size):
        told.append(size)
        if size == 2_000_000:
            seen.set()

    watch = bounds.Bounds(None, 1.0, lambda: True, lambda why: None, grew=grew)
    watch.start()
    assert seen.wait(20)
    watch.stop()
    assert told[0] == 0


def test_start_and_stop_say_themselves_when(stub, monkeypatch):
    Clock(monkeypatch, 0.12)
    begun = []
    monkeypatch.setattr(profile, "_begin", lambda block, stacklevel: begun.append(block._options))
    for options in ({}, {"steps": None}, {"steps": "2:3"}, {"seconds": 3}):
        nbprof.start(**options)
    assert [one.steps for one in begun] == [ALL, ALL, (2, 3), ALL]
    assert not any(one.until_enough for one in begun)


def test_all_and_auto_are_words_for_steps():
    assert nbprof.capture.options.options_of({"steps": " all "}).steps == ALL
    assert not Options(steps=ALL).until_enough
    assert Options().until_enough
    with pytest.raises(CaptureError, match="steps must be a string"):
        Options(steps="some")
    with pytest.raises(CaptureError, match="needs its first and last step"):
        Options(steps=ALL, every=10)

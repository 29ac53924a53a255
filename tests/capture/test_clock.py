"""The clock of steps by itself, without a framework."""

from __future__ import annotations

from nbprof.capture.clock import EPOCH, StepClock
from nbprof.capture.step_times import StepTimer
from nbprof.core.step_times import StepTimes


def test_a_boundary_lies_before_the_next_step():
    clock = StepClock()
    clock.bounds(EPOCH)
    for _ in range(2):
        clock.begin("train")
        clock.end("train")
    clock.bounds(EPOCH)
    assert [entry["before"] for entry in clock.boundaries] == [1, 3]


def test_the_kind_of_a_loop_is_known_while_it_is_open():
    clock = StepClock()
    assert clock.open_loop == ""
    clock.begin("train")
    assert clock.open_loop == "train"
    clock.leave()
    assert clock.open_loop == ""


def test_a_clock_that_has_stopped_counts_nothing():
    clock = StepClock()
    clock.begin("train")
    clock.end("train")
    clock.stop()
    clock.begin("train")
    clock.end("train")
    clock.bounds(EPOCH)
    assert (clock.alive, clock.seen, clock.boundaries) == (False, 1, [])


def timed(clock):
    return StepTimes.unpacked(clock.times.packed())


def test_every_step_is_timed_from_the_end_of_the_one_before():
    clock = StepClock()
    clock.begin("train")
    for _ in range(3):
        clock.end("train")
    times = timed(clock)
    assert (times.count, times.kinds, len(times.windows)) == (3, ["train"], 0)
    assert (times.end >= times.start).all()
    # Within what the clock itself takes.
    assert (times.start[1:] >= times.end[:-1]).all()


def test_a_block_is_timed_by_itself_and_one_that_failed_is_not():
    clock = StepClock()
    for outcome in ("done", "failed", "done"):
        clock.root_begins()
        clock.root_ends("train", outcome)
    assert timed(clock).count == 2


def test_steps_during_a_window_count_as_recorded():
    clock = StepClock()
    clock.begin("train")
    clock.end("train")
    clock.times.window_begins()
    clock.end("train")
    clock.times.window_ends()
    clock.enter("train")
    clock.end("train")
    clock.times.window_begins()
    clock.end("train")
    # The window still runs when the cell ends. The third step began while the first one ended.
    assert timed(clock).recorded.tolist() == [False, True, True, True]


def test_a_recording_after_another_one_is_known():
    clock = StepClock()
    clock.times.window_begins()
    clock.times.window_ends()
    later = StepClock()
    later.begin("train")
    later.end("train")
    assert timed(later).profiled_before


def test_a_clock_without_steps_stores_nothing():
    assert StepClock().times.packed() == {}


def test_later_steps_than_a_recording_stores_are_counted():
    timer = StepTimer(limit=2)
    for i in range(5):
        timer.stepped(i, i + 1, "train")
    times = StepTimes.unpacked(timer.packed())
    assert (times.count, len(times.start)) == (5, 2)

"""The clock of steps by itself, without a framework."""

from __future__ import annotations

from nbprof.capture.clock import EPOCH, StepClock


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

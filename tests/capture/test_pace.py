"""How fast steps come, and how long they wait, by a clock that the test moves."""

from __future__ import annotations

import sys
import threading
import types

import pytest

import nbprof
from nbprof.capture.clock import StepClock, set_current
from nbprof.capture.pace import RECENT, Pace, Waits
from nbprof.capture.patches import Patches
from nbprof.core.loader_uses import ITERABLE


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def made():
    clock = Clock()
    waits = Waits(clock)
    return clock, waits, Pace(waits, clock)


def run(clock, waits, pace, steps):
    """Steps as (seconds waited, seconds of work)."""
    for waited, worked in steps:
        with waits.waiting():
            clock.now += waited
        clock.now += worked
        pace.stepped()


def test_the_median_of_recent_steps(made):
    clock, waits, pace = made
    assert pace.step_ms() is None
    run(clock, waits, pace, [(0, 5.0)])
    assert pace.step_ms() is None
    run(clock, waits, pace, [(0, 0.010), (0, 0.020), (0, 9.0)])
    assert pace.step_ms() == pytest.approx(20)
    run(clock, waits, pace, [(0, 0.004)] * RECENT)
    assert pace.step_ms() == pytest.approx(4)


def test_the_share_of_the_steps_that_waits_for_input(made):
    clock, waits, pace = made
    run(clock, waits, pace, [(0.03, 0.01)] * 5)
    assert pace.waiting_share() == pytest.approx(0.75)
    run(clock, waits, pace, [(0.0, 0.01)] * (RECENT + 1))
    assert pace.waiting_share() == pytest.approx(0, abs=1e-9)


def test_waits_of_recorded_steps_are_those_of_their_iterable(made):
    clock, waits, pace = made
    run(clock, waits, pace, [(0.03, 0.01)] * 5)
    assert waits.loaders.taken() == [], "nothing is recorded yet"
    waits.loaders.begin()
    run(clock, waits, pace, [(0.03, 0.01)] * 5)
    (use,) = waits.loaders.taken()
    # Not the first one, which the window may begin in.
    assert (use.kind, use.batches) == (ITERABLE, 4)
    run(clock, waits, pace, [(0.03, 0.01)] * 5)
    assert waits.loaders.taken()[0].batches == 4


def test_where_no_iterator_is_seen_the_share_is_not_known(made):
    clock, waits, pace = made
    run(clock, waits, pace, [(0.5, 0.1)])
    for _ in range(5):
        clock.now += 0.01
        pace.stepped()
    assert pace.waiting_share() is None


def test_a_wait_inside_a_wait_counts_once(made):
    clock, waits, _ = made
    with waits.waiting(), waits.waiting():
        clock.now += 1
    assert (waits.total, waits.items, waits.open_s) == (1, 1, 0)


def test_a_wait_of_another_thread_is_none_of_the_steps(made):
    clock, waits, pace = made
    run(clock, waits, pace, [(0.1, 0.1)] * 2)
    before = waits.total

    def prefetch():
        with waits.waiting():
            clock.now += 5

    thread = threading.Thread(target=prefetch)
    thread.start()
    thread.join()
    assert waits.total == before


def test_a_long_wait_is_told_while_it_lasts(made):
    clock, waits, pace = made
    run(clock, waits, pace, [(0.1, 0.1)] * 3)
    with waits.waiting():
        clock.now += 0.9
        assert not pace.waits_now()
        clock.now += 0.2
        assert pace.waits_now()
        assert waits.open_s == pytest.approx(1.1)
    assert not pace.waits_now()


def test_steps_counts_what_its_iterator_takes():
    clock = StepClock()
    now = clock.waits._now = Clock()

    def batches():
        for i in range(3):
            now.now += 2
            yield i

    set_current(clock)
    try:
        for _ in nbprof.steps(batches()):
            now.now += 1
    finally:
        set_current(None)
    assert clock.seen == 3
    # The look for a fourth batch is a wait too.
    assert (clock.waits.total, clock.waits.items) == (6, 4)


def test_iterators_of_frameworks_are_watched_and_given_back(monkeypatch, made):
    clock, waits, _ = made

    class Loader:
        def __next__(self):
            clock.now += 3
            raise StopIteration

    original = Loader.__next__
    module = types.ModuleType("torch.utils.data.dataloader")
    module._BaseDataLoaderIter = Loader
    monkeypatch.setitem(sys.modules, module.__name__, module)
    patches = Patches()
    waits.hook(patches)

    class Worker(Loader):
        pass

    with pytest.raises(StopIteration):
        next(Worker())
    assert (waits.total, waits.items, waits.open_s) == (3, 1, 0)
    patches.restore()
    assert Loader.__next__ is original

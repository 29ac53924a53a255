"""How experiments share their time: by a clock that only turns move, so no machine decides it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from nbprof.capture.experiments import engine, equality, program, statistics, turn
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.turn import Timing
from nbprof.capture.options import Options

STEP_MS, TURN_S = 10.0, 0.1
EVEN, UNEVEN = (0.0,), (1.0, -1.0)
"""What is added to a gain in each turn: with the second, 20 turns do not tell whether one of less
than 1 ms is one, and 60 do.
"""


class Clock:
    """Programs of 10 ms a step whose changes save and take what is said of them.

    Parameters
    ----------
    saves : dict of str to (float, sequence of float, float)
        Of a change: ms that it saves, what is added to that in turn, and seconds of a turn.
    unequal : set of str
        Changes with which the results are others.
    """

    def __init__(self, saves, unequal=()):
        self.saves, self.unequal = saves, unequal
        self.now = 0.0
        self.made: list[str] = []
        self.turns = dict.fromkeys(saves, 0)
        self.compared = ""
        self.reported: list[str] = []

    def perf_counter(self):
        return self.now

    def run(self, program_, options, plan, change=None, observation=None):
        ms, took_s, name = STEP_MS, TURN_S, ""
        if change is not None:
            name = change.name
            saved_ms, added, took_s = self.saves[name]
            if observation is None:
                ms -= saved_ms + added[self.turns[name] % len(added)]
                self.turns[name] += 1
        if observation is not None:
            self.compared = name
        self.now += took_s
        return Timing(10 * ms / 1000, 10, ms / 1000, 2 * ms / 1000, took_s, None)

    def compare(self, *_):
        is_other = self.compared in self.unequal
        return equality.Equality(not is_other, float(is_other), 0.0, 1e-5)


def experiment(name, touches=()):
    class Made(Change):
        def apply(self, patches):
            pass

    Made.name = name
    return Experiment(
        name, f"the {name}", "torch", (), lambda _: "", lambda _: Made(), f"+ {name}",
        touches=touches,
    )  # fmt: skip


@pytest.fixture
def tried(monkeypatch):
    """The results of changes by name, within a budget."""

    def run(saves, budget_s, unequal=(), touches=()):
        clock = Clock(saves, unequal)
        monkeypatch.setattr(engine, "time", clock)
        monkeypatch.setattr(turn, "run", clock.run)
        monkeypatch.setattr(equality, "compare", clock.compare)
        runner = engine.Engine(
            program.of_call(print, (), {}), Options(), steps=20, units=20, budget_s=budget_s
        )  # fmt: skip
        runner.run([(experiment(name, touches), "") for name in saves], clock.reported.append)
        results = {each.experiment: each for each in runner.tried}
        assert list(results) == list(saves)
        return SimpleNamespace(clock=clock, **results)

    return run


def test_what_a_quick_one_leaves_goes_to_one_that_did_not_fit(tried):
    # A third of the time and what it may be exceeded by is less than six turns of 11 s take.
    saves = {"slow": (5.0, EVEN, 11.0), "quick": (2.0, EVEN, 0.1), "other": (1.0, EVEN, 0.1)}
    results = tried(saves, 100.0)
    assert (results.slow.pairs, results.slow.recommended) == (6, True), results.slow.why
    assert results.quick.pairs == results.other.pairs == engine.MOST_PAIRS
    assert results.clock.now <= 100.0
    took = [results.slow.took_s, results.quick.took_s, results.other.took_s]
    assert sum(took) + 2 * TURN_S == pytest.approx(results.clock.now)
    names = [line.partition(", up to ")[0] for line in results.clock.reported]
    assert names[1:] == ["trying: the slow", "trying: the quick", "trying: the other", names[1]]
    assert results.clock.reported[2] == "trying: the quick, up to 39 s (the slow took 22.1 s)"


def test_what_does_not_fit_into_the_rest_either_names_a_budget(tried):
    results = tried({"slow": (5.0, EVEN, 30.0), "quick": (2.0, EVEN, 0.1)}, 100.0)
    assert (results.slow.pairs, results.slow.recommended) == (0, False)
    assert "6 turns of it do not fit into the time; --budget" in results.slow.why
    assert results.slow.took_s == pytest.approx(60.1)


def test_the_rest_goes_to_what_is_undecided_the_most_promising_first(tried):
    saves = {
        "sure": (5.0, EVEN, 0.1),
        "less": (0.05, UNEVEN, 0.1),
        "more": (0.3, UNEVEN, 0.1),
        "never": (-5.0, EVEN, 0.1),
    }
    # Of the time for each, as many turns as it takes at first; then 20 s are left.
    results = tried(saves, 40.0)
    assert results.sure.pairs == results.never.pairs == engine.MOST_PAIRS
    assert results.more.pairs == engine.ALL_PAIRS
    assert results.less.pairs > engine.MOST_PAIRS
    again = [line.split(", ")[0] for line in results.clock.reported[5:]]
    assert again == ["trying: the more", "trying: the less"]
    assert results.clock.now <= 40.0
    assert results.more.recommended
    assert not results.less.recommended


def test_where_no_time_is_left_the_first_look_stands(tried):
    saves = {"unsure": (0.3, UNEVEN, 0.1)}
    results = tried(saves, 4.4)
    assert results.unsure.pairs == engine.MOST_PAIRS
    assert results.unsure.why == engine.NOT_FASTER
    assert len(results.clock.reported) == 2


def test_each_look_has_its_confidence(tried, monkeypatch):
    seen = []

    def median_of(differences, confidence):
        seen.append((len(differences), confidence))
        return statistics.Median(0.5, -1.0, 2.0)

    monkeypatch.setattr(engine.statistics, "median_of", median_of)
    tried({"unsure": (0.3, EVEN, 0.1)}, 400.0)
    assert dict.fromkeys(seen) == {
        (engine.MOST_PAIRS, engine.FIRST_LOOK): None,
        (engine.ALL_PAIRS, engine.SECOND_LOOK): None,
    }


def test_results_that_are_not_equal_take_no_more_turns_than_an_interval_needs(tried):
    results = tried({"other": (5.0, EVEN, 0.1)}, 100.0, unequal={"other"})
    assert (results.other.pairs, results.other.recommended) == (engine.LEAST_PAIRS, False)
    assert results.other.gain_ms == pytest.approx(5.0)


def test_time_is_left_for_the_combination_only_where_there_may_be_one(tried):
    # Both change the same thing, so that nothing can be combined.
    saves = {"first": (0.3, UNEVEN, 0.1), "second": (-5.0, EVEN, 0.1)}
    results = tried(saves, 21.0, touches=("a",))
    assert results.first.pairs == engine.ALL_PAIRS
    assert results.clock.now <= 21.0


def test_both_looks_together_err_in_five_percent():
    """A second look where the first is unsure, by chance alone: as the engine takes it."""
    generator = np.random.default_rng(0)
    repetitions, errors = 2000, 0
    for _ in range(repetitions):
        differences = generator.normal(0.0, 1.0, engine.ALL_PAIRS)
        median = statistics.median_of(differences[: engine.MOST_PAIRS], engine.FIRST_LOOK)
        if median.low < 0.1 <= median.high:
            median = statistics.median_of(differences, engine.SECOND_LOOK)
        errors += not median.low <= 0.0 <= median.high
    # Two standard deviations of the count above what is promised.
    assert errors <= 0.05 * repetitions + 2 * (0.05 * 0.95 * repetitions) ** 0.5


def test_the_intervals_are_finite_from_the_turns_on_that_are_required():
    first = statistics.median_of(np.arange(float(engine.LEAST_PAIRS)), engine.FIRST_LOOK)
    from nbprof.capture.experiments.attempt import LEAST_AGAIN

    second = statistics.median_of(np.arange(float(LEAST_AGAIN)), engine.SECOND_LOOK)
    assert np.isfinite([*first, *second]).all()

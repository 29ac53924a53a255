"""How often a gate is wrong about step times, with simulated noise of which the size is known."""

import math
from collections import Counter

import numpy as np
import pytest

from nbprof.analysis.compare.repeats import FINE, SLOWER, UNKNOWN, Repeat, repeat, slowdown

REPEATS, STEPS = 10, 20


def recorded(rng, between, *, slower=1.0, repeats=REPEATS, within=0.03):
    """Repeats whose means differ by `between`, as a fraction; within each, steps have a tail as those of real programs."""
    levels = 10 * slower * np.exp(between * rng.standard_normal(repeats))
    return [repeat(level * np.exp(within * rng.gumbel(size=STEPS))) for level in levels]


def verdicts(count, between, slower, seed):
    rng = np.random.default_rng(seed)
    return Counter(slowdown(recorded(rng, between), recorded(rng, between, slower=slower), 0.05).kind for _ in range(count))


def test_of_200_unchanged_runs_at_most_one_percent_fail():
    for between in (0.005, 0.015, 0.05):
        assert verdicts(200, between, 1.0, seed=1)[SLOWER] <= 2


def test_of_100_slowdowns_of_5_percent_95_are_caught():
    assert verdicts(100, 0.015, 1.05, seed=2)[SLOWER] >= 95


def test_noise_that_is_too_large_is_unknown_and_not_fine():
    found = verdicts(100, 0.05, 1.05, seed=3)
    assert found[FINE] <= 2
    assert found[UNKNOWN] >= 50


def test_a_small_slowdown_that_is_real_is_allowed():
    assert verdicts(100, 0.005, 1.02, seed=4)[FINE] >= 95


def test_a_slowdown_in_few_steps_is_found_by_the_mean():
    rng = np.random.default_rng(5)

    def one(stalls):
        times = 10 + 0.05 * rng.standard_normal(STEPS)
        times[:stalls] *= 3
        return repeat(rng.permutation(times))

    found = slowdown([one(0) for _ in range(REPEATS)], [one(2) for _ in range(REPEATS)], 0.05)
    assert (found.kind, found.of) == (SLOWER, "mean")
    assert found.change == pytest.approx(0.2, abs=0.01)


def test_one_recording_shows_no_noise():
    one = repeat(np.full(20, 10.0))
    found = slowdown([one], [one] * 10, 0.05)
    assert found.kind == UNKNOWN
    assert math.isnan(found.margin)


def test_repeats_that_agree_by_chance_are_no_surer_than_their_steps():
    vague = Repeat(10.0, 10.0, 1.0, 1.0, 20)
    assert slowdown([vague] * 10, [vague._replace(mean=10.5, typical=10.5)] * 10, 0.05).kind == UNKNOWN
    sure = Repeat(10.0, 10.0, 0.01, 0.01, 20)
    assert slowdown([sure] * 10, [sure._replace(mean=10.5, typical=10.5)] * 10, 0.05).kind == SLOWER


def test_what_does_not_vary_is_told_exactly():
    same = repeat(np.full(20, 10.0))
    assert slowdown([same] * 3, [same] * 3, 0.05).kind == FINE
    assert slowdown([same] * 3, [repeat(np.full(20, 10.6))] * 3, 0.05).kind == SLOWER


def test_a_single_step_has_no_spread_of_its_own():
    one = repeat(np.array([10.0]))
    assert (one.mean, one.typical, one.steps) == (10.0, 10.0, 1)
    assert math.isnan(one.error)
    assert slowdown([one] * 3, [one] * 3, 0.05).kind == FINE

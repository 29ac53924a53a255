"""How often a gate is wrong about step times, with simulated noise of which the size is known."""

import math
from collections import Counter

import numpy as np
import pytest

from nbprof.analysis.compare.repeats import FINE, SLOWER, UNKNOWN, Repeat, repeat, slowdown

RUNS, REPEATS, STEPS = 10, 5, 20
"""Runs of a baseline, as docs/gate.md recommends; repeats and steps by default."""


def recorded(rng, between, *, slower=1.0, within=0.02):
    """Repeats of a run; runs and repeats differ by `between`, as a fraction; steps have a tail as
    those of real programs.
    """
    level = 10 * slower * np.exp(between * rng.standard_normal())
    levels = level * np.exp(between * rng.standard_normal(REPEATS))
    return [repeat(one * np.exp(within * rng.gumbel(size=STEPS))) for one in levels]


def verdicts(count, between, slower, seed):
    """Of so many runs; each baseline has four of them, as making it takes longest."""
    rng = np.random.default_rng(seed)
    baselines = [[recorded(rng, between) for _ in range(RUNS)] for _ in range(count // 4)]
    return Counter(
        slowdown(before, recorded(rng, between, slower=slower), 0.05).kind
        for before in baselines
        for _ in range(4)
    )


@pytest.mark.parametrize("between", [0.007, 0.05])
def test_of_200_unchanged_runs_at_most_one_percent_fail(between):
    assert verdicts(200, between, 1.0, seed=10)[SLOWER] <= 2


def test_of_100_slowdowns_of_5_percent_95_are_caught():
    assert verdicts(100, 0.007, 1.05, seed=2)[SLOWER] >= 95


def test_noise_that_is_too_large_is_unknown_and_not_fine():
    found = verdicts(100, 0.03, 1.05, seed=3)
    assert found[FINE] <= 2
    assert found[UNKNOWN] >= 50


def test_a_small_slowdown_that_is_real_is_allowed():
    assert verdicts(100, 0.003, 1.02, seed=4)[FINE] >= 95


def test_a_slowdown_in_few_steps_is_found_by_the_mean():
    rng = np.random.default_rng(5)

    def one(stalls):
        times = 10 + 0.05 * rng.standard_normal(STEPS)
        times[:stalls] *= 3
        return repeat(rng.permutation(times))

    found = slowdown(
        [[one(0) for _ in range(REPEATS)] for _ in range(RUNS)],
        [one(2) for _ in range(REPEATS)],
        0.05,
    )
    assert (found.kind, found.of) == (SLOWER, "mean")
    assert found.change == pytest.approx(0.2, abs=0.01)


def test_few_runs_do_not_show_the_noise_between_runs():
    one = repeat(np.full(20, 10.0))
    for before, after in (
        ([[one] * 10] * 9, [one] * 10),
        ([[one]] * 9 + [[]], [one]),
        ([], [one]),
        ([[one]] * 10, []),
    ):
        found = slowdown(before, after, 0.05)
        assert found.kind == UNKNOWN
        assert math.isnan(found.margin)


def test_a_run_that_is_noisier_than_the_baseline_is_as_uncertain_as_itself():
    rng = np.random.default_rng(6)
    steady = [[repeat(10 + 0.01 * rng.standard_normal(20)) for _ in range(5)] for _ in range(10)]
    noisy = [repeat(np.full(20, level)) for level in (9.0, 10.0, 12.0, 13.0)]
    assert slowdown(steady, noisy, 0.05).kind == UNKNOWN
    assert slowdown(steady, steady[0], 0.05).kind == FINE


def test_runs_that_agree_by_chance_are_no_surer_than_their_steps():
    vague = Repeat(10.0, 10.0, 1.0, 1.0, 20)
    assert (
        slowdown([[vague] * 5] * 10, [vague._replace(mean=10.5, typical=10.5)] * 5, 0.05).kind
        == UNKNOWN
    )
    sure = Repeat(10.0, 10.0, 0.01, 0.01, 20)
    assert (
        slowdown([[sure] * 5] * 10, [sure._replace(mean=10.5, typical=10.5)] * 5, 0.05).kind
        == SLOWER
    )


def test_what_does_not_vary_is_told_exactly():
    same = repeat(np.full(20, 10.0))
    assert slowdown([[same] * 3] * 10, [same] * 3, 0.05).kind == FINE
    assert slowdown([[same] * 3] * 10, [repeat(np.full(20, 10.6))] * 3, 0.05).kind == SLOWER


def test_a_single_step_has_no_spread_of_its_own():
    one = repeat(np.array([10.0]))
    assert (one.mean, one.typical, one.steps) == (10.0, 10.0, 1)
    assert math.isnan(one.error)
    assert slowdown([[one]] * 10, [one], 0.05).kind == FINE

"""Welch's interval and its kin against tables, hand computations, and draws whose truth is
known.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from nbprof.analysis.compare.welch import (
    autocorrelation,
    effective_size,
    t_probability,
    t_quantile,
    trimmed,
    welch,
)


@pytest.mark.parametrize(
    ("freedom", "value"),
    # Percentage points of Student's t, 97.5 %, as statistical tables print them.
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (5, 2.5706),
        (10, 2.2281),
        (30, 2.0423),
        (120, 1.9799),
        (1e7, 1.95996),
    ],
)
def test_quantiles_are_those_of_tables(freedom, value):
    assert t_quantile(0.975, freedom) == pytest.approx(value, abs=6e-5)
    assert t_probability(t_quantile(0.975, freedom), freedom) == pytest.approx(0.975, abs=1e-12)


def test_probability_is_the_integral_of_the_density():
    freedom, t = 3.7, 2.2
    x = np.linspace(0, t, 200_001)
    density = (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    front = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(math.pi * freedom)
    area = front * float(((density[1:] + density[:-1]) / 2).sum()) * (x[1] - x[0])
    assert t_probability(t, freedom) == pytest.approx(0.5 + area, abs=1e-9)


def test_the_interval_by_hand():
    a, b = np.array([6.0, 7.0, 8.0]), np.array([1.0, 2.0, 3.0, 6.0])
    found = welch(a, b)
    # Variances 1 and 14/3, of the means 1/3 and 7/6.
    assert found.change == pytest.approx(-4)
    freedom = (1 / 3 + 7 / 6) ** 2 / ((1 / 3) ** 2 / 2 + (7 / 6) ** 2 / 3)
    assert found.freedom == pytest.approx(freedom)
    assert found.margin == pytest.approx(t_quantile(0.975, freedom) * math.sqrt(1.5))
    assert found.real == (found.margin < 4)


def test_the_trimmed_interval_by_hand():
    # Five values each, one left out at each end; bounded at the second and the fourth.
    a, b = np.array([1.0, 2.0, 3.0, 4.0, 90.0]), np.array([0.0, 10.0, 11.0, 12.0, 13.0])
    found = trimmed(a, b)
    assert found.change == pytest.approx(11 - 3)
    part = [4 * np.var([2, 2, 3, 4, 4], ddof=1) / 6, 4 * np.var([10, 10, 11, 12, 12], ddof=1) / 6]
    assert found.freedom == pytest.approx(sum(part) ** 2 / (part[0] ** 2 / 2 + part[1] ** 2 / 2))
    assert found.margin == pytest.approx(t_quantile(0.975, found.freedom) * math.sqrt(sum(part)))
    assert found.real
    assert not welch(a, b).real


def test_nothing_is_known_of_one_value():
    found = welch(np.array([1.0]), np.array([2.0, 3.0]))
    assert (found.change, found.has_interval, found.real) == (1.5, False, False)
    assert not trimmed(np.array([1.0]), np.array([2.0, 3.0])).has_interval
    assert math.isnan(welch(np.zeros(0), np.ones(3)).change)


def test_series_that_do_not_vary():
    assert welch(np.full(3, 2.0), np.full(3, 2.0)).real is False
    assert welch(np.full(3, 2.0), np.full(3, 1.5)) == (-0.5, 0.0, math.inf)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    random = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        found = welch(random.normal(5, 1, 6), random.normal(4, 3, 15))
        held += abs(found.change + 1) <= found.margin
    assert 0.935 < held / 2000 < 0.965


def test_a_series_that_remembers_is_worth_less():
    random = np.random.default_rng(1)
    held = {True: 0, False: 0}
    for _ in range(500):
        both = []
        for _ in range(2):
            values = np.zeros(200)
            for i in range(1, 200):
                values[i] = 0.8 * values[i - 1] + random.normal()
            both.append(values)
        for aware in held:
            sizes = (effective_size(both[0]), effective_size(both[1])) if aware else None
            found = welch(*both, sizes=sizes)
            held[aware] += abs(found.change) <= found.margin
    assert held[False] / 500 < 0.65
    assert held[True] / 500 > 0.9


def test_independent_and_alternating_values_are_worth_what_they_are():
    values = np.array([1.0, 2.0] * 10)
    assert autocorrelation(values) < -0.9
    assert effective_size(values) == 20
    assert effective_size(np.full(20, 0.1)) == 20
    assert math.isnan(autocorrelation(np.full(20, 0.1)))
    ramp = np.arange(20.0)
    assert 2 <= effective_size(ramp) < 5
    assert effective_size(np.arange(5.0)) == 5

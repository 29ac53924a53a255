"""A profiler that spends so many µs per op: what nbprof says of steps without it is the program's
own clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pytest

import nbprof
from nbprof.schema import frames

torch = pytest.importorskip("torch")

from tests.support.slow_profiler import slow_profiler  # noqa: E402 - it imports torch

OPS, STEPS, FIRST, LAST = 200, 90, 41, 60
"""Ops of a step, steps, and the recorded ones, counted from 1."""
TURNS = 12


@dataclass
class Recorded:
    """A profile beside the program's own clock, in ms, and the ops that the profiler slowed."""

    profile: nbprof.Profile
    own_ms: np.ndarray
    ops: int

    @property
    def bare_ms(self) -> np.ndarray:
        # Two after the recording pay for its end.
        return np.concatenate([self.own_ms[: FIRST - 1], self.own_ms[LAST + 2 :]])

    @property
    def recorded_ms(self) -> np.ndarray:
        return self.own_ms[FIRST + 1 : LAST]


def recorded(us: float) -> Recorded:
    """A loop of small ops; again if other programs made its steps scatter."""
    x = torch.randn(64, 64)

    def body() -> None:
        y = x
        for _ in range(OPS):
            y = torch.mul(y, 0.999)

    for _ in range(TURNS):
        own = []
        with (
            slow_profiler(us) as slowed,
            nbprof.profile(save=False, sampling=False, steps=(FIRST, LAST)) as run,
        ):
            for _ in range(STEPS):
                with nbprof.step():
                    began = time.perf_counter()
                    body()
                    own.append(1000 * (time.perf_counter() - began))
        if not run.overview["bare_parts_reason"]:
            break
    return Recorded(run.result, np.array(own), slowed.ops)


@pytest.mark.parametrize("us", [5, 50])
def test_the_bare_step_time_and_the_slowdown_are_those_of_the_programs_own_clock(us):
    run = recorded(us)
    clock, overview = run.profile.steps.clock, run.profile.overview
    assert run.ops >= OPS * (LAST - FIRST + 1)
    # Recording was as slow as planned.
    own_bare, own_recorded = np.median(run.bare_ms), np.median(run.recorded_ms)
    assert own_recorded >= own_bare + 0.9 * OPS * us / 1000
    # The same steps by both clocks: the markers take a few µs.
    assert clock["recorded"].tolist() == [FIRST <= step <= LAST for step in clock["step"]]
    longer = (clock["duration_ms"].to_numpy() - run.own_ms)[: FIRST - 1]
    assert longer.min() >= 0
    assert np.median(longer) < 0.05 * own_bare
    assert overview["bare_step_time_reason"] == ""
    bare_ms = overview["bare_step_time_ms"]
    low, high = np.percentile(run.bare_ms, [10, 90])
    assert low <= bare_ms <= 1.05 * high
    slowest, fastest = np.percentile(run.recorded_ms, [90, 10]) / bare_ms
    slowdown = overview["recording_slowdown"]
    # Unknown where others used the machine so much that the bare steps changed meanwhile.
    assert slowdown is None or 0.95 * fastest <= slowdown <= 1.05 * slowest
    # Nearly all of a recorded step is the profiler's.
    assert overview["step_time_ms"] > 3 * bare_ms


def test_what_bounds_the_step_is_not_certain_where_nearly_all_of_it_is_the_profiler():
    overview = recorded(50).profile.overview
    [text] = [
        text
        for supports, text in overview["confidence_evidence"]
        if text.startswith("Recording makes a step") and not supports
    ]
    assert text.endswith("may be the largest part")
    assert overview["confidence"] != "high"


@pytest.mark.skipif(
    "gain_of_ms" not in frames.names("advice"), reason="gains are of recorded steps"
)
@pytest.mark.parametrize("us", [5, 50])
def test_no_gain_is_larger_than_the_step_that_it_is_of(us):
    run = recorded(us)
    gains = run.profile.advice[["gain_ms_per_step", "gain_of_ms"]].dropna()
    assert (gains["gain_ms_per_step"] <= gains["gain_of_ms"]).all()
    bare = run.profile.steps.bare.set_index("category")["bare_ms"]
    if bare.empty:
        # Others used the machine in each turn: gains are of recorded steps then.
        assert run.profile.overview["bare_parts_reason"]
        assert gains.empty
        return
    # The mean where others made some steps much longer, else the median.
    assert gains["gain_of_ms"].tolist() == pytest.approx([bare["step_time"]] * len(gains))

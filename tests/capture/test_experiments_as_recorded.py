"""A program that does other work when it runs again: nothing is measured of it, and it is said."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest

import nbprof
from nbprof.analysis.steps.bare import BareSteps
from nbprof.capture.experiments import as_recorded, engine, program, turn
from nbprof.capture.experiments.turn import Timing
from nbprof.capture.options import Options

BARE = BareSteps(steps=9, median_ms=10.0, low_ms=9.0, high_ms=11.0, mean_ms=10.0)


def of(compile_ms=(0.0, 0.0), counted=(True, True), bare=None):
    """What the recording of a program says."""
    steps = pd.DataFrame({"compile_ms": compile_ms, "counted": counted})
    return as_recorded.of_run(SimpleNamespace(steps=steps, bare_steps=bare or BareSteps()))


@pytest.mark.parametrize(
    ("recorded", "like", "unlike"),
    [
        (of(bare=BARE), [4.6, 10.0, 21.9], [4.4, 22.1]),
        # Without bare steps a profiler may have taken any part of the step.
        (of(), [0.001, 1e6], []),
        (of([80.0, 40.0]), [60.1, 1e6], [59.9]),
        (of([80.0, 40.0], [False, True]), [40.1], [39.9]),
        (of([math.nan, math.nan]), [0.001], []),
        (of([], []), [0.001], []),
        # Recorded steps compiled, and the others of the same run no longer.
        (of([80.0, 40.0], bare=BARE), [5.1, 10.0], [4.4]),
        # One in five of those compiles, too.
        (of([80.0, 40.0], bare=BareSteps(9, 5.0, 4.0, 6.0, mean_ms=30.0)), [15.1, 59.0], [5.0]),
        # A few steps that take long, and nothing that compiles.
        (of(bare=BareSteps(9, 5.0, 4.0, 6.0, mean_ms=30.0)), [2.1, 5.0, 59.0], [1.9, 61.0]),
    ],
)
def test_a_step_is_like_the_recorded_one_or_not(recorded, like, unlike):
    assert all(recorded.is_like(each) for each in like)
    assert not any(recorded.is_like(each) for each in unlike)


def test_how_it_differs_is_said():
    assert of([80.0, 40.0]).difference(2.0) == (
        "A recorded step compiled for 60.00 ms or more on average. Run again without any change, it"
        " takes 2.00 ms in all, for what the first run compiled is kept."
    )
    assert of(bare=BARE).difference(2.0) == (
        "A step took 9.00 ms without the profiler. Run again without any change, it takes 2.00 ms:"
        " what the first run compiled, read or stored may be kept."
    )
    assert of(bare=BARE).difference(30.0) == (
        "A step took 11.00 ms without the profiler. Run again without any change, it takes"
        " 30.00 ms: the machine may be busier now, its first steps may take longer than the others,"
        " or what it uses may have changed since."
    )


@pytest.mark.parametrize(
    ("times_ms", "turns"),
    [([10.0], 1), ([1.0, 50.0, 10.0], 3), ([1.0, 2.0, 3.0, 10.0], None)],
)
def test_one_of_three_turns_has_to_be_like_it(monkeypatch, times_ms, turns):
    left = list(times_ms)

    def run(program_, options, plan, change=None, observation=None):
        step_s = 1.0 if observation is not None else left.pop(0) / 1000
        return Timing(10 * step_s, 10, step_s, 2 * step_s, 12 * step_s, None)

    monkeypatch.setattr(turn, "run", run)
    runner = engine.Engine(
        program.of_call(print, (), {}), Options(), steps=20, units=20, budget_s=60.0,
        recorded=of(bare=BARE),
    )  # fmt: skip
    if turns is None:
        with pytest.raises(
            program.Refused, match=r"it takes 2\.00 ms: what the first run compiled"
        ):
            runner.run([])
    else:
        runner.run([])
        assert len(times_ms) - len(left) == turns


def test_a_function_of_jax_that_compiles_for_each_shape_is_not_tried():
    jax = pytest.importorskip("jax")

    def scaled(x):
        for _ in range(20):
            x = jax.numpy.tanh(x @ x.T) @ x
        return x.sum()

    compiled = jax.jit(scaled)
    sums = []

    def run():
        for size in range(1, 9):
            total = compiled(jax.numpy.ones((4, size)))
            total.block_until_ready()
            sums.append(float(total))

    with nbprof.profile(save=False) as recorded:
        run()
    before = list(sums)
    result = engine.try_remedies(
        lambda: program.of_call(run, (), {}),
        recorded.result,
        Options(save=False),
        "jax_no_waits",
        300.0,
    )
    assert result["rows"] == []
    assert result["text"].startswith(
        f"Nothing was tried: {engine.OTHER_RUN}. A recorded step compiled for "
    )
    assert sums == before
    # Where nothing compiles it is tried: the same program, recorded once more.
    with nbprof.profile(save=False) as recorded:
        run()
    result = engine.try_remedies(
        lambda: program.of_call(run, (), {}),
        recorded.result,
        Options(save=False),
        "jax_no_waits",
        300.0,
    )
    assert [row["experiment"] for row in result["rows"]] == ["jax_no_waits"], result
    assert result["rows"][0]["pairs"] >= engine.LEAST_PAIRS, result

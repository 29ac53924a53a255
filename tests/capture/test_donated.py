"""The experiment on donated arguments of functions of JAX."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from nbprof.capture.experiments import engine, program, register
from nbprof.capture.experiments.source import Source
from nbprof.capture.options import Options

DELETED = "NBPROF_TEST_DELETED"
"""An environment variable, which is not given back: how many arrays were gone after a call."""


@pytest.fixture(autouse=True)
def few_turns(monkeypatch):
    monkeypatch.setattr(engine, "MOST_PAIRS", engine.LEAST_PAIRS)
    monkeypatch.setattr(engine, "ALL_PAIRS", engine.LEAST_PAIRS)
    monkeypatch.setenv(DELETED, "0")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def tried(function, *args):
    runner = engine.Engine(
        program.of_call(function, args, {}), Options(save=False), steps=0, units=8, budget_s=300.0
    )
    runner.run([(each, "") for each in register.EXPERIMENTS if each.name == "jax_donate"])
    return runner.tried[0]


def note(array):
    os.environ[DELETED] = str(int(os.environ[DELETED]) + array.is_deleted())


def update(state, rate, x):
    return {"w": state["w"] - rate * x, "n": state["n"] + 1}, (state["w"] * x).sum()


@pytest.mark.parametrize("where", ["before", "in the program"])
def test_the_state_of_a_loop_is_donated(jax, where):
    jnp = jax.numpy
    held = [{"w": jnp.zeros(8), "n": jnp.zeros(())}]
    x = jnp.arange(8.0)
    before = jax.jit(update, static_argnums=(1,))

    def run():
        step = before if where == "before" else jax.jit(update, static_argnums=(1,))
        for _ in range(8):
            last = held[0]
            held[0], loss = step(last, 0.5, x)
            note(last["w"])
            last = None
        loss.block_until_ready()

    run()
    values = np.asarray(held[0]["w"])
    jit = jax.jit
    result = tried(run)
    assert (result.equal, result.pairs) == (True, engine.LEAST_PAIRS), result
    # The first call of a turn is as it is.
    assert int(os.environ[DELETED]) == 7 * (1 + engine.LEAST_PAIRS)
    # Nothing remains changed.
    assert np.array_equal(np.asarray(held[0]["w"]), values)
    assert not x.is_deleted()
    assert jax.jit is jit
    run()
    assert int(os.environ[DELETED]) == 7 * (1 + engine.LEAST_PAIRS)
    assert before._cache_size() <= 1


def test_what_a_variable_still_holds_is_named(jax):
    jnp = jax.numpy
    start = {"w": jnp.zeros(8), "n": jnp.zeros(())}
    x = jnp.arange(8.0)
    step = jax.jit(update, static_argnums=(1,))
    kept = []

    def run():
        state = start
        for _ in range(8):
            state, _ = step(state, 0.5, x)
            kept.append(state["n"])
        kept.clear()
        kept.append(state["n"])
        state, _ = step(state, 0.5, x)

    run()
    assert tried(run).why == "could not be tried: a list, kept would hold arrays that are gone"


def test_a_program_that_needs_its_arguments_again_fails_and_goes_on(jax):
    jnp = jax.numpy
    x = jnp.arange(8.0)
    step = jax.jit(lambda w: w - x)

    def run():
        w = jnp.zeros(8)
        for _ in range(8):
            before, w = w, step(w)
            float((w - before).sum())

    run()
    result = tried(run)
    assert result.why.startswith("could not be tried: it failed: ")
    assert "deleted" in result.why
    run()


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, None])
def test_a_function_that_donates_or_carries_nothing_is_not_tried(jax, options):
    x = jax.numpy.arange(8.0)
    step = jax.jit(lambda w: w - x, **options or {})

    def run():
        w = jax.numpy.zeros(8)
        for _ in range(8):
            w = step(w) if options else step(x)
        w.block_until_ready()

    run()
    result = tried(run)
    assert (
        result.why
        == "not tried: no function of jax.jit takes the arrays that it returned before, or it donates them"
    )


def test_a_function_within_another_is_left_alone(jax):
    inner = jax.jit(lambda w: w * 2)

    def outer(w):
        for _ in range(3):
            w = inner(w)
        return w

    step = jax.jit(outer)

    def run():
        for _ in range(8):
            step(jax.numpy.ones(8)).block_until_ready()

    run()
    result = tried(run)
    assert (
        result.why
        == "not tried: no function of jax.jit takes the arrays that it returned before, or it donates them"
    )


def test_the_call_of_the_cell_donates(jax):
    experiment = next(each for each in register.EXPERIMENTS if each.name == "jax_donate")

    def of(text, positions=(0, 2)):
        namespace = {"jax": jax, "update": update}
        observed = [SimpleNamespace(carried={update.__code__: set(positions)})]
        place = experiment.edit(Source(text, namespace), observed)
        return None if place is None else place.source.changed(place.edits)

    changed = of("step = jax.jit(update, static_argnums=1)\nstep(1)")
    assert changed == "step = jax.jit(update, static_argnums=1, donate_argnums=(0, 2))\nstep(1)"
    assert of("step = jax.jit(lambda w: w)") is None
    assert of("step, other = jax.jit(update), jax.jit(update)") is None

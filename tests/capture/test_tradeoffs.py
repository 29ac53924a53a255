"""Experiments that leave out validation and callbacks: what they cost, whatever the machine does.

Turns are timed by what the program counted: a step has 2 ms, and each thing beside it 10 ms.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from nbprof.capture.experiments import engine, keras_callbacks, program, register, turn
from nbprof.capture.options import Options

COUNT = "NBPROF_TEST_COUNT"
"""An environment variable, which is not given back: how often it ran that is left out."""
STEP_S, OTHER_S = 0.002, 0.010


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Turns that take as long as what ran in them."""
    monkeypatch.setenv(COUNT, "0")
    run = turn.run
    plans = []

    def timed(made, options, plan, change=None, observation=None):
        before = int(os.environ[COUNT])
        timing = run(made, options, plan, change, observation)
        plans.append(plan)
        counted = int(os.environ[COUNT]) - before
        seconds = timing.steps * STEP_S + counted * OTHER_S
        return replace(timing, seconds=seconds, total_s=seconds)

    monkeypatch.setattr(turn, "run", timed)
    return plans


def count():
    os.environ[COUNT] = str(int(os.environ[COUNT]) + 1)


def tried(function, name, steps, budget_s=3000.0):
    runner = engine.Engine(
        program.of_call(function, (), {}), Options(save=False), steps=steps, units=steps, budget_s=budget_s
    )  # fmt: skip
    runner.run([(each, "") for each in register.EXPERIMENTS if each.name == name])
    return runner.tried[0]


def test_passes_without_gradients_run_once():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []

    def hook(module, *_):
        if not torch.is_grad_enabled():
            count()

    model.register_forward_hook(hook)

    def run():
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            with torch.no_grad():
                # What is done with the result stays, also in place.
                seen.append(model(torch.ones(3, 4)).add_(1.0).shape)

    run()
    seen.clear()
    os.environ[COUNT] = "0"
    result = tried(run, "no_validation", 12)
    assert result.pairs == engine.LEAST_PAIRS, result.why
    # In the ten steps of a turn, one pass remains; the turn also warms up.
    saved = OTHER_S * 1000 * (12 - 1 - 1) / 10
    assert result.gain_ms == pytest.approx(saved, rel=0.11)
    assert (result.recommended, result.equal) == (False, None)
    assert "% less time; where these passes only validate, run them less often" in result.why
    assert seen == []


def test_a_model_that_always_has_gradients_is_not_validated():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 4)
    other = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def run():
        for _ in range(12):
            with torch.no_grad():
                target = other(torch.ones(2, 4))
            (model(torch.ones(2, 4)) - target).sum().backward()
            optimizer.step()

    run()
    assert tried(run, "no_validation", 12).why.startswith("not tried: no model that is trained")


@pytest.fixture
def keras():
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    return pytest.importorskip("keras")


@pytest.fixture
def fit(keras):
    """A function that fits a model for epochs of six steps, with callbacks and validation."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((12, 4), np.float32), np.ones((12, 1), np.float32)

    class Held(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, at):
            return x[:2], y[:2]

    class Validated(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            count()

    def make(epochs=4, callbacks=(), validates=False, **more):
        def run():
            data = Held() if validates else None
            # By position, as some write it.
            model.fit(x, y, 2, epochs, 0, [*callbacks, Validated()], 0.0, data, **more)

        run()
        os.environ[COUNT] = "0"
        return run

    make.model = model
    return make


def test_callbacks_that_do_not_train_are_left_out(keras, fit, counted):
    class Log(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch % 3 == 2:
                count()

    class Rates(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            count()

    import nbprof.keras

    own = nbprof.keras.Callback()
    assert keras_callbacks._left_out([own, log := Log()]) == [log]
    rate = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    run = fit(callbacks=[Log(), rate, Rates()])
    lists = keras.src.callbacks.callback_list.CallbackList
    before = dict(vars(lists))
    result = tried(run, "keras_no_callbacks", 24)
    assert result.pairs == engine.LEAST_PAIRS, result.why
    assert counted[-1] == turn.Plan(2, 18, "train")
    # Twice in an epoch of six steps, and once at its end.
    assert result.gain_ms == pytest.approx(1000 * OTHER_S * 3 / 6, rel=0.15)
    assert result.baseline_ms == pytest.approx(1000 * (STEP_S + OTHER_S * 3 / 6), rel=0.15)
    assert (result.recommended, result.equal) == (False, None)
    assert "% less time; run them less often" in result.why
    assert dict(vars(lists)) == before


@pytest.mark.parametrize(
    ("name", "made", "why"),
    [
        ("keras_no_validation", {}, "no fit of Keras has validation_data"),
        (
            "keras_no_validation",
            {"epochs": 1, "validates": True},
            "the fit validates at its end at most",
        ),
        (
            "keras_no_validation",
            {"epochs": 4, "validates": True, "initial_epoch": 3},
            "the fit validates at its end at most",
        ),
        (
            "keras_no_validation",
            {"epochs": 2, "validates": True, "validation_freq": 2},
            "the fit validates at its end at most",
        ),
        (
            "keras_no_validation",
            {"validates": True, "validation_freq": [1, 3]},
            "validation_freq is a list of epochs",
        ),
    ],
)
def test_what_is_not_there_is_not_tried(fit, name, made, why):
    run = fit(**made)
    assert tried(run, name, 6 * made.get("epochs", 4)).why == f"not tried: {why}"


def test_a_callback_at_the_end_of_the_only_epoch_is_not_tried(keras, fit):
    class Saved(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            count()

    result = tried(fit(epochs=1, callbacks=[Saved()]), "keras_no_callbacks", 6)
    assert result.why == "not tried: the callbacks run once, after the only epoch"


def test_validation_is_left_out_in_whole_epochs(keras, fit, counted):
    run = fit(validates=True)
    weights = [weight.copy() for weight in fit.model.get_weights()]
    before = dict(vars(keras.Model))
    # Batches of the validation are steps of the recording, too.
    result = tried(run, "keras_no_validation", 4 * (6 + 3))
    assert result.pairs == engine.LEAST_PAIRS, result.why
    assert counted[-1] == turn.Plan(2, 18, "train")
    assert result.gain_ms == pytest.approx(1000 * OTHER_S * 3 / 6)
    assert result.baseline_ms == pytest.approx(1000 * (STEP_S + OTHER_S * 3 / 6))
    assert not result.recommended
    assert "% less time; validate less often" in result.why
    assert dict(vars(keras.Model)) == before
    for old, new in zip(weights, fit.model.get_weights(), strict=True):
        assert np.array_equal(old, new)


def test_validation_after_every_other_epoch_is_in_a_turn(fit, counted):
    run = fit(epochs=5, validates=True, validation_freq=2)
    result = tried(run, "keras_no_validation", 5 * 6 + 2 * 3)
    assert counted[-1] == turn.Plan(2, 24, "train")
    assert result.gain_ms == pytest.approx(1000 * OTHER_S * 3 / 12)


def test_an_epoch_that_takes_too_long_names_a_budget_that_is_enough(fit):
    run = fit(validates=True)
    result = tried(run, "keras_no_validation", 24, budget_s=0.25)
    assert "6 turns of an epoch do not fit into the time; --budget" in result.why

"""Memory by role of a real Keras model on the CPU, whose bytes are known by arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from nbprof.capture import tensorflow_variables
from nbprof.core.memory_roles import IN_USE
from nbprof.profiles.load import open_recording
from tests.support.profiles import imported

BATCH, STEPS = 256, 4
INPUTS, HIDDEN, OUTPUTS = 512, 1024, 512
KERNEL = 4 * INPUTS * HIDDEN
LEAST = 1 << 18
"""TensorFlow's allocator on the CPU records larger blocks only."""


@pytest.fixture
def tf():
    return imported("tensorflow")


@pytest.fixture(autouse=True)
def of_this_test_alone(monkeypatch, tf):
    """Models that other tests of this process have left are not those of the program."""
    live = tensorflow_variables._live
    others = [variable for _, variable in live(tf)]
    known = {id(variable) for variable in others}
    monkeypatch.setattr(
        tensorflow_variables,
        "_live",
        lambda tf: [(role, each) for role, each in live(tf) if id(each) not in known],
    )
    yield
    del others


@pytest.fixture
def train(tf):
    """A function that trains a model of known size for some steps."""
    import keras

    layers = keras.layers

    def build(optimizer):
        model = keras.Sequential(
            [
                layers.Input((INPUTS,)),
                layers.Dense(HIDDEN, activation="relu"),
                layers.Dense(OUTPUTS),
            ]
        )
        model.compile(optimizer, "mse")
        x = np.ones((BATCH * STEPS, INPUTS), np.float32)
        y = np.zeros((BATCH * STEPS, OUTPUTS), np.float32)

        def fit():
            model.fit(x, y, batch_size=BATCH, verbose=0)

        fit()
        return fit

    return build


def checked(p):
    """The roles over time, after what holds for any."""
    rows, timeline = p.memory.roles_over_time, p.memory.timeline
    if not len(timeline):
        pytest.skip("this build of TensorFlow records no allocations on the CPU")
    used = rows[[f"{role.lower().replace(' ', '_')}_bytes" for role in IN_USE]]
    assert used.sum(axis=1).tolist() == timeline["in_use_bytes"].tolist()
    assert (used >= 0).all(axis=None)
    assert p.memory.roles["bytes"].sum() == p.memory.summary["peak_bytes"].iloc[0]
    return rows


@pytest.mark.parametrize(("optimizer", "kernels"), [("sgd", 0), ("adam", 4)])
def test_what_a_model_takes(record, train, optimizer, kernels):
    rows = checked(open_recording(record(train(optimizer))))
    # What is in use since before the recording has the bytes of the variables.
    assert set(rows["optimizer_state_bytes"]) == {kernels * KERNEL}
    # Blocks are rounded up, and both of a variable count while one replaces the other.
    assert 2 * KERNEL <= rows["parameters_bytes"].iloc[-1] < 4 * KERNEL
    assert KERNEL <= rows["gradients_bytes"].max() < 4 * KERNEL
    # The result of ReLU, which the second layer's gradient needs.
    assert 4 * BATCH * HIDDEN <= rows["activations_bytes"].max() < 8 * BATCH * (HIDDEN + OUTPUTS)
    assert rows["inputs_bytes"].max() >= 4 * BATCH * INPUTS


def test_small_variables_have_no_address_on_the_cpu(tf):
    variable = tf.Variable(tf.ones(LEAST // 4 - 1))
    assert tensorflow_variables._storage_of(tf, variable) is None
    variable = tf.Variable(tf.ones(LEAST // 4))
    assert tensorflow_variables._storage_of(tf, variable) is not None


def test_variables_that_are_copied_when_read_have_no_address(tf):
    variable = tf.Variable(tf.ones((LEAST, 4)))
    found = tensorflow_variables._storage_of(tf, variable)
    assert found is not None
    assert (found.family, found.ordinal, found.size) == ("cpu", 0, 16 * LEAST)
    assert found == tensorflow_variables._storage_of(tf, variable)
    variable.scatter_sub(tf.IndexedSlices(tf.ones((1, 4)), tf.constant([0])))
    assert tensorflow_variables._storage_of(tf, variable) is None


def test_roles_of_variables_by_their_owners(tf):
    import keras

    layer = keras.layers.Dense(3)
    layer.build((None, 2))
    norm = keras.layers.BatchNormalization()
    norm.build((None, 3))
    layer.trainable = False
    optimizer = keras.optimizers.Adam()
    optimizer.build(norm.trainable_variables)
    roles = {id(each.value): role for role, each in tensorflow_variables._live(tf)}
    assert {roles[id(each.value)] for each in layer.variables} == {"parameters"}
    assert roles[id(norm.gamma.value)] == "parameters"
    assert roles[id(norm.moving_mean.value)] == "buffers"
    assert roles[id(optimizer.variables[-1].value)] == "optimizer state"


@pytest.mark.parametrize("memory", [True, False])
def test_variables_are_named_where_memory_is_recorded(record, train, monkeypatch, memory):
    calls = []
    monkeypatch.setattr(tensorflow_variables, "add", lambda *args: calls.append(args))
    record(train("sgd"), memory=memory)
    assert bool(calls) == memory

"""A tiny Keras model whose input is slow, and recordings of it."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.profiles import imported

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session")
def tf():
    return imported("tensorflow")


@pytest.fixture(scope="session")
def torch():
    return imported("torch")


@pytest.fixture(scope="session")
def jax():
    return imported("jax")


@pytest.fixture(scope="session")
def model(tf):
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def batches(tf, wait_s):
    """Eight batches, each of which takes so many seconds to come."""

    def rows():
        for _ in range(8):
            time.sleep(wait_s)
            yield [[1.0] * 4] * 8, [[1.0]] * 8

    shapes = (tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1)))
    data = tf.data.Dataset.from_generator(rows, output_signature=shapes)
    return data.apply(tf.data.experimental.assert_cardinality(8))


@pytest.fixture(scope="session")
def data(tf):
    """Eight batches, each of which takes 10 ms to come."""
    return batches(tf, 0.01)


@pytest.fixture(scope="session")
def slow_data(tf):
    """Eight batches, each of which takes 80 ms to come, in which a busy machine has ended the step
    before.
    """
    return batches(tf, 0.08)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def profile():
    """Open a recording."""
    from nbprof.profiles.load import open_recording

    return open_recording


@pytest.fixture
def record(place):
    """Record a function and give the recording."""
    from nbprof.capture.options import Options
    from nbprof.capture.session import Session

    def record(function, source="import tensorflow", **options):
        session = Session(Options(**options), source=source).start()
        error = None
        try:
            function()
        except Exception as caught:
            error = caught
        recording = session.stop(error)
        assert recording is not None, session.failure
        return recording

    return record


@pytest.fixture
def markers():
    """The events named after steps: name, number, whether a root, and the numbers of
    IteratorGetNext that begin in each.
    """
    from nbprof.profiles.load import open_recording

    def markers(recording, kinds=("train", "test", "predict", "mine")):
        trace = open_recording(recording).run.trace
        names = trace.names[trace.events.name]
        roots, numbers = trace.arg("_r"), trace.arg("step_num")
        waits = [
            trace.events.start[i]
            for i, name in enumerate(names)
            if name == "IteratorGetNextOp::DoCompute"
        ]
        found = []
        for i, name in enumerate(names):
            if name in kinds:
                start, end = trace.events.start[i], trace.events.end[i]
                found.append(
                    (
                        start,
                        name,
                        int(numbers[i]),
                        roots[i] == 1,
                        sum(start <= wait < end for wait in waits),
                    )
                )
        return [row[1:] for row in sorted(found)]

    return markers

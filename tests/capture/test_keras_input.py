"""The batches of a loop of Keras are input, whatever gives them, on a backend that does not record
that itself.
"""

from __future__ import annotations

import json

import pytest

from tests.support.profiles import require
from tests.support.programs import run

PROGRAM = """
import gc, json, sys, time, weakref
import numpy as np
import keras
import nbprof

WAIT = 0.03

def batch():
    time.sleep(WAIT)
    return np.ones((16, 4), "float32"), np.zeros(16, "float32")

class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return batch()

class Slower(Slow):
    def __len__(self):
        return 30
    def __getitem__(self, index):
        time.sleep(2 * WAIT)
        return batch()

def generator():
    for _ in range(12):
        yield batch()

def failing():
    for index in range(4):
        yield batch()
    raise OSError("the disk is gone")

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
found = {}

def recorded(name, data, loop=None):
    with nbprof.profile() as p:
        try:
            (loop or (lambda data: model.fit(data, verbose=0)))(data)
        except OSError as error:
            found[name + " failed"] = str(error)
            p_error = error.__traceback__
    frame = p.steps.frame
    found[name] = {
        "steps": len(frame),
        "input": frame["input_ms"].tolist(),
        "ops": p.input_pipeline.frame["op"].tolist(),
        "missing": p.run.missing.get("input", ""),
        "findings": p.advice["rule"].tolist(),
    }

recorded("dataset", Slow())
recorded("workers", Slower(workers=2))
recorded("generator", generator())
recorded("evaluate", Slow(), lambda data: model.evaluate(data, verbose=0))
recorded("failing", failing())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    require("keras", "jax")
    done = run(PROGRAM, needs="jax", cwd=tmp_path_factory.mktemp("keras"), KERAS_BACKEND="jax")
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["dataset", "generator", "evaluate"])
def test_the_wait_for_a_batch_is_input(found, kind):
    seen = found[kind]
    assert seen["steps"] == 12
    # Each batch sleeps for 30 ms; Keras may have taken two before the loop, for the shapes of the
    # model.
    assert all(ms > 25 for ms in seen["input"][2:]), seen["input"]
    assert seen["ops"] == ["Keras: next batch"]
    assert (
        seen["missing"]
        == "The input of the Keras loop does not come from tf.data: see the input pipeline."
    )


def test_the_wait_for_workers_is_input(found):
    seen = found["workers"]
    assert seen["steps"] == 30
    # Two workers take 90 ms a batch each, and ten batches were ready at the end of the compilation.
    assert sum(seen["input"]) > 200
    assert "periodic" not in seen["findings"]


def test_an_error_of_the_input_is_the_persons(found):
    assert found["failing failed"] == "the disk is gone"
    assert found["failing"]["steps"] == 4

"""What a recording knows of the Python functions and generators that tf.data calls."""

from __future__ import annotations

import json

import pytest

from tests.support.profiles import require
from tests.support.programs import run

DATA = """
import time
import numpy as np
import tensorflow as tf

def decode(value):
    time.sleep(0.03)
    return np.float32(value)

class Augment:
    def __call__(self, value):
        time.sleep(0.03)
        return np.float32(value)

def images():
    for index in range(24):
        time.sleep(0.03)
        yield np.full(4, index, "float32")

def small(value):
    return np.float32(value)

def loss(value):
    time.sleep(0.002)
    return np.float32(value)

def failing(value):
    raise OSError("the disk is gone")

SPEC = tf.TensorSpec((4,), tf.float32)
DATASETS = {
    "numpy": tf.data.Dataset.range(24).map(lambda i: tf.numpy_function(decode, [i], tf.float32)),
    "eager": tf.data.Dataset.range(24).map(lambda i: tf.py_function(decode, [i], tf.float32)),
    "object": tf.data.Dataset.range(24).map(
        lambda i: tf.numpy_function(Augment(), [i], tf.float32)
    ),
    "parallel": tf.data.Dataset.range(30).map(
        lambda i: tf.numpy_function(decode, [i], tf.float32), num_parallel_calls=2
    ),
    "generator": tf.data.Dataset.from_generator(images, output_signature=SPEC),
    "small": tf.data.Dataset.range(400).map(
        lambda i: tf.numpy_function(small, [i], tf.float32)
    ),
    "plain": tf.data.Dataset.range(24).map(lambda i: tf.cast(i, tf.float32)),
    "failing": tf.data.Dataset.range(4).map(
        lambda i: tf.numpy_function(failing, [i], tf.float32)
    ),
}
"""
PROGRAM = """
import json, threading
import nbprof
from data import *
from tensorflow.python.ops import script_ops

before = vars(script_ops.FuncRegistry)["__call__"]
functions = dict(script_ops._py_funcs._funcs)

@tf.function
def step(value):
    return tf.reduce_sum(tf.ones((8, 8)) * value) + tf.numpy_function(loss, [1.0], tf.float32)

def python_ops(activity):
    ops = activity.host_ops
    calls = activity.types.values[ops.type] == "PyFunc"
    return [int((calls & ops.in_dataset).sum()), int((calls & ~ops.in_dataset).sum())]

step(tf.constant(1.0))
found = {}
for name, dataset in DATASETS.items():
    error, values = "", []
    with nbprof.profile() as p:
        try:
            for value in nbprof.steps(dataset):
                values.append(float(tf.reduce_sum(value)))
                # Rarely: the input stays slower than the steps, however busy the machine is.
                if name != "small" and not len(values) % 4:
                    step(tf.reduce_sum(value))
        except Exception as problem:
            error = type(problem).__name__ + ": " + str(problem)
    found[name] = {
        "stages": json.loads(p.input_pipeline.transforms.to_json(orient="records")),
        "workers": len(p.input_pipeline.workers),
        "advice": json.loads(p.advice.to_json(orient="records")),
        "error": error,
        "values": sum(values),
        "python_ops": python_ops(p.run.activity),
    }
found["left"] = [
    vars(script_ops.FuncRegistry)["__call__"] is not before,
    any(script_ops._py_funcs.get(token) is not each for token, each in functions.items()),
    any("nbprof-loader" in each.name for each in threading.enumerate()),
]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    require("tensorflow")
    folder = tmp_path_factory.mktemp("a folder")
    (folder / "data.py").write_text(DATA, encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{PROGRAM}"
    done = run(code, needs="tensorflow", cwd=folder)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def line_of(text, after=""):
    lines = DATA.splitlines()
    begin = next(number for number, line in enumerate(lines) if after in line)
    return next(
        number for number, line in enumerate(lines, 1) if number > begin and line.strip() == text
    )


@pytest.mark.parametrize(
    ("kind", "name", "code", "calls"),
    [
        ("numpy", "decode", "def decode(value):", 24),
        ("eager", "decode", "def decode(value):", 24),
        ("object", "Augment", "def __call__(self, value):", 24),
        ("parallel", "decode", "def decode(value):", 30),
        # The last call ends the generator.
        ("generator", "images", "def images():", 25),
    ],
)
def test_what_tf_data_calls(found, kind, name, code, calls):
    """A dataset that was made before the recording; what the steps call is no input."""
    seen = found[kind]
    (stage,) = seen["stages"]
    assert stage["loader"] == "tf.data"
    assert stage["kind"] == ("generator" if kind == "generator" else "function")
    assert stage["stage"] == name
    assert stage["where"].endswith(f"/data.py:{line_of(code)}")
    assert stage["calls"] == calls
    assert stage["per_call_ms"] >= 28.5
    assert stage["per_item_ms"] is None
    assert stage["percent"] is None
    assert not seen["workers"]
    inside = line_of("time.sleep(0.03)", code)
    assert f"data.py:{inside}" in stage["inside"]
    naming = [row for row in seen["advice"] if f"**{name}** (data.py:" in row["evidence"]]
    # One cause has one finding.
    assert len(naming) == 1
    assert naming[0]["rule"] in ("map_serial", "input_bottleneck")
    assert f"**{name}** (data.py:{line_of(code)})" in naming[0]["evidence"]
    assert f"(data.py:{inside})" in naming[0]["evidence"]
    assert ("GIL" in naming[0]["evidence"]) is True


@pytest.mark.parametrize(
    ("kind", "calls", "steps"), [("numpy", 24, 6), ("parallel", 30, 7), ("plain", 0, 6)]
)
def test_ops_of_input_functions_are_no_ops_of_the_steps(found, kind, calls, steps):
    """They run on threads of a pool, as those of the steps do, while a step computes."""
    assert found[kind]["python_ops"] == [calls, steps]


def test_of_short_calls_only_some_are_timed_and_all_are_counted(found):
    (stage,) = found["small"]["stages"]
    assert stage["stage"] == "small"
    assert stage["calls"] == 400
    assert found["small"]["values"] == sum(range(400))


def test_no_python_where_tf_data_calls_none(found):
    assert not found["plain"]["stages"]
    assert not any("calls Python" in row["evidence"] for row in found["plain"]["advice"])


def test_an_error_passes_through(found):
    assert "the disk is gone" in found["failing"]["error"]


def test_nothing_is_left(found):
    assert found["left"] == [False, False, False]

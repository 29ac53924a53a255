"""What a recording knows of the batches of a PyDataset of Keras, in the loop, in its threads and in
its processes, and that they stay as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.profiles import require
from tests.support.programs import run

ROOT = Path(__file__).resolve().parents[2]
DATA = """
import time
import numpy as np
import keras

class Decode:
    def __call__(self, value):
        time.sleep(0.02)
        return value

def flip(value):
    return value[::-1]

class Images(keras.utils.PyDataset):
    def __init__(self, count=12, decode=None, **options):
        super().__init__(**options)
        self.count, self.transforms = count, [decode or Decode(), flip]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        value = np.full((16, 4), index, "float32")
        for transform in self.transforms:
            value = transform(value)
        return value, np.zeros(16, "float32")
"""
PROGRAM = """
import gc, json, random, sys, threading, weakref
import nbprof
from nbprof.capture import notes
from data import *

adapters = sys.modules["keras.src.trainers.data_adapters.py_dataset_adapter"]
watched = [
    (Images, "__getitem__"),
    (Decode, "__call__"),
    (adapters, "get_index"),
    (adapters, "get_pool_class"),
    (adapters.PyDatasetAdapter, "__init__"),
    (adapters.OrderedEnqueuer, "_run"),
]
before = [vars(owner)[name] for owner, name in watched]

def model():
    made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", run_eagerly=False)
    return made

found = {}

def recorded(name, data, **options):
    trained = model()
    error = ""
    with nbprof.profile() as p:
        try:
            trained.fit(data, verbose=0, **options)
        except Exception as problem:
            error = type(problem).__name__ + ": " + str(problem)[:200]
    stages = p.input_pipeline.transforms
    left = [n for (o, n), value in zip(watched, before) if vars(o)[n] is not value]
    found[name] = {
        "workers": json.loads(p.input_pipeline.workers.to_json(orient="records")),
        "stages": json.loads(stages.to_json(orient="records")),
        "advice": json.loads(p.advice.to_json(orient="records")),
        "left": left,
        "error": error,
        "functions": [type(each).__name__ for each in getattr(data, "transforms", [])],
        "threads": [each.name for each in threading.enumerate() if "nbprof-loader" in each.name],
    }
"""
RUNS = """
class Fast(Images):
    def __getitem__(self, index):
        return np.ones((16, 4), "float32"), np.zeros(16, "float32")

class Failing(Images):
    def __getitem__(self, index):
        if index == 5:
            raise OSError("the disk is gone")
        return super().__getitem__(index)

recorded("loop", Images(), epochs=2)
recorded("threads", Images(count=24, workers=2), epochs=2)
if "fork" in __import__("multiprocessing").get_all_start_methods():
    __import__("multiprocessing").set_start_method("fork", force=True)
    recorded("processes", Images(count=24, workers=2, use_multiprocessing=True), epochs=2)
recorded("fast", Fast(count=100))
for name, options in (("loop", {}), ("threads", {"workers": 2})):
    recorded("failing " + name, Failing(**options))

kept = Images(count=3)
gone = weakref.ref(kept)
with nbprof.profile() as p:
    model().fit(kept, verbose=0)
    del kept
    keras.backend.clear_session()
    gc.collect()
    found["alive"] = gone() is not None
with_none = Images(count=3)
gone = weakref.ref(with_none)
model().fit(with_none, verbose=0)
del with_none
keras.backend.clear_session()
gc.collect()
found["alive without"] = gone() is not None

def order(seed, data):
    seen = []
    class Seen(Fast):
        def __getitem__(self, index):
            seen.append((index, random.random()))
            return super().__getitem__(index)
    random.seed(seed)
    model().fit(Seen(count=8), verbose=0, shuffle=True)
    return seen

with nbprof.profile() as p:
    during = order(3, None)
found["order"] = during == order(3, None)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    require("keras", "tensorflow")
    folder = tmp_path_factory.mktemp("a folder")
    (folder / "data.py").write_text(DATA, encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{PROGRAM}\n{RUNS}"
    done = run(code, needs="tensorflow", cwd=folder, KERAS_BACKEND="tensorflow")
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def line_of(text):
    return next(number for number, line in enumerate(DATA.splitlines(), 1) if line.strip() == text)


def workers_of(seen):
    return {row["worker"]: row["batches"] for row in seen["workers"]}


def check_stages(seen):
    """The planted transform has nearly all of the time, at its line."""
    stages = {row["stage"]: row for row in seen["stages"]}
    assert set(stages) == {"Images", "Decode", "flip"}
    decode = stages["Decode"]
    assert seen["stages"][0] == decode
    assert decode["percent"] > 50
    assert decode["per_call_ms"] >= 20
    assert decode["per_item_ms"] is None
    where = {name: row["where"].rpartition("/")[2] for name, row in stages.items()}
    assert where["Decode"] == f"data.py:{line_of('def __call__(self, value):')}"
    assert where["flip"] == f"data.py:{line_of('def flip(value):')}"
    assert where["Images"] == f"data.py:{line_of('def __getitem__(self, index):')}"
    assert f"data.py:{line_of('time.sleep(0.02)')}" in decode["inside"]
    # Each is of one kind of work: no item is counted where only batches are known.
    assert {row["items"] for row in seen["workers"] if row["batches"]} == {None}
    assert not seen["left"]
    assert not seen["threads"]
    assert seen["functions"] == ["Decode", "function"]


def naming(seen):
    """Findings that name the planted transform and its line."""
    place = f"(data.py:{line_of('def __call__(self, value):')})"
    return [
        row
        for row in seen["advice"]
        if f"**Decode** {place}" in row["evidence"] and "per batch" in row["evidence"]
    ]


def test_batches_that_the_loop_makes(found):
    seen = found["loop"]
    check_stages(seen)
    (workers,) = seen["workers"]
    assert workers["worker"] == "main process"
    # Of each epoch, and those that tell Keras the shapes.
    assert 24 <= workers["batches"] <= 28
    assert workers["restarts"] == 0
    (finding,) = naming(seen)
    assert "The batches come from the PyDataset of **Images**." in finding["evidence"]
    assert f"(data.py:{line_of('time.sleep(0.02)')})" in finding["evidence"]


def test_batches_that_threads_make(found):
    seen = found["threads"]
    check_stages(seen)
    batches = workers_of(seen)
    batches.pop("main process", None)
    assert set(batches) == {"thread 0", "thread 1"}
    assert sum(batches.values()) == 48
    assert all(row["restarts"] == 0 for row in seen["workers"])
    # How many threads keep up depends on the GIL: unknown.
    assert not any("would keep up" in row["evidence"] for row in seen["advice"])


def test_batches_that_processes_make(found):
    if "processes" not in found:
        pytest.skip("this system does not fork")
    seen = found["processes"]
    check_stages(seen)
    batches = workers_of(seen)
    batches.pop("main process", None)
    # On a busy machine one may start too late to make any.
    assert set(batches) <= {"0", "1"}
    assert sum(batches.values()) == 48
    processes = [row for row in seen["workers"] if row["worker"] != "main process"]
    # A pool of each epoch.
    assert max(row["restarts"] for row in processes) == 1
    assert all(row["pickled_bytes"] >= row["batches"] * 16 * 4 * 4 for row in processes)
    assert all(row["start_ms"] > 0 for row in processes)
    assert not any("Load batches in worker processes" in row["title"] for row in seen["advice"])


@pytest.mark.parametrize("kind", ["loop", "threads", "processes"])
def test_a_cause_has_one_finding(found, kind):
    if kind not in found:
        pytest.skip("this system does not fork")
    assert len(naming(found[kind])) <= 1
    assert not [row for row in found[kind]["advice"] if row["rule"] == "prefetch_missing"]


def test_no_stage_is_named_where_batches_take_no_time(found):
    seen = found["fast"]
    assert not any("per batch" in row["evidence"] for row in seen["advice"])
    assert sum(row["batches"] for row in seen["workers"]) >= 100


@pytest.mark.parametrize("kind", ["loop", "threads"])
def test_an_error_passes_through(found, kind):
    seen = found[f"failing {kind}"]
    assert "the disk is gone" in seen["error"]
    assert not seen["left"]


def test_a_dataset_lives_no_longer_and_its_order_stays(found):
    assert found["alive"] == found["alive without"]
    assert found["order"]


SPAWNED = """
if __name__ == "__main__":
    __import__("multiprocessing").set_start_method(sys.argv[1])
    recorded("processes", Images(count=16, workers=2, use_multiprocessing=True))
    print(json.dumps(found))
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_inherit_nothing(method, tmp_path):
    require("keras", "tensorflow")
    if method not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip("this system does not know it")
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "data.py").write_text(DATA, encoding="utf-8")
    (folder / "train.py").write_text(PROGRAM + SPAWNED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py", method],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
    )
    assert not done.returncode, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])["processes"]
    check_stages(seen)
    batches = workers_of(seen)
    batches.pop("main process", None)
    assert sum(batches.values()) == 16
    assert set(batches) <= {"0", "1"}

"""What a recording knows of the batches of a loader of grain, in the loop, in its threads and in its
processes, and that they stay as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.profiles import require

ROOT = Path(__file__).resolve().parents[2]
DECODE_MS, BATCH, BATCHES = 5, 4, 8
DATA = f"""
import time
import grain
import numpy as np

class Images:
    def __init__(self, count={BATCH * BATCHES}):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return np.full(4, index, "float32")

class Decode(grain.transforms.Map):
    def map(self, element):
        time.sleep({DECODE_MS / 1e3})
        return element

class Noise(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return element + np.float32(rng.random())

def scale(element):
    return element / 2

def stack(elements):
    return np.stack(elements)

def failing(element):
    if element[0] == 9:
        raise OSError("the disk is gone")
    return element

def mapped(**options):
    data = grain.MapDataset.source(Images(**options)).seed(3)
    return data.map(Decode()).random_map(Noise()).map(scale).batch({BATCH}, batch_fn=stack)

def packed():
    from grain.experimental import FirstFitPackIterDataset

    texts = grain.MapDataset.source(list(range(1, 200))).shuffle(seed=1).map(
        lambda length: {{"text": np.full(length % 50 + 1, length, "float32")}}
    )
    packs = FirstFitPackIterDataset(
        texts.to_iter_dataset(options(0)), length_struct={{"text": 64}}, num_packing_bins=8
    )
    return packs.map(lambda each: each["text"])

def options(threads):
    return grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)

def loader(workers=0):
    sampler = grain.samplers.IndexSampler(
        {BATCH * BATCHES}, grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=5
    )
    return grain.DataLoader(
        data_source=Images(),
        sampler=sampler,
        operations=[Decode(), Noise(), grain.transforms.Batch({BATCH}, batch_fn=stack)],
        worker_count=workers,
        read_options=options(2),
    )
"""
PROGRAM = """
import json, os, sys, tempfile, threading
import jax
import nbprof
from absl import flags
from data import *

flags.FLAGS.mark_as_parsed()

class Own(grain.MapDataset):
    \"\"\"Of the program, which spawned processes do not import.\"\"\"
    def __len__(self):
        return len(self._parent)

    def __getitem__(self, index):
        time.sleep(0.005)
        return self._parent[index]

@jax.jit
def step(state, batch):
    return state + batch.sum()

def patched():
    \"\"\"Methods of grain that are not as they were.\"\"\"
    waiting, found = [grain.MapDataset, grain.DatasetIterator, grain.DataLoaderIterator], []
    while waiting:
        owner = waiting.pop()
        waiting += owner.__subclasses__()
        for name in ("__next__", "__getitem__", "_getitems"):
            method = vars(owner).get(name)
            while method is not None:
                code = getattr(method, "__code__", None)
                if code is None or "loader_workers" in code.co_filename:
                    found.append(f"{owner.__name__}.{name}")
                method = getattr(method, "__wrapped__", None)
    return found

def rows(frame):
    return json.loads(frame.to_json(orient="records"))

def recorded(data):
    error, values = "", []
    iterator = iter(data)
    with nbprof.profile() as p:
        try:
            for batch in nbprof.steps(iterator):
                values.append(batch.tolist())
                step(0.0, batch).block_until_ready()
        except OSError as problem:
            error = str(problem)
    return {
        "workers": rows(p.input_pipeline.workers),
        "stages": rows(p.input_pipeline.transforms),
        "advice": rows(p.advice),
        "input_ms": p.steps.frame["input_ms"].tolist(),
        "error": error,
        "values": values,
        "patched": patched(),
        "threads": [each.name for each in threading.enumerate() if "nbprof-loader" in each.name],
        "folders": [name for name in os.listdir(tempfile.gettempdir()) if "nbprof-w" in name],
    }

def in_torch(data):
    # Its optimizer ends the steps.
    import torch

    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with nbprof.profile() as p:
        for batch in data:
            optimizer.zero_grad()
            (torch.from_numpy(batch) * weight).sum().backward()
            optimizer.step()
    return {
        "verdict": p.overview["verdict"],
        "stages": rows(p.input_pipeline.transforms),
        "advice": rows(p.advice),
        "input_ms": p.steps.frame["input_ms"].tolist(),
    }

def asked_in_steps(data):
    iterator = iter(data)
    with nbprof.profile() as p:
        for _ in range(BATCHES):
            with nbprof.step():
                step(0.0, next(iterator)).block_until_ready()
    return {"input_ms": p.steps.frame["input_ms"].tolist(), "advice": rows(p.advice)}

if __name__ == "__main__":
    found = {
        "loop": recorded(mapped().to_iter_dataset(options(0))),
        "threads": recorded(mapped().to_iter_dataset(options(2))),
        "loader": recorded(loader()),
        "own": recorded(Own(grain.MapDataset.source(Images())).batch(4)),
        "failing": recorded(grain.MapDataset.source(Images()).map(failing).batch(4)),
        "asked": asked_in_steps(loader()),
        "plain": [batch.tolist() for batch in mapped()],
        "plain loader": [batch.tolist() for batch in loader()],
        "torch": in_torch(mapped().to_iter_dataset(options(0))),
        "packed": recorded(packed()),
        "plain packed": [each.tolist() for each in packed()],
        "fast": recorded(grain.MapDataset.source(Images(4000)).map(scale).batch(4)),
    }
    made = grain.MultiprocessingOptions(num_workers=2)
    found["processes"] = recorded(mapped().to_iter_dataset(options(2)).mp_prefetch(made))
    found["loader process"] = recorded(loader(workers=1))
    made = grain.MultiprocessingOptions(num_workers=1)
    own = Own(grain.MapDataset.source(Images())).batch(4)
    found["own process"] = recorded(own.to_iter_dataset(options(2)).mp_prefetch(made))
    print(json.dumps(found))
""".replace("BATCHES", str(BATCHES))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    require("jax", "grain", "torch")
    folder = tmp_path_factory.mktemp("a folder")
    (folder / "data.py").write_text(DATA, encoding="utf-8")
    (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "JAX_PLATFORMS": "cpu",
            "TMPDIR": str(folder / "temporary"),
        },
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def line_of(text):
    return next(number for number, line in enumerate(DATA.splitlines(), 1) if line.strip() == text)


PLACES = {
    "Images": "def __getitem__(self, index):",
    "Decode": "def map(self, element):",
    "Noise": "def random_map(self, element, rng):",
    "scale": "def scale(element):",
    "stack": "def stack(elements):",
}
KINDS = {"Images": "dataset", "stack": "collate"}


def check_stages(seen, *names):
    """The planted transform has nearly all of the time; each stage is at its line."""
    stages = {row["stage"]: row for row in seen["stages"]}
    assert set(stages) == set(names)
    for name, row in stages.items():
        assert row["where"].rpartition("/")[2] == f"data.py:{line_of(PLACES[name])}"
        assert row["kind"] == KINDS.get(name, "transform")
        assert row["per_item_ms"] is not None
    decode = stages["Decode"]
    assert decode["loader"] == "Images"
    assert decode["calls"] == BATCH * BATCHES
    assert decode["per_item_ms"] >= DECODE_MS
    assert decode["percent"] > 50
    assert decode["longest_ms"] >= decode["per_call_ms"]
    assert f"data.py:{line_of(f'time.sleep({DECODE_MS / 1e3})')}" in decode["inside"]
    check_left(seen)


def check_left(seen):
    assert not seen["patched"]
    assert not seen["threads"]
    assert not seen["folders"]


def counts(seen, name):
    """Sums over the workers of the loaders whose names begin so."""
    rows = [row for row in seen["workers"] if row["loader"].startswith("Images")]
    return sum(row[name] or 0 for row in rows)


def naming(seen):
    """Findings that name the planted transform and its line."""
    place = f"**Decode** (data.py:{line_of(PLACES['Decode'])})"
    return [row for row in seen["advice"] if place in row["evidence"]]


def test_batches_that_the_loop_makes(found):
    seen = found["loop"]
    check_stages(seen, "Images", "Decode", "Noise", "scale", "stack")
    (row,) = seen["workers"]
    assert (row["worker"], row["items"], row["batches"]) == (
        "main process",
        BATCH * BATCHES,
        BATCHES,
    )
    assert row["busy_ms"] >= DECODE_MS * BATCH * BATCHES
    (finding,) = naming(seen)
    assert "The batches come from the grain.IterDataset of **Images**." in finding["evidence"]
    assert "per item" in finding["evidence"]
    assert "no recorded pipeline" not in finding["evidence"]


def test_batches_that_threads_make(found):
    seen = found["threads"]
    check_stages(seen, "Images", "Decode", "Noise", "scale", "stack")
    workers = {row["worker"] for row in seen["workers"]}
    # On a busy machine one may start too late to make any.
    assert workers <= {"thread 0", "thread 1"}
    assert counts(seen, "batches") == BATCHES
    assert counts(seen, "items") == BATCH * BATCHES


def test_threads_of_a_data_loader_read_ahead_for_the_loop(found):
    seen = found["loader"]
    check_stages(seen, "Images", "Decode", "Noise", "stack")
    source = next(row for row in seen["stages"] if row["stage"] == "Images")
    assert source["loader"] == "Images (read ahead)"
    rows = {row["worker"]: row for row in seen["workers"]}
    assert rows["main process"]["batches"] == BATCHES
    assert rows["main process"]["items"] == BATCH * BATCHES
    read = [row for row in seen["workers"] if row["worker"] != "main process"]
    assert {row["loader"] for row in read} == {"Images (read ahead)"}
    assert sum(row["items"] for row in read) == BATCH * BATCHES
    (finding,) = naming(seen)
    assert "The batches come from the grain.DataLoader of **Images**." in finding["evidence"]


@pytest.mark.parametrize("kind", ["loop", "loader", "asked"])
def test_the_wait_for_a_batch_is_input(found, kind):
    waits = found[kind]["input_ms"]
    assert len(waits) >= BATCHES - 1
    assert sum(waits) / len(waits) >= DECODE_MS * BATCH


def test_a_loop_of_pytorch_waits_for_grain(found):
    seen = found["torch"]
    waits = seen["input_ms"][1:]
    assert len(waits) >= BATCHES - 2
    assert min(waits) >= BATCH * DECODE_MS
    (finding,) = naming(seen)
    assert "grain.IterDataset" in finding["evidence"]
    assert "DataLoader" not in finding["evidence"] + finding["fix"]


def test_the_wait_of_steps_that_ask_an_iterator_is_explained(found):
    (finding,) = naming(found["asked"])
    assert "grain.DataLoader" in finding["evidence"]


def test_batches_that_processes_make(found):
    seen = found["processes"]
    check_stages(seen, "Images", "Decode", "Noise", "scale", "stack")
    rows = {row["worker"]: row for row in seen["workers"]}
    assert set(rows) == {"0", "1"}
    for row in rows.values():
        assert row["batches"] == BATCHES / 2
        assert row["items"] == BATCH * BATCHES / 2
        assert row["start_ms"] > 0
        assert row["restarts"] == 0
        # The arrays, or where they are in shared memory.
        assert row["pickled_bytes"] > 0
    assert counts(seen, "shared_bytes") + counts(seen, "pickled_bytes") >= 16 * BATCH * BATCHES


def test_a_data_loader_with_a_process(found):
    seen = found["loader process"]
    check_stages(seen, "Images", "Decode", "Noise", "stack")
    made = [row for row in seen["workers"] if row["loader"] == "Images"]
    assert [(row["worker"], row["batches"], row["items"]) for row in made] == [
        ("0", BATCHES, BATCH * BATCHES)
    ]
    read = [row for row in seen["workers"] if row["loader"] == "Images (read ahead)"]
    assert [(row["worker"], row["items"]) for row in read] == [("0", BATCH * BATCHES)]


@pytest.mark.parametrize("kind", ["own", "own process"])
def test_a_dataset_of_the_programs_own(found, kind):
    seen = found[kind]
    stage = seen["stages"][0]
    line = PROGRAM.splitlines().index("    def __getitem__(self, index):") + 1
    assert (stage["stage"], stage["kind"]) == ("Own", "transform")
    assert stage["where"].endswith(f"train.py:{line}")
    assert stage["per_item_ms"] >= 5
    check_left(seen)


def test_batches_are_those_of_a_run_without_a_recording(found):
    for kind in ("loop", "threads"):
        assert found[kind]["values"] == found["plain"]
    assert found["loader"]["values"] == found["plain loader"]
    # Each process makes every second one.
    assert len(found["processes"]["values"]) == BATCHES


def test_packing_and_shuffling_have_a_time_of_their_own(found):
    seen = found["packed"]
    stages = {row["stage"]: row for row in seen["stages"]}
    packing = stages["PackingDatasetIterator"]
    assert packing["kind"] == "transform"
    assert "packing.py:" in packing["where"]
    assert packing["calls"] == len(seen["values"])
    assert packing["per_call_ms"] > 0
    assert "ShuffleMapDataset" in stages
    assert seen["values"] == found["plain packed"]
    check_left(seen)


def test_an_error_passes_through(found):
    seen = found["failing"]
    assert seen["error"] == "the disk is gone"
    check_left(seen)


def test_short_elements_are_counted_though_few_are_timed(found):
    seen = found["fast"]
    assert counts(seen, "batches") == 1000
    assert counts(seen, "items") == 4000
    assert {row["stage"] for row in seen["stages"]} == {"Images", "scale", "make_batch"}
    check_left(seen)

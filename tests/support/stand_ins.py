"""What stands for the person's own names when `tests.support.snippets` runs code that nbprof tells
people to paste.

A notebook that code is pasted into has imported its framework, by its customary names, and has a
model, data and a step. Whatever else the code needs, such as `os`, it imports itself.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import nbprof
from tests.support.snippets import JAX, PYTHON, TENSORFLOW, TORCH

DATA = Path(__file__).resolve().parents[1] / "data"
RECORDED = DATA / "xspace" / "tf_slow.xplane.pb"

SKIPPED = {
    "return loss": "a line of the user's function",
    "torch.cuda.Stream()": "needs a GPU",
    'torch.amp.GradScaler("cuda")': "needs a GPU",
    "_record_memory_history": "needs a GPU",
    "torch.backends.cudnn.version()": "needs cuDNN",
    'init_process_group("nccl")': "needs a GPU",
    "list_physical_devices('GPU'), ": "needs a GPU, which it asserts",
    "jax.devices('gpu')": "needs a GPU",
    "worker.join()": "serves until it is stopped",
    'peaks={"flops": ..., "bytes": ...}': "the user fills in the peaks of the CPU",
    "correlation_id": "tests/docs/test_trace.py runs it on the trace it needs",
    "profiler.experimental.start(logdir": "begins a recording that the user ends",
    "jax.profiler.start_trace(logdir": "begins a recording that the user ends",
    "# at a prompt": "a command of a shell",
    "async_op=True": "needs other processes",
    "mx.eval(loss": "MLX is not installed",
    "mlflow.start_run()": "MLflow is not installed",
}
"""Code that cannot run in a test, by a part of it, and why."""
if importlib.util.find_spec("grain") is None:
    SKIPPED["grain."] = "grain is not installed"

REMOTE = {
    "s3://": "a bucket",
    "gs://": "a bucket",
    "grpc://": "workers that run elsewhere",
}
"""Lines that name what no test can reach."""


def names(kind: str, text: str) -> dict[str, Any]:
    """The variables of a notebook that uses this framework, and for which the code is meant."""
    found = _mocks(text) | _MAKERS[kind]()
    for part, fitting in _FITTING.items():
        if part in text:
            found |= fitting(found)
    return found


_FITTING: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "torch.nn.LSTM(": lambda given: {"x": given["torch"].ones(8, 3, 4)},
    "channels_last)": lambda given: {"x": given["torch"].ones(8, 3, 4, 4)},
    "scaled_dot_product_attention": lambda given: dict.fromkeys(("q", "k", "v"), given["torch"].ones(2, 4, 8, 4)),
    "layers.Conv2D(": lambda given: {"x": given["tf"].ones((2, 8, 8, 3))},
    "step(state, pad_to": lambda _: {"step": MagicMock(name="step")},
    "step(state, batch, table)": lambda _: {"step": lambda state, batch, table: state},
    "grain.": lambda _: _grain(),
    "dimension_numbers": lambda given: {
        "x": given["jnp"].ones((1, 4, 4, 4)), "w": given["jnp"].ones((1, 1, 4, 4)), "strides": (1, 1), "padding": "SAME"
    },
    "PartitionSpec('data')": lambda given: {"mesh": given["jax"].make_mesh((1,), ("data",))},
    "Batches(workers=": lambda _: {"Batches": lambda **_: ([1.0, 1.0], [1.0, 1.0]), "model": MagicMock(name="model")},
    "pool": lambda _: {name: MagicMock(name=name) for name in ("pool", "multiprocessing", "work", "work_on_batch")},
    "key=cost": lambda _: {"cost": abs},
    ".save(path)": lambda _: {"path": tempfile.mkdtemp()},
    "return make_batch(i)": lambda given: {"count": 2, "make_batch": lambda i: given["torch"].ones(8, 4)},
    "torch.utils.data.DataLoader": lambda _: {**_torch(), "model": MagicMock(name="model")},
}  # fmt: skip
"""Variables that only some code needs, or needs in another shape, by a part of it."""


def lay_out(folder: Path) -> None:
    """Put the files that the documentation names into a folder."""
    for name in ("logs", "before", "after"):
        (folder / name).mkdir()
        shutil.copy(RECORDED, folder / name / "host.xplane.pb")
    shutil.copy(RECORDED, folder / "before.xplane.pb")
    shutil.copy(DATA / "xspace" / "tf_mended.xplane.pb", folder / "after.xplane.pb")
    shutil.copy(DATA / "kineto" / "cpu_train.pt.trace.json.gz", folder / "trace.pt.trace.json.gz")
    with zipfile.ZipFile(folder / "runs.zip", "w") as archive:
        archive.write(RECORDED, "eval/host.xplane.pb")


@cache
def _profile() -> nbprof.Profile:
    return nbprof.load(RECORDED)


@cache
def _comparison() -> nbprof.Comparison:
    return nbprof.compare(RECORDED, RECORDED)


ANYTHING = (
    "array batch criterion device epoch evaluate f f_in_jnp f_in_tensorflow fn g held_out length log loss loss_fn model "
    "optimizer pad_to params prepare result save state strategy train_step upload validate x y"
)  # fmt: skip


def _mocks(text: str) -> dict[str, Any]:
    """Objects that stand for anything, those that the code names: each takes a millisecond."""
    words = set(re.findall(r"\w+", text))
    mocks = {name: MagicMock(name=name) for name in ANYTHING.split() if name in words}
    return {**mocks, "parts": [MagicMock(name="part")]}


def _python() -> dict[str, Any]:
    def train(*_: Any) -> None:
        for _ in nbprof.steps(range(4)):
            sum(range(10_000))

    lists = "batches data dataset ds files items loader"
    return {
        **{name: [1, 2] for name in lists.split()},
        "train": train,
        "devices": ["cpu"],
        "p": _profile(),
        "c": _comparison(),
        "before": _profile(),
        "after": _profile(),
        "path": str(RECORDED),
        "step": 0,
        "i": 0,
        "batch_size": 8,
        "losses": [],
        "total": 0,
        "lr": 0.1,
        "n": 4,
        "m": 2,
        "k": 1,
        "steps": 2,
    }


def _torch() -> dict[str, Any]:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset, TensorDataset

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
    model = nn.Linear(4, 2)
    dataset = TensorDataset(torch.ones(16, 4), torch.ones(16, 2))
    return {
        **_python(),
        "torch": torch,
        "nn": nn,
        "DataLoader": DataLoader,
        "Dataset": Dataset,
        "Model": lambda: nn.Linear(4, 2),
        "array": torch.ones(4).numpy(),
        "batch": torch.ones(8, 4),
        "block": nn.Linear(4, 4),
        "criterion": nn.MSELoss(),
        "dataset": dataset,
        "device": "cpu",
        "loader": DataLoader(dataset, batch_size=8),
        "loss_fn": nn.MSELoss(),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters()),
        "params": list(model.parameters()),
        "step": model,
        "x": torch.ones(8, 4),
        "y": torch.ones(8, 2),
    }


def _jax() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    square, state = jnp.ones((4, 4)), jnp.ones(4)
    mesh = jax.make_mesh((1,), ("batch",))
    return {
        **_python(),
        "jax": jax,
        "jnp": jnp,
        "apply": lambda layer, x: layer @ x,
        "batch": square,
        "batches": jnp.ones((2, 4)),
        "block": jnp.tanh,
        "ds": jnp.ones((2, 4)),
        "f": jnp.tanh,
        "f_in_jnp": jnp.tanh,
        "g": jnp.tanh,
        "ids": jnp.arange(3),
        "layers": [square, square],
        "loss_fn": lambda params, x, y: jnp.mean((x @ params - y) ** 2),
        "mesh": mesh,
        "params": square,
        "sharding": jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch")),
        "state": state,
        "step": lambda state, batch, table=None: (state + batch, batch.sum()),
        "table": square,
        "train_step": lambda *_: state,
        "v": state,
        "w": square,
        **dict.fromkeys(("w_q", "w_k", "w_v"), square),
        "x": square,
        "y": square,
    }


def _grain() -> dict[str, Any]:
    import grain

    items = [1, 2]
    options = grain.sharding.NoSharding()
    return {
        "grain": grain,
        "ds": grain.MapDataset.source(items).to_iter_dataset(),
        "source": items,
        "sampler": grain.samplers.SequentialSampler(len(items), options),
        "decoded": items,
        "make_batch": abs,
        "count": 2,
        "step": lambda state, batch: state + batch,
        "state": 0,
    }


def _tensorflow() -> dict[str, Any]:
    import keras
    import tensorflow as tf
    from keras import layers

    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    x, y = tf.ones((16, 4)), tf.ones((16, 2))
    ds = tf.data.Dataset.from_tensor_slices((x, y))
    files = tf.data.Dataset.from_tensor_slices(["a", "b", "c"])
    same = ("decode", "fn", "fn_of_a_batch", "parse_batch")
    return {
        **_python(),
        "tf": tf,
        "keras": keras,
        "layers": layers,
        **dict.fromkeys(same, lambda x, y: (x, y)),
        "batch_sizes": [8, 4],
        "block": model,
        "boundaries": [2],
        "count": 4,
        "data": ds.batch(8),
        "dataset": ds.batch(8),
        "ds": ds,
        "files": files,
        "ids": tf.range(3),
        "index": 0,
        "length": lambda x, y: tf.size(x),
        "load_one": lambda i: x[int(i)].numpy(),
        "loss": "mse",
        "make_model": lambda: keras.Sequential([keras.Input((4,)), layers.Dense(2)]),
        "model": model,
        "n": 8,
        "optimizer": "sgd",
        "paths": ["a", "b"],
        "read": lambda path: tf.data.Dataset.from_tensors(path),
        "remote": ds,
        "table": x,
        "test": lambda x, y: tf.reduce_sum(x) > 0,
        "v": x[0],
        "w": tf.transpose(x),
        "workers": 2,
        "x": x,
        "y": y,
    }


_MAKERS = {PYTHON: _python, TORCH: _torch, JAX: _jax, TENSORFLOW: _tensorflow}

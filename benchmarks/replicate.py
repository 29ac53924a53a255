"""Makes large inputs by replicating real recorded events.

    python benchmarks/replicate.py --seed tf --events 1e6 big/tf_1M.xplane.pb        # records a small Keras run first
    python benchmarks/replicate.py --seed run/host.xplane.pb --events 1e7 big.xplane.pb
    python benchmarks/replicate.py --seed worker0.pt.trace.json.gz --events 1e6 big.json.gz

`--seed` is a recorded file, or the name of a framework: `jax` or `tf` (XSpace), `torch` (Kineto). A
short run on the CPU is then recorded with it, by `--python` if this interpreter does not have it.
Beside the target a `.manifest.json` says how many events are in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

JAX = """
import sys
import jax, jax.numpy as jnp
def predict(params, x):
    for w, b in params:
        x = jnp.tanh(x @ w + b)
    return x
@jax.jit
def loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)
@jax.jit
def step(params, x, y):
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params, x, y))
key = jax.random.key(0)
params = [(jax.random.normal(jax.random.fold_in(key, i), (128, 128)) * 0.1, jnp.zeros(128)) for i in range(4)]
x = jax.random.normal(key, (64, 128))
y = jnp.sin(x)
def train(i, params):
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
        params = step(params, x, y)
        float(loss(params, x, y))
    return params
params = train(0, train(0, params))
with jax.profiler.trace(sys.argv[1]):
    for i in range(100):
        params = train(i, params)
"""
TF = """
import sys
import keras, numpy as np, tensorflow as tf
model = keras.Sequential([keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
images, labels = np.random.rand(640, 16, 16, 1).astype("float32"), np.random.randint(0, 10, 640)
data = tf.data.Dataset.from_tensor_slices((images, labels)).map(lambda x, y: (x * 2 - 1, y)).batch(32).prefetch(2)
model.fit(data.take(2), verbose=0)
tf.profiler.experimental.start(sys.argv[1])
model.fit(data, verbose=0)
tf.profiler.experimental.stop()
"""
TORCH = """
import sys
import torch
from torch.profiler import profile
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
save = lambda p: p.export_chrome_trace(sys.argv[1] + "/run.json")
times = torch.profiler.schedule(wait=0, warmup=1, active=50, repeat=1)
with profile(schedule=times, on_trace_ready=save, record_shapes=True, profile_memory=True, with_stack=True) as p:
    for _ in range(51):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        p.step()
"""
SEEDS = {"jax": (JAX, "*.xplane.pb"), "tf": (TF, "*.xplane.pb"), "torch": (TORCH, "run.json")}


def record(framework: str, folder: Path, python: str = sys.executable) -> Path:
    """A short run on the CPU, recorded by the framework's own profiler; gives the file."""
    code, pattern = SEEDS[framework]
    done = subprocess.run([python, "-c", code, str(folder)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"No seed could be recorded with {framework}: {done.stderr.strip().splitlines()[-1]}"
            " (--python names another one)"
        )
    return next(folder.rglob(pattern))


def manifest(target: Path) -> Path:
    return target.with_name(target.name + ".manifest.json")


def make(seed: str, target: Path, events: int, python: str = sys.executable) -> dict[str, int]:
    """Writes a large file and its manifest; gives the manifest.

    Parameters
    ----------
    seed : str
        A recorded file, or `jax`, `tf` or `torch`.
    events : int
        Roughly how many events; whole replicas of the seed are written.
    """
    with tempfile.TemporaryDirectory() as name:
        source = record(seed, Path(name), python) if seed in SEEDS else Path(seed)
        if source.name.endswith(".pb"):
            from replicate_xspace import replicate
        else:
            from replicate_kineto import replicate
        target.parent.mkdir(parents=True, exist_ok=True)
        written = replicate(source, target, events)
    manifest(target).write_text(json.dumps(written))
    return written


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--events", type=float, default=1e6)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    written = make(given.seed, given.target, int(given.events), given.python)
    print(f"{given.target}: " + ", ".join(f"{key} {value:,}" for key, value in written.items()))


if __name__ == "__main__":
    main()

"""Remakes the recordings of this folder that nbprof reads in its tests: short runs on the CPU,
without the Python tracer.

    python tests/data/record.py jax     # needs jax
    python tests/data/record.py jax_loop   # needs jax; a loop on two devices that marks no step, and an evaluation
    python tests/data/record.py tf      # needs tensorflow
    python tests/data/record.py tf_slow   # needs tensorflow; a run that waits for its input
    python tests/data/record.py tf_mended   # needs tensorflow; the same run with four threads that read and a prefetch
    python tests/data/record.py torch   # needs torch
    python tests/data/record.py key_averages   # needs torch; a run with what `key_averages()` says of it
    python tests/data/record.py compiled   # needs torch and a C++ compiler; a compiled run with what inductor says of its kernels

Each run is code given with `-c`, so that no path of the machine gets in; the machine's name is
replaced by `host-a`.
"""

import argparse
import gzip
import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST = "host-a"

JAX = """
import sys
import jax, jax.numpy as jnp
def loss(w, x, y):
    return jnp.mean((jnp.tanh(x @ w) - y) ** 2)
@jax.jit
def train_step(w, x, y):
    value, slope = jax.value_and_grad(loss)(w, x, y)
    return w - 0.1 * slope, value
w, x, y = jnp.ones((64, 8)), jnp.ones((32, 64)), jnp.ones((32, 8))
w, value = train_step(w, x, y)
value.block_until_ready()
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
with jax.profiler.trace(sys.argv[1], profiler_options=options):
    for i in range(5):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            w, value = train_step(w, x, y)
            value.block_until_ready()
"""

JAX_LOOP = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), ("batch",))
def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)
@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)
@jax.jit
def evaluate(w, x):
    return loss(w, x) + jnp.max(jnp.tanh(x @ w) @ w)
w = jax.device_put(jnp.ones((128, 128)), NamedSharding(mesh, PartitionSpec()))
x = jax.device_put(jnp.ones((64, 128)), NamedSharding(mesh, PartitionSpec("batch")))
w = train_step(w, x)
evaluate(w, x).block_until_ready()
options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
with jax.profiler.trace(sys.argv[1], profiler_options=options):
    for i in range(5):
        w = train_step(w, x)
    values = [evaluate(w, x) for _ in range(3)]
    jax.block_until_ready(values)
"""

TF = """
import sys
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(16, activation="relu", name="hidden"), keras.layers.Dense(4, name="scores")])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
x, y = np.random.rand(5 * 32, 8).astype("float32"), np.random.randint(0, 4, 5 * 32)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).map(lambda x, y: (x * 2 - 1, y)).prefetch(2)
model.fit(data.take(2), verbose=0)
batches = iter(data)
options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=1)
tf.profiler.experimental.start(sys.argv[1], options=options)
for i in range(4):
    with tf.profiler.experimental.Trace("train", step_num=i, _r=1):
        model.train_function(batches)
tf.profiler.experimental.stop()
"""

# A dataset that stands still for a while, as one that reads from a far disk does.
TF_INPUT = """
import os, sys, time
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(64, activation="relu", name="hidden"), keras.layers.Dense(4, name="scores")])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
x, y = np.random.rand(256, 32).astype("float32"), np.random.randint(0, 4, 256)
def read(x, y):
    time.sleep(0.02)
    return x, y
def decode(x, y):
    x, y = tf.numpy_function(read, (x, y), (tf.float32, tf.int64))
    return tf.ensure_shape(x, (32, 32)), tf.ensure_shape(y, (32,))
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(32)
data = data.map(decode, num_parallel_calls=4).prefetch(4) if mended else data.map(decode)
own = tf.data.Options()
own.autotune.enabled = own.experimental_optimization.map_parallelization = False
data = data.with_options(own)
model.fit(data.take(2), verbose=0)
batches = iter(data)
options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=1)
for i in range(4):
    model.train_function(batches)
tf.profiler.experimental.start(sys.argv[1], options=options)
for i in range(12):
    with tf.profiler.experimental.Trace("train", step_num=i, _r=1):
        model.train_function(batches)
tf.profiler.experimental.stop()
# The threads that read ahead would wait for an interpreter that is gone.
os._exit(0)
"""
TF_SLOW, TF_MENDED = (f"mended = {mended}\n{TF_INPUT}" for mended in (False, True))

TORCH = """
import sys
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset
class Squares(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        x = torch.full((16,), float(i)) / 64
        return x, (x.sum() ** 2).reshape(1)
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=5, repeat=1),
    record_shapes=True,
    profile_memory=True,
    on_trace_ready=lambda p: p.export_chrome_trace(sys.argv[1] + ".pt.trace.json"),
) as prof:
    for x, y in DataLoader(Squares(), batch_size=8):
        with record_function("forward"):
            loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
"""

KEY_AVERAGES = """
import json, sys
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, 4))
optimizer = torch.optim.Adam(model.parameters())
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as prof:
    for _ in range(3):
        x, y = torch.randn(8, 4, 16), torch.randint(0, 4, (8,))
        with record_function("forward"):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
prof.export_chrome_trace(sys.argv[1] + ".pt.trace.json")
by_shape = [
    {"key": row.key, "shapes": str(row.input_shapes), "count": row.count, "self_us": row.self_cpu_time_total, "total_us": row.cpu_time_total}
    for row in prof.key_averages(group_by_input_shape=True)
]
rows = [
    {
        "key": row.key,
        "annotation": row.is_user_annotation,
        "count": row.count,
        "self_us": row.self_cpu_time_total,
        "total_us": row.cpu_time_total,
        "self_bytes": row.self_cpu_memory_usage,
    }
    for row in prof.key_averages()
]
for name, table in (("key_averages", rows), ("by_shape", by_shape)):
    with open(f"{sys.argv[1]}.{name}.json", "w") as file:
        file.write("[\\n" + ",\\n".join(json.dumps(row) for row in table) + "\\n]\\n")
"""

MODULES = """
import sys
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
torch.manual_seed(0)
torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Flatten())
        self.one, self.two = nn.Linear(112, 16), nn.Linear(16, 4)
    def forward(self, x):
        return self.two(torch.relu(self.one(self.body(x))))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as prof:
    for _ in range(2):
        x, y = torch.randn(8, 4, 16), torch.randint(0, 4, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prof.step()
prof.export_chrome_trace(sys.argv[1] + ".pt.trace.json")
"""


CODE = {
    "jax": JAX,
    "jax_loop": JAX_LOOP,
    "tf": TF,
    "tf_slow": TF_SLOW,
    "tf_mended": TF_MENDED,
    "torch": TORCH,
    "key_averages": KEY_AVERAGES,
    "torch_modules": MODULES,
}


COMPILED = """
import sys
import torch
from torch import nn
from torch._inductor import config
from torch.profiler import ProfilerActivity, profile
torch.manual_seed(0)
torch.set_num_threads(1)
config.cpp.enable_kernel_profile = True
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 128), nn.Linear(128, 8)
    def forward(self, x):
        h = torch.relu(self.one(x))
        h = h * 2 + 1
        return torch.softmax(self.two(h), -1)
model = torch.compile(Net())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step():
    optimizer.zero_grad()
    loss = model(torch.rand(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
for _ in range(2):
    step()
with profile(activities=[ProfilerActivity.CPU], with_stack=True) as prof:
    for _ in range(3):
        step()
prof.export_chrome_trace(sys.argv[1])
"""


def compiled(folder: Path, python: str) -> None:
    """The compiled run: its code is a file, so that the kernels have lines, which lies in
    `/srv/app`.
    """
    program = folder / "net.py"
    program.write_text(COMPILED.lstrip())
    logs = folder / "logs"
    settings = {
        "INDUCTOR_PROVENANCE": "1",
        "TORCH_TRACE": str(logs),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
    }
    subprocess.run(
        [python, program.name, "logs.json"], cwd=folder, env={**os.environ, **settings}, check=True
    )
    said: dict[str, list[str]] = {}
    lines = next(logs.glob("*.log")).read_text().splitlines()
    for line, payload in itertools.pairwise(lines):
        if (
            found := re.search(r'"name": "(inductor_provenance_tracking_\w+)"', line)
        ) and payload.startswith("\t"):
            said.setdefault(found[1], []).append(payload[1:])
    target = HERE / "torch" / "compiled"
    target.mkdir(exist_ok=True)
    text = (folder / "logs.json").read_text()
    files = {
        "cpu.pt.trace.json": text,
        **{f"{name}_{i}.json": one for name, all_ in said.items() for i, one in enumerate(all_)},
    }
    for name, one in files.items():
        data = one.replace(str(folder), "/srv/app").replace(socket.gethostname(), HOST).encode()
        check(data, name)
        if name.startswith("cpu"):
            (target / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
        else:
            (target / name).write_bytes(data + b"\n")


def hostname(name: str) -> bytes:
    """Field 4 of an XSpace, the last one in a file."""
    return b"\x22" + bytes([len(name)]) + name.encode()


def renamed(data: bytes) -> bytes:
    """The XSpace with `host-a` as its host name."""
    own = hostname(socket.gethostname())
    assert data.endswith(own)
    return data.removesuffix(own) + hostname(HOST)


def check(data: bytes, label: str) -> None:
    """Nothing of this machine is in it."""
    own = [
        b"/home/",
        b"/tmp/",
        b"/root",
        b"/usr/",
        b"site-packages",
        b"dist-packages",
        str(Path.cwd()).encode(),
    ]
    found = [text for text in own if text in data]
    assert not found, f"{label} holds {found}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=[*CODE, "compiled"])
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has the framework"
    )
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        if given.framework == "compiled":
            compiled(folder, given.python)
            return
        # The log directory is a stat of the profile.
        subprocess.run([given.python, "-c", CODE[given.framework], "logs"], check=True, cwd=folder)
        if given.framework in ("torch", "key_averages", "torch_modules"):
            text = (folder / "logs.pt.trace.json").read_bytes()
            text = text.replace(
                f'"host_name": "{socket.gethostname()}"'.encode(), f'"host_name": "{HOST}"'.encode()
            )
            check(text, "the JSON")
            target = (
                HERE
                / {
                    "torch": "kineto/cpu_train",
                    "key_averages": "torch/cpu_ops",
                    "torch_modules": "torch/modules",
                }[given.framework]
            )
            target = target.with_name(f"{target.name}.pt.trace.json.gz")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(gzip.compress(text, mtime=0))
            for said in folder.glob("logs.*.json"):
                if said.name != "logs.pt.trace.json":
                    shutil.copy(said, target.with_name(said.name.replace("logs", "cpu_ops")))
            return
        space = renamed(next(folder.rglob("*.xplane.pb")).read_bytes())
        check(space, "the XSpace")
        if given.framework in ("jax_loop", "tf_slow", "tf_mended"):
            (HERE / "xspace" / f"{given.framework}.xplane.pb").write_bytes(space)
            return
        (HERE / "xspace" / f"{given.framework}_cpu.xplane.pb").write_bytes(space)
        for path in folder.rglob("*.trace.json.gz"):
            text = gzip.decompress(path.read_bytes())
            check(text, "the JSON")
            assert socket.gethostname().encode() not in text
            (HERE / "chrome" / f"{given.framework}_cpu.trace.json.gz").write_bytes(
                gzip.compress(text, mtime=0)
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

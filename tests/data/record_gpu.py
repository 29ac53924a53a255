"""Makes the recordings of GPUs in `gpu/`, which the tests of GPU recordings need: short runs on an
NVIDIA GPU, by nbprof's own recorder where the framework's snapshots of memory are not what is kept.

    python tests/data/record_gpu.py jax        # needs jax[cuda13] and a GPU
    python tests/data/record_gpu.py torch      # needs a CUDA build of torch and a GPU
    python tests/data/record_gpu.py torch_compiled torch_graph torch_memory torch_oom
    python tests/data/record_gpu.py torch --try    # anywhere, also on a CPU: runs everything and keeps nothing

A few training steps with known work: what `tests/capture/test_gpu_recordings.py` holds them to. The
driver must let this user profile (NVreg_RestrictProfilingToAdminUsers=0, or root). Each run is code
given with `-c`, so that no path of the machine gets in; its name is replaced by `host-a`.
"""

import argparse
import gzip
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.data.record import HOST, check, renamed

HERE = Path(__file__).resolve().parent
LARGEST = 2_000_000

JAX = """
import numpy as np
import jax, jax.numpy as jnp
import nbprof
def loss(w, x, y):
    return jnp.mean((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2)
@jax.jit
def train_step(w, x, y):
    return [a - 0.01 * b for a, b in zip(w, jax.grad(loss)(w, x, y))]
w = [jnp.ones((1024, 4096)), jnp.ones((4096, 16))]
batches = [(np.ones((512, 1024), np.float32), np.ones((512, 16), np.float32)) for _ in range(5)]
w = jax.block_until_ready(train_step(w, *jax.device_put(batches[0])))
with nbprof.profile(logdir="logs", backend="jax") as run:
    for batch in batches:
        w = train_step(w, *jax.device_put(batch))
print("device", jax.devices()[0].platform, "steps", len(run.steps.frame), "kernels", len(run.kernels.frame))
"""

TORCH = """
import torch
from torch import nn
import nbprof
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(1024, 4096), nn.Tanh(), nn.Linear(4096, 16)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.ones(512 * 5, 1024), torch.ones(512 * 5, 16))
loader = torch.utils.data.DataLoader(data, batch_size=512, pin_memory=device == "cuda")
def epoch():
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
epoch()
with nbprof.profile(logdir="logs", backend="torch", memory=True, shapes=True) as run:
    epoch()
    if device == "cuda":
        torch.cuda.synchronize()
print("device", device, "steps", len(run.steps.frame), "kernels", len(run.kernels.frame))
"""


TORCH_COMPILED = """
import torch
from torch import nn
import nbprof
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 16)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")
compiled = torch.compile(model)
x, y = torch.ones(256, 512, device=device), torch.zeros(256, dtype=torch.long, device=device)
def epoch():
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()
epoch()
with nbprof.profile(logdir="logs", backend="torch", memory=False) as run:
    epoch()
print("device", device, "steps", len(run.steps.frame), "kernels", len(run.kernels.frame))
"""

TORCH_GRAPH = """
import torch
from torch import nn
import nbprof
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).to(device)
x = torch.ones(256, 512, device=device)
def forward():
    with torch.no_grad():
        return model(x)
forward()
replay = forward
if device == "cuda":
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward()
    replay = graph.replay
with nbprof.profile(logdir="logs", backend="torch", memory=False) as run:
    for _ in nbprof.steps(range(10)):
        replay()
print("device", device, "steps", len(run.steps.frame), "kernels", len(run.kernels.frame))
"""

TORCH_MEMORY = """
import torch
from torch import nn
device = "cuda" if torch.cuda.is_available() else "cpu"
record = torch.cuda.memory._record_memory_history if device == "cuda" else lambda **_: None
dump = torch.cuda.memory._dump_snapshot if device == "cuda" else lambda _: None
record(enabled="all", context="all", stacks="python", max_entries=100_000)
model = nn.Sequential(nn.Linear(1024, 4096), nn.Tanh(), nn.Linear(4096, 16)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
kept = []
for _ in range(3):
    x = torch.ones(512, 1024, device=device)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    kept.append(loss)
dump("snapshot.pickle")
print("device", device)
"""

TORCH_OOM = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((1 << 29) / whole)
    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=100_000)
    kept = []
    try:
        def grow():
            for _ in range(20):
                kept.append(torch.zeros(1 << 24, device=device))
        grow()
    except torch.cuda.OutOfMemoryError as error:
        print(error)
    torch.cuda.memory._dump_snapshot("snapshot.pickle")
print("device", device)
"""


def cleaned_xspace(data: bytes) -> bytes:
    data = renamed(data)
    check(data, "the XSpace")
    return data


def cleaned_trace(data: bytes) -> bytes:
    text = gzip.decompress(data).replace(socket.gethostname().encode(), HOST.encode())
    # It names the file that PyTorch wrote before it was packed, and those of compiled kernels.
    text = re.sub(rb'"traceName": "[^"]*"', b'"traceName": ""', text)
    text = re.sub(rb'"[^"]*/([^"/]+/[^"/]+\.py)"', rb'"\1"', text)
    check(text, "the JSON")
    return gzip.compress(text, mtime=0)


def cleaned_snapshot(data: bytes) -> bytes:
    def within(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: within(part) for key, part in value.items()}
        if isinstance(value, list):
            return [within(part) for part in value]
        if isinstance(value, str):
            return re.sub(r"^.*/(?:site|dist)-packages/|^.*/lib/(?=python3)", "", value)
        return value

    data = pickle.dumps(within(pickle.loads(data)), protocol=4)
    check(data, "the snapshot")
    return gzip.compress(data, mtime=0)


class Program(NamedTuple):
    """Code that is recorded, the file of its run that is kept, and what takes this machine out."""

    code: str
    pattern: str
    cleaned: Callable[[bytes], bytes]
    target: str


PROGRAMS = {
    "jax": Program(JAX, "*.xplane.pb", cleaned_xspace, "jax_gpu.xplane.pb"),
    "torch": Program(TORCH, "*.pt.trace.json.gz", cleaned_trace, "torch_gpu.pt.trace.json.gz"),
    "torch_compiled": Program(
        TORCH_COMPILED, "*.pt.trace.json.gz", cleaned_trace, "torch_compiled.pt.trace.json.gz"
    ),
    "torch_graph": Program(
        TORCH_GRAPH, "*.pt.trace.json.gz", cleaned_trace, "torch_graph.pt.trace.json.gz"
    ),
    "torch_memory": Program(
        TORCH_MEMORY, "snapshot.pickle", cleaned_snapshot, "torch_memory.pickle.gz"
    ),
    "torch_oom": Program(TORCH_OOM, "snapshot.pickle", cleaned_snapshot, "torch_oom.pickle.gz"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="+", choices=list(PROGRAMS))
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="interpreter that has the framework and what nbprof needs",
    )
    parser.add_argument(
        "--try",
        dest="trial",
        action="store_true",
        help="run on whatever is there, and keep nothing",
    )
    given = parser.parse_args()
    for name in given.programs:
        record(PROGRAMS[name], given.python, trial=given.trial)


def record(program: Program, python: str, *, trial: bool) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        done = subprocess.run(
            [python, "-c", program.code],
            check=True,
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        print(done.stdout)
        on_gpu = done.stdout.strip().splitlines()[-1].startswith(("device gpu", "device cuda"))
        if not trial and not on_gpu:
            raise SystemExit("this ran on no GPU: nothing was kept")
        found = list(folder.rglob(program.pattern))
        if trial and not found:
            return
        data = program.cleaned(found[0].read_bytes())
        if len(data) > LARGEST:
            raise SystemExit(f"{len(data):,} bytes are too many for a repository")
        if not trial:
            target = HERE / "gpu" / program.target
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            print(f"{target}: {len(data):,} bytes")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

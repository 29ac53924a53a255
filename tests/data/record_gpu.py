"""Makes the recordings of GPUs in `gpu/`, which the tests of GPU recordings need: short runs of
nbprof's own recorder, on an NVIDIA GPU.

    python tests/data/record_gpu.py jax        # needs jax[cuda13] and a GPU
    python tests/data/record_gpu.py torch      # needs a CUDA build of torch and a GPU
    python tests/data/record_gpu.py torch --try    # anywhere, also on a CPU: runs everything and keeps nothing

Five training steps with known work: the same for both frameworks, and what
`tests/capture/test_gpu_recordings.py` holds them to. The driver must let this user profile
(NVreg_RestrictProfilingToAdminUsers=0, or root). Each run is code given with `-c`, so that no path
of the machine gets in; its name is replaced by `host-a`.
"""

import argparse
import gzip
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=["jax", "torch"])
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
    folder = Path(tempfile.mkdtemp())
    try:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")])
            ),
        }
        code = JAX if given.framework == "jax" else TORCH
        done = subprocess.run(
            [given.python, "-c", code],
            check=True,
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = done.stdout.strip().splitlines()[-1]
        print(said)
        if not given.trial and not said.startswith(("device gpu", "device cuda")):
            raise SystemExit("this ran on no GPU: nothing was kept")
        if given.framework == "jax":
            data = renamed(next(folder.rglob("*.xplane.pb")).read_bytes())
            check(data, "the XSpace")
            target = HERE / "gpu" / "jax_gpu.xplane.pb"
        else:
            text = gzip.decompress(next(folder.rglob("*.pt.trace.json.gz")).read_bytes())
            text = text.replace(socket.gethostname().encode(), HOST.encode())
            # It names the file that PyTorch wrote before it was packed.
            text = re.sub(rb'"traceName": "[^"]*"', b'"traceName": ""', text)
            check(text, "the JSON")
            data = gzip.compress(text, mtime=0)
            target = HERE / "gpu" / "torch_gpu.pt.trace.json.gz"
        if len(data) > LARGEST:
            raise SystemExit(f"{len(data):,} bytes are too many for a repository")
        if not given.trial:
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            print(f"{target}: {len(data):,} bytes")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

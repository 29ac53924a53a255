"""What does recording cost a loop on a GPU, and whose cost is it?

The same loop runs bare, under the framework's own profiler, and in nbprof's recording. Printed is
the time of a step, the better of two turns each; the time of starting, stopping and writing is not
in it. A loop that the GPU bounds hides what the host takes; in one that the host bounds all of it
shows.

    python benchmarks/gpu.py torch
    python benchmarks/gpu.py jax
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nbprof

Loop = Callable[[int], None]
"""Runs so many steps and returns when the GPU is done with them."""
Way = Callable[[str], AbstractContextManager[Any]]
WARM, TURNS = 5, 2


def of_torch() -> tuple[dict[str, tuple[Loop, int]], dict[str, Way]]:
    """Loops of PyTorch, with the steps of a turn, and the ways in which they are run."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.profiler import ProfilerActivity, profile

    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def fit(model: nn.Module, x: torch.Tensor, classes: int, *, wait_each: bool = False) -> Loop:
        model, x = model.to(device), x.to(device)
        y = torch.randint(0, classes, (len(x),), device=device)
        optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")

        def loop(steps: int) -> None:
            for _ in range(steps):
                optimizer.zero_grad()
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                if wait_each:
                    loss.item()
            wait()

        return loop

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
            self.layers, self.out = (
                nn.TransformerEncoder(layer, 6, enable_nested_tensor=False),
                nn.Linear(1024, 1000),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.layers(x).mean(1))

    small = [
        part for _ in range(40) for part in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())
    ]
    loops = {
        "small ops": (
            fit(nn.Sequential(*small, nn.Linear(256, 1000)), torch.randn(256, 256), 1000),
            15,
        ),
        "small ops, each step waits": (
            fit(
                nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1000)),
                torch.randn(256, 1024),
                1000,
                wait_each=True,
            ),
            50,
        ),
        "transformer": (fit(Encoder(), torch.randn(16, 512, 1024), 1000), 15),
        "large products": (
            fit(
                nn.Sequential(nn.Linear(8192, 8192), nn.Linear(8192, 8192)),
                torch.randn(8192, 8192),
                8192,
            ),
            15,
        ),
    }
    recorded = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    ways: dict[str, Way] = {
        "bare": lambda _: nullcontext(),
        "GPU alone": lambda _: profile(activities=recorded[-1:]),
        "PyTorch's profiler": lambda _: profile(activities=recorded, record_shapes=True),
        "nbprof": lambda folder: nbprof.profile(logdir=folder, backend="torch"),
        "nbprof, no samples": lambda folder: nbprof.profile(
            logdir=folder, backend="torch", sampling=False
        ),
        "bare again": lambda _: nullcontext(),
    }
    return loops, ways


def of_jax() -> tuple[dict[str, tuple[Loop, int]], dict[str, Way]]:
    """The same of JAX."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return (x**2).mean()

    @jax.jit
    def step(weights: Any, x: jax.Array) -> tuple[Any, jax.Array]:
        value, slopes = jax.value_and_grad(loss)(weights, x)
        return [w - 1e-3 * slope for w, slope in zip(weights, slopes, strict=True)], value

    def fit(size: int, layers: int, rows: int, *, wait: bool) -> Loop:
        weights, x = (
            [jnp.full((size, size), 1e-3, jnp.bfloat16)] * layers,
            jnp.ones((rows, size), jnp.bfloat16),
        )

        def loop(steps: int) -> None:
            mine, value = weights, None
            for _ in range(steps):
                mine, value = step(mine, x)
                if wait:
                    float(value)
            jax.block_until_ready((mine, value))

        return loop

    def plain(folder: str) -> AbstractContextManager[Any]:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        return jax.profiler.trace(folder, profiler_options=options)

    loops = {
        "small ops": (fit(256, 5, 64, wait=False), 300),
        "small ops, each step waits": (fit(1024, 3, 1024, wait=True), 100),
        "large products": (fit(4096, 4, 8192, wait=False), 15),
    }
    ways: dict[str, Way] = {
        "bare": lambda _: nullcontext(),
        "JAX's profiler": plain,
        "nbprof": lambda folder: nbprof.profile(logdir=folder, backend="jax"),
        "nbprof, no samples": lambda folder: nbprof.profile(
            logdir=folder, backend="jax", sampling=False
        ),
        "bare again": lambda _: nullcontext(),
    }
    return loops, ways


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=["torch", "jax"])
    loops, ways = of_torch() if parser.parse_args().framework == "torch" else of_jax()
    for name, (loop, steps) in loops.items():
        loop(WARM)
        for way, begin in ways.items():
            took = []
            for _ in range(TURNS):
                folder = tempfile.mkdtemp()
                with begin(folder):
                    loop(WARM)
                    began = time.perf_counter()
                    loop(steps)
                    took.append((time.perf_counter() - began) / steps)
                shutil.rmtree(folder)
            print(f"{name:28} {way:20} {1000 * min(took):9.3f} ms", flush=True)


if __name__ == "__main__":
    main()

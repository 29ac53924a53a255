"""How long is a step of known loops on a GPU without a profiler, and what does recording add to it?

Each loop runs in turns, bare and recorded, with a clock of its own that reads every step. Written
are these times, a short profile of each loop as nbprof records it by default, and what nbprof says
of it; `fit` reads them again and prints what an op, a call into CUDA and a range cost. The bare
times of the first turns are from before any profiler was started in the process. Without a GPU the
CPU time of the thread counts, which other programs do not lengthen.

    python benchmarks/bare.py torch DIR
    python benchmarks/bare.py jax DIR
    python benchmarks/bare.py fit DIR
    python benchmarks/bare.py gains DIR

`gains` runs loops of PyTorch that have a cause, and its remedy, bare and recorded in turn, and
prints the gain that nbprof states beside the one that the remedy has by a clock, without a profiler.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import nbprof
from nbprof.activity.activity import TORCH_ANNOTATION, TORCH_CALL, TORCH_OP
from nbprof.analysis.steps.bare import BareSteps

Run = Callable[[Iterable[int]], None]
"""Runs a step for each of the items and returns when the GPU is done with them."""
Way = Callable[[], AbstractContextManager[Any]]
WARM, FIRST_TURNS = 3, 5
ROUNDS, STEPS = 2, 40


@dataclass(frozen=True)
class Loop:
    """A loop whose bound is known."""

    name: str
    bound: str
    """What its step waits for without a profiler: host, device, input or copies."""
    make: Callable[[], Run]
    steps: int = 20
    """Steps of a turn."""
    kept: int = 12
    """Steps of the profile that is kept."""
    marked: bool = False
    """Its steps are marked by `nbprof.steps`: it has no optimizer."""


def of_torch() -> tuple[list[Loop], dict[str, Way], dict[str, str]]:
    """Loops of PyTorch, and the ways in which they are recorded."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.profiler import ProfilerActivity, profile, record_function

    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    scale = 1 if on_gpu else 16

    def over(body: Callable[[], Any]) -> Run:
        def run(items: Iterable[int]) -> None:
            for _ in items:
                body()
            wait()

        return run

    def eager(ops: int, ranges: bool = False) -> Run:
        x = torch.randn(64, 64, device=device)

        def plain() -> None:
            y = x
            for _ in range(ops):
                y = torch.mul(y, 0.999)

        def ranged() -> None:
            y = x
            for i in range(ops):
                with record_function(f"part {i % 10}"):
                    y = torch.mul(y, 0.999)

        return over(ranged if ranges else plain)

    def views(ops: int) -> Run:
        x = torch.randn(64, 64, device=device)

        def body() -> None:
            y = x
            for _ in range(ops):
                y = y.t()
            torch.mul(y, 0.999)

        return over(body)

    def copies(pinned: bool) -> Run:
        rows = 4096 // scale
        batches = [torch.randn(rows, 4096, pin_memory=pinned and on_gpu) for _ in range(2)]
        weight = torch.randn(4096, 64, device=device)
        turn = iter(range(10**9))
        return over(
            lambda: batches[next(turn) % 2].to(device, non_blocking=pinned) @ weight,
        )

    def mlp(layers: int = 24, width: int = 256) -> nn.Module:
        parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())]
        return nn.Sequential(*parts, nn.Linear(width, 10)).to(device)

    def training(
        model: nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        optimizer: Callable[[Any], torch.optim.Optimizer],
        *,
        bf16: bool = False,
        reads: bool = False,
        ranges: bool = False,
    ) -> Run:
        x, y = x.to(device), y.to(device)
        update = optimizer(model.parameters())

        def part(name: str) -> AbstractContextManager[Any]:
            return record_function(name) if ranges else nullcontext()

        def body() -> None:
            update.zero_grad()
            with part("forward"), torch.autocast(device, torch.bfloat16, enabled=bf16):
                loss = functional.cross_entropy(model(x), y)
            with part("backward"):
                loss.backward()
            update.step()
            if reads:
                loss.item()

        return over(body)

    small_x, small_y = torch.randn(128, 256), torch.randint(0, 10, (128,))

    def adamw(**options: Any) -> Callable[[Any], torch.optim.Optimizer]:
        return lambda parameters: torch.optim.AdamW(parameters, **options)

    def small(**options: Any) -> Run:
        return training(mlp(), small_x, small_y, adamw(foreach=True), **options)

    def compiled() -> Run:
        return training(torch.compile(mlp()), small_x, small_y, adamw(fused=on_gpu))

    def replayed() -> Run:
        model, x, y = mlp(), small_x.to(device), small_y.to(device)
        update = torch.optim.AdamW(model.parameters(), capturable=on_gpu, foreach=True)

        def body() -> None:
            update.zero_grad(set_to_none=False)
            functional.cross_entropy(model(x), y).backward()
            update.step()

        if not on_gpu:
            return over(body)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                body()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
        return over(graph.replay)

    class Encoder(nn.Module):
        def __init__(self, width: int, layers: int) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
            self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.out = nn.Linear(width, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.layers(x).mean(1))

    def transformer(rows: int, bf16: bool) -> Run:
        model = Encoder(1024 // scale, 6).to(device)
        x = torch.randn(rows // min(rows, scale), 512 // scale, 1024 // scale)
        return training(model, x, torch.randint(0, 10, (len(x),)), adamw(fused=on_gpu), bf16=bf16)

    class Slow(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 10**6

        def __getitem__(self, index: int) -> Any:
            values = np.random.default_rng(index).random(20_000, np.float32)
            return torch.from_numpy(np.sort(values)[:256].copy()), index % 10

    def loaded() -> Run:
        model = mlp(layers=2)
        update = torch.optim.AdamW(model.parameters(), fused=on_gpu)
        loader = torch.utils.data.DataLoader(Slow(), batch_size=32)

        def run(items: Iterable[int]) -> None:
            for _, (x, y) in zip(items, loader, strict=False):
                update.zero_grad()
                functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
                update.step()
            wait()

        return run

    def convolutions() -> Run:
        parts: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1)]
        for _ in range(8):
            parts += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
        model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
        x = torch.randn(128 // scale, 3, 64, 64)
        return training(
            model.to(device), x, torch.randint(0, 10, (len(x),)), adamw(fused=on_gpu), bf16=True
        )

    def generation() -> Run:
        """Inference of one example at a time."""
        model = Encoder(512, 6).to(device).eval()
        x = torch.randn(1, 16, 512, device=device)

        def body() -> None:
            with torch.inference_mode():
                model(x)

        return over(body)

    def products() -> Run:
        x = torch.randn(8192 // scale, 8192 // scale, device=device, dtype=torch.bfloat16)
        return over(lambda: x @ x)

    loops = [
        Loop("eager 50", "host", lambda: eager(50), 200, 50, marked=True),
        Loop("eager 200", "host", lambda: eager(200), 100, 20, marked=True),
        Loop("eager 800", "host", lambda: eager(800), 30, 10, marked=True),
        Loop("ranges 200", "host", lambda: eager(200, ranges=True), 100, 20, marked=True),
        Loop("views 400", "host", lambda: views(400), 60, 15, marked=True),
        Loop(
            "AdamW, each parameter",
            "host",
            lambda: training(mlp(), small_x, small_y, adamw(foreach=False)),
        ),
        Loop("AdamW, foreach", "host", small),
        Loop(
            "AdamW, fused",
            "host",
            lambda: training(mlp(), small_x, small_y, adamw(fused=on_gpu)),
        ),
        Loop("AdamW, ranges", "host", lambda: small(ranges=True)),
        Loop("each step waits", "host", lambda: small(reads=True)),
        Loop("compiled", "host", compiled),
        Loop("CUDA graph", "device", replayed, 100, 20, marked=True),
        Loop("inference, batch 1", "host", generation, 60, 20, marked=True),
        Loop("transformer, bf16", "device", lambda: transformer(16, bf16=True), 15),
        Loop("transformer, float32", "device", lambda: transformer(8, bf16=False), 12),
        Loop("transformer, batch 1", "host", lambda: transformer(1, bf16=True), 15),
        Loop("convolutions, bf16", "device", convolutions, 15),
        Loop("products, bf16", "device", products, 60, 20, marked=True),
        Loop("DataLoader", "input", loaded, 15),
        Loop("copies, pageable", "copies", lambda: copies(pinned=False), 20, marked=True),
        Loop("copies, pinned", "copies", lambda: copies(pinned=True), 30, marked=True),
    ]
    cpu, gpu = [ProfilerActivity.CPU], [ProfilerActivity.CUDA] if on_gpu else []
    ways: dict[str, Way] = {
        "CPU": lambda: profile(activities=cpu),
        "GPU": lambda: profile(activities=gpu or cpu),
        "both": lambda: profile(activities=cpu + gpu),
        "shapes": lambda: profile(activities=cpu + gpu, record_shapes=True),
        "memory": lambda: profile(activities=cpu + gpu, record_shapes=True, profile_memory=True),
        "nbprof, least": lambda: nbprof.profile(
            save=False, memory=False, shapes=False, sampling=False
        ),
        "nbprof": lambda: nbprof.profile(save=False),
    }
    versions = {"PyTorch": torch.__version__, "CUDA": str(torch.version.cuda)}
    if on_gpu:
        versions["device"] = torch.cuda.get_device_name()
    return loops, ways, versions


def of_jax() -> tuple[list[Loop], dict[str, Way], dict[str, str]]:
    """The same of JAX."""
    import jax
    import jax.numpy as jnp

    on_gpu = jax.devices()[0].platform == "gpu"
    scale = 1 if on_gpu else 16

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return (x**2).mean()

    @jax.jit
    def train_step(weights: Any, x: jax.Array) -> tuple[Any, jax.Array]:
        value, slopes = jax.value_and_grad(loss)(weights, x)
        return [w - 1e-3 * slope for w, slope in zip(weights, slopes, strict=True)], value

    def training(size: int, layers: int, rows: int, *, reads: bool = False) -> Run:
        weights: Any = [jnp.full((size, size), 1e-3, jnp.bfloat16)] * layers
        x = jnp.ones((rows, size), jnp.bfloat16)

        def run(items: Iterable[int]) -> None:
            mine, value = weights, None
            for _ in items:
                mine, value = train_step(mine, x)
                if reads:
                    float(value)
            jax.block_until_ready((mine, value))

        return run

    def eager(ops: int) -> Run:
        x = jnp.ones((64, 64))

        def run(items: Iterable[int]) -> None:
            y = x
            for _ in items:
                for _ in range(ops):
                    y = y * 0.999
            jax.block_until_ready(y)

        return run

    def scanned(length: int) -> Run:
        x = jnp.ones((64, 256))
        w = jnp.full((256, 256), 1e-3)

        @jax.jit
        def scan_step(x: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, length=length)[0]

        def run(items: Iterable[int]) -> None:
            y = x
            for _ in items:
                y = scan_step(y)
            jax.block_until_ready(y)

        return run

    def fed(slow: bool) -> Run:
        weights: Any = [jnp.full((4096 // scale, 4096 // scale), 1e-3, jnp.bfloat16)] * 2
        rng = np.random.default_rng(0)
        ready = rng.random((4096, 4096 // scale), np.float32)

        def batches() -> Iterator[Any]:
            while True:
                if slow:
                    yield np.sort(rng.random((256, 4096 // scale), np.float32), axis=0)
                else:
                    yield ready

        def run(items: Iterable[int]) -> None:
            mine, value = weights, None
            for _, batch in zip(items, batches(), strict=False):
                mine, value = train_step(mine, jax.device_put(batch).astype(jnp.bfloat16))
            jax.block_until_ready((mine, value))

        return run

    loops = [
        Loop("jit, small", "host", lambda: training(256, 5, 64), 300, 60),
        Loop("jit, each step waits", "host", lambda: training(256, 5, 64, reads=True), 200, 40),
        Loop("eager 20", "host", lambda: eager(20), 100, 30, marked=True),
        Loop("eager 100", "host", lambda: eager(100), 40, 15, marked=True),
        # XLA launches the kernels of each iteration from the host.
        Loop("scan of 100", "host", lambda: scanned(100), 40, 15),
        Loop("products", "device", lambda: training(4096 // scale, 4, 8192 // scale), 15),
        Loop("input by NumPy", "input", lambda: fed(slow=True), 15),
        Loop("copies", "copies", lambda: fed(slow=False), 15),
    ]

    def plain(level: int) -> AbstractContextManager[Any]:
        import tempfile

        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = level
        return jax.profiler.trace(tempfile.mkdtemp(), profiler_options=options)

    ways: dict[str, Way] = {
        "GPU": lambda: plain(0),
        "level 1": lambda: plain(1),
        "both": lambda: plain(2),
        "nbprof, least": lambda: nbprof.profile(save=False, sampling=False),
        "nbprof": lambda: nbprof.profile(save=False),
    }
    versions = {"JAX": jax.__version__, "device": jax.devices()[0].device_kind}
    return loops, ways, versions


def clocked(steps: int, times: list[float]) -> Iterator[int]:
    """Counts the steps, and notes when each begins."""
    for i in range(steps):
        times.append(time.perf_counter())
        yield i


def turn(run: Run, steps: int, way: Way = nullcontext, *, marked: bool = False) -> dict[str, Any]:
    """The time of a step: of all until the GPU is done with them, and from one call to the next."""
    times: list[float] = []

    def steps_of(items: Iterable[int]) -> Iterable[int]:
        return nbprof.steps(items) if marked else items

    # What an earlier profiler left is freed now, not within a step.
    gc.collect()
    with way():
        run(steps_of(range(WARM)))
        began = time.thread_time()
        run(steps_of(clocked(steps, times)))
        times.append(time.perf_counter())
        cpu = time.thread_time() - began
    between = [1000 * (b - a) for a, b in itertools.pairwise(times[:-1])]
    return {
        "ms": 1000 * (times[-1] - times[0]) / steps,
        "cpu_ms": 1000 * cpu / steps,
        "median_between_ms": statistics.median(between),
        "between_ms": [round(x, 4) for x in between],
    }


def file_name(name: str) -> str:
    """The folder of a loop's profile."""
    return re.sub(r"\W+", "_", name)


def said(run: Any) -> dict[str, Any]:
    """What nbprof says of a profile."""
    frame = run.steps.frame
    return {
        "overview": {k: v for k, v in run.overview.items() if k not in ("tf_functions", "top_ops")},
        "advice": run.advice.drop(columns=["link"], errors="ignore").to_dict("records"),
        "steps": frame.drop(columns=["name"], errors="ignore").to_dict("records"),
        "receipt": str(run.receipt),
    }


def record(framework: str, folder: Path, only: str, *, trial: bool) -> None:
    loops, ways, versions = of_torch() if framework == "torch" else of_jax()
    loops = [loop for loop in loops if re.search(only, loop.name)]
    if trial:
        loops = [replace(loop, steps=4, kept=4) for loop in loops]
    out: dict[str, Any] = {"versions": versions, "date": time.strftime("%Y-%m-%d"), "loops": {}}
    runs: dict[str, Run] = {}
    for loop in loops:
        try:
            runs[loop.name] = run = loop.make()
            run(range(2 * WARM))
            before = [turn(run, loop.steps) for _ in range(FIRST_TURNS)]
        except Exception:
            out["loops"][loop.name] = {"failed": traceback.format_exc()}
            continue
        out["loops"][loop.name] = {"bound": loop.bound, "before": before, "ways": {}}
        print(f"{loop.name:24} {before[-1]['ms']:9.3f} ms bare", flush=True)
    for loop in loops:
        figures = out["loops"][loop.name]
        if "failed" in figures:
            continue
        try:
            run = runs[loop.name]
            for name, way in ways.items():
                bare = turn(run, loop.steps)
                figures["ways"][name] = {
                    "bare": bare,
                    "recorded": turn(run, loop.steps, way, marked=loop.marked),
                }
            place = folder / framework / file_name(loop.name)
            times: list[float] = []
            with nbprof.profile(logdir=str(place)) as profile:
                items = clocked(loop.kept, times)
                run(nbprof.steps(items) if loop.marked else items)
                times.append(time.perf_counter())
            figures["kept"] = {
                "count": loop.kept,
                "ms": 1000 * (times[-1] - times[0]) / loop.kept,
                "between_ms": [round(1000 * (b - a), 4) for a, b in itertools.pairwise(times)],
                **said(profile),
            }
        except Exception:
            figures["failed_later"] = traceback.format_exc()
            print(figures["failed_later"], flush=True)
        recorded = {name: way["recorded"]["ms"] for name, way in figures["ways"].items()}
        print(
            f"{loop.name:24}", " ".join(f"{n} {ms:.3f}" for n, ms in recorded.items()), flush=True
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{framework}.json").write_text(json.dumps(out, default=str))


COSTS = {
    "torch": ("ops", "calls into CUDA", "ranges", "steps"),
    "jax": ("events of the host", "events of the GPU", "steps"),
}
"""What is counted in a kept profile, a step."""


def counted(framework: str, folder: Path, steps: int) -> list[float]:
    """How often a step of a kept profile has each of `COSTS`."""
    run = nbprof.load(folder).run
    if framework == "torch":
        kinds = run.activity.torch_ops.kind
        rows = [int((kinds == kind).sum()) for kind in (TORCH_OP, TORCH_CALL, TORCH_ANNOTATION)]
    else:
        on_device = (run.trace.lanes["kind"] == "device").to_numpy()[run.trace.events.lane]
        rows = [int((~on_device).sum()), int(on_device.sum())]
    return [*(row / steps for row in rows), 1.0]


def non_negative(a: Any, b: Any) -> Any:
    """Least squares without the columns whose factor would be below zero, which nothing can cost."""
    columns = list(range(a.shape[1]))
    while columns:
        factors = np.linalg.lstsq(a[:, columns], b, rcond=None)[0]
        if (factors >= 0).all():
            break
        del columns[int(factors.argmin())]
    found = np.zeros(a.shape[1])
    found[columns] = factors if columns else []
    return found


def fit(folder: Path) -> None:
    """Prints what each event of a step costs, by way of recording, and how well that predicts."""
    for framework, names in COSTS.items():
        if not (folder / f"{framework}.json").exists():
            continue
        read = json.loads((folder / f"{framework}.json").read_text())
        clock = "ms" if read["versions"].get("device", "cpu") != "cpu" else "cpu_ms"
        loops = {name: loop for name, loop in read["loops"].items() if loop.get("kept")}
        counts = {
            name: counted(framework, folder / framework / file_name(name), loop["kept"]["count"])
            for name, loop in loops.items()
        }
        print(framework, read["versions"], read["date"])
        for name, loop in loops.items():
            before = [turn[clock] for turn in loop["before"]]
            after = [way["bare"][clock] for way in loop["ways"].values()]
            parts = " ".join(f"{n:9.1f}" for n in counts[name][:-1])
            print(
                f"  {name:24} {loop['bound']:7} bare {statistics.median(before):9.3f}, once a"
                f" profiler has run {statistics.median(after):9.3f} ms, a step has {parts}"
            )
        host = [name for name, loop in loops.items() if loop["bound"] == "host"]
        a = np.array([counts[name] for name in host])
        for way in loops[host[0]]["ways"]:
            turns = [loops[name]["ways"][way] for name in host]
            bare = np.array([turn["bare"][clock] for turn in turns])
            recorded = np.array([turn["recorded"][clock] for turn in turns])
            # Each loop counts alike, however long its step.
            factors = non_negative(a / recorded[:, None], (recorded - bare) / recorded)
            off = np.abs(recorded - a @ factors - bare) / bare
            costs = ", ".join(f"{1000 * f:.2f} us {n}" for f, n in zip(factors, names, strict=True))
            print(
                f"  {way:16} {costs}; bare step of {len(host)} loops missed by"
                f" {100 * np.median(off):.0f} % (median), {100 * off.max():.0f} % (most);"
                f" recorded / bare {np.median(recorded / bare):.2f}, {(recorded / bare).max():.2f}"
            )


def pairs() -> dict[str, tuple[str, Run, Run]]:
    """By name: the rule that finds the cause, the loop with it, and the loop with the remedy."""
    import torch
    from torch import nn
    from torch.nn import functional

    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    wait = torch.cuda.synchronize if on_gpu else lambda: None

    def training(
        layers: int,
        width: int,
        optimizer: Callable[[Any], torch.optim.Optimizer],
        *,
        batch: int = 128,
        beside: Callable[[], Any] = lambda: None,
    ) -> Run:
        torch.manual_seed(0)
        parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())]
        model = nn.Sequential(*parts, nn.Linear(width, 10)).to(device)
        update = optimizer(model.parameters())
        x = torch.randn(batch, width, device=device)
        y = torch.randint(0, 10, (batch,), device=device)

        def run(items: Iterable[int]) -> None:
            for _ in items:
                beside()
                update.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                update.step()
            wait()

        return run

    def adamw(**options: Any) -> Callable[[Any], torch.optim.Optimizer]:
        return lambda parameters: torch.optim.AdamW(parameters, **options)

    def sgd(**options: Any) -> Callable[[Any], torch.optim.Optimizer]:
        return lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **options)

    def python() -> None:
        sum(i * i for i in range(60_000))

    class Items(torch.utils.data.Dataset[Any]):
        def __init__(self, prepared: bool) -> None:
            self.prepared = prepared
            self.x = torch.randn(1024, 128)

        def __len__(self) -> int:
            return 10**6

        def __getitem__(self, index: int) -> Any:
            x = self.x[index % 1024]
            if not self.prepared:
                for _ in range(10):
                    x = x * 0.999
            return x, index % 10

    def loaded(prepared: bool) -> Run:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10)).to(device)
        update = torch.optim.AdamW(model.parameters(), fused=True)
        loader = torch.utils.data.DataLoader(Items(prepared), batch_size=64)
        batch = next(iter(loader))

        def run(items: Iterable[int]) -> None:
            batches = itertools.repeat(batch) if prepared else loader
            for _, (x, y) in zip(items, batches, strict=False):
                update.zero_grad()
                functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
                update.step()
            wait()

        return run

    fused, loop = adamw(fused=True), adamw(foreach=False)
    return {
        "AdamW, 24 of 256": ("optimizer_loop", training(24, 256, loop), training(24, 256, fused)),
        "AdamW, 24 of 64": ("optimizer_loop", training(24, 64, loop), training(24, 64, fused)),
        "AdamW, 12 of 512": ("optimizer_loop", training(12, 512, loop), training(12, 512, fused)),
        "SGD, 40 of 64": (
            "optimizer_loop",
            training(40, 64, sgd(foreach=False)),
            training(40, 64, sgd(fused=True)),
        ),
        "Python": (
            "python_code",
            training(12, 128, fused, beside=python),
            training(12, 128, fused),
        ),
        "Python, many ops": (
            "python_code",
            training(40, 32, fused, beside=python),
            training(40, 32, fused),
        ),
        "DataLoader": ("loader_in_process", loaded(prepared=False), loaded(prepared=True)),
    }


def gains(folder: Path, only: str) -> None:
    """Prints the gain that is stated, as a share of the bare step, beside the measured one."""
    import torch

    if not torch.cuda.is_available():
        # A thread that waits for the others of an op spins, which its CPU time counts.
        torch.set_num_threads(1)
    out = []
    for name, (rule, slow, fast) in pairs().items():
        if not re.search(only, name):
            continue
        for run in (slow, fast):
            run(range(10))
        rounds = [one_round(rule, slow, fast) for _ in range(ROUNDS)]
        out.append({"name": name, "rule": rule, "rounds": rounds})
        middle = {
            key: statistics.median(values)
            for key in ("bare", "slowdown", "measured", "stated", "as recorded")
            if (values := [each[key] for each in rounds if each[key] is not None])
        }
        shares = ", ".join(f"{key} {value:5.2f}" for key, value in middle.items())
        print(f"{name:20} {rule:18} {shares}", flush=True)
        for each in rounds:
            if each["reason"] or each["stated"] is None:
                print("   ", each["reason"] or f"silent; found {each['rules']}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gains.json").write_text(json.dumps(out, default=str))


def one_round(rule: str, slow: Run, fast: Run) -> dict[str, Any]:
    """Shares of the step: what the remedy saves by a clock, and what is stated of the bare step.

    Without a GPU the clock is the CPU time of the thread, which other programs do not lengthen.
    """
    import torch

    clock = "ms" if torch.cuda.is_available() else "cpu_ms"
    bare = turn(slow, STEPS)[clock]
    saved = bare - turn(fast, STEPS)[clock]
    gc.collect()
    slow(range(WARM))
    place = tempfile.mkdtemp()
    with nbprof.profile(logdir=place):
        began = time.thread_time(), time.perf_counter()
        slow(range(STEPS))
        took = time.thread_time() - began[0], time.perf_counter() - began[1]
    recorded = 1000 * took[clock == "ms"] / STEPS
    p, as_recorded = nbprof.load(place), nbprof.load(place)
    step_ms = float(p.steps.summary["mean_ms"].iloc[0])
    scale = step_ms / recorded
    vars(p.run)["bare_steps"] = BareSteps(
        steps=STEPS,
        median_ms=bare * scale,
        mean_ms=bare * scale,
        low_ms=bare * scale,
        high_ms=bare * scale,
        recorded_ms=step_ms,
        is_comparable=True,
    )
    shares = []
    for profile in (p, as_recorded):
        gain = profile.advice.set_index("rule")["gain_ms_per_step"].get(rule)
        shares.append(None if gain is None else float(gain) / bare / scale)
    stated, stated_as_recorded = shares
    return {
        "bare": bare,
        "slowdown": recorded / bare,
        "measured": saved / bare,
        "stated": stated,
        "as recorded": stated_as_recorded,
        "reason": p.overview["bare_parts_reason"],
        "rules": p.advice["rule"].tolist(),
        "parts": p.steps.bare.to_dict("records"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["torch", "jax", "fit", "gains"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="pattern of the names of loops")
    parser.add_argument(
        "--try", dest="trial", action="store_true", help="a few steps of each, also on a CPU"
    )
    given = parser.parse_args()
    if given.what == "fit":
        fit(given.folder)
        return
    if given.what == "gains":
        gains(given.folder, given.only)
        return
    record(given.what, given.folder, given.only, trial=given.trial)
    # Threads of a framework may outlive the interpreter's end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

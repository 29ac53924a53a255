"""Programs of PyTorch on the CPU. Their steps are those of the optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from programs import COMPUTE, HOST, INPUT, OUTSIDE_OPS, PYTHON, Loop, busy, control, planted
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset

from nbprof.capture.machine import machine

torch.manual_seed(0)


def mlp(width: int = 512, depth: int = 3, inputs: int = 256) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def cnn(channels: int = 16) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * channels, 10),
    )  # fmt: skip


def fit(
    model: nn.Module,
    batches: Callable[[], Any],
    optimizer: str = "SGD",
    extra: Callable[[int], object] = lambda _: None,
) -> Loop:
    """The ordinary loop. `batches()` iterates over pairs for ever; `extra(i)` is what a loop does
    besides.
    """
    optim = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)

    def loop(steps: int) -> None:
        for i, (x, y) in enumerate(islice(batches(), steps)):
            optim.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optim.step()
            extra(i)

    return loop


def ready(*shape: int, classes: int = 10, dtype: torch.dtype = torch.float32) -> Callable[[], Any]:
    """Four batches that lie in memory, for ever."""
    some = [
        (torch.randn(*shape, dtype=dtype), torch.randint(0, classes, (shape[0],))) for _ in range(4)
    ]
    return lambda: cycle(some)


class Items(Dataset[Any]):
    """Items that each take so long to read (sleep), or to make (work)."""

    def __init__(self, shape: tuple[int, ...], sleep: float = 0.0, work: float = 0.0) -> None:
        self.x, self.sleep, self.work = torch.randn(64, *shape), sleep, work

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, at: int) -> Any:
        if self.sleep:
            time.sleep(self.sleep)
        if self.work:
            busy(self.work)
        return self.x[at % 64], at % 10


# Nothing is wrong with these.


@control("torch/mlp", COMPUTE)
def _() -> Loop:
    return fit(mlp(), ready(256, 256))


@control("torch/cnn", COMPUTE)
def _() -> Loop:
    return fit(cnn(), ready(16, 3, 32, 32))


@control("torch/embedding", COMPUTE)
def _() -> Loop:
    model = nn.Sequential(
        nn.EmbeddingBag(5000, 128), nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    some = [(torch.randint(0, 5000, (1024, 40)), torch.randint(0, 10, (1024,))) for _ in range(4)]
    return fit(model, lambda: cycle(some))


@control("torch/lstm", COMPUTE)
def _() -> Loop:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.out = nn.LSTM(32, 128, batch_first=True), nn.Linear(128, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.lstm(x)[0][:, -1])

    return fit(Net(), ready(32, 20, 32))


@control("torch/transformer", COMPUTE)
def _() -> Loop:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Flatten(),
        nn.Linear(128 * 32, 10),
    )
    return fit(model, ready(16, 32, 128), "AdamW")


@control("torch/loader that keeps up", COMPUTE)
def _() -> Loop:
    class Batches(Dataset[Any]):
        """Gives a batch by one slice, so that nothing is stacked item by item."""

        def __init__(self) -> None:
            self.x, self.y = torch.randn(4096, 256), torch.randint(0, 10, (4096,))

        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, at: int) -> Any:
            rows = slice(256 * (at % 16), 256 * (at % 16 + 1))
            return self.x[rows], self.y[rows]

    loader = DataLoader(Batches(), batch_size=None)
    return fit(mlp(768), lambda: iter(loader))


@control("torch/validation after the loop", COMPUTE)
def _() -> Loop:
    model = mlp()
    train, held = fit(model, ready(256, 256)), torch.randn(512, 256)

    def loop(steps: int) -> None:
        train(steps)
        with torch.no_grad():
            model(held).argmax(1).sum().item()

    return loop


@control("torch/teacher", COMPUTE)
def _() -> Loop:
    """A larger model without gradients is part of the method."""
    model, teacher = mlp(256), mlp(768)
    optim = torch.optim.SGD(model.parameters(), lr=1e-3)
    some = ready(128, 256)

    def loop(steps: int) -> None:
        for x, _ in islice(some(), steps):
            optim.zero_grad()
            with torch.no_grad():
                target = teacher(x)
            functional.mse_loss(model(x), target).backward()
            optim.step()

    return loop


# Input.


@planted(
    "torch/slow items in the process",
    "items are read one by one in the training process",
    INPUT,
    "loader_in_process",
)
def _(mended: bool) -> Loop:
    loader = DataLoader(
        Items((256,), sleep=0.001),
        16,
        num_workers=4 if mended else 0,
        persistent_workers=mended,
        prefetch_factor=8 if mended else None,
    )
    return fit(mlp(768), lambda: iter(loader))


@planted("torch/one worker", "one worker does not keep up", INPUT, "loader_workers")
def _(mended: bool) -> Loop:
    loader = DataLoader(
        Items((256,), sleep=0.002),
        16,
        num_workers=6 if mended else 1,
        persistent_workers=True,
        prefetch_factor=4,
    )
    return fit(mlp(512), lambda: iter(loader))


@planted(
    "torch/expensive items in the process",
    "items are decoded in the training process",
    INPUT,
    "loader_in_process",
)
def _(mended: bool) -> Loop:
    loader = DataLoader(Items((256,), work=0.0 if mended else 0.002), 16)
    return fit(mlp(1024), lambda: iter(loader))


@planted(
    "torch/generator", "a generator makes each batch when it is asked for", INPUT, "loader_none"
)
def _(mended: bool) -> Loop:
    some = ready(64, 256)

    def batches() -> Iterator[Any]:
        for pair in some():
            if not mended:
                time.sleep(0.02)
            yield pair

    import nbprof

    return fit(mlp(), lambda: nbprof.steps(batches()))


@planted(
    "torch/slow stream", "an iterable dataset waits for its source", INPUT, "loader_in_process"
)
def _(mended: bool) -> Loop:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for i in cycle(range(64)):
                if not mended:
                    time.sleep(0.001)
                yield np.ones(256, np.float32), i % 10

    loader = DataLoader(Stream(), 16)
    return fit(mlp(1024), lambda: iter(loader))


# The host.


@planted(
    "torch/python between the steps",
    "each step writes a log in Python",
    PYTHON,
    *OUTSIDE_OPS,
    "between_steps",
)
def _(mended: bool) -> Loop:
    return fit(mlp(512), ready(256, 256), extra=lambda _: None if mended else busy(0.03))


@planted(
    "torch/sleep in the step",
    "each step waits for something outside",
    PYTHON,
    *OUTSIDE_OPS,
    "between_steps",
)
def _(mended: bool) -> Loop:
    return fit(mlp(512), ready(256, 256), extra=lambda _: None if mended else time.sleep(0.03))


@planted(
    "torch/checkpoint now and then",
    "every fifth step writes a checkpoint",
    COMPUTE | PYTHON,
    "periodic",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    return fit(
        mlp(512),
        ready(256, 256),
        extra=lambda i: time.sleep(0.05) if i % 5 == 2 and not mended else None,
    )


@planted(
    "torch/validation now and then",
    "every fifth step validates on much data",
    COMPUTE,
    "validation",
)
def _(mended: bool) -> Loop:
    model, held = mlp(512), torch.randn(8192, 256)

    def validate(i: int) -> None:
        if i % 5 == 2 and not mended:
            with torch.no_grad():
                model(held).argmax(1).float().mean().item()

    return fit(model, ready(256, 256), extra=validate)


@planted(
    "torch/outputs are kept", "a list keeps the outputs of each step", COMPUTE, "memory_growth"
)
def _(mended: bool) -> Loop:
    model, some, kept = mlp(512), ready(2048, 256), []
    optim = torch.optim.SGD(model.parameters(), lr=1e-3)

    def loop(steps: int) -> None:
        for x, y in islice(some(), steps):
            optim.zero_grad()
            out = model(x)
            loss = functional.cross_entropy(out, y)
            loss.backward()
            optim.step()
            kept.append(loss.item() if mended else out)

    return loop


@planted(
    "torch/loop over time steps",
    "an RNN is a Python loop over its time steps",
    HOST | COMPUTE,
    "time_loop",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.rnn, self.out = (
                nn.RNNCell(32, 64),
                nn.RNN(32, 64, batch_first=True),
                nn.Linear(64, 10),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if mended:
                return self.out(self.rnn(x)[0][:, -1])
            state = torch.zeros(len(x), 64)
            for at in range(x.shape[1]):
                state = self.cell(x[:, at], state)
            return self.out(state)

    return fit(Net(), ready(8, 60, 32))


@planted(
    "torch/loop over parameters",
    "the update is a Python loop over many small parameters",
    HOST | COMPUTE,
    "optimizer_loop",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(60)), nn.Linear(16, 10))
    # On the CPU, foreach=True only moves the loop into C++.
    optim = torch.optim.Adam(model.parameters(), foreach=False, fused=mended)
    some = ready(16, 16)

    def loop(steps: int) -> None:
        for x, y in islice(some(), steps):
            optim.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optim.step()

    return loop


@planted(
    "torch/numpy in the loop",
    "each step sorts a table with NumPy that never changes",
    PYTHON,
    "library_code",
)
def _(mended: bool) -> Loop:
    table = np.random.default_rng(0).random(200_000)
    ranks = np.sort(table)

    def sort(_: int) -> float:
        return float((ranks if mended else np.sort(table))[0])

    return fit(mlp(256, 1), ready(64, 256), extra=sort)


@planted(
    "torch/tiny batches",
    "a batch is too small for what a step costs besides",
    HOST | COMPUTE,
    "tiny_batch",
    also=OUTSIDE_OPS,
)
def _(mended: bool) -> Loop:
    return fit(mlp(64, 6), ready(256 if mended else 2, 256))


if "bf16" in machine():
    # Elsewhere bfloat16 is no faster, and so there is no problem.

    @planted(
        "torch/large products in float32",
        "the CPU multiplies matrices of bfloat16 faster",
        COMPUTE,
        "cpu_bf16",
        steps=12,
    )
    def _(mended: bool) -> Loop:
        model = mlp(2048, 2, 1024)
        optim = torch.optim.SGD(model.parameters(), lr=1e-3)
        some = ready(512, 1024)

        def loop(steps: int) -> None:
            for x, y in islice(some(), steps):
                optim.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mended):
                    loss = functional.cross_entropy(model(x), y)
                loss.backward()
                optim.step()

        return loop


@planted("torch/float64", "the model is in float64 by accident", COMPUTE, "float64")
def _(mended: bool) -> Loop:
    dtype = torch.float32 if mended else torch.float64
    return fit(mlp(768).to(dtype), ready(256, 256, dtype=dtype))


@planted(
    "torch/attention written out", "attention is written out in small ops", COMPUTE, "attention"
)
def _(mended: bool) -> Loop:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.unflatten(2, (4, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, 2))
            mixed = (
                functional.scaled_dot_product_attention(q, k, v)
                if mended
                else torch.softmax(q @ k.transpose(2, 3) / 4, 3) @ v
            )
            return self.out(mixed.transpose(1, 2).flatten(2).mean(1))

    return fit(Net(), ready(8, 256, 64))


@planted("torch/validation in the loop", "each step validates", COMPUTE, "validation")
def _(mended: bool) -> Loop:
    model, held = mlp(), torch.randn(2048, 256)

    def validate(_: int) -> None:
        if not mended:
            with torch.no_grad():
                model(held).argmax(1).float().mean().item()

    return fit(model, ready(128, 256), extra=validate)

"""Traces with known periods, written by the benchmark itself: what repeats in them is exact.

They are Kineto traces, or exports of Nsight Systems where the name begins with `nsys`, without step
marks. Times are in µs, and every random number comes from a seed, so that a trace is the same each
time.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells import RECORDING, Units, calls, loop

DEVICE, HOST, THREAD, STREAM = 0, 100, 100, 7
OPERATIONS = ("gemm", "conv2d", "elementwise", "reduce", "softmax", "layer_norm", "dropout", "copy")


class Writer:
    """The events of one trace."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.events: list[dict[str, Any]] = []
        self._launches = 0

    def add(
        self,
        name: str,
        category: str,
        start: float,
        duration: float,
        thread: int = THREAD,
        **args: Any,
    ) -> None:
        """An event of a thread, or of a stream where the category is one of the device."""
        process = DEVICE if category in ("kernel", "gpu_memcpy") else HOST
        times = {"ts": round(start, 3), "dur": round(duration, 3)}
        place = {"pid": process, "tid": thread}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, **place, **times, "args": args}
        )

    def kernel(self, name: str, start: float, duration: float, stream: int = STREAM) -> None:
        """A kernel with its launch, 20 µs earlier."""
        self._launches += 1
        self.add("cudaLaunchKernel", "cuda_runtime", start - 20, 2, correlation=self._launches)
        self.add(
            name,
            "kernel",
            start,
            duration,
            stream,
            device=DEVICE,
            stream=stream,
            correlation=self._launches,
        )

    def jitter(self, value: float, by: float) -> float:
        """The value, up to this share more or less."""
        return value * (1 + by * (2 * self.random.random() - 1))

    def text(self) -> str:
        device = {"id": DEVICE, "name": "NVIDIA A100", "totalGlobalMem": 1 << 35}
        return json.dumps(
            {"schemaVersion": 1, "deviceProperties": [device], "traceEvents": self.events}
        )


@dataclass(frozen=True)
class Story:
    """One trace, and what is true of it.

    Parameters
    ----------
    name : str
        What repeats and what is special, as in `kernels/53 of them ten times`.
    units : mapping
        Accepted kinds of units and their counts.
    unit_ms : float or None
        The mean period; None of a control.
    build : callable
        Writes its events.
    """

    name: str
    units: Units
    unit_ms: float | None
    build: Callable[[Writer], None]


STORIES: dict[str, Story] = {}


Build = Callable[[Writer], None]


def story(name: str, units: Units, unit_us: float | None) -> Callable[[Build], Build]:
    """Registers a trace."""

    def add(build: Build) -> Build:
        STORIES[name] = Story(name, units, None if unit_us is None else unit_us / 1000, build)
        return build

    return add


def write(item: Story, folder: Path) -> Path:
    """Writes the trace into a folder."""
    writer = Writer(seed=sum(map(ord, item.name)))
    item.build(writer)
    stem = item.name.replace("/", "-").replace(" ", "-")
    if item.name.startswith("nsys"):
        return write_nsys(writer, folder / f"{stem}.sqlite")
    path = folder / f"{stem}.pt.trace.json"
    path.write_text(writer.text())
    return path


def write_nsys(writer: Writer, path: Path) -> Path:
    """Writes the kernels, launches and ranges (as NVTX) as an export of Nsight Systems."""
    # Behind all others, for the package may come from elsewhere.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from tests.support import nsys

    export = nsys.Export()
    nsys.facts(export, 0)
    export.add(
        "TARGET_INFO_CUDA_DEVICE",
        gpuId=0,
        cudaId=DEVICE,
        pid=4321,
        uuid="GPU-0",
        numMultiprocessors=108,
    )
    launch = 0
    for event in writer.events:
        start = round(event["ts"] * nsys.US)
        end = start + round(event["dur"] * nsys.US)
        if event["cat"] == "user_annotation":
            export.range(event["name"], start, end)
        elif event["cat"] == "cuda_runtime":
            launch = export.call("cudaLaunchKernel_v7000", start, end)
        elif event["cat"] == "kernel":
            export.kernel(event["name"], start, end, launch, stream=event["tid"])
    path.unlink(missing_ok=True)
    return export.sqlite(path)


def names(count: int) -> list[str]:
    """Names of kernels, the same ones from the first for any count."""
    return [
        f"void {OPERATIONS[k % len(OPERATIONS)]}_kernel<{k}>(float*, float*, int)"
        for k in range(count)
    ]


@dataclass(frozen=True)
class Repeats:
    """Kernels that repeat.

    Parameters
    ----------
    pattern : list of str
        Names of the kernels of a period.
    times : int
        Periods.
    period : float
        From the begin of a period to that of the next, µs.
    jitter : float
        By which share durations vary.
    replaced : float
        Share of kernels whose name is another one, at random.
    dropped : float
        Share of kernels that are missing.
    """

    pattern: list[str]
    times: int
    period: float
    jitter: float = 0.05
    replaced: float = 0.0
    dropped: float = 0.0

    def write(self, writer: Writer, start: float = 1000.0, stream: int = STREAM) -> float:
        """Writes them and gives the time of their end."""
        slot = self.period / len(self.pattern)
        for turn in range(self.times):
            for place, name in enumerate(self.pattern):
                shown = name
                if writer.random.random() < self.replaced:
                    shown = f"void other_kernel<{writer.random.randrange(10**6)}>()"
                if writer.random.random() < self.dropped:
                    continue
                begin = start + turn * self.period + place * slot
                writer.kernel(
                    shown, begin, min(slot * 0.95, writer.jitter(0.85 * slot, self.jitter)), stream
                )
        return start + self.times * self.period


@story("kernels/53 of them ten times", loop(10), 5300)
def _(writer: Writer) -> None:
    Repeats(names(53), 10, 5300).write(writer)


@story("kernels/three of them 200 times", loop(200), 300)
def _(writer: Writer) -> None:
    Repeats(names(3), 200, 300).write(writer)


@story("kernels/durations vary by half", loop(25), 2000)
def _(writer: Writer) -> None:
    Repeats(names(20), 25, 2000, jitter=0.5).write(writer)


@story("kernels/names return within a period", loop(20), 4000)
def _(writer: Writer) -> None:
    Repeats(names(4) + names(9) + names(3)[::-1] + names(4), 20, 4000).write(writer)


@story("kernels/layers repeat within a step", loop(10), 25_400)
def _(writer: Writer) -> None:
    # The layers alone would fit 94 % of all kernels; the steps fit all.
    layer = names(12)[7:]
    Repeats(names(3) + layer * 24 + names(7)[3:], 10, 25_400).write(writer)


@story("kernels/with a prologue and an epilogue", loop(30), 2000)
def _(writer: Writer) -> None:
    before = [f"void prepare_kernel<{k}>()" for k in range(40)]
    after = [f"void finish_kernel<{k}>()" for k in range(15)]
    end = Repeats(before, 1, 4000).write(writer)
    end = Repeats(names(20), 30, 2000).write(writer, end)
    Repeats(after, 1, 1500).write(writer, end)


@story("kernels/on two streams", loop(20), 3000)
def _(writer: Writer) -> None:
    Repeats(names(30), 20, 3000).write(writer)
    for k in range(35):
        writer.kernel(
            f"void copy_kernel<{k % 4}>()",
            1000 + k * 1700 + writer.random.random() * 300,
            120,
            stream=20,
        )


@story("kernels/two in a hundred replaced", loop(40), 2500)
def _(writer: Writer) -> None:
    Repeats(names(25), 40, 2500, replaced=0.02).write(writer)


@story("kernels/a tenth of a percent missing", loop(40), 2500)
def _(writer: Writer) -> None:
    Repeats(names(25), 40, 2500, dropped=0.001).write(writer)


@story("kernels/a period that holds for 80 %", RECORDING, None)
def _(writer: Writer) -> None:
    Repeats(names(25), 40, 2500, replaced=0.2).write(writer)


@story("kernels/launched long before they run", loop(40), 2250)
def _(writer: Writer) -> None:
    for k in range(40 * 5):
        correlation = k + 1
        writer.add("cudaLaunchKernel", "cuda_runtime", 1000 + 50 * k, 4, correlation=correlation)
        name = names(5)[k % 5]
        writer.add(
            name,
            "kernel",
            1100 + 450 * k,
            440,
            STREAM,
            device=DEVICE,
            stream=STREAM,
            correlation=correlation,
        )


@story("kernels/layers of a model, the last of its own size", loop(40), 4500)
def _(writer: Writer) -> None:
    body = [*["gemm", "relu"] * 22, "gemm"]
    for k in range(40 * len(body)):
        writer.kernel(body[k % len(body)], 1000 + 100 * k, 90)


@story("kernels/no repetition", RECORDING, None)
def _(writer: Writer) -> None:
    for k in range(600):
        writer.kernel(writer.random.choice(names(60)), 1000 + 100 * k, writer.jitter(80, 0.2))


@story("kernels/each of them once", RECORDING, None)
def _(writer: Writer) -> None:
    Repeats(names(120), 1, 12_000).write(writer)


@story("kernels/twice the same", RECORDING, None)
def _(writer: Writer) -> None:
    # Two repeats are too few for a loop: the second may be a check of the first.
    Repeats(names(40), 2, 4000).write(writer)


@story("ops/89 of them ten times", loop(10), 8900)
def _(writer: Writer) -> None:
    for turn in range(10):
        for k in range(89):
            writer.add(
                f"aten::op_{k % 61}", "cpu_op", 1000 + 8900 * turn + 100 * k, writer.jitter(85, 0.1)
            )


@story("ops/no repetition", RECORDING, None)
def _(writer: Writer) -> None:
    for k in range(500):
        writer.add(
            f"aten::op_{writer.random.randrange(50)}",
            "cpu_op",
            1000 + 100 * k,
            writer.jitter(85, 0.1),
        )


Labels = Callable[[int], Mapping[str, float]]
"""The ranges of the n-th period, and their shares of it."""


def ranges(
    writer: Writer,
    labels: Labels,
    count: int,
    period: float,
    category: str = "user_annotation",
) -> None:
    """Ranges one after the other in each period, with kernels in a shuffled order below them."""
    for turn in range(count):
        begin = 1000 + turn * period
        for label, share in labels(turn).items():
            writer.add(label, category, begin, share * period)
            slot = share * period / 6
            for k in range(5):
                writer.add(
                    f"aten::op_{writer.random.randrange(40)}",
                    "cpu_op",
                    begin + slot * k + 5,
                    slot * 0.7,
                )
                writer.kernel(writer.random.choice(names(40)), begin + slot * k + 30, slot * 0.6)
            begin += share * period


@story("ranges/iteration with its number", loop(20), 3000)
def _(writer: Writer) -> None:
    ranges(writer, lambda turn: {f"iteration {turn + 3}": 1.0}, 20, 3000)


@story("ranges/batch", loop(25), 2000)
def _(writer: Writer) -> None:
    ranges(writer, lambda _: {"batch": 1.0}, 25, 2000)


@story("ranges/forward and backward", loop(20), 4000)
def _(writer: Writer) -> None:
    ranges(writer, lambda _: {"forward": 0.4, "backward": 0.6}, 20, 4000)


@story("ranges/batches in epochs", loop(30), 2000)
def _(writer: Writer) -> None:
    for epoch in range(3):
        writer.add(f"epoch {epoch}", "user_annotation", 999 + epoch * 20_000, 19_999)
    ranges(writer, lambda _: {"batch": 1.0}, 30, 2000)


@story("ranges/one around all", RECORDING, None)
def _(writer: Writer) -> None:
    ranges(writer, lambda _: {"evaluation": 1.0}, 1, 60_000)


@story("ranges/each with a name of its own", RECORDING, None)
def _(writer: Writer) -> None:
    parts = ("load weights", "tokenize", "encode", "rerank", "write answers")
    ranges(writer, lambda turn: {parts[turn]: 1.0}, 5, 9000)


@story("modules/calls of one model", calls(15), 3000)
def _(writer: Writer) -> None:
    ranges(writer, lambda _: {"nn.Module: ResNet_0": 1.0}, 15, 3000, "python_function")


@story("marks/steps of the profiler", {"step": (12,)}, 3000)
def _(writer: Writer) -> None:
    ranges(writer, lambda turn: {f"ProfilerStep#{turn + 5}": 1.0}, 12, 3000)


@story("nsys/NVTX ranges", loop(20), 3000)
def _(writer: Writer) -> None:
    ranges(writer, lambda _: {"train_batch": 1.0}, 20, 3000)


@story("nsys/NVTX ranges with a number, in an epoch", loop(16), 3000)
def _(writer: Writer) -> None:
    writer.add("epoch 0", "user_annotation", 999, 48_001)
    ranges(writer, lambda turn: {f"iter {turn}": 1.0}, 16, 3000)


@story("nsys/kernels without ranges", loop(12), 4000)
def _(writer: Writer) -> None:
    Repeats(names(40), 12, 4000).write(writer)


@story("nsys/no repetition", RECORDING, None)
def _(writer: Writer) -> None:
    for k in range(500):
        writer.kernel(writer.random.choice(names(60)), 1000 + 100 * k, writer.jitter(80, 0.2))

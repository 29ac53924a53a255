"""What does a recording cost the workers of a DataLoader, as a share of their own CPU time?

Two workers make items of a known amount of work. Two things are measured:

- the steady state: in the same workers, the recording is open and paused in turn, and the CPU time
  of a batch is compared between neighbouring intervals, which the noise of the machine hits alike;
- the fixed part, which a worker pays once: loaders of few items with a recording and without, each
  in a process of its own (`getrusage` of the ended workers).

Printed are medians with 95 % intervals of Hodges and Lehmann.

    python benchmarks/workers_cost.py [--pairs 200] [--turns 8] [--size "1 ms"]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
import torch.utils.data._utils.worker as worker_module
from torch.utils.data import DataLoader, Dataset

import nbprof
from nbprof.capture.experiments.statistics import median_of
from nbprof.capture.loader_workers.entry import LOOP, Entry
from nbprof.capture.loader_workers.folder import PAUSED, Folder

SIZES = {"0.1 ms": 2_000, "1 ms": 20_000, "10 ms": 200_000}
"""Numbers that an item sorts."""
WORKERS, BATCH = 2, 16
FEW, ENDLESS = 32, 100_000_000
"""Items of a loader that is all start and end, and of one that has more than are taken."""
SETTLE_S, INTERVAL_S = 0.15, 0.25
"""Workers notice within 0.1 s that the recording was opened or paused; then it is measured."""
CONFIDENCE = 0.95


class Sorted:
    """A transform with a known amount of work."""

    def __init__(self, count: int) -> None:
        self.numbers = np.random.default_rng(0).random(count)

    def __call__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(np.sort(self.numbers)[index % len(self.numbers)]))


class Items(Dataset):
    def __init__(self, transform: Sorted, count: int) -> None:
        self.transform, self.count = transform, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(index)


def loader(numbers: int, count: int) -> DataLoader:
    return DataLoader(
        Items(Sorted(numbers), count),
        BATCH,
        sampler=range(count),
        num_workers=WORKERS,
        multiprocessing_context="fork",
    )


def cpu_s_of_few(numbers: int, recorded: bool) -> float:
    """CPU seconds of workers that make few items."""
    batches = loader(numbers, FEW)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if recorded:
        with nbprof.profile(save=False, steps="all"):
            for _ in batches:
                pass
    else:
        for _ in batches:
            pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def fixed_ms(numbers: str, turns: int) -> list[float]:
    """CPU milliseconds that a recording adds to each worker once."""
    results = []
    for _ in range(turns):
        times = {}
        for recorded in (False, True):
            command = [sys.executable, __file__, "--few", numbers, *["--recorded"] * recorded]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
            times[recorded] = json.loads(done.stdout.strip().splitlines()[-1])
        results.append(1e3 * (times[True] - times[False]) / WORKERS)
    return results


def cpu_ns(processes: list[int]) -> int:
    """CPU time of all threads of some processes so far."""
    files = [path for pid in processes for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text(encoding="ascii").split()[0]) for file in files)


def batch_ns(batches: Iterator[Any], processes: list[int]) -> float:
    """CPU time of the workers per batch, over one interval."""
    settled = time.perf_counter() + SETTLE_S
    while time.perf_counter() < settled:
        next(batches)
    before, count, end = cpu_ns(processes), 0, time.perf_counter() + INTERVAL_S
    while time.perf_counter() < end:
        next(batches)
        count += 1
    return (cpu_ns(processes) - before) / count


def steady_percent(numbers: int, pairs: int) -> tuple[list[float], float]:
    """What the recording adds to the CPU time of a batch, in percent, and that time in ms."""
    folder = Folder.new()
    folder.open(PAUSED)
    loop = getattr(worker_module, LOOP)
    setattr(worker_module, LOOP, Entry(loop, True, folder))
    try:
        batches: Any = iter(loader(numbers, ENDLESS))
        processes = [worker.pid for worker in batches._workers]
        results, paused_ns = [], []
        for pair in range(pairs):
            taken = {}
            for window in (PAUSED, pair + 1) if pair % 2 else (pair + 1, PAUSED):
                folder.open(window)
                taken[window != PAUSED] = batch_ns(batches, processes)
            results.append(100 * (taken[True] / taken[False] - 1))
            paused_ns.append(taken[False])
        batches._shutdown_workers()
    finally:
        setattr(worker_module, LOOP, loop)
        folder.remove()
    return results, float(np.median(paused_ns)) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200, help="of intervals, for the steady state")
    parser.add_argument("--turns", type=int, default=8, help="for the fixed part")
    parser.add_argument("--size", choices=SIZES, action="append", help="only items of this size")
    parser.add_argument("--few", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--recorded", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.few:
        # The first recording of a process takes what later ones do not.
        cpu_s_of_few(SIZES[options.few], options.recorded)
        print(json.dumps(cpu_s_of_few(SIZES[options.few], options.recorded)))
        return
    for size in options.size or SIZES:
        shares, cpu_ms = steady_percent(SIZES[size], options.pairs)
        share = median_of(np.array(shares), CONFIDENCE)
        print(
            f"items of {size}: {share.value:+.2f} % [{share.low:+.2f}, {share.high:+.2f}]"
            f" of {cpu_ms:.2f} ms of CPU time a batch of {BATCH}",
            flush=True,
        )
        if options.turns:
            fixed = median_of(np.array(fixed_ms(size, options.turns)), CONFIDENCE)
            print(
                f"    and {fixed.value:.1f} ms [{fixed.low:.1f}, {fixed.high:.1f}] once per worker",
                flush=True,
            )


if __name__ == "__main__":
    main()

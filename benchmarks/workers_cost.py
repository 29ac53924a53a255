"""What does a recording cost the workers of a DataLoader, as a share of their own CPU time?

Two workers make items of a known amount of work, with a recording and without in turn, each in a
process of its own; CPU time of the ended workers is the system's (`getrusage`). A loader of few
items gives the fixed part, which each worker pays once; what further items take beyond it is the
steady state. Printed are, for items of several sizes, the median fixed part per worker and the
median added share of the steady state, with 95 % intervals of Hodges and Lehmann.

    python benchmarks/workers_cost.py [--turns 8]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import nbprof
from nbprof.capture.experiments.statistics import median_of

SIZES = {"0.1 ms": (2_000, 20_000), "1 ms": (20_000, 4_000), "10 ms": (200_000, 400)}
"""Numbers that an item sorts, and items."""
WORKERS = 2
FEW = 32
"""Items of a loader that is all start and end."""
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


def cpu_s(numbers: int, count: int, recorded: bool) -> float:
    """CPU seconds of the workers, all of whose batches are recorded or none."""
    loader = DataLoader(
        Items(Sorted(numbers), count), 16, num_workers=WORKERS, multiprocessing_context="fork"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if recorded:
        with nbprof.profile(save=False, steps="all"):
            for _ in loader:
                pass
    else:
        for _ in loader:
            pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def once(size: str, recorded: bool) -> dict[str, float]:
    """CPU seconds of the workers for few items and for all."""
    command = [sys.executable, __file__, "--once", size, *["--recorded"] * recorded]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    times: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return times


def compare(size: str, turns: int) -> None:
    """Print what a recording adds."""
    fixed_ms, shares = [], []
    for turn in range(turns):
        order = (False, True) if turn % 2 else (True, False)
        times = {recorded: once(size, recorded) for recorded in order}
        fixed_ms.append(1e3 * (times[True]["few"] - times[False]["few"]) / WORKERS)
        steady = {recorded: each["all"] - each["few"] for recorded, each in times.items()}
        shares.append(100 * (steady[True] / steady[False] - 1))
    fixed = median_of(np.array(fixed_ms), CONFIDENCE)
    share = median_of(np.array(shares), CONFIDENCE)
    print(
        f"items of {size}: {share.value:+.2f} % [{share.low:+.2f}, {share.high:+.2f}]"
        f" of {steady[False]:.2f} s of CPU time, and {fixed.value:.1f} ms"
        f" [{fixed.low:.1f}, {fixed.high:.1f}] once per worker",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--size", choices=SIZES, action="append", help="only items of this size")
    parser.add_argument("--once", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--recorded", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        numbers, count = SIZES[options.once]
        # The first recording of a process takes what later ones do not.
        cpu_s(numbers, FEW, options.recorded)
        few = cpu_s(numbers, FEW, options.recorded)
        print(json.dumps({"few": few, "all": cpu_s(numbers, count, options.recorded)}))
        return
    for size in options.size or SIZES:
        compare(size, options.turns)


if __name__ == "__main__":
    main()

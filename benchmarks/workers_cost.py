"""What does a recording cost the workers of a DataLoader, as a share of their own CPU time?

Two workers make items of a known amount of work, with a recording and without in turn, each in a
process of its own; CPU time of the ended workers is the system's (`getrusage`). Printed are the
median added share and its 95 % interval of Hodges and Lehmann, for items of several sizes.

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
        Items(Sorted(numbers), count), 16, num_workers=2, multiprocessing_context="fork"
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


def once(size: str, recorded: bool) -> float:
    command = [sys.executable, __file__, "--once", size, *["--recorded"] * recorded]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--once", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--recorded", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(cpu_s(*SIZES[options.once], options.recorded)))
        return
    for size in SIZES:
        shares = []
        for turn in range(options.turns):
            order = (False, True) if turn % 2 else (True, False)
            times = {recorded: once(size, recorded) for recorded in order}
            shares.append(100 * (times[True] / times[False] - 1))
        share = median_of(np.array(shares), CONFIDENCE)
        print(
            f"items of {size}: {share.value:+.2f} % [{share.low:+.2f}, {share.high:+.2f}]"
            f" of {times[False]:.2f} s of CPU time",
            flush=True,
        )


if __name__ == "__main__":
    main()

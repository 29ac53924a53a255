"""Where nbprof's own time goes between `load` and the frame of framework ops: seconds of each stage
without those inside it.

python benchmarks/stages.py big.xplane.pb ...
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

STAGES = {
    "find files": ["nbprof.profiles.load.find"],
    "read bytes": ["nbprof.core.files.LocalFile.read"],
    "decode": ["nbprof.formats.xspace.xspace.read", "nbprof.formats.chrome.chrome.read"],
    "interpret": [
        "nbprof.dialects.xplane.xplane.interpret",
        "nbprof.dialects.chrome.chrome.interpret",
    ],
    "nest": [
        "nbprof.core.nesting.parents",
        "nbprof.core.nesting.depths",
        "nbprof.core.nesting.self_times",
    ],
    "op stats": ["nbprof.analysis.ops.ops.host_self_times", "nbprof.analysis.ops.ops.frames"],
}


@contextmanager
def timed(stage: Callable[[str, float], None], names: dict[str, list[str]]) -> Iterator[list[str]]:
    """Functions by dotted name, wrapped so that their own time is told; gives those that are not
    there.
    """
    absent: list[str] = []
    before: list[tuple[object, str, object]] = []
    stack: list[float] = []
    for label, targets in names.items():
        for target in targets:
            module, *path = target.rsplit(".", 2 if target.split(".")[-2][0].isupper() else 1)
            try:
                owner = importlib.import_module(module)
                for name in path[:-1]:
                    owner = getattr(owner, name)
                original = getattr(owner, path[-1])
            except (ImportError, AttributeError):
                absent.append(target)
                continue

            def wrapped(*args, label=label, original=original, **kwargs):
                began = time.perf_counter()
                stack.append(0.0)
                try:
                    return original(*args, **kwargs)
                finally:
                    took = time.perf_counter() - began
                    stage(label, took - stack.pop())
                    if stack:
                        stack[-1] += took

            setattr(owner, path[-1], wrapped)
            before.append((owner, path[-1], original))
    try:
        yield absent
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def stages(path: Path) -> None:
    """Where our own time goes, in this process."""
    os.environ["NBPROF_CACHE"] = "0"
    spent: dict[str, float] = {}

    def stage(label: str, seconds: float) -> None:
        spent[label] = spent.get(label, 0.0) + seconds

    with timed(stage, STAGES) as absent:
        from nbprof.profiles.load import load

        began = time.perf_counter()
        profile = load(path)
        rows = len(profile.ops.frame)
        done = time.perf_counter()
    spent["the rest"] = done - began - sum(spent.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(
        f"{path.name}: {profile.receipt.events:,} events, {rows:,} rows, {done - began:.2f} s, peak"
        f" {peak:,.0f} MB"
    )
    print("  " + ", ".join(f"{label} {seconds:.3f}" for label, seconds in spent.items()))
    if absent:
        print("  not there: " + ", ".join(absent))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        stages(Path(name))

"""Does nbprof find which stage of a DataLoader is slow, at which line, how slow, and how many workers
keep up?

In every case one stage of the items is slow: the dataset, one of the transforms of a chain, or the
collation; workers are forked, spawned, come from a fork server, or there are none. The stage times
itself and hands the sum on with its batch, which is the truth that nbprof's time per item is
compared with. The number of workers that nbprof recommends is compared with the best of all that
are tried without a recording. Controls have no slow stage: nothing may be found in them.

    python benchmarks/workers.py [--quick] [--only TEXT] [--store FILE]

A case runs in a process of its own; stages wait without a core, so that a busy machine changes
their times little. `--quick` takes some minutes on two cores, all cases about four times as long.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

BATCH = 8
STAGES = ("dataset", "first", "second", "module", "function", "collate")
METHODS = tuple(multiprocessing.get_all_start_methods())
FOUND = (
    "loader_workers",
    "loader_in_process",
    "loader_slow_items",
    "loader_restarts",
    "loader_pickle",
)


def now() -> int:
    return time.perf_counter_ns()


class Compose:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, value: Any) -> Any:
        for transform in self.transforms:
            value = transform(value)
        return value


class First:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, value: Any) -> Any:
        began = now()
        if self.seconds:
            time.sleep(self.seconds)  # slow: first
        value[0] += now() - began
        return value


class Second(First):
    def __call__(self, value: Any) -> Any:
        began = now()
        if self.seconds:
            time.sleep(self.seconds)  # slow: second
        value[0] += now() - began
        return value


class Module(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, value: Any) -> Any:
        began = now()
        if self.seconds:
            time.sleep(self.seconds)  # slow: module
        value[0] += now() - began
        return value


def function(value: Any) -> Any:
    began = now()
    if float(value[1]):
        time.sleep(float(value[1]))  # slow: function
    value[0] += now() - began
    return value


class Collate:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, items: list[Any]) -> Any:
        batch = torch.stack(items)
        began = now()
        if self.seconds:
            time.sleep(self.seconds * len(items))  # slow: collate
        batch[0, 0] += now() - began
        return batch


def chain(stage: str, seconds: float) -> Compose:
    return Compose(
        *(
            kind(seconds * (name == stage))
            for kind, name in ((First, "first"), (Second, "second"), (Module, "module"))
        ),
        function,
    )


class Items(Dataset):
    def __init__(self, stage: str, seconds: float, count: int) -> None:
        self.seconds, self.count = seconds * (stage == "dataset"), count
        self.of_function = seconds * (stage == "function")
        self.transform: Any = chain(stage, seconds)

    def __len__(self) -> int:
        return self.count

    def item(self) -> Any:
        value = torch.zeros(64, dtype=torch.float64)
        value[1] = self.of_function
        return value

    def __getitem__(self, index: int) -> Any:
        value = self.item()
        began = now()
        if self.seconds:
            time.sleep(self.seconds)  # slow: dataset
        value[0] += now() - began
        return self.transform(value)


class Stream(IterableDataset):
    def __init__(self, stage: str, seconds: float, count: int) -> None:
        self.items = Items(stage, seconds, count)
        self.transform, self.items.transform = self.items.transform, unchanged

    def __iter__(self) -> Any:
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        for _ in range(first, self.items.count, every):
            value = self.items.item()
            began = now()
            if self.items.seconds:
                time.sleep(self.items.seconds)  # slow: stream
            value[0] += now() - began
            yield self.transform(value)


def unchanged(value: Any) -> Any:
    return value


class Case:
    """A loader with one slow stage; without one, a control."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stage, self.method, self.kind, workers = name.split("/")
        self.workers = int(workers)
        self.seconds, self.step_s, self.batches = 0.004, 0.012, 60
        if self.stage == "none":
            # To hand over a batch takes about 2 ms, which must be little of a step.
            self.seconds, self.step_s, self.batches = 0.0, 0.15, 25

    def loader(self, workers: int, batches: int) -> DataLoader:
        make = Stream if self.kind == "stream" else Items
        dataset = make(self.stage, self.seconds, BATCH * batches)
        context = self.method if workers else None
        collate = Collate(self.seconds * (self.stage == "collate"))
        return DataLoader(
            dataset,
            BATCH,
            num_workers=workers,
            multiprocessing_context=context,
            collate_fn=collate,
            persistent_workers=workers > 0,
        )

    def loop(self, loader: DataLoader) -> tuple[float, float]:
        """The sum of the stage's own times in ns, and seconds per step without the first ones."""
        model = nn.Linear(62, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        own, ends = 0.0, []
        for batch in loader:
            own += float(batch[:, 0].sum())
            optimizer.zero_grad()
            model(batch[:, 2:].float()).square().mean().backward()
            time.sleep(self.step_s)
            optimizer.step()
            ends.append(time.perf_counter())
        steps = [after - before for before, after in itertools.pairwise(ends)]
        return own, statistics.mean(steps[len(steps) // 3 :])

    @property
    def line(self) -> int:
        stage = "stream" if (self.kind, self.stage) == ("stream", "dataset") else self.stage
        lines = Path(__file__).read_text(encoding="utf-8").splitlines()
        return next(n for n, line in enumerate(lines, 1) if line.endswith(f"# slow: {stage}"))

    def recorded(self) -> dict[str, Any]:
        import nbprof

        loader = self.loader(self.workers, self.batches)
        with warnings.catch_warnings(), nbprof.profile(save=False, steps="all") as run:
            warnings.simplefilter("ignore")
            own, _ = self.loop(loader)
        profile = run.result
        # Workers that stay are done before the process ends.
        del loader
        return self.judged(profile, own)

    def judged(self, profile: Any, own_ns: float) -> dict[str, Any]:
        advice = {row.rule: row.evidence for row in profile.advice.itertuples()}
        found = [rule for rule in FOUND if rule in advice]
        result: dict[str, Any] = {"found": found}
        rows = profile.input_pipeline.transforms
        if self.stage == "none" or not len(rows):
            return result
        names = {
            "dataset": "Stream" if self.kind == "stream" else "Items",
            "function": "function",
            "collate": "Collate",
        }
        name = names.get(self.stage, self.stage.capitalize())
        top = rows.iloc[0]
        result["stage"] = bool(top["stage"] == name)
        named = "".join(advice.get(rule, "") for rule in ("loader_workers", "loader_in_process"))
        result["in_finding"] = f"**{name}**" in named
        result["line"] = f":{self.line})" in str(top["inside"])
        truth = own_ns / 1e6 / (BATCH * self.batches)
        result["error_percent"] = 100 * (float(top["per_item_ms"]) / truth - 1)
        needed = re.search(r"\*\*(\d+) workers?\*\*, each", advice.get("loader_workers", ""))
        result["needed"] = int(needed.group(1)) if needed else self.workers
        return result

    def best(self, most: int, batches: int) -> dict[str, Any]:
        """The least number of workers whose steps are within 5 % of the fastest."""
        times = {n: self.loop(self.loader(n, batches))[1] for n in range(1, most + 1)}
        fastest = min(times.values())
        best = min(n for n, seconds in times.items() if seconds <= 1.05 * fastest)
        return {
            "best": best,
            "step_ms": {n: round(1000 * seconds, 2) for n, seconds in times.items()},
        }


def cases(quick: bool) -> list[str]:
    methods = ("fork",) if quick else METHODS
    names = [f"{stage}/{method}/items/1" for stage in STAGES for method in methods]
    names += [f"{stage}/-/items/0" for stage in STAGES]
    streams = STAGES[:1] if quick else STAGES
    names += [f"{stage}/fork/stream/{workers}" for stage in streams for workers in (0, 1)]
    if quick:
        names += [f"second/{method}/items/1" for method in METHODS if method != "fork"]
    controls = [f"none/{method}/{kind}/2" for method in methods for kind in ("items", "stream")]
    return [*names, *controls, "none/-/items/0"]


def run(name: str, *, tries: bool, batches: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--case", name]
    command += ["--tries", "6", "--batches", str(batches)] if tries else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"case"')]
    if not lines:
        return {"case": name, "failed": done.stderr[-500:]}
    return json.loads(lines[-1])


def part(results: list[dict[str, Any]], key: str) -> str:
    values = [result[key] for result in results if key in result]
    return f"{sum(values)} of {len(values)}"


def report(results: list[dict[str, Any]]) -> None:
    planted = [result for result in results if not result["case"].startswith("none/")]
    controls = [result for result in results if result["case"].startswith("none/")]
    errors = [abs(result["error_percent"]) for result in planted if "error_percent" in result]
    print("slow stage is the first row of transforms:", part(planted, "stage"))
    print("slow stage is named in the finding:", part(planted, "in_finding"))
    print("line inside it is right:", part(planted, "line"))
    if errors:
        within = sum(error <= 5 for error in errors)
        print(
            f"time per item: median error {statistics.median(errors):.1f} %, largest {max(errors):.1f} %, within 5 %: {within} of {len(errors)}"
        )
    for result in planted:
        if "best" in result:
            print(
                f"workers for {result['case']}: recommended {result['needed']}, best {result['best']} of {result['step_ms']}"
            )
    print(
        "controls with a finding on the loader:",
        sum(bool(result["found"]) for result in controls if "found" in result),
        "of",
        len(controls),
    )
    for result in results:
        if "failed" in result:
            print("failed:", result["case"], result["failed"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one start method for most cases")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--store", type=Path, help="a file for the results as JSON")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--tries", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, default=60, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        case = Case(options.case)
        result = {"case": case.name, **case.recorded()}
        if options.tries:
            result |= case.best(options.tries, options.batches)
        print(json.dumps(result))
        sys.stdout.flush()
        # The result is out: nothing of the loaders is waited for.
        os._exit(0)
    names = [name for name in cases(options.quick) if options.only in name]
    tried = (
        {"second/fork/items/1", "dataset/fork/items/1"}
        if options.quick
        else {f"{stage}/fork/items/1" for stage in STAGES}
    )
    results = []
    for name in names:
        began = time.perf_counter()
        results.append(run(name, tries=name in tried, batches=40 if options.quick else 120))
        print(
            f"{name:28} {time.perf_counter() - began:6.1f} s  {json.dumps({k: v for k, v in results[-1].items() if k != 'case'})}",
            flush=True,
        )
    report(results)
    if options.store:
        options.store.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

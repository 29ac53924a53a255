"""What grows with what: the cost of load, first picture and whole output against events, names,
lanes and steps, each alone.

    python benchmarks/growth.py [--only events names lanes steps] [--format xspace|kineto]
    [--repeats 3] [--write]

Of the profiles, which `synthetic` makes, one size grows while the others stay. Each is opened in a
fresh process without the cache, imports apart; of the repeats the one with the least CPU time
counts. Between two neighbours stands the exponent: by what power of the size the cost grows. Times
are CPU seconds of all threads, which other load on the machine changes little.

What takes most and what grows fastest is told by frame (`steps.frame`) and by tab, each without the
frames that it asks for. `--write` writes the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# A user's Python keeps what it compiled; a process that compiles nbprof again takes half a second
# longer.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

BASE = {"events": 1_000_000, "names": 100, "lanes": 10, "steps": 100}
GROWN = {
    "xspace": {
        "events": (10_000, 100_000, 1_000_000, 10_000_000),
        "names": (1, 100, 1_000, 10_000, 100_000),
        "lanes": (2, 10, 100, 1_000, 10_000),
        "steps": (1, 100, 1_000, 10_000, 100_000),
    },
    "kineto": {
        "events": (10_000, 100_000, 1_000_000),
        "names": (1, 100, 100_000),
        "lanes": (2, 10, 10_000),
        "steps": (1, 100, 100_000),
    },
}
TITLES = {
    "xspace": "XSpace (TensorFlow, one GPU)",
    "kineto": "Kineto (PyTorch, one GPU, `.json.gz`)",
}
SUFFIX = {"xspace": ".xplane.pb", "kineto": ".json.gz"}
WORTH = 0.03
"""Of the whole output: what takes less is not named."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- growth: made by benchmarks/growth.py --write -->", "<!-- end of growth -->"


class Spent:
    """CPU seconds of what was wrapped, each without what was wrapped inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._here = threading.local()

    def timed(self, label: str, call: Callable[[], Any]) -> Any:
        stack = self._here.__dict__.setdefault("stack", [0.0])
        began = time.thread_time()
        stack.append(0.0)
        try:
            return call()
        finally:
            took = time.thread_time() - began
            self.seconds[label] = self.seconds.get(label, 0.0) + took - stack.pop()
            stack[-1] += took

    def wrap(self) -> None:
        """All frames of runs, all tabs, and what an output is made of."""
        from nbprof.display import codec
        from nbprof.profiles.report import mimebundle
        from nbprof.run.frame import Memo
        from nbprof.tools import register

        get = Memo.get
        Memo.get = lambda memo, name, compute: get(
            memo, name, lambda: self.timed(f"`{name}`", compute)
        )  # type: ignore[method-assign]
        for tab, tool in register.tools().items():
            for name in (
                "has",
                "payload",
                "extra_parts",
                "label",
                "count",
                "follows",
                "first",
                "omissions",
                "picture",
                "chart",
            ):
                if call := getattr(tool, name):
                    label = "picture" if name in ("picture", "chart") else f"tab {tab}"
                    object.__setattr__(
                        tool,
                        name,
                        lambda *a, call=call, label=label: self.timed(label, lambda: call(*a)),
                    )
        for owner, name, label in ((codec, "pack", "packing"), (mimebundle, "static_html", "HTML")):
            call = getattr(owner, name)
            setattr(
                owner,
                name,
                lambda *a, call=call, label=label, **k: self.timed(label, lambda: call(*a, **k)),
            )


def opened(path: str) -> dict[str, Any]:
    """In this process: what it costs to open a file, to its first picture and to the whole
    output.
    """
    os.environ["NBPROF_CACHE"] = "0"
    from nbprof.profiles.load import load
    from nbprof.profiles.report import mimebundle
    from nbprof.tools import dashboard

    spent = Spent()
    spent.wrap()

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

    imports = peak()
    times = [time.process_time()]
    profile = load(path)
    times.append(time.process_time())
    read = peak()
    first = dashboard.early(profile.run) if dashboard.large(profile.run) else None
    if first is not None:
        mimebundle.early(first, None)
    times.append(time.process_time())
    profile.mimebundle()
    times.append(time.process_time())
    if first is None:
        # What is made at once is its own first picture.
        times[2] = times[3]
    return {
        "events": profile.receipt.events,
        "load": times[1] - times[0],
        "first": times[2] - times[1],
        "whole": times[3] - times[1],
        "memory": peak(),
        "memory of load": read,
        "memory of imports": imports,
        "parts": {"load": times[1] - times[0], **spent.seconds},
    }


def measured(form: str, size: dict[str, int], folder: Path, repeats: int) -> dict[str, Any]:
    """The figures of a profile, made for it."""
    path = folder / f"run{SUFFIX[form]}"
    # In a process of its own: what it takes would count as the peak of those that it starts.
    make = (
        f"import synthetic, pathlib; synthetic.write_{form}(pathlib.Path({str(path)!r}),"
        f" **{size!r})"
    )
    subprocess.run([sys.executable, "-c", make], check=True, cwd=Path(__file__).parent)
    runs = []
    for _ in range(repeats):
        out = subprocess.run(
            [sys.executable, __file__, "--one", str(path)],
            check=True,
            capture_output=True,
            text=True,
        )
        runs.append(json.loads(out.stdout))
    path.unlink()
    best = min(runs, key=lambda run: run["load"] + run["whole"])
    least = {part: min(run["parts"].get(part, 0.0) for run in runs) for part in best["parts"]}
    return {
        **best,
        **{k: min(run[k] for run in runs) for k in ("load", "first", "whole")},
        "parts": least,
    }


def exponent(
    of: Callable[[dict[str, Any]], float], before: tuple[int, dict], after: tuple[int, dict]
) -> float:
    """By what power of the size a figure grows from one point to the next."""
    low, high = of(before[1]), of(after[1])
    return (
        math.log(high / low) / math.log(after[0] / before[0]) if low > 0 and high > 0 else math.nan
    )


def fastest(before: tuple[int, dict], after: tuple[int, dict]) -> tuple[str, float]:
    """Of what takes a part worth naming, what grows fastest, and its exponent."""
    worth = WORTH * after[1]["whole"]
    found = {
        part: exponent(lambda run, part=part: run["parts"].get(part, 0.0), before, after)
        for part, seconds in after[1]["parts"].items()
        if seconds > worth and before[1]["parts"].get(part, 0.0) > 0.001
    }
    return max(found.items(), key=lambda item: item[1], default=("–", math.nan))


def most(run: dict[str, Any]) -> str:
    """What takes most after the load."""
    part = max((p for p in run["parts"] if p != "load"), key=lambda p: run["parts"][p])
    return f"{part} {seconds(run['parts'][part])}"


def seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def power(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def table(axis: str, points: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """One size against what it costs, as Markdown."""
    fixed = ", ".join(f"{value:,} {name}" for name, value in BASE.items() if name != axis)
    out = [f"#### {axis.capitalize()}, with {fixed}", ""]
    out += [
        (
            f"| {axis} | load | first picture | complete output | exponents | peak memory, MB | takes"
            " most | grows fastest |"
        )
    ]
    out += ["|---:|---:|---:|---:|---|---:|---|---|"]
    for at, point in enumerate(points):
        size, run = point
        powers = quick = "–"
        if at:
            powers = ", ".join(
                power(exponent(lambda r, k=k: r[k], points[at - 1], point))
                for k in ("load", "first", "whole")
            )
            part, grows = fastest(points[at - 1], point)
            quick = f"{part} {power(grows)}"
        peak = f"{run['memory']:,.0f}"
        cells = [f"{size:,}", *(seconds(run[k]) for k in ("load", "first", "whole")), powers]
        out.append(f"| {' | '.join([*cells, peak, most(run), quick])} |")
    return [*out, ""]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=BASE, default=list(BASE))
    parser.add_argument("--format", nargs="+", choices=TITLES, default=list(TITLES), dest="formats")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--largest", type=int, default=10_000_000, help="no point is larger than that"
    )
    parser.add_argument(
        "--parts", type=int, default=0, help="also the parts of each point that take most, so many"
    )
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(opened(given.one)))
        return
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        seen: dict[tuple[Any, ...], dict[str, Any]] = {}
        for form in given.formats:
            lines += [f"### {TITLES[form]}", ""]
            for axis in given.only:
                points = []
                for size in GROWN[form][axis]:
                    if size > given.largest:
                        continue
                    sizes = {**BASE, axis: size}
                    key = (form, *sizes.values())
                    if key not in seen:
                        seen[key] = measured(form, sizes, Path(name), given.repeats)
                    points.append((size, seen[key]))
                    if given.parts:
                        parts = sorted(seen[key]["parts"].items(), key=lambda item: -item[1])[
                            : given.parts
                        ]
                        print(
                            f"{form} {axis} {size:,}: "
                            + ", ".join(f"{part} {took:.3f}" for part, took in parts),
                            flush=True,
                        )
                made = table(axis, points)
                print("\n".join(made), flush=True)
                lines += made
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(before + "\n".join([BEGIN, "", *lines, END]) + after, encoding="utf-8")


if __name__ == "__main__":
    main()

"""How long until all frames of a profile are there, side by side with XProf's tools for the same
views.

    python benchmarks/analysis.py [--seeds tf,jax] [--events 1M] [--repeats 5]
    python benchmarks/analysis.py --seeds tf,run/host.xplane.pb          # a profile of your own, replicated
    python benchmarks/analysis.py big.xplane.pb                         # a file that replicate.py made
    python benchmarks/analysis.py --frames big.xplane.pb                # where our own time goes, frame by frame

Inputs are made by `replicate.py` and kept in `--folder`. Each measurement is a fresh process on a
file that was just read into memory; the two sides take turns in changing order. Both read the file
and make everything for the first time: nbprof's cache is off, XProf gets a fresh folder. "xprof,
one after the other" calls its tools in one process, where what the first one leaves in the folder
helps the others; "xprof, each first" gives each tool a folder of its own and adds up their times:
what each would take if it were the first one called.

nbprof makes steps, their summary, overview, advice, input pipeline, tf.data, ops, ops with idle,
kernels, memory (summary, timeline, peak) and pods; XProf the JSON of overview_page,
input_pipeline_analyzer, framework_op_stats, kernel_stats, memory_profile and pod_viewer (its
tf.data analysis cannot be called). Imports are told apart: they are in no other column but "start
to exit".

Reported as median (least–most); the ratio is XProf's time over nbprof's, pair by pair, imports left
out. "Rows" are those of steps, ops (with idle) and kernels, so that one can see that both sides
found the same: XProf drops the first and the last step, shows 500 ops a side and 1,000 kernels, and
finds no op names in GPU profiles of TensorFlow 2.3 and 2.4.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from decode import Contestant, has, make, number, spread

FRAMES = (
    "steps.frame",
    "steps.summary",
    "ops.frame",
    "ops.with_idle",
    "overview",
    "input_pipeline.frame",
    "input_pipeline.categories",
    "tf_data.pipelines",
    "tf_data.nodes",
    "kernels.frame",
    "memory.timeline",
    "memory.summary",
    "memory.peak",
    "pods.frame",
    "advice",
)
TOOLS = (
    "overview_page",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "kernel_stats",
    "memory_profile",
    "pod_viewer",
)
OURS = """
import operator, sys, time
import pandas, nbprof.profiles.load
began = time.monotonic()
profile = nbprof.profiles.load.load(sys.argv[1])
made = {name: operator.attrgetter(name)(profile) for name in sys.argv[2].split(",")}
done = time.monotonic()
receipt = profile.run.trace.receipt
events = receipt.events + receipt.dropped
rows = [len(made[name]) for name in ("steps.frame", "ops.with_idle", "kernels.frame")]
"""
XPROF = """
import sys, time
from xprof.convert import raw_to_tool_data
began = time.monotonic()
made = {name: raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], name, {})[0] for name in sys.argv[2].split(",")}
done = time.monotonic()
"""
XPROF_EACH = """
import os, sys, time
from pathlib import Path
from xprof.convert import raw_to_tool_data
spent, made, path = 0.0, {}, Path(sys.argv[1])
for name in sys.argv[2].split(","):
    folder = path.parent / name
    folder.mkdir()
    os.link(path, folder / path.name)
    began = time.monotonic()
    made[name] = raw_to_tool_data.xspace_to_tool_data([str(folder / path.name)], name, {})[0]
    spent += time.monotonic() - began
done = time.monotonic()
began = done - spent
"""
TELL = """
import json
events = -1
assert all(made.values()), [name for name, text in made.items() if not text]
tables = [json.loads(made[name]) for name in ("overview_page", "framework_op_stats", "kernel_stats")]
rows = [len(table["rows"]) for table in (tables[0][1], tables[1][0], tables[2])]
"""
EACH = """
import operator, sys, time
began = time.perf_counter()
import pandas, nbprof.profiles.load
now = time.perf_counter()
print(f"  {'imports':26s}{now - began:8.3f}")
profile = nbprof.profiles.load.load(sys.argv[1])
began = now
for name in ["load", *sys.argv[2].split(",")]:
    if name != "load":
        began = time.perf_counter()
        operator.attrgetter(name)(profile)
    print(f"  {name:26s}{time.perf_counter() - began:8.3f}")
"""
COLUMNS = (
    "file",
    "events",
    "who",
    "imports, s",
    "read and all frames, s",
    "processor, s",
    "x nbprof's time",
    "peak, MB",
    "start to exit, s",
    "steps / ops / kernels",
    "runs",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def contestants(peer: str, frames: tuple[str, ...]) -> list[Contestant]:
    """nbprof first, then XProf where it is installed."""
    out = [Contestant("nbprof", sys.executable, OURS, (",".join(frames),), {"NBPROF_CACHE": "0"})]
    if has(peer, "xprof.convert"):
        for name, code in (
            ("xprof, one after the other", XPROF),
            ("xprof, each first", XPROF_EACH),
        ):
            out.append(
                Contestant(
                    name,
                    peer,
                    code + TELL,
                    (",".join(TOOLS),),
                    {"TF_CPP_MIN_LOG_LEVEL": "3"},
                    fresh_folder=True,
                )
            )
    return out


def compare(path: Path, given: argparse.Namespace, scratch: Path) -> Iterator[str]:
    """Rows of the table for one file."""
    stated = path.with_name(path.name + ".manifest.json")
    manifest = json.loads(stated.read_text()) if stated.exists() else None
    taking = contestants(given.peer_python, FRAMES)
    if len(taking) == 1:
        yield f"XProf is missing: {given.peer_python} has no package xprof."
    for contestant in taking:
        # Compiled modules of all.
        contestant.measure(path, scratch)
    for _ in range(given.repeats):
        for contestant in random.sample(taking, len(taking)):
            contestant.runs.append(contestant.measure(path, scratch))
    ours = taking[0].runs
    if manifest is not None:
        assert manifest["events"] == ours[0].events, (
            f"nbprof read {ours[0].events:,} of {manifest['events']:,} events of {path.name}"
        )
    for contestant in taking:
        runs = contestant.runs
        assert isinstance(runs[0].rows, list)
        cells = [
            path.name,
            f"{ours[0].events:,}",
            contestant.name,
            spread([r.frame - r.call for r in runs]),
            spread([r.call for r in runs]),
            spread([r.processor for r in runs]),
            spread([theirs.call / mine.call for theirs, mine in zip(runs, ours, strict=True)], 1),
            f"{sorted(r.peak for r in runs)[len(runs) // 2]:,.0f}",
            spread([r.exit for r in runs]),
            " / ".join(f"{count:,}" for count in runs[0].rows),
            str(len(runs)),
        ]
        yield "| " + " | ".join(cells) + " |"


def inputs(given: argparse.Namespace) -> Iterator[Path]:
    """The files to read, made where they are not there yet."""
    yield from given.inputs
    if given.inputs and given.seeds is None:
        return
    for seed in (given.seeds or "tf,jax").split(","):
        target = given.folder / f"xspace-{Path(seed).name.split('.')[0]}-{given.events}.xplane.pb"
        make(target, seed, number(given.events), given.peer_python)
        yield target


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "inputs", nargs="*", type=Path, help="files made by replicate.py, or any XSpace file"
    )
    parser.add_argument("--seeds", help="tf, jax, or files; tf,jax where no input is given")
    parser.add_argument("--events", default="1M")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--out", type=Path, help="also writes the table here")
    parser.add_argument("--frames", action="store_true", help="only where our own time goes")
    given = parser.parse_args()
    lines = [HEAD]
    if not given.frames:
        print(HEAD, flush=True)
    for path in inputs(given):
        if given.frames:
            print(path.name, flush=True)
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", EACH, str(path), ",".join(FRAMES)],
                check=True,
                env=alone(),
            )
            continue
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            for line in compare(path.resolve(), given, Path(scratch)):
                lines.append(line)
                print(line, flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


def alone() -> dict[str, str]:
    """The environment of a child that finds this checkout and keeps nothing."""
    here = str(Path(__file__).resolve().parents[1])
    return os.environ | {
        "NBPROF_CACHE": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")])),
    }


if __name__ == "__main__":
    main()

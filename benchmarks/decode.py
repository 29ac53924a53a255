"""How long from the start of Python to the frame of framework ops, and how much memory, side by
side with XProf and HTA.

    python benchmarks/decode.py [--sizes 100k,1M,10M] [--kinds xspace,kineto] [--repeats 5]
    python benchmarks/decode.py --xspace-seed run/host.xplane.pb --kineto-seed worker0.pt.trace.json.gz
    python benchmarks/decode.py big.xplane.pb big.json.gz        # files that replicate.py made
    python benchmarks/decode.py --stages                         # where our own time goes

Inputs are made by `replicate.py` from recorded events, those of a short run on the CPU or of the
files given as seeds, and kept in `--folder`. Each measurement is a fresh process; those of one file
take turns in changing order, on a file that was just read into memory. XProf gets a fresh folder
each time, for it writes its result beside the file. Every process says how much it read, and the
benchmark stops where that is not what is in the file.

Reported as median (least–most): from the start of Python to its exit; to the frame; from `load` to
the frame, imports done; time of all processors together, which other load on the machine changes
little; and how many times longer than nbprof it took to the frame, pair by pair. Peak memory is
that of the process.

XProf is its converter's `framework_op_stats`, HTA its `TraceAnalysis` of one file. They are
imported by `--peer-python`, this Python if left out: `pip install -e ".[bench]"`. HTA leaves out
what has no duration, what comes behind the last step, and with ijson the functions of Python; it is
told how many events it kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# No numpy here: a child's peak memory counts from that of the process that started it.
HERE = Path(__file__).resolve().parent
DONE = """
import json, sys
print(json.dumps({"at": done, "call": done - began, "events": int(events), "rows": rows}))
"""
OURS = """
import sys, time
import pandas, nbprof.profiles.load
began = time.monotonic()
profile = nbprof.profiles.load.load(sys.argv[1])
rows = len(profile.ops.frame)
done = time.monotonic()
# What was read; `profile.receipt` would judge it, too.
receipt = profile.run.trace.receipt
events = receipt.events + receipt.dropped
"""
XPROF = """
import sys, time
from xprof.convert import raw_to_tool_data
began = time.monotonic()
text, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "framework_op_stats", {})
done = time.monotonic()
import json
rows, events = max(len(table["rows"]) for table in json.loads(text)), -1
"""
HTA = """
import logging, sys, time
logging.disable(logging.CRITICAL)
from hta.common import trace_parser
from hta.configs.parser_config import ParserBackend
from hta.trace_analysis import TraceAnalysis
trace_parser.set_default_trace_parsing_backend(ParserBackend(sys.argv[2]))
began = time.monotonic()
frame = TraceAnalysis(trace_files={0: sys.argv[1]}).t.get_trace(0)
done = time.monotonic()
rows = events = len(frame)
"""
SIZES = {"k": 1_000, "M": 1_000_000}


@dataclass
class Run:
    """One measurement: seconds, of the clock and of all processors, and MB of peak memory."""

    exit: float
    frame: float
    call: float
    processor: float
    peak: float
    events: int
    rows: int | list[int]


@dataclass
class Contestant:
    """One way to read a file."""

    name: str
    python: str
    code: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    fresh_folder: bool = False
    fresh_cache: bool = False
    runs: list[Run] = field(default_factory=list)

    def measure(self, path: Path, scratch: Path) -> Run:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        target = path
        if self.fresh_folder:
            target = folder / path.name
            # The same bytes under another name: a copy would have to be read from the disk, or
            # would push other files out of memory.
            try:
                os.link(path, target)
            except OSError:
                shutil.copy(path, target)
        warm(path)
        try:
            began = time.monotonic()
            process = subprocess.Popen(
                [self.python, "-W", "ignore", "-c", self.code + DONE, str(target), *self.args],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment()
                | self.env
                | ({"NBPROF_CACHE_DIR": str(folder / "cache")} if self.fresh_cache else {}),
                cwd=HERE.parent,
            )
            assert process.stdout is not None
            assert process.stderr is not None
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            ended = time.monotonic()
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                last = process.stderr.read().decode().strip().splitlines()[-1:]
                raise SystemExit(
                    f"{self.name} did not read {path.name}: exit {process.returncode}, {last}"
                )
            told = json.loads(out.splitlines()[-1])
            kb = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
            return Run(
                ended - began,
                told["at"] - began,
                told["call"],
                usage.ru_utime + usage.ru_stime,
                kb / 1000,
                told["events"],
                told["rows"],
            )
        finally:
            shutil.rmtree(folder)


def warm(path: Path) -> None:
    """Has the file in memory: what is measured is no disk."""
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def environment() -> dict[str, str]:
    """The one of this process, with compiled modules kept, as those of an installed package are."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "nbprof-bench-pycache")}


def number(text: str) -> int:
    return int(float(text.rstrip("kM")) * SIZES.get(text[-1], 1))


def has(python: str, module: str) -> bool:
    try:
        return (
            subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0
        )
    except OSError:
        return False


def contestants(kind: str, peer: str, cache: Path) -> tuple[list[Contestant], list[str]]:
    """Who takes part, ourselves first, and sentences on who is missing."""
    ours = [
        Contestant("nbprof", sys.executable, OURS, env={"NBPROF_CACHE": "0"}),
        Contestant(
            "nbprof, filling its cache",
            sys.executable,
            OURS,
            env={"NBPROF_CACHE": "1"},
            fresh_cache=True,
        ),
        Contestant(
            "nbprof, second open",
            sys.executable,
            OURS,
            env={"NBPROF_CACHE": "1", "NBPROF_CACHE_DIR": str(cache)},
        ),
    ]
    missing = []
    if kind == "xspace":
        if has(peer, "xprof.convert"):
            ours.append(
                Contestant(
                    "xprof", peer, XPROF, fresh_folder=True, env={"TF_CPP_MIN_LOG_LEVEL": "3"}
                )
            )
        else:
            missing.append(f"XProf is missing: {peer} has no package xprof.")
    elif has(peer, "hta"):
        ours.append(Contestant("HTA, json", peer, HTA, args=("json",)))
        if has(peer, "ijson"):
            ours.append(Contestant("HTA, ijson", peer, HTA, args=("ijson_batch_and_compress",)))
        else:
            missing.append(f"HTA's other backend is missing: {peer} has no package ijson.")
    else:
        missing.append(f"HTA is missing: {peer} has no package HolisticTraceAnalysis.")
    return ours, missing


def check(contestant: Contestant, run: Run, manifest: dict[str, int], path: Path) -> None:
    """Both sides did the work: all events, and ops out of them."""
    assert run.rows or not manifest.get("ops", 1), f"{contestant.name} found no ops in {path.name}"
    expected = (
        manifest["slices"] + manifest["instants"] if "slices" in manifest else manifest["events"]
    )
    if contestant.name.startswith("nbprof"):
        # A mark of the whole trace may lie outside of all slices; it is not drawn then.
        assert 0 <= expected - run.events <= 1, (
            f"{contestant.name} read {run.events:,} of {expected:,} events of {path.name}"
        )


def spread(values: list[float], digits: int = 2) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({least:,.{digits}f}–{most:,.{digits}f})"


def compare(path: Path, kind: str, given: argparse.Namespace, scratch: Path) -> Iterator[str]:
    """Rows of the table for one file."""
    manifest = json.loads(path.with_name(path.name + ".manifest.json").read_text())
    cache = scratch / "cache"
    taking, missing = contestants(kind, given.peer_python, cache)
    yield from missing
    manifest["ops"] = taking[0].measure(path, scratch).rows
    for contestant in list(taking):
        # Compiled modules of all, and the cache of the second open; who can't read it does not take
        # part.
        try:
            contestant.measure(path, scratch)
        except SystemExit as error:
            if contestant.name.startswith("nbprof"):
                raise
            yield str(error)
            taking.remove(contestant)
    repeats = given.repeats if manifest["events"] < 3e6 else max(2, given.repeats // 2)
    for _ in range(repeats):
        for contestant in random.sample(taking, len(taking)):
            # The slow ones of the large files need no third opinion.
            if len(contestant.runs) >= 2 and contestant.runs[0].exit > given.patience:
                continue
            run = contestant.measure(path, scratch)
            check(contestant, run, manifest, path)
            contestant.runs.append(run)
    ours = taking[0].runs
    for contestant in taking:
        yield "| " + " | ".join(row(path, manifest, contestant, ours)) + " |"
    shutil.rmtree(cache, ignore_errors=True)


def row(
    path: Path, manifest: dict[str, int], contestant: Contestant, ours: list[Run]
) -> Iterator[str]:
    runs = contestant.runs
    yield path.name
    yield f"{manifest['events']:,}" + (
        f" ({runs[0].events:,} kept)" if contestant.name.startswith("HTA") else ""
    )
    yield contestant.name
    yield spread([r.exit for r in runs])
    yield spread([r.frame for r in runs])
    yield spread([r.call for r in runs], 3)
    yield spread([r.processor for r in runs])
    yield spread([theirs.frame / mine.frame for theirs, mine in zip(runs, ours, strict=False)])
    yield f"{statistics.median(r.peak for r in runs):,.0f}"
    yield f"{statistics.median(r.peak for r in runs) / statistics.median(r.peak for r in ours):.2f}"
    yield f"{runs[0].rows:,}"
    yield str(len(runs))


COLUMNS = (
    "file",
    "events",
    "reader",
    "start to exit, s",
    "start to frame, s",
    "load to frame, s",
    "processor, s",
    "x nbprof's time",
    "peak, MB",
    "x nbprof's peak",
    "rows",
    "runs",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def inputs(given: argparse.Namespace, kind: str) -> Iterator[Path]:
    """The files to read, made where they are not there yet."""
    if given.inputs:
        yield from (p for p in given.inputs if (kind == "xspace") == p.name.endswith(".pb"))
        return
    seed = given.xspace_seed if kind == "xspace" else given.kineto_seed
    ending = ".xplane.pb" if kind == "xspace" else ".json.gz"
    for size in given.sizes.split(","):
        target = given.folder / f"{kind}-{Path(seed).name.split('.')[0]}-{size}{ending}"
        make(target, seed, number(size), given.peer_python)
        yield target


def make(target: Path, seed: str, events: int, python: str) -> None:
    if not target.with_name(target.name + ".manifest.json").exists():
        own = "tensorflow" if seed == "tf" else seed
        recorder = (
            sys.executable
            if seed in ("tf", "jax", "torch") and has(sys.executable, own)
            else python
        )
        code = [
            sys.executable,
            str(HERE / "replicate.py"),
            str(target),
            "--seed",
            seed,
            "--events",
            str(events),
            "--python",
            recorder,
        ]
        if subprocess.run(code).returncode:
            raise SystemExit(
                f"{target.name} could not be made; see above. Give a file to replicate:"
                " --xspace-seed, --kineto-seed."
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "inputs", nargs="*", type=Path, help="files made by replicate.py; made here if left out"
    )
    parser.add_argument("--sizes", default="100k,1M")
    parser.add_argument("--kinds", default="xspace,kineto")
    parser.add_argument("--xspace-seed", default="tf")
    parser.add_argument("--kineto-seed", default="torch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--patience",
        type=float,
        default=30.0,
        help="a reader that takes more seconds than this is run twice",
    )
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--folder", type=Path, default=Path("build/bench"))
    parser.add_argument("--out", type=Path, help="also writes the table here")
    parser.add_argument("--stages", action="store_true", help="only where our own time goes")
    given = parser.parse_args()
    lines = [HEAD]
    if not given.stages:
        print(HEAD, flush=True)
    for kind in given.kinds.split(","):
        for path in inputs(given, kind):
            if given.stages:
                subprocess.run([sys.executable, str(HERE / "stages.py"), str(path)], check=True)
                continue
            given.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
                for line in compare(path.resolve(), kind, given, Path(scratch)):
                    lines.append(line)
                    print(line, flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

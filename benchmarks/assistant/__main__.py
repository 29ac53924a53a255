"""Does an assistant find the bottleneck through the tools of `nbprof mcp` alone?

    make assistant
    python benchmarks/assistant [--only torch] [--folder build/assistant]

Programs with one planted bottleneck each, and controls, are recorded one after the other, each in a
process of its own. Then a scripted reader looks for the bottleneck of each through a session of the
server, within a budget of calls and tokens. Printed is what it found and through which call, held
against the truth of `planted.py`. Recordings stay in the folder and are not made again. The exit
code is 1 if anything is wrong.

Other programs on the machine take the time that the planted problem should: a recording during
which they used more than `QUIET` cores is made again, at most `TURNS` times, and then judged wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

# Python puts this folder first where modules are looked for.
from judge import QUIET, Judged, judge, table
from planted import CONTROLS, PLANTED, Planted
from scripted import conclusions

import nbprof

HERE = Path(__file__).parent
TURNS = 3
WAIT_S = 60.0
TIMEOUT_S = 400
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


def folder_of(planted: Planted, root: Path) -> Path:
    return root / planted.name.replace("/", " - ")


def recorded(planted: Planted, root: Path) -> dict[str, Any]:
    """The truth beside its recording, which is made if it is not there, or is not quiet.

    Raises
    ------
    RuntimeError
        The program failed.
    """
    folder = folder_of(planted, root)
    path = folder / "truth.json"
    for _ in range(TURNS):
        if path.exists() and (planted.contended or other_cores(path) <= QUIET):
            break
        wait_for_quiet()
        record(planted, folder)
    truth: dict[str, Any] = json.loads(path.read_text())
    return truth


def other_cores(path: Path) -> float:
    return float(json.loads(path.read_text())["other_cores"])


def wait_for_quiet() -> None:
    """Waits until other programs have used few cores for a while, or for a minute."""
    end = time.monotonic() + WAIT_S
    while psutil.cpu_percent(2) * (os.cpu_count() or 1) / 100 > QUIET:
        if time.monotonic() > end:
            break


def record(planted: Planted, folder: Path) -> None:
    """Runs `record.py`, and adds the cores that other programs used meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    busy = []
    if planted.contended:
        command = [sys.executable, "-c", "while True: pass"]
        # With as many threads of the program as cores, it waits for 80 % of the time.
        busy = [subprocess.Popen(command) for _ in range(4 * (os.cpu_count() or 1))]
    before, began = used(), time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "record.py"), planted.name, str(folder)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, **CPU_ONLY},
            check=False,
        )
        other_cores = (used() - before) / (time.monotonic() - began)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    if done.returncode:
        raise RuntimeError(f"{planted.name} failed:\n{done.stderr[-2000:]}")
    truth = json.loads(done.stdout.splitlines()[-1]) | {"other_cores": other_cores}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def used() -> float:
    """CPU seconds of all programs of this machine but those that this process waited for."""
    times, children = psutil.cpu_times(), os.times()
    busy = times.user + times.system + times.nice
    return float(busy - children.children_user - children.children_system)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of the name of programs")
    parser.add_argument("--folder", type=Path, default=Path("build/assistant"))
    args = parser.parse_args()
    root = args.folder.resolve()
    items = [planted for planted in (*PLANTED, *CONTROLS) if args.only in planted.name]
    truths = {}
    for planted in items:
        truths[planted.name] = recorded(planted, root)
        print(
            f"{planted.name}: recorded, others {truths[planted.name]['other_cores']:.1f} cores",
            flush=True,
        )
    paths = {planted.name: folder_of(planted, root).name for planted in items}
    found = asyncio.run(conclusions(root, paths))
    judged: list[Judged] = []
    for planted in items:
        truth, conclusion = truths[planted.name], found[planted.name]
        judged.append(judge(planted, truth, conclusion, control=planted in CONTROLS))
    print(f"\nnbprof {nbprof.__version__}\n\n{table(judged)}")
    return int(any(each.wrong for each in judged))


if __name__ == "__main__":
    sys.exit(main())

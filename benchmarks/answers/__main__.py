"""Does nbprof answer? Ordinary cells and files with their truth, and what nbprof says of them.

    make answers
    python benchmarks/answers [--set seen] [--only torch] [--list] [--store FILE]

Each cell runs in a fresh shell in a process of its own, one after the other, on the CPU. `seen` are
cells that nbprof was developed with, `unseen` those set aside, `files` published profiles beside
the checkout, `synthetic` traces with known periods. Printed are the figures of `scoring.py`, then
all that was wrong. With `--store` they go into a file and are compared with those it held.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Python puts this folder first where modules are looked for.
import definitions  # noqa: F401
import files
from cells import CELLS, Cell
from scoring import FIGURES, Outcome, Share, judge, score, table

import nbprof

HERE = Path(__file__).parent
SETS = ("seen", "unseen", "files", "synthetic")
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
TIMEOUT_S = 300

Judged = tuple[str, dict[str, Outcome]]


def ask(script: str, argument: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a script prints of a cell or a file; `{"failed": text}` when it prints nothing."""
    command = [sys.executable, str(HERE / script), argument]
    variables = {**os.environ, **CPU_ONLY, **environment}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, env=variables, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {TIMEOUT_S} s"}
    answers = [line for line in done.stdout.splitlines() if line.startswith('{"')]
    if done.returncode or not answers:
        return {"failed": f"{done.stdout[-1500:]}{done.stderr[-1500:]}"}
    answer: dict[str, Any] = json.loads(answers[-1])
    return answer


def missing(cell: Cell) -> list[str]:
    """Packages that the cell needs and that are not installed."""
    return [package for package in cell.needs if importlib.util.find_spec(package) is None]


def judged_cells(cells: list[Cell]) -> Iterator[Judged]:
    for cell in cells:
        if lacking := missing(cell):
            print(f"{cell.name}: left out, {', '.join(lacking)} is not installed", flush=True)
            continue
        said = ask("run_cell.py", cell.name, cell.environment)
        parts = judge(cell, said)
        show(cell.name, said, parts)
        yield cell.name, parts


def judged_files(items: list[files.Recorded]) -> Iterator[Judged]:
    with tempfile.TemporaryDirectory() as folder:
        for item in items:
            path = files.path_of(item, Path(folder))
            if path is None:
                print(f"{item.name}: left out, it is not beside this checkout", flush=True)
                continue
            said = ask("run_file.py", str(path), {"NBPROF_CACHE": "0"})
            parts = judge(item, said, item.unit_ms)
            show(item.name, said, parts)
            yield item.name, parts


def show(name: str, said: Mapping[str, Any], parts: Mapping[str, Outcome]) -> None:
    """One line of what nbprof says, and which parts of it are wrong."""
    if "failed" in said:
        print(f"{name}: FAILED {said['failed']}", flush=True)
        return
    time = "no time" if said.get("unit_ms") is None else f"{said['unit_ms']:.4g} ms"
    wrong = [key for key, outcome in parts.items() if not outcome.right]
    found = f"{said['count']} {said['unit']} of {time}; {said['verdict']}"
    print(f"{name}: {found}; wrong: {', '.join(wrong) or 'nothing'}", flush=True)


def chosen(which: str, only: str) -> list[Cell] | list[files.Recorded]:
    """The cells or files of a set with this in their name."""
    if which == "files":
        return [item for item in files.RECORDED if only in item.name]
    if which == "synthetic":
        return [item for item in files.SYNTHETIC if only in item.name]
    return [
        cell for cell in CELLS.values() if cell.unseen == (which == "unseen") and only in cell.name
    ]


def store(path: Path, sets: Mapping[str, Mapping[str, Share]]) -> None:
    """Writes the figures and what was wrong, and says which are worse than those of the file."""
    before = json.loads(path.read_text())["figures"] if path.exists() else {}
    figures = {
        which: {key: share.percent for key, share in shares.items()}
        for which, shares in sets.items()
    }
    for which, numbers in figures.items():
        for key, value in numbers.items():
            old = before.get(which, {}).get(key)
            if value is not None and old is not None and value < old:
                print(f"\nworse than before: {FIGURES[key]} of {which} {old:.1f} → {value:.1f}")
    wrong = {
        which: {key: share.wrong for key, share in shares.items() if share.wrong}
        for which, shares in sets.items()
    }
    content = {"version": nbprof.__version__, "figures": figures, "wrong": wrong}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", choices=SETS, action="append", help="only these; may be repeated")
    parser.add_argument("--only", default="", help="part of the name of cells or files")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    parser.add_argument(
        "--store", type=Path, help="file of the figures, compared with what it holds"
    )
    args = parser.parse_args()
    shares: dict[str, dict[str, Share]] = {}
    for which in args.set or SETS:
        items = chosen(which, args.only)
        if args.list:
            print("\n".join(f"{which}: {item.name}" for item in items))
        elif items:
            judged = judged_files(items) if which in ("files", "synthetic") else judged_cells(items)  # type: ignore[arg-type]
            shares[which] = score(judged)
    if not shares:
        return
    print(f"\nnbprof {nbprof.__version__}\n\n{table(shares)}")
    for which, figures in shares.items():
        for key, share in figures.items():
            if share.wrong:
                print(f"\nnot {key} ({which}):\n" + "\n".join(f"  {text}" for text in share.wrong))
    if args.store:
        store(args.store, shares)


if __name__ == "__main__":
    main()

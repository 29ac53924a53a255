"""How true is the diagnosis? Small training programs with one planted problem each, or none, and
what nbprof says of them.

    make diagnosis
    python benchmarks/diagnosis [--only torch] [--turns 2] [--store FILE] [--resume FILE]

Each program is recorded in a process of its own, one after the other, then its mended twin; its
truth stands beside its code. Printed are the figures of `score.py`, then all that was wrong. With
`--store` the figures go into a file, and are compared with those it held. With `--resume` what was
measured of each program is kept in a file, and is not measured again. A busy machine makes step
times scatter: run it on one that is quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# Python puts this folder first where modules are looked for.
import in_jax  # noqa: F401
import in_keras  # noqa: F401
import in_torch  # noqa: F401
from programs import PROGRAMS
from score import Share, score, table

import nbprof

HERE = Path(__file__).parent
LIMIT_S = 1200
"""Seconds for a program and its mended twin: bfloat16 is slow on a core without it."""


def record(name: str) -> dict[str, Any]:
    """What `record.py` prints of a program. Raises RuntimeError with what it wrote when it
    fails.
    """
    done = subprocess.run(
        [sys.executable, str(HERE / "record.py"), name],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=dict(os.environ),
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    out: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of the name of programs")
    parser.add_argument("--turns", type=int, default=1, help="how often each program is recorded")
    parser.add_argument(
        "--store", type=Path, help="file of the figures, compared with what it holds"
    )
    parser.add_argument("--resume", type=Path, help="file that keeps what was measured")
    args = parser.parse_args()
    kept: dict[str, Any] = {}
    if args.resume and args.resume.exists():
        kept = json.loads(args.resume.read_text())
    programs, measured = {}, {}
    for turn in range(args.turns):
        for name, program in PROGRAMS.items():
            if args.only not in name:
                continue
            key = f"{name} #{turn + 1}" if args.turns > 1 else name
            each = kept[key] if key in kept else record(name)
            kept[key] = each
            if args.resume:
                args.resume.write_text(json.dumps(kept))
            programs[key], measured[key] = program, each
            one = each["as_is"]
            step = f"{one['step_ms']:.2f}" if one["step_ms"] else "no"
            said = [finding["rule"] for finding in one["found"]]
            print(
                f"{key}: {one['steps']} steps of {step} ms (clock {one['clock_ms']:.2f});"
                f" {one['verdict']}; {said}",
                flush=True,
            )
    figures = score(programs, measured)
    print(
        f"\nnbprof {nbprof.__version__}, {len({p.name for p in programs.values()})}"
        f" programs\n\n{table(figures)}"
    )
    for key, value in figures.items():
        if isinstance(value, Share) and value.bad:
            print(f"\nnot {key}:\n" + "\n".join(f"  {bad}" for bad in value.bad))
    if args.store:
        store(args.store, figures)


def store(path: Path, figures: dict[str, Share | float | None]) -> None:
    """Writes the figures and what was wrong, and says which figures are worse than those of the
    file.
    """
    numbers = {
        key: value.percent if isinstance(value, Share) else value for key, value in figures.items()
    }
    before = json.loads(path.read_text())["figures"] if path.exists() else {}
    for key, value in numbers.items():
        old = before.get(key)
        if (
            value is not None
            and old is not None
            and (value > old if key == "step_error_percent" else value < old)
        ):
            print(f"\nworse than before: {key} {old:.1f} → {value:.1f}")
    wrong = {
        key: value.bad for key, value in figures.items() if isinstance(value, Share) and value.bad
    }
    path.write_text(
        json.dumps(
            {"version": nbprof.__version__, "figures": numbers, "wrong": wrong},
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()

"""Do experiments find the gain that the mended twin has, and recommend nothing in the controls?

    python benchmarks/diagnosis/proven.py [--only torch] [--budget 240] [--jobs 1] [--store FILE]

Each program runs under `--try` with all findings in a process of its own, one after the other, and
its mended twin bare, in turn with the program. Controls run with every experiment of their
framework, found or not, and what is recommended in one is measured once more. With `--store` each
program is kept in the file when it has ended: a run that was stopped goes on with the others, and
one that is kept runs again only with another budget or with `--again`. Printed are a line for each
program, and what all of them in the file come to.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# Python puts this folder first where modules are looked for.
import proof
from programs import PROGRAMS, Program
from record import MODULES, WARM, timed

import nbprof
from nbprof.capture.experiments import as_recorded, combination, engine, program
from nbprof.capture.experiments.experiment import Experiment, available_cores
from nbprof.capture.experiments.register import EXPERIMENTS
from nbprof.capture.options import Options

OTHER_S = 600.0
"""Seconds for all but the experiments: the recording, the twin, and what is measured again."""
REMEDIES = {
    "torch/slow items in the process",
    "torch/one worker",
    "torch/loop over parameters",
    "torch/loop over time steps",
    "keras/serial map",
    "keras/slow storage",
    "keras/no prefetch",
    "keras/run_eagerly",
    "tensorflow/slow input of a custom loop",
    "keras/expensive map",
    "keras/PyDataset",
    "keras/map of single items",
    "tensorflow/eager loop",
    "jax/no jit",
    "jax/jit in the loop",
}
"""Programs whose plant an experiment can mend, with equal results.

In the others the mended twin does other work than any change of a setting gives: its items cost
nothing, its batches are larger, a callback is left out, or its numbers have fewer bits.
"""
AGAIN_S = 60.0
"""Seconds for a second measurement of what is recommended in a control."""


def tried(name: str, budget_s: float) -> dict[str, Any]:
    """What the experiments say of one program, in this process."""
    importlib.import_module(MODULES[name.split("/")[0]])
    case = PROGRAMS[name]
    loop = case.make(False)
    loop(WARM)
    with nbprof.profile(save=False) as run:
        loop(case.steps)
    call = program.of_call(loop, (case.steps,), {})
    began = time.perf_counter()
    again: list[dict[str, Any]] = []
    if case.plant:
        result = engine.try_remedies(lambda: call, run.result, Options(save=False), "all", budget_s)
        seconds = time.perf_counter() - began
    else:
        result = every(call, run, budget_s, own(case))
        seconds = time.perf_counter() - began
        for row in result["rows"]:
            if row["recommended"]:
                again += every(call, run, AGAIN_S, [named(row["experiment"])])["rows"]
    predicted = run.advice.set_index("rule")["gain_ms_per_step"].to_dict()
    return {
        **result,
        "again": again,
        "planted": bool(case.plant),
        "seconds": seconds,
        "budget_s": budget_s,
        "cores": available_cores(),
        **twin(case),
        "predicted": {str(rule): gain for rule, gain in predicted.items() if gain == gain},
    }


def twin(case: Program) -> dict[str, float | None]:
    """What the mended twin saves of a step, with the least and the most of three turns."""
    if not case.plant:
        return {"twin_ms": None, "twin_low_ms": None, "twin_high_ms": None}
    as_is, mended = case.make(False), case.make(True)
    for each in (as_is, mended):
        each(WARM)
    steps = case.steps // case.batches
    saved = [(timed(as_is, case) - timed(mended, case)) * 1000 / steps for _ in range(3)]
    low, middle, high = sorted(saved)
    return {"twin_ms": middle, "twin_low_ms": low, "twin_high_ms": high}


def own(case: Program) -> list[Experiment]:
    """All experiments of the framework of a program."""
    kinds = {"torch": ("torch",), "jax": ("jax",)}.get(case.framework, ("keras", "tensorflow"))
    return [each for each in EXPERIMENTS if each.framework in kinds]


def named(name: str) -> Experiment:
    """The experiment of a name, or the combination of several."""
    by_name = {each.name: each for each in EXPERIMENTS}
    parts = [by_name[part] for part in name.split(" + ")]
    return parts[0] if len(parts) == 1 else combination.combined(parts)


def every(
    call: program.Program, run: Any, budget_s: float, experiments: list[Experiment]
) -> dict[str, Any]:
    """Experiments on a control, found or not."""
    runner = engine.Engine(
        call,
        Options(save=False),
        steps=run.run.capture.steps_seen,
        units=len(run.steps.frame),
        budget_s=budget_s,
        recorded=as_recorded.of_run(run.run),
    )
    text = ""
    try:
        runner.run([(each, "") for each in experiments])
    except program.Refused as reason:
        text = str(reason)
    return {"text": text, "rows": [result.to_dict() for result in runner.tried]}


def separately(name: str, budget_s: float) -> dict[str, Any]:
    """The same in a process of its own. Raises RuntimeError with what it wrote when it fails."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, "--budget", str(budget_s)],
        capture_output=True,
        text=True,
        timeout=budget_s + OTHER_S,
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    out: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return out


def line(name: str, out: dict[str, Any]) -> str:
    """A program in a line: proven, twin and predicted gain, then what was not recommended."""
    good = [row for row in out["rows"] if row["recommended"]]
    rest = [f"{row['experiment']}: {row['why']}" for row in out["rows"] if not row["recommended"]]
    text = f"{name}: "
    if good:
        best = max(good, key=lambda row: row["gain_ms"])
        text += (
            f"{best['experiment']} {best['gain_ms']:.2f} [{best['gain_low_ms']:.2f},"
            f" {best['gain_high_ms']:.2f}] of {best['baseline_ms']:.2f} ms"
        )
        if best["rule"] in out["predicted"]:
            text += f", predicted {out['predicted'][best['rule']]:.2f}"
    else:
        text += "nothing recommended"
    if out["twin_ms"] is not None:
        text += f", twin {out['twin_ms']:.2f}"
    return f"{text}; {'; '.join(rest)} {out['text']}".rstrip("; ")


def attempt(name: str, budget_s: float) -> tuple[str, dict[str, Any] | None]:
    """A program and what came of it; None if it failed, which is printed."""
    try:
        return name, proof.entry(separately(name, budget_s))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"{name}: {error}", flush=True)
        return name, None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of the name of programs")
    parser.add_argument("--one", default="", help="run this program here and print JSON")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds for each program")
    parser.add_argument("--jobs", type=int, default=1, help="programs that run at the same time")
    parser.add_argument(
        "--store", type=Path, help="file that keeps what has run, and is gone on with"
    )
    parser.add_argument("--again", action="store_true", help="run also what the file has")
    args = parser.parse_args()
    if args.one:
        print("\n" + json.dumps(tried(args.one, args.budget)))
        return
    # All at once only here: loaders get no workers in a process with JAX.
    for module in set(MODULES.values()):
        importlib.import_module(module)
    chosen = [name for name, case in PROGRAMS.items() if name in REMEDIES or not case.plant]
    results = proof.read(args.store) if args.store else {}
    left = [name for name in chosen if args.only in name]
    if not args.again:
        left = [name for name in left if not proof.is_done(results.get(name), args.budget)]
    print(f"{len(left)} of {len(chosen)} programs to run", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            for name, out in pool.map(lambda name: attempt(name, args.budget), left):
                if out is None:
                    continue
                results[name] = out
                print(line(name, out), flush=True)
                if args.store:
                    known = {each: results[each] for each in PROGRAMS if each in results}
                    proof.write(args.store, known)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise SystemExit(130) from None
    print("\n" + "\n".join(proof.summary(results)))


if __name__ == "__main__":
    main()

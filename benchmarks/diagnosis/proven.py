"""Do experiments find the gain that the mended twin has, and recommend nothing in the controls?

    python benchmarks/diagnosis/proven.py [--only torch] [--budget 60] [--store FILE]

Each program runs under `nbprof.profile(try_="all")` in a process of its own, controls with every
experiment of their framework instead, and the twin bare, before and after. Printed is the proven
gain (the largest that is recommended) beside that of the twin and the prediction of the rule.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# Python puts this folder first where modules are looked for.
from programs import PROGRAMS
from record import MODULES, WARM, timed

import nbprof
from nbprof.capture.experiments import engine, program
from nbprof.capture.experiments.register import EXPERIMENTS
from nbprof.capture.options import Options

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
"""Programs whose plant an experiment can mend, with equal results."""
FEW = "torch_compile"
"""Left out of controls: it takes a minute each."""


def tried(name: str, budget_s: float) -> dict[str, Any]:
    """What the experiments say of one program, in this process."""
    importlib.import_module(MODULES[name.split("/")[0]])
    case = PROGRAMS[name]
    loop = case.make(False)
    loop(WARM)
    with nbprof.profile(save=False) as run:
        loop(case.steps)
    call = program.of_call(loop, (case.steps,), {})
    if case.plant:
        result = engine.try_remedies(lambda: call, run.result, Options(save=False), "all", budget_s)
    else:
        result = every(call, run, case, budget_s)
    steps = case.steps // case.batches
    twins = []
    if case.plant:
        as_is, mended = case.make(False), case.make(True)
        for each in (as_is, mended):
            each(WARM)
        for _ in range(3):
            twins.append((timed(as_is, case) - timed(mended, case)) * 1000 / steps)
    predicted = run.advice.set_index("rule")["gain_ms_per_step"].to_dict()
    return {
        **result,
        "twin_ms": sorted(twins)[1] if twins else None,
        "predicted": {str(rule): gain for rule, gain in predicted.items() if gain == gain},
    }


def every(call: program.Program, run: Any, case: Any, budget_s: float) -> dict[str, Any]:
    """All experiments of the framework on a control, found or not."""
    own = {"torch": ("torch",), "jax": ("jax",)}.get(case.framework, ("keras", "tensorflow"))
    pairs = [(each, "") for each in EXPERIMENTS if each.framework in own and each.name != FEW]
    runner = engine.Engine(
        call,
        Options(save=False),
        steps=run.run.capture.steps_seen,
        units=len(run.steps.frame),
        budget_s=budget_s,
    )
    text = ""
    try:
        runner.run(pairs)
    except program.Refused as reason:
        text = str(reason)
    return {"text": text, "rows": [result.to_dict() for result in runner.tried]}


def separately(name: str, budget_s: float) -> dict[str, Any]:
    """The same in a process of its own. Raises RuntimeError with what it wrote when it fails."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", name, "--budget", str(budget_s)],
        capture_output=True,
        text=True,
        timeout=900,
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


def stored(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What docs/advice.md shows: of each program with a problem, the largest gain that is proven."""
    rows = []
    for name, out in results.items():
        good = [row for row in out["rows"] if row["recommended"]]
        if not good or out["twin_ms"] is None:
            continue
        best = max(good, key=lambda row: row["gain_ms"])
        rows.append(
            {
                "program": name,
                "rule": best["rule"],
                "predicted_ms": out["predicted"].get(best["rule"]),
                "proven_ms": best["gain_ms"],
                "low_ms": best["gain_low_ms"],
                "high_ms": best["gain_high_ms"],
                "mended_ms": out["twin_ms"],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the name of programs")
    parser.add_argument("--one", default="", help="run this program here and print JSON")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--store", type=Path, help="file of the proven gains, for docs/advice.md")
    args = parser.parse_args()
    if args.one:
        print("\n" + json.dumps(tried(args.one, args.budget)))
        return
    # All at once only here: loaders get no workers in a process with JAX.
    for module in set(MODULES.values()):
        importlib.import_module(module)
    results = {}
    for name, case in PROGRAMS.items():
        if args.only in name and (name in REMEDIES or not case.plant):
            results[name] = separately(name, args.budget)
            print(line(name, results[name]), flush=True)
            if args.store:
                args.store.write_text(json.dumps(stored(results), indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Records one program and its mended twin in turn, in a process of their own, and prints what
nbprof says of them, as JSON.

python benchmarks/diagnosis/record.py "torch/mlp"
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

from programs import PROGRAMS, Loop, Program

import nbprof

MODULES = {"keras": "in_keras", "tensorflow": "in_keras", "jax": "in_jax", "torch": "in_torch"}
WARM = 4
"""Steps before the recording, so that what is measured is not the first compilation."""


def timed(loop: Loop, program: Program) -> float:
    """Seconds that the steps of a program take without a recording."""
    began = time.perf_counter()
    own = loop(program.steps)
    return own or time.perf_counter() - began


def recorded(program: Program, mended: bool) -> dict[str, Any]:
    """Runs the program under nbprof: what it says, beside the program's own clock."""
    loop = program.make(mended)
    loop(WARM)
    bare = timed(loop, program)
    with nbprof.profile(save=False) as run:
        began = time.perf_counter()
        own = loop(program.steps)
        seconds = own or time.perf_counter() - began
    bare = min(bare, timed(loop, program))
    steps = program.steps // program.batches
    frame, overview = run.steps.frame, run.overview
    clock_ms = 1000 * seconds / steps
    if run.run.capture.ended_before:
        # The loop waited while the recording was written, and went on without the profiler.
        clock = run.steps.clock
        clock_ms = float(clock.loc[clock["recorded"], "duration_ms"].mean())
    advice = run.advice
    return {
        "bare_ms": 1000 * bare / steps,
        "clock_ms": clock_ms,
        "step_ms": float(frame["step_time_ms"].mean()) if len(frame) else None,
        "step_error_ms": float(frame["step_time_ms"].sem()) if len(frame) > 1 else 0.0,
        "steps": len(frame),
        "steps_run": steps,
        "bound": overview["bound"],
        "verdict": f"{overview['verdict']}: {overview['verdict_text']}",
        "confidence": overview["confidence"],
        "found": [
            {
                "rule": str(rule),
                "gain_ms": None if gain != gain else float(gain),
                "gain_is": str(kind),
                "title": str(title),
            }
            for rule, gain, kind, title in zip(
                *(advice[c] for c in ("rule", "gain_ms_per_step", "gain_is", "title")), strict=True
            )
        ],
    }


def main(name: str) -> None:
    importlib.import_module(MODULES[name.split("/")[0]])
    program = PROGRAMS[name]
    out = {"as_is": recorded(program, mended=False)}
    if program.plant:
        out["mended"] = recorded(program, mended=True)
    print("\n" + json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1])

"""Records one program and its mended twin in turn, in a process of their own, and prints what
nbprof says of them, as JSON.

python benchmarks/diagnosis/record.py "torch/mlp"
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import own_clock
from programs import PROGRAMS, Loop, Program

import nbprof

MODULES = {"keras": "in_keras", "tensorflow": "in_keras", "jax": "in_jax", "torch": "in_torch"}
WARM = 4
"""Steps before the recording, so that what is measured is not the first compilation."""
UNMARKED = {
    "bare_step_time_ms": None,
    "bare_step_time_low_ms": None,
    "bare_step_time_high_ms": None,
    "recording_slowdown": None,
    "bare_step_time_reason": "no step is marked",
}
"""What is said of bare steps of a program without markers."""
SETTLED = 3
"""Steps at the begin of a run, and after the recording, that are not of the program's bare clock."""


def timed(loop: Loop, program: Program) -> float:
    """Seconds that the steps of a program take without a recording."""
    began = time.perf_counter()
    own = loop(program.steps)
    return own or time.perf_counter() - began


@dataclass(frozen=True)
class Recorded:
    """Steps of a program that were recorded.

    Attributes
    ----------
    run : nbprof.profile
    seconds : float
        The time of all of them by the program's own clock; NaN if unknown.
    without_ends : bool
        True if it is that of as many steps between the first and the last recorded one.
    own_ms : list of float
        The median of the program's steps without the profiler by the same clock: before and after
        the recording together, before it, and after it. Empty if unknown.
    """

    run: nbprof.profile
    seconds: float = math.nan
    without_ends: bool = False
    own_ms: list[float] = field(default_factory=list)


def windowed(loop: Loop, program: Program) -> Recorded:
    """Records steps in the middle of a run."""
    steps = program.steps // program.batches
    window = (steps + 1, 2 * steps)
    with (
        warnings.catch_warnings(),
        own_clock.ends_of_steps(program.framework) as ends,
        nbprof.profile(save=False, steps=window) as run,
    ):
        warnings.simplefilter("ignore", RuntimeWarning)
        loop(3 * program.steps)
    if run.result is None:
        return Recorded(run)
    clock = ends.durations(3 * steps)
    if not len(clock):
        began = run.steps.clock["start_s"]
        ended = began + run.steps.clock["duration_ms"] / 1000
        in_window = run.steps.clock["recorded"]
        return Recorded(run, float(ended[in_window].max() - began[in_window].min()))
    # The first that is recorded also starts the profiler, and the last may end it.
    seconds = float(clock[window[0] : window[1] - 1].mean()) * steps / 1000
    before, after = clock[SETTLED:steps], clock[window[1] + SETTLED :]
    own_ms = [float(np.nanmedian(each)) for each in (np.append(before, after), before, after)]
    return Recorded(run, seconds, without_ends=True, own_ms=own_ms)


def throughout(loop: Loop, program: Program, logdir: str | None = None) -> Recorded:
    """Records each step of a run, and keeps it where a folder is given."""
    with nbprof.profile(save=logdir is not None, logdir=logdir, steps="all") as run:
        began = time.perf_counter()
        own = loop(program.steps)
        seconds = own or time.perf_counter() - began
    return Recorded(run, seconds)


def recorded(program: Program, mended: bool) -> dict[str, Any]:
    """Runs the program under nbprof: what it says, beside the program's own clock."""
    loop = program.make(mended)
    loop(WARM)
    bare = timed(loop, program)
    measured = windowed(loop, program)
    of_bare, own_ms = dict(UNMARKED), measured.own_ms
    if measured.run.result is not None:
        of_bare = {key: measured.run.overview[key] for key in UNMARKED}
    if measured.run.result is None or program.framework == "jax":
        # No step is marked; or steps end before their work has run, which a clock of the host tells
        # only of all of them.
        measured = throughout(loop, program)
    bare = min(bare, timed(loop, program))
    run, steps = measured.run, program.steps // program.batches
    frame, overview = run.steps.frame, run.overview
    compared = frame["step_time_ms"]
    if measured.without_ends and len(frame) == steps:
        compared = compared.iloc[1:-1]
    advice = run.advice
    return {
        "bare_ms": 1000 * bare / steps,
        "own_bare_ms": own_ms,
        "said_bare_ms": of_bare["bare_step_time_ms"],
        "said_bare_interval_ms": [of_bare[f"bare_step_time_{end}_ms"] for end in ("low", "high")],
        "bare_reason": of_bare["bare_step_time_reason"],
        "slowdown": of_bare["recording_slowdown"],
        "clock_ms": 1000 * measured.seconds / steps,
        "step_ms": float(compared.mean()) if len(compared) else None,
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

"""How often is the gate wrong about step times: unchanged runs that fail, and planted slowdowns
that it does not catch?

    python benchmarks/gate.py real [--runs 200] [--planted 100] [--repeats 5] [--steps 20]
    [--step-ms 3] [--slower 5] python benchmarks/gate.py simulated [--between-repeats 1] [--within
    5] [--between-runs 0.5]

``real`` times a program of JAX on the CPU, on one core with one thread: unchanged runs, and runs
with a slowdown planted, in turns. Each run has repeats as the fixture ``nbprof_profile`` makes
them: those that other processes disturbed are made again, and count for nothing. With
``--recorded`` the fixture records it, which takes several times as long for the same steps.

Each run is then compared, as ``step_time`` does, with a baseline of other unchanged runs: drawn
from all of the time that the benchmark took, as a baseline to which runs are added at different
times, and the first ones, as a baseline that is made in one go. The last line says how much steps
differ within a recording, repeats beyond that, and runs beyond both.

``simulated`` draws step times with such differences (standard deviations in percent) from normal
distributions, ``--draws`` runs of each kind: what a machine would give that is as noisy, and that
no one has the time to wait for.

Outcomes: `slower`, `fine`, or `unknown`: the noise is too large to tell, and the gate says so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

import numpy as np

if __name__ == "__main__" and "--all-cores" not in sys.argv:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["NBPROF_CACHE"] = "0"

from nbprof.analysis.compare.repeats import Repeat, repeat, slowdown
from nbprof.analysis.contention import sentence
from nbprof.capture.contention import Contention
from nbprof.gate.figures import DISTURBED, disturbed, repeats

OF_BASELINE = (3, 5, 10, 15, 20)
KINDS = ("slower", "unknown", "fine")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("how", choices=("real", "simulated"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-ms", type=float, default=3.0)
    parser.add_argument("--slower", type=float, default=5.0, help="percent")
    parser.add_argument(
        "--allowed", type=float, default=0.0, help="percent; as much as is planted when left out"
    )
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--all-cores", action="store_true")
    parser.add_argument("--between-repeats", type=float, default=1.0, help="percent")
    parser.add_argument("--within", type=float, default=5.0, help="percent")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--between-runs", type=float, default=0.5, help="percent")
    options = parser.parse_args()
    options.allowed = (options.allowed or options.slower) / 100
    (real if options.how == "real" else simulated)(options)


def real(options: argparse.Namespace) -> None:
    as_it_is, slower = programs(options.step_ms, options.slower / 100)
    runs: list[list[Repeat]] = []
    planted: list[list[Repeat]] = []
    busy, began = 0, time.perf_counter()
    for number in range(options.runs):
        for function, kept in ((as_it_is, runs), (slower, planted)):
            if kept is planted and len(planted) * options.runs >= options.planted * (number + 1):
                continue
            mine, others = recorded(function, options)
            kept.append(mine)
            busy += others
        if number % 50 == 49:
            print(f"{number + 1} runs, {time.perf_counter() - began:.0f} s", flush=True)
    total = options.repeats * (len(runs) + len(planted))
    print(
        f"{total} repeats; {busy} more were disturbed by other processes,"
        f" {sum(not run for run in runs + planted)} runs wholly"
    )
    print("percent of runs: those drawn from the whole time as the baseline, then the first ones")
    heading()
    rng = np.random.default_rng(1)
    good = [number for number, run in enumerate(runs) if run]
    for count in OF_BASELINE:
        row(
            "drawn",
            count,
            [
                [_drawn(rng, runs, good, count, skip, mine, options) for skip, mine in each]
                for each in _sides(runs, planted)
            ],
        )
        base = [runs[number] for number in good[:count]]
        late = list(enumerate(runs))[good[count - 1] + 1 :]
        row(
            "first",
            count,
            [
                [verdict(base, mine, options) for _, mine in each]
                for each in (late, _sides(runs, planted)[1])
            ],
        )
    within, between, session = scatter([run for run in runs if len(run) > 1])
    print(
        f"typical step: within a recording {within:.2f} %, between repeats {between:.2f} %, between"
        f" runs {session:.2f} %"
    )


def _sides(runs, planted):
    return list(enumerate(runs)), [(-1, mine) for mine in planted]


def _drawn(
    rng, runs, good, count: int, skip: int, mine: list[Repeat], options: argparse.Namespace
) -> str:
    others = rng.permutation([number for number in good if number != skip])[:count]
    return verdict([runs[number] for number in others], mine, options)


def verdict(base: list[list[Repeat]], mine: list[Repeat], options: argparse.Namespace) -> str:
    return slowdown(base, mine, options.allowed).kind if mine else "unknown"


def heading() -> None:
    print(
        f"baseline   runs | unchanged: {'  '.join(f'{kind:>7}' for kind in KINDS)} | planted:"
        f" {'  '.join(f'{kind:>7}' for kind in KINDS)}"
    )


def row(name: str, count: int, sides: list[list[str]]) -> None:
    counts = [(Counter(side), len(side)) for side in sides]
    cells = [
        "  ".join(f"{100 * found[kind] / max(whole, 1):7.1f}" for kind in KINDS)
        for found, whole in counts
    ]
    print(f"{name:9} {count:5} |            {cells[0]} |          {cells[1]}", flush=True)


def programs(step_ms: float, more: float):
    """A program of about so many ms a step, and the same with so much more work in it."""
    import jax
    import jax.numpy as jnp

    start = jnp.full((96, 96), 0.01)

    def of(count: int):
        @jax.jit
        def step(x):
            return jax.lax.fori_loop(0, count, lambda _, y: jnp.tanh(y @ y), x)

        return lambda: step(start)

    trial = of(100)
    trial().block_until_ready()
    each = []
    for _ in range(30):
        began = time.process_time()
        trial().block_until_ready()
        each.append(time.process_time() - began)
    count = max(20, round(100 * step_ms / 1000 / float(np.median(each)) / 20) * 20)
    return of(count), of(round(count * (1 + more)))


def recorded(function, options: argparse.Namespace) -> tuple[list[Repeat], int]:
    if not options.recorded:
        return timed(function, options)
    from nbprof.gate.record import record

    profiles = record(function, steps=options.steps, repeats=options.repeats).repeats
    runs = [profile.run for profile in profiles]
    return repeats(runs)[0], sum(bool(disturbed(run)) for run in runs)


def timed(function, options: argparse.Namespace) -> tuple[list[Repeat], int]:
    found, count = [], 0
    while len(found) < options.repeats and count < 2 * options.repeats:
        count += 1
        meter = Contention()
        times = []
        for _ in range(options.steps + 1):
            began = time.perf_counter()
            function().block_until_ready()
            times.append(1000 * (time.perf_counter() - began))
        if not sentence(meter.measured(), DISTURBED):
            found.append(repeat(np.array(times[1:])))
    return (found if 2 * len(found) >= count else []), count - len(found)


def scatter(runs: list[list[Repeat]]) -> tuple[float, float, float]:
    """Standard deviations in percent: of steps in a recording, of repeats beyond that, and of runs
    beyond both.
    """
    level = np.mean([one.typical for run in runs for one in run])
    error = np.mean([one.typical_error**2 for run in runs for one in run])
    between = np.mean([np.var([one.typical for one in run], ddof=1) for run in runs])
    session = np.var(
        [np.mean([one.typical for one in run]) for run in runs], ddof=1
    ) - between / len(runs[0])
    steps = runs[0][0].steps
    parts = error * steps, max(between - error, 0.0), max(session, 0.0)
    within, between, session = (100 * float(np.sqrt(part)) / level for part in parts)
    return within, between, session


def simulated(options: argparse.Namespace) -> None:
    rng = np.random.default_rng(1)
    print(
        f"within a recording {options.within} %, between repeats {options.between_repeats} %,"
        f" between runs {options.between_runs} %"
    )
    heading()

    def run(level: float) -> list[Repeat]:
        level *= 1 + options.between_runs / 100 * rng.standard_normal()
        levels = level * (1 + options.between_repeats / 100 * rng.standard_normal(options.repeats))
        return [
            repeat(one * (1 + options.within / 100 * rng.standard_normal(options.steps)))
            for one in levels
        ]

    for count in OF_BASELINE:
        sides = [
            [
                verdict([run(1.0) for _ in range(count)], run(level), options)
                for _ in range(options.draws)
            ]
            for level in (1.0, 1 + options.slower / 100)
        ]
        row("simulated", count, sides)


if __name__ == "__main__":
    main()

"""Fuzzing of values: recordings whose bytes are sound, and a few of whose times, durations, kinds
or ranks are not.

    python -m tests.fuzz.values --seconds 60                     # all formats, in turn
    python -m tests.fuzz.values kineto --seed 7 --count 1000
    python -m tests.fuzz.values kineto --seed 7 --first 471 --count 1

What is said of such a recording agrees with what its sound part says: the average step, the time of
kernels, how busy the device is and the verdict are those of the sound recording, or not known, and
a figure that changed has a warning. An input follows from the format, the seed and its number
alone.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.fuzz import command
from tests.support import corrupt, nsys
from tests.support.kineto import Kineto
from tests.support.xspace import MS, PlaneWriter, xspace

Event = dict[str, Any]

STEPS, KERNELS, KERNEL_US, SPACE_US, BEGIN_US = 12, 16, 40.0, 50.0, 5_000.0
TOLERANCE = 0.05
"""How far a figure may be from that of the sound recording: a piece of work that is cut is known
that well.
"""


@dataclass(frozen=True)
class Figures:
    """What a person reads first, NaN for what is not known."""

    step_ms: float
    busy_percent: float
    kernel_ms: float
    steps: int
    verdict: str
    findings: frozenset[str]
    warnings: frozenset[str]


def recording(rank: int | None = None) -> Kineto:
    """A training of which every step is like the others."""
    k = (
        Kineto()
        if rank is None
        else Kineto(distributedInfo={"backend": "nccl", "rank": rank, "world_size": 2})
    )
    length = KERNELS * SPACE_US
    for step in range(STEPS):
        begin = BEGIN_US + step * length
        k.step(step, begin, length)
        for i in range(KERNELS):
            at = begin + i * SPACE_US
            name = ("aten::mm", "aten::add")[i % 2]
            k.launched(
                ("gemm", "elementwise")[i % 2], at + 3, at + 8, KERNEL_US, k.op(name, at + 1, 9)
            )
    k.call("cudaDeviceSynchronize", BEGIN_US + STEPS * length, 5)
    return k


def _of(k: Kineto, *categories: str) -> list[Event]:
    return [event for event in k.events if event.get("cat") in categories]


def _long(rng: Random) -> float:
    return rng.choice((3e6, 5e5, 1e5, 7e7, 3.6e9)) * rng.uniform(0.5, 2)


def kernels_too_long(k: Kineto, rng: Random) -> None:
    """Kernels that end seconds too late."""
    for event in rng.sample(_of(k, "kernel"), rng.randint(1, 4)):
        event["dur"] = _long(rng)


def kernels_too_short(k: Kineto, rng: Random) -> None:
    """Kernels that take no time, less than none, or state no number."""
    for event in rng.sample(_of(k, "kernel"), rng.randint(1, 4)):
        event["dur"] = rng.choice((0, -5.0, None, "n/a"))


def kernels_elsewhere(k: Kineto, rng: Random) -> None:
    """Kernels that began at another time than they did."""
    for event in rng.sample(_of(k, "kernel"), rng.randint(1, 3)):
        event["ts"] = rng.choice((0.0, event["ts"] + 3.6e9, event["ts"] + 4e6, 1e15, -1e9))


def markers(k: Kineto, rng: Random) -> None:
    """A marker that lasts over later steps."""
    # Nothing contradicts the last one: a step may end with work that no profiler records.
    marks = [event for event in k.events if event["name"].startswith("ProfilerStep#")][:-1]
    for event in rng.sample(marks, rng.randint(1, 2)):
        event["dur"] = _long(rng)


def ops(k: Kineto, rng: Random) -> None:
    """Ops and calls that end seconds too late."""
    for event in rng.sample(_of(k, "cpu_op", "cuda_runtime"), rng.randint(1, 3)):
        if event["name"] != "cudaDeviceSynchronize":
            event["dur"] = _long(rng)


def kinds(k: Kineto, rng: Random) -> None:
    """Device work of a category that there is not, or called as the call that launched it."""
    for event in rng.sample(_of(k, "kernel"), rng.randint(1, 3)):
        if rng.random() < 0.5:
            event["cat"] = rng.choice(("", "kernels?", "cpu_op_", None, 7))
        else:
            event["name"] = rng.choice(("cudaLaunchKernel", "cudaGraphLaunch", "hipGraphLaunch"))


def ranks(k: Kineto, rng: Random) -> None:
    """A rank that is none."""
    k.metadata["distributedInfo"] = {
        "backend": "nccl",
        "rank": rng.choice((-1, "0", None, 2**40, 1.5, [])),
        "world_size": rng.choice((2, -3, "x")),
    }


def device_clock(k: Kineto, rng: Random) -> None:
    """A device whose clock is not that of the host."""
    late = rng.choice((-3.6e9, -5e6, -2e3, -500.0, 4e6, 3.6e9)) * rng.uniform(0.5, 2)
    for event in _of(k, "kernel"):
        event["ts"] += late


def correlations(k: Kineto, rng: Random) -> None:
    """Device work that states a launch that there is not."""
    for event in rng.sample(_of(k, "kernel"), rng.randint(1, 3)):
        event["args"]["correlation"] = rng.choice((0, -1, 2**31 - 1, 10**12, "x"))


WAYS: tuple[Callable[[Kineto, Random], None], ...] = (
    kernels_too_long,
    kernels_too_short,
    kernels_elsewhere,
    markers,
    ops,
    kinds,
    ranks,
    correlations,
    device_clock,
)


def of_kineto(rng: Random) -> tuple[dict[str, bytes], str]:
    """A corrupt trace of PyTorch, and what is corrupt in it."""
    k = recording()
    ways = rng.sample(WAYS, rng.choice((1, 1, 1, 2)))
    for way in ways:
        way(k, rng)
    return {"run.pt.trace.json": k.encode()}, " and ".join(way.__name__ for way in ways)


def of_nsys(rng: Random) -> tuple[dict[str, bytes], str]:
    """A corrupt export of Nsight Systems."""
    out = copy.deepcopy(_nsys())
    rows = rng.sample(out.tables["CUPTI_ACTIVITY_KIND_KERNEL"], rng.randint(1, 3))
    for row in rows:
        row["end"] = row["start"] + int(1e3 * _long(rng))
    return {"run.sqlite": _sqlite(out)}, "kernels_too_long"


def _nsys() -> nsys.Export:
    return nsys.training(STEPS)


def _sqlite(out: nsys.Export) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return out.sqlite(Path(folder) / "run.sqlite").read_bytes()


def jax_loop(long: dict[int, float] | None = None, later: dict[int, float] | None = None) -> bytes:
    """An XSpace file of marked steps of 10 ms with 10 kernels of 0.8 ms; some state another
    duration, or begin later, by ms.
    """
    host, gpu = (
        PlaneWriter("/host:CPU"),
        PlaneWriter("/device:GPU:0", {"device_vendor": "Nvidia", "compute_cap_major": 9}),
    )
    main, kernels = [], []
    for step in range(STEPS):
        at = 10 * step * MS
        main.append(host.event("train", at, 10 * MS, step_num=step, _r=1))
        for i in range(10):
            launch = 10 * step + i + 1
            main.append(
                host.event("cuLaunchKernel", at + i * MS // 4, MS // 8, correlation_id=launch)
            )
            took = int((long or {}).get(launch - 1, 0.8) * MS)
            stated = {
                "correlation_id": launch,
                "kernel_details": "regs:32 grid:4,1,1 block:128,1,1",
            }
            begin = at + MS // 10 + 99 * i * MS // 100 + int((later or {}).get(launch - 1, 0) * MS)
            kernels.append(gpu.event("gemm" if i % 2 else "fusion", begin, took, **stated))
    host.line("python", main, line_id=1)
    gpu.line("Stream #2(Compute)", kernels, line_id=2)
    return xspace(gpu, host)


def of_xspace(rng: Random) -> tuple[dict[str, bytes], str]:
    """A corrupt XSpace file."""
    chosen = rng.sample(range(10 * STEPS), rng.randint(1, 4))
    return {
        "run.xplane.pb": jax_loop({nth: _long(rng) / 1e3 for nth in chosen})
    }, "kernels_too_long"


def of_tpu(rng: Random) -> tuple[dict[str, bytes], str]:
    """A corrupt XSpace file of a TPU."""
    count = corrupt.TPU_STEPS * (corrupt.TPU_OPS + 1)
    chosen = rng.sample(range(count), rng.randint(1, 4))
    changed = {("XLA Ops", row): {"duration": int(_long(rng) / 1e3 * MS)} for row in chosen}
    measured = rng.random() < 0.5
    return {"run.xplane.pb": corrupt.tpu_training(changed, measured=measured)}, "ops_too_long"


def of_ascend(rng: Random) -> tuple[dict[str, bytes], str]:
    """A corrupt timeline of an NPU, or database, of torch_npu."""
    chosen = rng.sample(range(corrupt.NPU_STEPS * corrupt.NPU_OPS), rng.randint(1, 3))
    lengths = {number: int(_long(rng)) for number in chosen}
    form = rng.choice((corrupt.npu_torch_text, corrupt.npu_database))
    return _ascend(form, lengths), f"tasks_too_long of {form.__name__.removeprefix('npu_')}"


def _ascend(
    form: Callable[[Path, dict[int, int], dict[int, int]], Path], lengths: dict[int, int]
) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        form(Path(folder), lengths, {})
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class Format(NamedTuple):
    """Makes corrupt recordings of a format, and the sound one, of so many steps."""

    corrupt: Callable[[Random], tuple[dict[str, bytes], str]]
    sound: Callable[[], dict[str, bytes]]
    steps: int = STEPS


FORMATS = {
    "kineto": Format(of_kineto, lambda: {"run.pt.trace.json": recording().encode()}),
    "xspace": Format(of_xspace, lambda: {"run.xplane.pb": jax_loop()}),
    "nsys": Format(of_nsys, lambda: {"run.sqlite": _sqlite(_nsys())}),
    "tpu": Format(of_tpu, lambda: {"run.xplane.pb": corrupt.tpu_training()}, corrupt.TPU_STEPS),
    "ascend": Format(of_ascend, lambda: _ascend(corrupt.npu_torch_text, {}), corrupt.NPU_STEPS),
}


def figures(files: dict[str, bytes], folder: Path) -> Figures:
    """What is said of a recording."""
    from nbprof.profiles.load import read

    if folder.exists():
        shutil.rmtree(folder)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = read(folder / Path(next(iter(files))).parts[0])
        kernels = p.kernels.by_name()
        # A TPU has ops, and no kernels.
        work = kernels if len(kernels) else p.ops.frame.query("where == 'device'")
        assert p.text()
        return Figures(
            _number(p.overview["step_time_ms"]),
            _number(p.overview["device_busy_percent"]),
            float(work["total_us"].sum()) / 1e3 if len(work) else math.nan,
            len(p.steps.frame),
            str(p.overview["verdict"]),
            frozenset(p.advice["rule"].tolist()),
            frozenset(note.text for note in p.receipt.lines if note.level == "warning"),
        )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def faults(sound: Figures, changed: Figures) -> list[str]:
    """Where what is said of a corrupt recording is not what its sound part says."""
    out = []
    warned = bool(changed.warnings - sound.warnings)
    for name in ("step_ms", "busy_percent", "kernel_ms"):
        expected, said = getattr(sound, name), getattr(changed, name)
        if not math.isnan(said) and not math.isclose(said, expected, rel_tol=TOLERANCE):
            out.append(f"{name} is {said:g} where the sound part says {expected:g}")
    if changed.verdict != sound.verdict and not warned:
        out.append(
            f"the verdict is {changed.verdict!r} instead of {sound.verdict!r}, and nothing warns"
        )
    if changed.steps != sound.steps and not warned:
        out.append(f"{changed.steps} steps instead of {sound.steps}, and nothing warns")
    if more := changed.findings - sound.findings:
        out.append(f"findings that the sound part does not make: {', '.join(sorted(more))}")
    return out


def one(form: str, seed: int, number: int, sound: Figures, folder: Path) -> str:
    """Opens one input; what is wrong with what is said of it, '' where nothing is."""
    from nbprof.core.errors import ReadError

    files, ways = FORMATS[form].corrupt(Random(f"{form} {seed} {number}"))
    try:
        found = faults(sound, figures(files, folder))
    except ReadError:
        return ""
    except Exception:
        return f"{ways}: {traceback.format_exc(limit=-3)}"
    return f"{ways}: {'; '.join(found)}" if found else ""


def main(arguments: list[str] | None = None) -> int:
    """Runs the formats that are asked for; 1 where one of them has a find."""
    options = command.parser(__doc__, FORMATS)
    chosen, numbers = command.chosen(options, FORMATS, arguments)
    names = chosen.formats
    finds = {}
    with tempfile.TemporaryDirectory(prefix="nbprof-values-") as folder:
        for name in names:
            until = time.monotonic() + chosen.seconds / len(names)
            sound = figures(FORMATS[name].sound(), Path(folder) / f"{name}-sound")
            number, found = numbers.start, 0
            while number < numbers.stop and time.monotonic() < until:
                if find := one(name, chosen.seed, number, sound, Path(folder) / name):
                    found += 1
                    print(
                        f"FIND {name}: {find}\n  again: python -m tests.fuzz.values {name} --seed {chosen.seed} --first {number} --count 1"
                    )
                number += 1
            finds[name] = {"inputs": number - chosen.first, "finds": found}
    print(json.dumps(finds), flush=True)
    return int(any(result["finds"] for result in finds.values()))


if __name__ == "__main__":
    sys.exit(main())

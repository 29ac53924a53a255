"""Advice to prepare batches beside the steps, as far as the machine has cores for it.

Workers share the cores with the training, and with other processes. What was busy, and what the
loaders were, is stated by the recording of nbprof, and in no file of a profiler. Where it is not
known, the numbers of the rules stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis import contention
from nbprof.analysis.input.input_pipeline import READING
from nbprof.analysis.rule import UP_TO
from nbprof.core.loader_uses import DATA_LOADER, PY_DATASET, TF_DATA, LoaderUse
from nbprof.display import wording

HAND_OVER, RECEIVE_MS = 1.1, 2.0
"""Core time of a batch from a worker, in terms of what it takes in the training process: it is
copied once more; and the time to send and receive it, of which 1.2 to 2.4 ms were measured."""
WORTH = 0.03
"""Part of a step: workers that would save less are not advised."""
NEAR = 0.1
"""One more worker that makes a step faster by less than this part is not advised."""
_LEAST_OF_WORKER = 0.125
"""Cores of a worker that does nothing but wait: more than eight workers a core are never
advised.
"""
_ALMOST = 0.25
"""So much less than a core is enough for one more worker."""
IN_PROCESS, WORKERS, NONE = "loader_in_process", "loader_workers", "loader_none"
BESIDE = (NONE, "input_ahead", "input_outside_tf_data", "map_serial", "prefetch_missing")
"""Rules that let something run beside the steps which did not."""
_OF_OTHERS = ("input_ahead", "input_outside_tf_data", "input_bottleneck")
"""Rules of TensorFlow and JAX on input, which may come from a loader of PyTorch or Keras."""
_GENERATOR = "**Generator**"
_PARALLEL = "num_parallel_calls"

_TITLE = "Make items cheaper: no core is free for more workers"
_TITLE_SMALL = "Make items cheaper: a worker would cost as much time as it saves"
_TITLE_BESIDE = "Make batches cheaper: no core is free to prepare them beside the steps"
_FIX = (
    " class Items(Dataset):\n"
    "     def __getitem__(self, i):\n"
    "-        return decode(self.paths[i])\n"
    "+        return self.decoded[i]  # decoded once, before training: np.load(path,"
    " mmap_mode='r')"
)
_FIX_OF_TF_DATA = (
    "-ds = ds.map(fn)\n"
    "+ds.map(fn).save(path)  # once, before training\n"
    "+ds = tf.data.Dataset.load(path)"
)
_FIX_OF_BATCHES = (
    "-batch = make_batch(i)\n"
    "+batch = batches[i]  # made once, before training: np.load(path, mmap_mode='r')"
)
_CHEAPER_ITEMS = (
    "decode and transform once, before training; workers would not help on this machine"
)
_REFUTED = "{the} waits less with more workers"


@dataclass(frozen=True)
class Machine:
    """Cores, in numbers of them: of the machine that the process may use, those it kept busy with
    its children, and those of others.
    """

    cores: float
    own: float
    others: float

    @property
    def available(self) -> float:
        """Those for this process and its workers: what others leave, and at least what it had."""
        return max(self.cores - self.others, self.own, 0.0)

    @staticmethod
    def of(measured: Mapping[str, float]) -> Machine | None:
        """As `nbprof.capture.contention` measured it; None where it could not."""
        if not measured.get("cores") or "own_cores" not in measured:
            return None
        return Machine(measured["cores"], measured["own_cores"], measured.get("other_cores", 0.0))


@dataclass(frozen=True)
class Load:
    """A step that waits for its batch: ms of the step and of the wait, and the core ms of either
    part.
    """

    step: float
    wait: float
    wait_work: float
    rest_work: float

    @property
    def rest(self) -> float:
        """What a step takes when its batch is there."""
        return max(self.step - self.wait, 0.0)

    @staticmethod
    def of(step: float, wait: float, machine: Machine, loader: LoaderUse | None) -> Load:
        """By what the process used while it waited and while it did not; else a wait takes one
        core, and the rest what is left.
        """
        rest = max(step - wait, 0.0)
        waiting = loader.wait_cores if loader is not None else None
        between = loader.rest_cores if loader is not None else None
        if waiting is not None and between is not None:
            return Load(step, wait, waiting * wait, between * rest)
        used = machine.own * step
        waited = min(wait, used)
        return Load(step, wait, waited, used - waited)

    def with_workers(self, workers: int, machine: Machine) -> float:
        """Ms of a step whose batches come from so many workers.

        The slowest of three decides: the rest of the step on the cores that the workers leave it,
        the workers, of which each has one thread, and the cores that all share. More threads than
        cores would be slower yet: threads of one op wait for each other.
        """
        work = HAND_OVER * self.wait_work
        a_batch = max(self.wait, work)
        least = 1e-9
        rest = max(self.rest, self.rest_work / max(self.left(workers, machine), least)) + RECEIVE_MS
        return max(
            rest,
            (a_batch + RECEIVE_MS) / workers,
            (work + self.rest_work) / max(machine.available, least),
        )

    def left(self, workers: int, machine: Machine) -> float:
        """Cores that are left for the rest of the step while workers run, which need none while
        they wait for a disk or a network.
        """
        return max(machine.available - workers * self.of_worker, 0.0)

    @property
    def of_worker(self) -> float:
        """Cores that one worker keeps busy."""
        return min(self.wait_work / self.wait, 1.0) if self.wait else 1.0

    @property
    def rest_cores(self) -> float:
        """Cores that the rest of the step uses."""
        return self.rest_work / self.rest if self.rest else 0.0


def workers_for(load: Load, machine: Machine) -> tuple[int, float]:
    """How many workers make a step fastest, no more than needed, and the ms of a step with them."""
    max_workers = max(int(machine.cores / max(load.of_worker, _LEAST_OF_WORKER)), 1)
    steps = {workers: load.with_workers(workers, machine) for workers in range(1, max_workers + 1)}
    best = min(steps.values())
    workers = next(workers for workers, step in steps.items() if step <= best * (1 + NEAR))
    return workers, steps[workers]


def more_workers_for(
    step: float, wait: float, workers: int, machine: Machine, of_worker: float = 1.0
) -> tuple[int, float]:
    """The same for a loader that has workers: as much faster as cores are free, but no faster than
    without the wait.
    """
    faster = max(
        step - wait, step * min(machine.own / machine.available, 1.0) if machine.available else step
    )
    max_workers = workers + int((machine.available - machine.own + _ALMOST) / of_worker)
    needed = min(ceil(workers * step / faster) if faster else workers, max_workers)
    return needed, max(faster, step * workers / max(needed, 1))


def fitted(
    findings: pd.DataFrame,
    measured: Mapping[str, float],
    loaders: Iterable[LoaderUse],
    times: Times,
    unit: Unit = MARKED,
) -> pd.DataFrame:
    """The findings, with numbers and gains that the machine has the cores for, and cheaper items
    where it has none.

    Parameters
    ----------
    found : DataFrame
        `p.advice`.
    measured : mapping
        What `nbprof.capture.contention.Contention.measured` gave.
    loaders : iterable of LoaderUse
        What the program asked for its batches.
    times : Times
        Of an average step.
    unit : Unit
        What the figures are given per.
    """
    machine, uses = Machine.of(measured), list(loaders)
    if not len(findings) or times.step <= 0:
        return findings
    names = [str(name) for name in findings.columns]
    records = [
        dict(zip(names, values, strict=True))
        for values in findings.itertuples(index=False, name=None)
    ]
    rows = [_row(record, machine, uses, times, unit) for record in records]
    rows_left = [row for row in rows if row is not None]
    if not rows_left:
        return findings.head(0)
    result = pd.DataFrame(rows_left, columns=findings.columns).astype(findings.dtypes.to_dict())
    if result.equals(findings.reset_index(drop=True)):
        return findings
    return result.sort_values("gain_ms_per_step", ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Times:
    """Ms of an average step and of its wait for input; whether devices compute that copies go to,
    and whether Keras runs the loop.
    """

    step: float
    wait: float
    devices: bool = False
    keras: bool = False


def _row(
    row: dict[str, Any], machine: Machine | None, uses: list[LoaderUse], times: Times, unit: Unit
) -> dict[str, Any] | None:
    """A finding, changed where it speaks of what runs beside the steps; None where that would save
    nothing.
    """
    rule = row["rule"]
    if rule == "pinned_memory":
        loaders = [use for use in uses if use.kind == DATA_LOADER]
        # What is copied from elsewhere did not come from them.
        return None if loaders and all(use.pin_memory for use in loaders) else row
    loader = _loader(rule, uses)
    generator = rule != "input_bottleneck" or _GENERATOR in str(row["evidence"])
    if rule in _OF_OTHERS and generator and loader is not None and loader.kind != TF_DATA:
        # The framework's profiler does not see whose batches these are.
        rule = WORKERS if loader.workers and loader.kind == DATA_LOADER else IN_PROCESS
        title = (
            "Load batches in worker processes"
            if rule == IN_PROCESS
            else "Give the DataLoader more workers"
        )
        row = {**row, "title": title, "evidence": _of_loader(str(row["evidence"]), loader)}
    if rule == IN_PROCESS:
        # Keras makes a loader of PyTorch around a dataset of its own: that is the one in the code.
        written = (
            next((use for use in uses if use.kind == PY_DATASET), loader) if times.keras else loader
        )
        return _in_process(row, machine, loader, times, unit, written)
    if rule == WORKERS:
        return _with_workers(row, machine, loader, times, unit)
    if machine is None or not (
        rule in BESIDE or (rule == "input_bottleneck" and _PARALLEL in str(row["fix"]))
    ):
        return row
    return _beside(row, machine, loader, times, unit)


def _of_loader(text: str, loader: LoaderUse) -> str:
    """The evidence, with the loader that makes the batches in place of what is said of pipelines of
    TensorFlow and JAX.
    """
    for end in (
        ", and no recorded pipeline prepares it",
        ", and no tf.data pipeline",
        " The slowest call took",
    ):
        head, separator, _ = text.partition(end)
        if separator:
            text = f"{head.removesuffix('.')}."
            break
    named = f" of **{loader.dataset}**" if loader.dataset else ""
    return f"{text} The batches come from the {loader.kind.rpartition('.')[2]}{named}."


def _loader(rule: str, uses: list[LoaderUse]) -> LoaderUse | None:
    """The loader that a finding is about: the one that was waited for longest, of those that
    fit.
    """
    if rule == IN_PROCESS:
        fit = [
            use
            for use in uses
            if (use.kind == DATA_LOADER and not use.workers) or use.kind == PY_DATASET
        ]
    elif rule == WORKERS:
        fit = [use for use in uses if use.workers and use.kind != TF_DATA]
    else:
        fit = [use for use in uses if use.kind == TF_DATA or rule in _OF_OTHERS]
    return fit[0] if fit else None


def _in_process(
    row: dict[str, Any],
    machine: Machine | None,
    loader: LoaderUse | None,
    times: Times,
    unit: Unit,
    written: LoaderUse | None,
) -> dict[str, Any]:
    """`loader` is the one that was waited for, `written` the one in the person's code."""
    if machine is None:
        # One worker hides the shorter of the two; how many more have a core is not known.
        return {**row, "gain_is": UP_TO}
    load = Load.of(times.step, times.wait, machine, loader)
    workers, step = workers_for(load, machine)
    gain = min(times.step - step, float(row["gain_ms_per_step"]))
    if gain < WORTH * times.step:
        if load.wait <= 2 * RECEIVE_MS and load.left(1, machine) >= load.rest_cores:
            text = (
                f"{row['evidence']} A worker would save little: to send and receive its batch takes"
                f" about **{wording.millis(RECEIVE_MS)}**."
            )
            return _cheaper(row, text, _TITLE_SMALL, unit, keras=times.keras)
        text = (
            f"{row['evidence']} {_busy(load, machine, unit)}: workers would take their time from"
            f" the rest of {unit.the}."
        )
        return _cheaper(row, text, _TITLE, unit, keras=times.keras)
    text = (
        f"{row['evidence']} {_free(load, machine, unit)}: with **{_of_workers(workers)}** {unit.a}"
        " takes about "
    )
    text += f"**{wording.millis(times.step - gain)}**."
    fix = _code(workers, written, times, str(row["fix"]))
    if load.rest_cores > load.left(workers, machine) + _ALMOST and machine.cores > 1:
        threads = max(int(machine.cores) - workers, 1)
        text += (
            f" Leave them their cores: with more than **{threads}**"
            f" thread{'' if threads == 1 else 's'} of its own, the training "
        )
        text += "would wait for a core in each op."
        fix += f"\n+torch.set_num_threads({threads})"
    return {**row, "evidence": text, "gain_ms_per_step": gain, "fix": fix}


def _with_workers(
    row: dict[str, Any], machine: Machine | None, loader: LoaderUse | None, times: Times, unit: Unit
) -> dict[str, Any]:
    workers = loader.workers if loader is not None else None
    if machine is None:
        return {**row, "gain_is": UP_TO}
    of_worker = _cores_of_worker(times, machine, loader)
    needed, step = more_workers_for(times.step, times.wait, workers or 1, machine, of_worker)
    gain = min(times.step - step, float(row["gain_ms_per_step"]))
    if gain < WORTH * times.step or (workers is not None and needed <= workers):
        of = _kept_busy(machine)
        others = (
            f", and others **{machine.others:.1f}**"
            if machine.others >= contention.OTHERS * machine.cores
            else ""
        )
        text = (
            f"{row['evidence']} They and the training process kept {of} busy{others}: more workers"
            " would have no free core."
        )
        return _cheaper(row, text, _TITLE, unit)
    free = machine.available - machine.own
    text = (
        f"{row['evidence']} About **{free:.1f}** of the **{machine.cores:.0f}** cores were free:"
        f" {unit.a} can take about "
    )
    text += f"**{wording.millis(times.step - gain)}**."
    fix = (
        _code(needed, loader, times, str(row["fix"]))
        if workers is not None
        else _plus(max(int(free), 1))
    )
    return {**row, "evidence": text, "gain_ms_per_step": gain, "gain_is": UP_TO, "fix": fix}


def _cores_of_worker(times: Times, machine: Machine, loader: LoaderUse | None) -> float:
    """Cores that each worker of a loader keeps busy: less than one where it waits for a disk or a
    network.
    """
    if (
        loader is None
        or not loader.workers
        or loader.wait_cores is None
        or loader.rest_cores is None
    ):
        return 1.0
    of_process = loader.wait_cores * times.wait + loader.rest_cores * max(
        times.step - times.wait, 0.0
    )
    of_workers = machine.own * times.step - of_process
    return min(max(of_workers / (loader.workers * times.step), _LEAST_OF_WORKER), 1.0)


def _beside(
    row: dict[str, Any], machine: Machine, loader: LoaderUse | None, times: Times, unit: Unit
) -> dict[str, Any] | None:
    """What lets a pipeline run beside the steps, or more of it at a time: all of the work is left,
    on the cores that there are.
    """
    load = Load.of(times.step, times.wait, machine, loader)
    least = (
        (load.wait_work + load.rest_work) / machine.available if machine.available else times.step
    )
    gain = min(float(row["gain_ms_per_step"]), max(times.step - least, 0.0))
    if gain >= float(row["gain_ms_per_step"]):
        return row
    if gain >= WORTH * times.step:
        text = f"{row['evidence']} {_free(load, machine, unit)}, which bounds the gain."
        return {**row, "evidence": text, "gain_ms_per_step": gain, "gain_is": UP_TO}
    if row["rule"] == "prefetch_missing":
        return None
    text = (
        f"{row['evidence']} {_busy(load, machine, unit)}: nothing more can run beside {unit.the}."
    )
    fix = _FIX_OF_TF_DATA if row["rule"] in ("map_serial", "input_bottleneck") else _FIX_OF_BATCHES
    return {**_cheaper(row, text, _TITLE_BESIDE, unit), "fix": fix}


def _cheaper(
    row: dict[str, Any], text: str, title: str, unit: Unit, *, keras: bool = False
) -> dict[str, Any]:
    fix = (
        _FIX.replace("class Items(Dataset)", "class Batches(keras.utils.PyDataset)")
        if keras
        else _FIX
    )
    return {
        **row,
        "evidence": text,
        "title": title,
        "fix": fix,
        "gain_is": UP_TO,
        "refuted_by": unit.fill(_REFUTED),
    }


def without_workers(categories: pd.DataFrame, findings: pd.DataFrame) -> pd.DataFrame:
    """The kinds of input work, without advice to add workers where the findings say that they would
    not help.

    Parameters
    ----------
    categories : DataFrame
        `p.input_pipeline.categories`.
    found : DataFrame
        `p.advice`.
    """
    if not findings["title"].isin([_TITLE, _TITLE_SMALL, _TITLE_BESIDE]).any():
        return categories
    concerned = categories["category"].isin(list(READING)) & (categories["advice"] != "")
    return categories.assign(advice=categories["advice"].mask(concerned, _CHEAPER_ITEMS))


def _kept_busy(machine: Machine) -> str:
    if machine.cores <= 1:
        return f"**{100 * machine.own:.0f}%** of the core"
    return f"**{machine.own:.1f}** of the **{machine.cores:.0f}** cores"


def _of_others(machine: Machine) -> str:
    return f", other processes **{machine.others:.1f}**" if machine.others >= 0.05 else ""


def _busy(load: Load, machine: Machine, unit: Unit) -> str:
    used = min(load.rest_cores, machine.cores) if load.rest else machine.own
    cores = "the core" if machine.cores <= 1 else f"the **{machine.cores:.0f}** cores"
    return f"The rest of {unit.the} uses **{used:.1f}** of {cores}{_of_others(machine)}"


def _free(load: Load, machine: Machine, unit: Unit) -> str:
    return (
        f"{_busy(load, machine, unit)}, and a batch takes **{wording.millis(load.wait_work)}** of a"
        " core"
    )


def _of_workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _code(workers: int, loader: LoaderUse | None, times: Times, fix: str) -> str:
    """The call with so many workers, with the arguments that the loader has."""
    if loader is not None and loader.kind == PY_DATASET:
        now = f"workers={loader.workers}" if loader.workers is not None else ""
        now += ", use_multiprocessing=True" if loader.processes else ""
        return (
            f"-model.fit(Batches({now}))\n"
            f"+model.fit(Batches(workers={workers}, use_multiprocessing=True))"
        )
    if loader is None or times.keras:
        return fix.replace("num_workers=1", f"num_workers={workers}").replace(
            "workers=1", f"workers={workers}"
        )
    size = "n" if loader.batch_size is None else str(loader.batch_size)
    given = [f"batch_size={size}", *(["shuffle=True"] if loader.shuffle else [])]
    kept = [
        *(["pin_memory=True"] if loader.pin_memory else []),
        *(["persistent_workers=True"] if loader.persistent_workers else []),
    ]
    before = [*given, *([f"num_workers={loader.workers}"] if loader.workers else []), *kept]
    added = [] if loader.pin_memory or not times.devices else ["pin_memory=True"]
    # Workers that start anew in each epoch cost a second of it.
    added += (
        ["persistent_workers=True"]
        if loader.iterations > 1 and not loader.persistent_workers
        else []
    )
    after = [*given, f"num_workers={workers}"]
    more = [*kept, *added]
    rest = ",\n+                    " + ", ".join(more) if more else ""
    return (
        f"-loader = DataLoader(dataset, {', '.join(before)})\n"
        f"+loader = DataLoader(dataset, {', '.join(after)}{rest})"
    )


def _plus(free: int) -> str:
    return (
        "-loader = DataLoader(dataset, batch_size=n, num_workers=k)\n"
        f"+loader = DataLoader(dataset, batch_size=n, num_workers=k + {free})"
    )

"""Advice to prepare batches during the steps, as far as the machine has cores for it.

Workers share the cores with the training and with other processes. Only a recording of nbprof has
the use of the cores and the loaders, no file of a profiler. Without them, the numbers of the rules
stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis import contention
from nbprof.analysis.advice.keras_code import IN_KERAS, TITLES
from nbprof.analysis.input.input_pipeline import READING
from nbprof.analysis.rule import ABOUT, UP_TO
from nbprof.core.loader_uses import (
    DATA_LOADER,
    GRAIN_DATASET,
    GRAIN_LOADER,
    ITERABLE,
    PY_DATASET,
    TF_DATA,
    LoaderUse,
)
from nbprof.display import wording

HAND_OVER, RECEIVE_MS = 1.1, 2.0
"""Core time of a batch from a worker, relative to that in the training process, as it is copied
once more; and the time to send and receive it, of which 1.2 to 2.4 ms were measured."""
WORTH = 0.03
"""Workers that would save a smaller part of a step are not advised."""
NEAR = 0.1
"""One more worker that makes a step faster by less than this part is not advised."""
_LEAST_OF_WORKER = 0.125
"""Cores of a worker that only waits: more than eight workers per core are never advised."""
_LEAST_REST = 0.1
"""Part of a step from which on its rest is long enough to tell which cores it uses."""
_ALMOST = 0.25
"""One more worker needs a core less this part of it."""
IN_PROCESS, WORKERS, NONE = "loader_in_process", "loader_workers", "loader_none"
CONCURRENT = ("input_ahead", "input_outside_tf_data", "map_serial", "prefetch_missing")
"""Rules that let something run during the steps that did not."""
_ONE_AT_A_TIME = ("input_outside_tf_data", "prefetch_missing")
"""Those after which batches are still made one after the other."""
RULES_ON_INPUT = ("input_ahead", "input_outside_tf_data", "input_bottleneck")
"""Rules of TensorFlow and JAX on input, which may come from a loader of PyTorch or Keras."""
_GRAIN = (GRAIN_LOADER, GRAIN_DATASET)
_OTHERS = (DATA_LOADER, PY_DATASET, *_GRAIN)
FROM_LOADER = "The batches come from the"
"""Begins the sentence on the loader, in findings of these rules."""
_GENERATOR = "**Generator**"
_PARALLEL = "num_parallel_calls"

_TITLE = "Make items cheaper: no core is free for more workers"
_TITLE_SMALL = "Make items cheaper: a worker would cost as much time as it saves"
_TITLE_CONCURRENT = "Make batches cheaper: no core is free to prepare them beside the steps"
_TITLE_SLOWEST = "Make batches cheaper: prepared ahead, they would still be what takes longest"
_FIX = (
    " class Items(Dataset):\n"
    "     def __getitem__(self, i):\n"
    "-        return decode(self.paths[i])\n"
    "+        return self.decoded[i]  # decoded once, before training: np.load(path,"
    " mmap_mode='r')"
)
_FIX_OF_GRAIN = (
    "-ds = grain.MapDataset.source(files).map(decode)\n"
    "+ds = grain.MapDataset.source(decoded)  # decoded once, before training: np.load(path,"
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
_ITEMS_BY_NUMBER = (
    "+class Batches(torch.utils.data.Dataset):\n"
    "+    def __len__(self):\n"
    "+        return count\n"
    "+    def __getitem__(self, i):\n"
    "+        return make_batch(i)  # batch i by itself, so that workers can share them\n"
    "+loader = torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=1,"
    " pin_memory=True)\n"
    "-for batch in batches:\n"
    "+for batch in loader:"
)
_CHEAPER_ITEMS = (
    "decode and transform once, before training; workers would not help on this machine"
)
_REFUTED = "{the} waits less with more workers"


@dataclass(frozen=True)
class Machine:
    """Numbers of cores: of the machine as far as the process may use them, kept busy by the process
    and its children, and kept busy by others.
    """

    cores: float
    own_cores: float
    other_cores: float

    @property
    def available(self) -> float:
        """Cores for this process and its workers: those that others leave, at least its own."""
        return max(self.cores - self.other_cores, self.own_cores, 0.0)

    @staticmethod
    def of(measured: Mapping[str, float]) -> Machine | None:
        """From the figures of `nbprof.capture.contention`; None if it could not measure them."""
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
        """Time of a step whose batch is ready."""
        return max(self.step - self.wait, 0.0)

    @staticmethod
    def of(step: float, wait: float, machine: Machine, loader: LoaderUse | None) -> Load:
        """From the cores that the process used during waits and otherwise; if unknown, a wait takes
        one core, and the rest of the step the remaining work.
        """
        rest = max(step - wait, 0.0)
        if loader is not None and loader.wait_cores is not None and loader.rest_cores is not None:
            return Load(step, wait, loader.wait_cores * wait, loader.rest_cores * rest)
        used = machine.own_cores * step
        waited = min(wait, used)
        return Load(step, wait, waited, used - waited)

    def with_workers(self, workers: int, machine: Machine) -> float:
        """Ms of a step whose batches come from a number of workers.

        The slowest of three decides: the rest of the step on the cores that the workers leave it,
        the workers, each with one thread, and the cores that all share. More threads than cores
        would be slower yet: threads of one op wait for each other.
        """
        work = HAND_OVER * self.wait_work
        batch = max(self.wait, work)
        least = 1e-9
        rest = max(self.rest, self.rest_work / max(self.left(workers, machine), least)) + RECEIVE_MS
        return max(
            rest,
            (batch + RECEIVE_MS) / workers,
            (work + self.rest_work) / max(machine.available, least),
        )

    def left(self, workers: int, machine: Machine) -> float:
        """Cores left for the rest of the step while workers run; a worker that waits for a disk or
        a network needs none.
        """
        return max(machine.available - workers * self.of_worker, 0.0)

    @property
    def of_worker(self) -> float:
        """Cores that one worker keeps busy."""
        return min(self.wait_work / self.wait, 1.0) if self.wait else 1.0

    @property
    def rest_cores(self) -> float:
        """Cores that the rest of the step uses; one where it is too short to tell."""
        if self.is_rest_short:
            return 1.0
        return self.rest_work / self.rest

    @property
    def is_rest_short(self) -> bool:
        """True if the rest of the step is too short to tell which cores it uses."""
        return self.rest < _LEAST_REST * self.step


def workers_for(load: Load, machine: Machine) -> tuple[int, float]:
    """The number of workers that makes a step fastest, no more than needed, and ms of a step with
    them.
    """
    max_workers = max(int(machine.cores / max(load.of_worker, _LEAST_OF_WORKER)), 1)
    steps = {workers: load.with_workers(workers, machine) for workers in range(1, max_workers + 1)}
    fast_enough = min(steps.values()) * (1 + NEAR)
    workers = next(workers for workers, step in steps.items() if step <= fast_enough)
    return workers, steps[workers]


def more_workers_for(
    step: float,
    wait: float,
    workers: int,
    machine: Machine,
    of_worker: float = 1.0,
    idle: float = 0.0,
    keep_up: int | None = None,
) -> tuple[int, float]:
    """The same for a loader that has workers: as much faster as cores are free, but no faster than
    without the wait. `idle` of the cores in use do nothing: threads of ops that have ended spin for
    a while. `keep_up` is the number of workers that would keep up, if that was measured.
    """
    fastest, used = step, max(machine.own_cores - idle, 0.0)
    if machine.available:
        fastest = step * min(used / machine.available, 1.0)
    fastest = max(step - wait, fastest)
    needed = ceil(workers * step / fastest) if fastest else workers
    if keep_up is not None and keep_up > workers:
        needed = keep_up
    max_workers = workers + int((machine.available - used + _ALMOST) / of_worker)
    needed = min(needed, max_workers)
    return needed, max(fastest, step * workers / max(needed, 1))


def fitted(
    findings: pd.DataFrame,
    measured: Mapping[str, float],
    loaders: Iterable[LoaderUse],
    times: Times,
    unit: Unit = MARKED,
    keep_up: int | None = None,
) -> pd.DataFrame:
    """The findings, with numbers and gains that the machine has the cores for, and cheaper items if
    it has none.

    Parameters
    ----------
    findings : DataFrame
        `p.advice`.
    measured : mapping
        The figures of `nbprof.capture.contention.Contention.measured`.
    loaders : iterable of LoaderUse
        The loaders that the program used.
    times : Times
        Of an average step.
    unit : Unit
        The unit that the figures are given per.
    keep_up : int, optional
        How many workers would keep up with the steps, by the measured time of a batch in a worker.
    """
    if not len(findings) or times.step <= 0:
        return findings
    uses, step = list(loaders), Step(times, Machine.of(measured), unit, keep_up)
    rows = []
    for values in findings.itertuples(index=False, name=None):
        row = _fit(dict(zip(map(str, findings.columns), values, strict=True)), uses, step)
        if row is not None:
            rows.append(row)
    if not rows:
        return findings.head(0)
    result = pd.DataFrame(rows, columns=findings.columns).astype(findings.dtypes.to_dict())
    if result.equals(findings.reset_index(drop=True)):
        return findings
    return result.sort_values("gain_ms_per_step", ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True)
class Times:
    """Ms of an average step and of its wait for input; whether there are devices to copy batches
    to, and whether Keras runs the loop.
    """

    step: float
    wait: float
    devices: bool = False
    keras: bool = False


class Step(NamedTuple):
    """An average step on its machine, if that is known, the unit of the figures, and how many
    workers would keep up with it, if that was measured.
    """

    times: Times
    machine: Machine | None
    unit: Unit
    keep_up: int | None = None

    @property
    def least_gain_ms(self) -> float:
        """Workers that would save less are not advised."""
        return WORTH * self.times.step


def _fit(row: dict[str, Any], uses: list[LoaderUse], step: Step) -> dict[str, Any] | None:
    """A finding, changed if its remedy runs at the same time as the steps; None if that would save
    nothing.
    """
    rule = row["rule"]
    if rule == "pinned_memory":
        loaders = [use for use in uses if use.kind == DATA_LOADER]
        # Copies from pageable memory do not come from loaders that pin it.
        return None if loaders and all(use.pin_memory for use in loaders) else row
    loader = _loader(rule, uses)
    of_keras = _dataset_of_keras(uses, step)
    if of_keras is not None and rule == "prefetch_missing":
        # The pipeline is Keras's own: the dataset loads ahead, or it can.
        return None
    if of_keras is not None and rule == "input_ahead":
        row = _read_ahead(row, of_keras)
    elif loader is not None and loader.kind in _OTHERS and _is_on_foreign_input(row):
        # The framework's profiler does not record whose batches these are.
        rule, title = IN_PROCESS, "Load batches in worker processes"
        if loader.workers and loader.kind in (DATA_LOADER, GRAIN_LOADER):
            rule, title = WORKERS, "Give the DataLoader more workers"
        elif loader.workers and loader.kind == GRAIN_DATASET:
            rule, title = WORKERS, "Give mp_prefetch more workers"
        elif loader.workers and loader.processes:
            rule, title = WORKERS, TITLES[WORKERS]
        evidence = _name_loader(str(row["evidence"]), loader)
        row = {**row, "title": title, "evidence": evidence}
        if loader.kind in _GRAIN:
            return _of_grain(row, loader, step)
    if rule == IN_PROCESS:
        in_code = of_keras or loader
        if in_code is not None and in_code.kind == PY_DATASET and in_code.loads_ahead:
            row = _loads_ahead(row, in_code)
            if in_code.processes:
                return _with_workers(row, in_code, step)
        return _in_process(row, loader, in_code, step)
    if rule == WORKERS:
        return _with_workers(row, loader, step)
    if rule == NONE and step.machine is not None:
        return _from_iterator(row, loader, step.machine, step)
    parallel = rule == "input_bottleneck" and _PARALLEL in str(row["fix"])
    if step.machine is not None and (rule in CONCURRENT or parallel):
        return _concurrent(row, step.machine, loader, step)
    return row


def _of_grain(row: dict[str, Any], loader: LoaderUse, step: Step) -> dict[str, Any]:
    """A finding on batches of a loader of grain."""
    row = {**row, "fix": _code_of_grain((loader.workers or 0) + 1, loader)}
    if loader.workers:
        row = _with_workers(row, loader, step)
    else:
        row = _in_process(row, loader, loader, step)
    return {**row, "fix": _FIX_OF_GRAIN} if row["title"] in (_TITLE, _TITLE_SMALL) else row


def _from_iterator(
    row: dict[str, Any], loader: LoaderUse | None, machine: Machine, step: Step
) -> dict[str, Any]:
    """A finding on batches of an iterator that is no DataLoader: one worker can run it as it is,
    several need batches that are made by number.
    """
    times = step.times
    workers, _ = workers_for(Load.of(times.step, times.wait, machine, loader), machine)
    if workers > 1:
        fix = _ITEMS_BY_NUMBER
        if not times.devices:
            fix = fix.replace(", pin_memory=True", "")
        row = {**row, "fix": fix}
    row = _in_process(row, loader, None, step)
    return {**row, "fix": _FIX_OF_BATCHES} if row["title"] in (_TITLE, _TITLE_SMALL) else row


def _dataset_of_keras(uses: list[LoaderUse], step: Step) -> LoaderUse | None:
    """The loader in the code of a user of Keras, which makes others around it."""
    if not step.times.keras:
        return None
    return next((use for use in uses if use.kind == PY_DATASET), None)


def _read_ahead(row: dict[str, Any], dataset: LoaderUse) -> dict[str, Any]:
    """A finding on batches of a dataset of Keras in a program of JAX, whose processes may hang when
    they are forked.
    """
    threads = max(2 * (dataset.workers or 1), 4)
    title = "Load batches in threads that read ahead"
    if dataset.loads_ahead:
        title = "Make batches cheaper, or give the data set more workers"
    present = f"workers={dataset.workers}" if dataset.workers is not None else ""
    in_processes = ""
    if dataset.processes:
        in_processes = ", use_multiprocessing=True"
        present += in_processes
    fix = f"-model.fit(Batches({present}))\n+model.fit(Batches(workers={threads}{in_processes}))"
    evidence = _name_loader(str(row["evidence"]), dataset)
    return {**row, "title": title, "fix": fix, "evidence": evidence}


def _loads_ahead(row: dict[str, Any], dataset: LoaderUse) -> dict[str, Any]:
    """A finding on batches that Keras takes from the workers of a dataset."""
    workers = wording.plural(dataset.workers or 0, "worker" if dataset.processes else "thread")
    text = str(row["evidence"]).replace(
        IN_KERAS,
        f"is waited for the **{workers}** of the PyDataset **{dataset.dataset}**.",
    )
    title = TITLES[WORKERS] if dataset.processes else row["title"]
    return {**row, "evidence": text, "title": title}


def _is_on_foreign_input(row: dict[str, Any]) -> bool:
    """True if a finding is on batches that may come from a loader of another framework."""
    if row["rule"] == "input_bottleneck":
        return _GENERATOR in str(row["evidence"])
    return row["rule"] in (NONE, *RULES_ON_INPUT)


def _name_loader(text: str, loader: LoaderUse) -> str:
    """The evidence, with the loader that makes the batches in place of the sentence on pipelines of
    TensorFlow and JAX, or on PyTorch's DataLoader.
    """
    for sentence in (
        ", and no recorded pipeline prepares it",
        ", and no tf.data pipeline",
        " The slowest call took",
        ", which is not a DataLoader",
    ):
        head, separator, _ = text.partition(sentence)
        if separator:
            text = f"{head.removesuffix('.')}."
            break
    dataset = f" of **{loader.dataset}**" if loader.dataset else ""
    workers = ", whose workers cannot keep up" if loader.workers and loader.processes else ""
    name = loader.kind if loader.kind in _GRAIN else loader.kind.rpartition(".")[2]
    return f"{text} {FROM_LOADER} {name}{dataset}{workers}."


def _loader(rule: str, uses: list[LoaderUse]) -> LoaderUse | None:
    """The loader that a finding is about: the first that fits, which was waited for longest."""
    for use in uses:
        if rule == IN_PROCESS:
            fits = use.kind == PY_DATASET or (use.kind == DATA_LOADER and not use.workers)
        elif rule == WORKERS:
            fits = bool(use.workers) and use.kind in (DATA_LOADER, PY_DATASET)
        elif rule == NONE:
            fits = use.kind in (ITERABLE, *_GRAIN)
        else:
            fits = use.kind == TF_DATA or rule in RULES_ON_INPUT
        if fits:
            return use
    return None


def _in_process(
    row: dict[str, Any], loader: LoaderUse | None, loader_in_code: LoaderUse | None, step: Step
) -> dict[str, Any]:
    """A finding on batches that the training process loads; `loader` is the one waited for."""
    times, machine, unit = step.times, step.machine, step.unit
    if machine is None:
        # One worker hides the shorter of the two; whether there are cores for more is unknown.
        return {**row, "gain_is": UP_TO}
    load = Load.of(times.step, times.wait, machine, loader)
    workers, step_ms = workers_for(load, machine)
    gain = min(times.step - step_ms, float(row["gain_ms_per_step"]))
    if gain < step.least_gain_ms:
        if load.wait <= 2 * RECEIVE_MS and load.left(1, machine) >= load.rest_cores:
            text = (
                f"{row['evidence']} A worker would save little: to send and receive its batch takes"
                f" about **{wording.millis(RECEIVE_MS)}**."
            )
            return _cheaper(row, text, _TITLE_SMALL, step, keras=times.keras)
        text = (
            f"{row['evidence']} {_cores_of_rest(load, machine, unit)}: workers would take their"
            f" time from the rest of {unit.the}."
        )
        return _cheaper(row, text, _TITLE, step, keras=times.keras)
    text = (
        f"{row['evidence']} {_cores_of_step(load, machine, unit)}: with"
        f" **{wording.plural(workers, 'worker')}** {unit.a} takes about"
        f" **{wording.millis(times.step - gain)}**."
    )
    fix = _code(workers, loader_in_code, times, str(row["fix"]))
    has_threads = loader_in_code is None or loader_in_code.kind not in _GRAIN
    left = load.left(workers, machine) + _ALMOST
    if has_threads and load.rest_cores > left and machine.cores > 1:
        threads = max(int(machine.cores) - workers, 1)
        plural = "" if threads == 1 else "s"
        text += (
            f" Leave them their cores: with more than **{threads}** thread{plural} of its own, the"
            " training would wait for a core in each op."
        )
        fix += f"\n+torch.set_num_threads({threads})"
    return {**row, "evidence": text, "gain_ms_per_step": gain, "fix": fix}


def _with_workers(row: dict[str, Any], loader: LoaderUse | None, step: Step) -> dict[str, Any]:
    """A finding on a loader whose workers cannot keep up."""
    times, machine, unit = step.times, step.machine, step.unit
    if machine is None:
        return {**row, "gain_is": UP_TO}
    workers = loader.workers if loader is not None else None
    of_worker, idle = _cores_of_worker(times, machine, loader), _idle_cores(times, loader)
    needed, step_ms = more_workers_for(
        times.step, times.wait, workers or 1, machine, of_worker, idle, step.keep_up
    )
    gain = min(times.step - step_ms, float(row["gain_ms_per_step"]))
    if gain < step.least_gain_ms or (workers is not None and needed <= workers):
        other_processes = ""
        if machine.other_cores >= contention.OTHERS * machine.cores:
            other_processes = f", and others **{machine.other_cores:.1f}**"
        busy = f"**{machine.own_cores:.1f}** of the **{machine.cores:.0f}** cores"
        if machine.cores <= 1:
            busy = f"**{100 * machine.own_cores:.0f}%** of the core"
        text = (
            f"{row['evidence']} They and the training process kept {busy}"
            f" busy{other_processes}: more workers would have no free core."
        )
        return _cheaper(row, text, _TITLE, step, keras=times.keras)
    free = machine.available - max(machine.own_cores - idle, 0.0)
    text = (
        f"{row['evidence']} About **{free:.1f}** of the **{machine.cores:.0f}** cores were free:"
        f" {unit.a} can take about **{wording.millis(times.step - gain)}**."
    )
    if workers is not None:
        fix = _code(needed, loader, times, str(row["fix"]))
    else:
        fix = (
            "-loader = DataLoader(dataset, batch_size=n, num_workers=k)\n"
            "+loader = DataLoader(dataset, batch_size=n,"
            f" num_workers=k + {max(int(free), 1)})"
        )
    return {**row, "evidence": text, "gain_ms_per_step": gain, "fix": fix}


def _idle_cores(times: Times, loader: LoaderUse | None) -> float:
    """Cores that the training process keeps busy, on average, while it waits for workers."""
    if loader is None or not loader.workers or loader.wait_cores is None:
        return 0.0
    return loader.wait_cores * times.wait / times.step


def _cores_of_worker(times: Times, machine: Machine, loader: LoaderUse | None) -> float:
    """Cores that each worker of a loader keeps busy: less than one if it waits for a disk or a
    network.
    """
    if loader is None or not loader.workers:
        return 1.0
    if loader.wait_cores is None or loader.rest_cores is None:
        return 1.0
    rest = max(times.step - times.wait, 0.0)
    of_process = loader.wait_cores * times.wait + loader.rest_cores * rest
    of_workers = machine.own_cores * times.step - of_process
    return min(max(of_workers / (loader.workers * times.step), _LEAST_OF_WORKER), 1.0)


def _concurrent(
    row: dict[str, Any], machine: Machine, loader: LoaderUse | None, step: Step
) -> dict[str, Any] | None:
    """A finding that lets a pipeline run during the steps, or more of it at a time: all of its work
    remains, on the available cores.
    """
    times, unit = step.times, step.unit
    load = Load.of(times.step, times.wait, machine, loader)
    shortest = times.step
    if machine.available:
        shortest = (load.wait_work + load.rest_work) / machine.available
    one_at_a_time = row["rule"] in _ONE_AT_A_TIME and shortest < load.wait
    if one_at_a_time:
        shortest = load.wait
    gain = min(float(row["gain_ms_per_step"]), max(times.step - shortest, 0.0))
    if gain >= float(row["gain_ms_per_step"]):
        return row
    if gain >= step.least_gain_ms:
        text = (
            f"{row['evidence']} {_cores_of_step(load, machine, unit)}: with both at once {unit.a}"
            f" takes about **{wording.millis(times.step - gain)}**."
        )
        return {**row, "evidence": text, "gain_ms_per_step": gain, "gain_is": ABOUT}
    if row["rule"] == "prefetch_missing":
        return None
    if one_at_a_time:
        text = (
            f"{row['evidence']} The rest of {unit.the} takes **{wording.millis(load.rest)}**: made"
            " beside it, a batch takes as long as before."
        )
        return {**_cheaper(row, text, _TITLE_SLOWEST, step), "fix": _FIX_OF_BATCHES}
    text = (
        f"{row['evidence']} {_cores_of_rest(load, machine, unit)}: nothing more can run beside"
        f" {unit.the}."
    )
    fix = _FIX_OF_TF_DATA if row["rule"] in ("map_serial", "input_bottleneck") else _FIX_OF_BATCHES
    return {**_cheaper(row, text, _TITLE_CONCURRENT, step), "fix": fix}


def _cheaper(
    row: dict[str, Any], text: str, title: str, step: Step, *, keras: bool = False
) -> dict[str, Any]:
    """The finding with advice to make items cheaper instead.

    That saves no more than the wait, unless what makes them took cores from the ops of the step.
    """
    fix = _FIX
    if keras:
        fix = fix.replace("class Items(Dataset)", "class Batches(keras.utils.PyDataset)")
    return {
        **row,
        "evidence": text,
        "title": title,
        "fix": fix,
        "gain_is": UP_TO if step.times.devices else ABOUT,
        "refuted_by": step.unit.fill(_REFUTED),
    }


def without_workers(categories: pd.DataFrame, findings: pd.DataFrame) -> pd.DataFrame:
    """The kinds of input work, without advice to add workers if the findings say that these would
    not help.

    Parameters
    ----------
    categories : DataFrame
        `p.input_pipeline.categories`.
    findings : DataFrame
        `p.advice`.
    """
    if not findings["title"].isin([_TITLE, _TITLE_SMALL, _TITLE_CONCURRENT]).any():
        return categories
    concerned = categories["category"].isin(list(READING)) & (categories["advice"] != "")
    return categories.assign(advice=categories["advice"].mask(concerned, _CHEAPER_ITEMS))


def _cores_of_rest(load: Load, machine: Machine, unit: Unit) -> str:
    cores = "the core" if machine.cores <= 1 else f"the **{machine.cores:.0f}** cores"
    if load.is_rest_short:
        text = f"The program uses **{machine.own_cores:.1f}** of {cores}"
    else:
        used = min(load.rest_cores, machine.cores)
        text = f"The rest of {unit.the} uses **{used:.1f}** of {cores}"
    if machine.other_cores >= 0.05:
        text += f", other processes **{machine.other_cores:.1f}**"
    return text


def _cores_of_step(load: Load, machine: Machine, unit: Unit) -> str:
    batch = f"a batch takes **{wording.millis(load.wait_work)}** of a core"
    return f"{_cores_of_rest(load, machine, unit)}, and {batch}"


def _code(workers: int, loader: LoaderUse | None, times: Times, fix: str) -> str:
    """The call with a number of workers, with the arguments that the loader has."""
    if loader is not None and loader.kind in _GRAIN:
        return _code_of_grain(workers, loader)
    if loader is not None and loader.kind == PY_DATASET:
        present = f"workers={loader.workers}" if loader.workers is not None else ""
        if loader.processes:
            present += ", use_multiprocessing=True"
        return (
            f"-model.fit(Batches({present}))\n"
            f"+model.fit(Batches(workers={workers}, use_multiprocessing=True))"
        )
    if loader is None or times.keras:
        fix = fix.replace("num_workers=1", f"num_workers={workers}")
        return fix.replace("workers=1", f"workers={workers}")
    first = [f"batch_size={'n' if loader.batch_size is None else loader.batch_size}"]
    if loader.shuffle:
        first.append("shuffle=True")
    last = []
    if loader.pin_memory:
        last.append("pin_memory=True")
    if loader.persistent_workers:
        last.append("persistent_workers=True")
    before = [*first, *last]
    if loader.workers:
        before.insert(len(first), f"num_workers={loader.workers}")
    if times.devices and not loader.pin_memory:
        last.append("pin_memory=True")
    # Starting workers takes a second of each epoch.
    if loader.iterations > 1 and not loader.persistent_workers:
        last.append("persistent_workers=True")
    arguments = ", ".join([*first, f"num_workers={workers}"])
    if last:
        arguments += ",\n+                    " + ", ".join(last)
    return (
        f"-loader = DataLoader(dataset, {', '.join(before)})\n"
        f"+loader = DataLoader(dataset, {arguments})"
    )


def _code_of_grain(workers: int, loader: LoaderUse) -> str:
    """The same of a loader of grain."""
    if loader.kind == GRAIN_LOADER:
        return (
            "-loader = grain.DataLoader(data_source=source, sampler=sampler,"
            f" worker_count={loader.workers or 0})\n"
            "+loader = grain.DataLoader(data_source=source, sampler=sampler,"
            f" worker_count={workers})"
        )
    if loader.workers:
        return (
            f"-ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers={loader.workers}))\n"
            f"+ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers={workers}))"
        )
    return (
        f"+ds = ds.mp_prefetch(grain.MultiprocessingOptions(num_workers={workers}))"
        "  # of a MapDataset: ds.to_iter_dataset().mp_prefetch(...)"
    )

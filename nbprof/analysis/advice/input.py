"""Advice rules about input: waits for tf.data, a DataLoader, a plain iterator, or copies.

Sources: TensorFlow Profiler, torch_tb_profiler, PyTorch's performance tuning guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nbprof.activity.unit import CALL, Unit
from nbprof.analysis.advice import tf_data
from nbprof.analysis.advice.checks import INPUT_HIGH, INPUT_MODERATE
from nbprof.analysis.advice.facts import INPUT, INPUT_SHARE, TRACE, AdviceRule, Facts
from nbprof.analysis.rule import (
    ABOUT,
    AT_LEAST,
    GPU_GUIDE,
    GPU_GUIDE_CHOICE,
    INFERRED,
    JAX,
    PYTORCH,
    TENSORFLOW,
    TENSORFLOW_JAX,
    TORCH_GUIDE,
    TORCH_TB,
    UP_TO,
    XPROF,
    Found,
    Rule,
    Shown,
    Target,
    Threshold,
)
from nbprof.display import wording

# Iterators that only pass on elements of their input.
_PASSES_ON = (
    r"(Root|Model|MaxIntraOpParallelism|PrivateThreadPool|Options|AssertCardinality|"
    r"(Finite)?(Take|Skip|Repeat)|ForeverRepeat)(V\d+)?\Z"
)
_COPIES = Threshold(
    f"{INPUT_SHARE.text}; pipeline work < {{pipeline:percent}} of the wait",
    **INPUT_SHARE.numbers,
    pipeline=tf_data.PIPELINE_PART,
)
"""Copies to the device cause the wait if the pipeline's own work is less than this part of it."""
_CAUSE = Threshold(
    f"{INPUT_SHARE.text}, ≥ {{cause:percent}} of it there", **INPUT_SHARE.numbers, cause=0.2
)
"""A cause counts if it explains at least this fraction of the wait."""
_ITERATOR = Threshold(f"{_CAUSE.text}, ≥ {{least:g}} ms", **_CAUSE.numbers, least=0.2)
"""To time the wait for an iterator that does nothing takes up to 0.1 ms, as PyTorch records it."""

_ARRAYS = Threshold(
    f"{INPUT_SHARE.text}, ≥ {{copies:percent}} of it copies to the device",
    **INPUT_SHARE.numbers,
    copies=0.5,
)

_CALL_FUNCTIONS = (
    "Map",
    "ParallelMap",
    "MapAndBatch",
    "Interleave",
    "ParallelInterleave",
    "Filter",
)
"""Iterators that call a function of the user's."""
_PYTHON_PART, _MOST_PYTHON = 0.3, 0.7
"""Python is named where it takes this part of the iterator's time, and limits what runs at a time
from the second one on.
"""

_WORKERS = (
    "+loader = DataLoader(dataset, batch_size=n, num_workers=1,  # more where more cores are free\n"
    "+                    pin_memory=True, persistent_workers=True)"
)
_FEWER_BYTES = (
    "-ds = ds.map(lambda x, y: (tf.cast(x, tf.float32), y))\n"
    "+ds = ds.batch(n)  # as uint8: a quarter of the bytes; cast in the model"
)
_FROM_ITERATOR = (
    "+class Batches(torch.utils.data.IterableDataset):\n"
    "+    def __iter__(self):\n"
    "+        yield from batches  # or what makes them\n"
    "+loader = torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=1,"
    " pin_memory=True)\n"
    "-for batch in nbprof.steps(batches):\n"
    "+for batch in nbprof.steps(loader):"
)
_PINNED_BY_HAND = (
    "-x = x.to(device)\n"
    "+x = x.pin_memory().to(device, non_blocking=True)  # better: pinned once, where it is made"
)
_FROM_PROCESS = f"-loader = DataLoader(dataset, batch_size=n)\n{_WORKERS}"

# An iterator that makes batches, in the long name of those above a map.
_BATCHED = re.compile(r"::(?:Padded|Parallel)?Batch(?:V\d+)?(?:::|\Z)")
_TRACE_COPIES = Target("trace", "Trace: copies")
_CRITICAL_PATH = Target("input", "Steps & input: critical path")


def _waits(facts: Facts) -> str:
    share, wait = facts.percent["input"], facts.mean["input"]
    return (
        f"{facts.unit.the.capitalize()} waits **{wording.millis(wait)}** of "
        f"**{wording.millis(facts.mean['step_time'])}** for input (**{share:.0f}%**)"
    )


def _wait_for_input(
    facts: Facts,
    limit: Threshold,
    text: str,
    *,
    at_most: float = inf,
    fix: str = "",
    title: str = "",
    gain_is: str = "",
) -> Found:
    """A finding whose severity is that of the wait for input, and whose gain is the wait, but no
    more than `at_most` ms.
    """
    return Found(
        text,
        severity=limit.severity(facts.percent["input"]),
        gain_ms=min(facts.mean["input"], at_most),
        fix=fix,
        title=title,
        gain_is=gain_is,
    )


def _without_pipeline(facts: Facts, limit: Threshold) -> bool:
    """True if steps wait and no tf.data pipeline was recorded."""
    return facts.waits_for_input(limit) and not facts.in_host_memory and not len(facts.nodes)


def _arrays_copied(facts: Facts, limit: Threshold) -> Found | None:
    """Copies of arrays to the device that are most of a wait without a pipeline."""
    copied = facts.evidence.copied_ms
    if not _without_pipeline(facts, limit) or copied is None:
        return None
    if copied < limit["copies"] * facts.mean["input"]:
        return None
    size = ""
    if facts.evidence.copied_bytes:
        size = f" (**{wording.size(facts.evidence.copied_bytes)}** {facts.unit.per})"
    text = (
        f"{_waits(facts)}, **{wording.millis(copied)}** of it while arrays are copied from host"
        f" memory to the device{size}."
    )
    fix = (
        "+table = tf.constant(table)  # once: what is the same in each step\n"
        " for batch in batches:\n"
        "     train_step(batch, table)"
    )
    if facts.jax:
        fix = (
            "+table = jax.device_put(table)  # once: what is the same in each step\n"
            " for batch in batches:\n"
            "     state = step(state, batch, table)"
        )
    return _wait_for_input(facts, limit, text, at_most=copied, fix=fix)


def _input_ahead(facts: Facts, limit: Threshold) -> Found | None:
    if not facts.jax or not _without_pipeline(facts, limit):
        return None
    if _arrays_copied(facts, _ARRAYS) is not None:
        return None
    text = f"{_waits(facts)}, and no recorded pipeline prepares it ahead of time."
    return _wait_for_input(facts, limit, text)


def _outside_tf_data(facts: Facts, limit: Threshold) -> Found | None:
    if _without_pipeline(facts, limit) and not facts.jax and _arrays_copied(facts, _ARRAYS) is None:
        text = f"{_waits(facts)}, and no tf.data pipeline was recorded."
        return _wait_for_input(facts, limit, text, fix=tf_data.FIT if facts.keras else _LOOP)
    main = _pipeline(facts, limit)
    if main is None or not _of_arrays(main[1]):
        return None
    # The pipeline is Keras's own: the program has no map to parallelize.
    return _wait_for_input(facts, limit, f"{_waits(facts)}: {tf_data.FROM_ARRAYS}", fix=tf_data.FIT)


def _input_copies(facts: Facts, limit: Threshold) -> Found | None:
    main = _pipeline(facts, limit)
    if main is None or _of_arrays(main[1]) or not facts.overview["devices"]:
        return None
    work = _work(facts, main[1])
    if work >= limit["pipeline"] * facts.mean["input"]:
        return None
    text = (
        f"{_waits(facts)}, but the calls of tf.data take only **{wording.millis(work)}**"
        f" {facts.unit.per}: the rest is copying batches to the device."
    )
    # A pipeline of the device copies ahead of time already.
    copies_ahead = facts.nodes["pipeline"].astype(str).str.startswith("Device").any()
    return _wait_for_input(facts, limit, text, fix=_FEWER_BYTES if copies_ahead else "")


def _pipeline(facts: Facts, limit: Threshold) -> tuple[pd.Series, pd.DataFrame] | None:
    """The pipeline that steps wait for; None if they do not wait, or if it was not recorded."""
    if not facts.waits_for_input(limit) or facts.in_host_memory or not len(facts.nodes):
        return None
    return facts.once(_main_of)


def _to_blame(facts: Facts) -> tuple[pd.Series, pd.DataFrame] | None:
    """The pipeline, if it is the user's and the steps wait for its own work."""
    return facts.once(_find_blamed)


def _find_blamed(facts: Facts) -> tuple[pd.Series, pd.DataFrame] | None:
    main = _pipeline(facts, INPUT_SHARE)
    if main is None or _of_arrays(main[1]):
        return None
    if _work(facts, main[1]) < _COPIES["pipeline"] * facts.mean["input"]:
        return None
    # An eager loop spends most of a wait in Python and in the op that asks for the element; a
    # perfect pipeline would not change that.
    waited = _waited(facts, main[1])
    if waited is not None and 100 * waited < INPUT_SHARE["moderate"] * facts.mean["step_time"]:
        return None
    return main


def _waited(facts: Facts, nodes: pd.DataFrame) -> float | None:
    """Time in ms per step until the pipeline itself returned an element; None if its root was not
    recorded.

    A pipeline starts in its first call: that is not a wait of the other steps.
    """
    return waited_ms(nodes, int(facts.overview["steps"]), facts.unit)


def waited_ms(nodes: pd.DataFrame, steps: int, unit: Unit) -> float | None:
    """The same, from the nodes of `main_pipeline` and the number of steps."""
    root = nodes[nodes["parent"].isna()]
    if not len(root):
        return None
    first, starts = float(nodes["first_ms"].max()), int(nodes["starts"].max())
    if steps <= starts and not unit.is_recording:
        first, starts = 0.0, 0
    return (float(root["total_ms"].sum()) - first) / max(steps - starts, 1)


def _of_arrays(nodes: pd.DataFrame) -> bool:
    return bool(nodes["long_name"].str.contains(tf_data.OF_ARRAYS).any())


def _work(facts: Facts, nodes: pd.DataFrame) -> float:
    """Pipeline work per step, in ms."""
    return work_ms(nodes, int(facts.overview["steps"]))


def work_ms(nodes: pd.DataFrame, steps: int) -> float:
    """The same, from the nodes of `main_pipeline` and the number of steps."""
    return float(nodes["self_ms"].sum()) / max(steps, 1)


def _main_of(facts: Facts) -> tuple[pd.Series, pd.DataFrame] | None:
    return main_pipeline(facts.nodes, facts.pipelines, facts.evidence.first_calls)


def main_pipeline(
    nodes: pd.DataFrame, pipelines: pd.DataFrame, first_calls: Mapping[tuple[str, str], float]
) -> tuple[pd.Series, pd.DataFrame] | None:
    """The pipeline with the most work and its iterators, summed over its instances: every epoch
    recreates the pipeline.

    Parameters
    ----------
    nodes, pipelines : DataFrame
        `p.tf_data.nodes` and `.pipelines`.
    first_calls : mapping
        Duration of the first call of each pipeline in ms, by host and pipeline.
    """
    rows_of_pipeline: dict[tuple[str, str], list[int]] = {}
    for row, pair in enumerate(_pipeline_keys(nodes)):
        # A device pipeline only passes on elements of the host pipeline.
        if not str(pair[1]).startswith("Device"):
            rows_of_pipeline.setdefault(pair, []).append(row)
    if not rows_of_pipeline:
        # The host pipeline was not recorded, so nothing is known about it.
        return None
    branches = _branch_names(nodes)
    self_ms = nodes["self_ms"].to_numpy(np.float64)
    instances_of: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    work_of: dict[tuple[str, ...], float] = {}
    for pair, rows in rows_of_pipeline.items():
        shape = tuple(dict.fromkeys(branches[row] for row in rows))
        instances_of.setdefault(shape, []).append(pair)
        work_of[shape] = work_of.get(shape, 0.0) + float(self_ms[rows].sum())
    # Of equal ones the first by name.
    main_shape = max(sorted(work_of), key=work_of.__getitem__)
    instances = instances_of[main_shape]
    all_rows = sorted(row for pair in instances for row in rows_of_pipeline[pair])
    instance = _sum_instances(nodes, branches, rows_of_pipeline[instances[0]], all_rows)
    first = [first_calls[pair] for pair in instances if pair in first_calls]
    instance["first_ms"], instance["starts"] = sum(first), len(first)
    slowest = next(row for row, pair in enumerate(_pipeline_keys(pipelines)) if pair in instances)
    return pipelines.iloc[slowest], instance


def _pipeline_keys(rows: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(rows["host"].tolist(), rows["pipeline"].tolist(), strict=True))


# Each of these makes an iterator of one function for each element that it takes, and numbers them;
# `Zip` and `DirectedInterleave` number inputs that differ.
_BRANCH = re.compile(r"(::(?!Directed)\w*(?:Interleave\w*|FlatMap|Repeat))\[\d+\]")
_PARALLEL_BRANCH = re.compile(r"ParallelInterleave\w*\[\d+\]")


def _branch_names(nodes: pd.DataFrame) -> list[str]:
    """The long names of iterators, equal for the branches of an interleave."""
    return [_BRANCH.sub(r"\1", str(name)) for name in nodes["long_name"].tolist()]


def _sum_instances(
    nodes: pd.DataFrame, branches: list[str], instance: list[int], rows: list[int]
) -> pd.DataFrame:
    """The iterators of a pipeline with the sums of all instances; the branches of an interleave are
    one.

    The bottleneck is that of all instances together; among equal ones that of the instance itself.

    Parameters
    ----------
    nodes : DataFrame
    branches : list of str
        The names of their branches.
    instance, rows : list of int
        The nodes of the first instance, and of all.
    """
    is_bottleneck = nodes["bottleneck"].to_numpy(np.bool_)
    # The branch that the analysis of the pipeline names stands for the others.
    row_of_branch: dict[str, int] = {}
    for row in sorted(instance, key=lambda row: not is_bottleneck[row]):
        row_of_branch.setdefault(branches[row], row)
    distinct = np.array(sorted(row_of_branch.values()), np.int64)
    number = {branches[row]: index for index, row in enumerate(distinct.tolist())}
    branch = np.array([number[branches[row]] for row in rows], np.int64)
    sums: dict[str, Any] = {}
    for column in ("self_ms", "total_ms", "calls"):
        values = nodes[column].to_numpy()
        sums[column] = np.zeros(len(distinct), values.dtype)
        np.add.at(sums[column], branch, values[rows])
    sums["blocking"] = np.zeros(len(distinct), np.bool_)
    sums["blocking"][branch[nodes["blocking"].to_numpy(np.bool_)[rows]]] = True
    order = np.lexsort((~is_bottleneck[distinct], -sums["self_ms"], ~sums["blocking"]))
    worst = np.arange(len(distinct)) == order[0]
    return nodes.take(distinct).assign(**sums, bottleneck=worst)


class Bottleneck(NamedTuple):
    """The pipeline that causes the wait, its iterators, the one that is its bottleneck, and whether
    that is a function on a single thread.
    """

    pipeline: pd.Series
    nodes: pd.DataFrame
    iterator: pd.Series
    serial: bool


def _bottleneck(facts: Facts) -> Bottleneck | None:
    """The bottleneck of the pipeline that causes the wait."""
    main = _to_blame(facts)
    if main is None:
        return None
    pipeline, nodes = main
    iterator = nodes[nodes["bottleneck"]].iloc[0]
    kind = _kind(iterator)
    serial = kind in ("Map", "Interleave")
    if kind == "MapAndBatch":
        serial = str(iterator["note"]).startswith("1 thread")
    return Bottleneck(pipeline, nodes, iterator, serial and not _fills(iterator))


def _fills(iterator: pd.Series) -> bool:
    """True if an iterator fills a cache, which later epochs read instead."""
    return "Cache" in str(iterator["long_name"]).rpartition("::")[0]


def _kind(node: pd.Series) -> str:
    return str(node["iterator"]).partition("[")[0]


def _takes(bottleneck: Bottleneck) -> str:
    iterator, work = bottleneck.iterator, float(bottleneck.nodes["self_ms"].sum())
    return (
        f"**{_kind(iterator)}** takes **{wording.millis(iterator['self_ms'], 1)}** of the"
        f" **{wording.millis(work, 1)}** spent in the pipeline"
        f" (**{100 * float(iterator['self_ms']) / work:.0f}%**), over"
        f" **{int(iterator['calls']):,}** calls"
    )


def _cache(facts: Facts, limit: Threshold) -> Found | None:
    bottleneck = facts.once(_bottleneck)
    if bottleneck is None:
        return None
    # Imported late, as few profiles have such a pipeline.
    from nbprof.analysis.advice import epochs

    repeated = epochs.anew(
        facts.nodes,
        bottleneck.iterator,
        facts.evidence.iterators,
        facts.evidence.iterator_functions,
        limit["turns"],
        limit["iterators"],
    )
    if repeated is None:
        return None
    text = (
        f"{_takes(bottleneck)}. In each of **{repeated.epochs}** epochs {repeated.iterator}"
        f" produces **{repeated.calls:,}** elements, at most **{wording.size(repeated.bytes)}**"
        f" (half of the free memory was **{wording.size(repeated.budget)}**), without random ops."
        " With a cache it produces them once."
    )
    return _wait_for_input(facts, limit, text)


def _map_of_items(facts: Facts, limit: Threshold) -> Found | None:
    """A map of single elements that are batched afterwards, whose ops take little of its time."""
    bottleneck, ops = facts.once(_bottleneck), facts.evidence.iterator_functions
    if bottleneck is None or not ops:
        return None
    batch = _mapped_at_a_time(facts, bottleneck.iterator)
    if batch is None:
        return None
    items = int(bottleneck.iterator["calls"]) * batch
    map_ms, ops_ms = float(bottleneck.iterator["self_ms"]), sum(ops.values())
    if not items or ops_ms >= limit["ops"] * map_ms or 1000 * map_ms / items > limit["most_us"]:
        return None
    text = (
        f"{_takes(bottleneck)}: **{wording.micros(1000 * map_ms / items)}** for each of"
        f" **{items:,}** elements, **{wording.micros(1000 * ops_ms / items)}** of it in the ops of"
        " its function. The rest is call overhead, which a function on whole batches pays once per"
        " batch."
    )
    # Without a device, the calls take cores from the ops of the step as well.
    gain_is = UP_TO if facts.overview["devices"] else ABOUT
    return _wait_for_input(facts, limit, text, gain_is=gain_is)


def _mapped_at_a_time(facts: Facts, iterator: pd.Series) -> int | None:
    """Elements that one call of a map returns, if they are batched afterwards."""
    name = str(iterator["long_name"])
    kind = tf_data.base(name)
    if kind == "MapAndBatch":
        parameters = facts.evidence.iterators.get(int(iterator["id"]), {})
        size = parameters.get("batch_size")
        return size if isinstance(size, int) else None
    if kind in ("Map", "ParallelMap") and _BATCHED.search(name.rpartition("::")[0]):
        return 1
    return None


class _Python(NamedTuple):
    """The Python that the function of an iterator calls: a sentence on it, and whether it takes
    most of the time of the iterator.
    """

    text: str = ""
    dominates: bool = False


def _python_of(facts: Facts, iterator: pd.Series) -> _Python:
    """The Python that the bottleneck calls, if it takes a good part of its time."""
    kind = tf_data.base(str(iterator["long_name"]))
    name = "generator" if kind in ("Generator", "FlatMap") else "function"
    if name == "function" and kind not in _CALL_FUNCTIONS:
        return _Python()
    python = facts.evidence.python_of_input.get(name)
    work = float(iterator["self_ms"])
    # One of another pipeline may take as long: it is named only where it explains the time.
    if python is None or python.total_ms < _PYTHON_PART * work:
        return _Python()
    dominates = python.total_ms >= _MOST_PYTHON * work
    if name == "generator":
        text = f" The generator is {python.text}, **{wording.millis(python.call_ms)}** per element"
        return _Python(f"{text}{python.line}.", dominates)
    text = (
        f" It calls Python, under the GIL: {python.text}, **{wording.millis(python.call_ms)}** per"
        f" call{python.line}."
    )
    if dominates:
        text += (
            " Several threads run it at a time only while it waits, or computes in code that"
            " releases the GIL, as much of NumPy does."
        )
    return _Python(text, dominates)


def _map_serial(facts: Facts, limit: Threshold) -> Found | None:
    bottleneck = facts.once(_bottleneck)
    if bottleneck is None or not bottleneck.serial:
        return None
    python = _python_of(facts, bottleneck.iterator)
    # Branches of a parallel interleave run at once.
    each = ""
    if _PARALLEL_BRANCH.search(str(bottleneck.iterator["long_name"])):
        each = " in each branch of the interleave"
    text = (
        f"{_takes(bottleneck)}, on **1 thread**{each}. {facts.unit.the.capitalize()} waits"
        f" **{wording.millis(facts.mean['input'])}** for it.{python.text}"
    )
    return _wait_for_input(facts, limit, text, gain_is=UP_TO if python.dominates else "")


def _input_bottleneck(facts: Facts, limit: Threshold) -> Found | None:
    bottleneck = facts.once(_bottleneck)
    if bottleneck is None or bottleneck.serial:
        return None
    pipeline, nodes, iterator, _ = bottleneck
    if _fills(iterator):
        return Found(
            f"{_takes(bottleneck)}. It fills a cache in the first epoch; later epochs read the"
            " cache and do not wait like this.",
            severity="low",
            fix=_FILLED,
            title="Record again once the cache is full",
        )
    if str(iterator["iterator"]) == str(pipeline["bottleneck"]):
        text, fix = pipeline["advice"], pipeline["fix"]
    else:
        name = str(iterator["long_name"])
        of_generator = tf_data.over_generator(name, nodes["long_name"])
        text, fix = tf_data.advice(name, float(pipeline["max_us"]), of_generator=of_generator)
    kind = _kind(iterator)
    # A Prefetch is slow because its buffer was empty.
    title = f"Speed up the input of {kind}" if kind == "Prefetch" else f"Speed up {kind}"
    text = f"{_takes(bottleneck)}. {text}{_python_of(facts, iterator).text}"
    return _wait_for_input(facts, limit, text, fix=fix, title=title)


def _prefetch_missing(facts: Facts, limit: Threshold) -> Found | None:
    main = _to_blame(facts)
    if main is None or _runs_ahead(main[1]):
        return None
    wait = facts.mean["input"]
    rest = max(facts.mean["step_time"] - wait, 0.0)
    text = (
        f"The pipeline does not end with prefetch: **{wording.millis(wait)}** of input"
        f" {facts.unit.per} overlaps nothing. Prefetching could hide up to"
        f" **{wording.millis(min(wait, rest))}** of it behind the other **{wording.millis(rest)}**"
        f" of {facts.unit.the}."
    )
    return _wait_for_input(facts, limit, text, at_most=rest)


def _runs_ahead(nodes: pd.DataFrame) -> bool:
    """True if a pipeline ends with an iterator that runs ahead; a Prefetch after it would hide
    little.
    """
    last = nodes[nodes["long_name"].str.count("::") == 1]
    while len(last):
        names = last["iterator"].astype(str)
        if names.str.startswith(tf_data.AHEAD).any():
            return True
        passing_on = last.loc[names.str.match(_PASSES_ON), "id"]
        last = nodes[nodes["parent"].isin(passing_on)]
    return False


def _outside_steps(facts: Facts, limit: Threshold) -> Found | None:
    """Input that is in no step, because the iterator is called before `Trace` begins."""
    between, wait = facts.evidence.between_ms, facts.evidence.between_input_ms
    step = facts.mean["step_time"]
    if facts.unit.kind == CALL or between is None or wait is None or not between + step:
        return None
    share = 100 * wait / (between + step)
    if share < limit["moderate"]:
        return None
    text = (
        f"The loop typically waits **{wording.millis(wait)}** for input between two"
        f" {facts.unit.plural} (**{share:.0f}%** of its time), which is not part of the"
        f" {facts.unit.noun} of **{wording.millis(step)}**: {facts.unit.time}, its input share and"
        " the verdict exclude it."
    )
    trace = 'tf.profiler.experimental.Trace("train", step_num=i, _r=1)'
    if facts.jax:
        trace = 'jax.profiler.StepTraceAnnotation("train", step_num=i)'
    fix = (
        "-for i, batch in enumerate(ds):\n"
        f"-    with {trace}:\n"
        "-        train_step(batch)\n"
        "+batches = iter(ds)\n"
        "+for i in range(steps):\n"
        f"+    with {trace}:\n"
        "+        train_step(next(batches))"
    )
    return Found(text, severity=limit.severity(share), fix=fix)


def _waited_for_in_torch(facts: Facts, limit: Threshold) -> str:
    """Cause of the wait of PyTorch steps: "iterator", "workers" of a DataLoader, its "process", or
    "".
    """
    runtime, wait = facts.torch_runtime, facts.mean["input"]
    least = limit["cause"] * wait
    if not facts.waits_for_input(limit) or max(runtime.loader_ms, runtime.iterator_ms) < least:
        return ""
    if runtime.loader_ms < least:
        return "iterator"
    return "workers" if "MultiProcessing" in runtime.loader else "process"


def _loader_none(facts: Facts, limit: Threshold) -> Found | None:
    if _waited_for_in_torch(facts, limit) != "iterator":
        return None
    spent = facts.torch_runtime.iterator_ms
    if spent < limit["least"]:
        return None
    text = (
        f"{_waits(facts)}; **{wording.millis(spent)}** {facts.unit.per} is spent in the loop's"
        " iterator, which is not a DataLoader."
    )
    return _wait_for_input(facts, limit, text, at_most=spent, fix=_pinned(facts, _FROM_ITERATOR))


def _pinned(facts: Facts, fix: str) -> str:
    """The code without pinned memory, which PyTorch warns of without a device to copy to."""
    if facts.overview["devices"]:
        return fix
    return fix.replace("pin_memory=True, ", "").replace(", pin_memory=True", "")


def _loader_in_process(facts: Facts, limit: Threshold) -> Found | None:
    if _waited_for_in_torch(facts, limit) != "process":
        return None
    spent = facts.torch_runtime.loader_ms
    text = (
        f"{_spent_in_loader(facts)}, which loads in the training process: with **num_workers=0**"
        " nothing is loaded ahead."
    )
    return _wait_for_input(facts, limit, text, at_most=spent, fix=_pinned(facts, _FROM_PROCESS))


def _loader_workers(facts: Facts, limit: Threshold) -> Found | None:
    if _waited_for_in_torch(facts, limit) != "workers":
        return None
    waited_ms = facts.torch_runtime.loader_ms
    if facts.evidence.loop is not None:
        # What the loop waits for at any number of workers.
        waited_ms -= facts.evidence.loop.ms
        if waited_ms < limit["cause"] * facts.mean["input"]:
            return None
    text = f"{_spent_in_loader(facts)}, whose workers cannot keep up."
    return _wait_for_input(facts, limit, text, at_most=waited_ms)


def _spent_in_loader(facts: Facts) -> str:
    spent = facts.torch_runtime.loader_ms
    return (
        f"{_waits(facts)}; **{wording.millis(spent)}** {facts.unit.per} is spent in the DataLoader"
    )


def _pinned_memory(facts: Facts, limit: Threshold) -> Found | None:
    runtime, wait = facts.torch_runtime, facts.mean["input"]
    copies = runtime.calls_of("copy H2D")
    if facts.percent["input"] < limit["moderate"] or not runtime.pageable_bytes:
        return None
    if copies.ms < limit["cause"] * wait:
        return None
    text = (
        f"**{wording.size(runtime.pageable_bytes)}** {facts.unit.per} are copied to the device from"
        f" pageable memory; {copies.name} blocks the host for **{wording.millis(copies.ms)}**"
        f" {facts.unit.per}. Copies from pinned memory are faster and can be asynchronous."
    )
    fix = "" if runtime.loader else _PINNED_BY_HAND
    return _wait_for_input(facts, limit, text, at_most=copies.ms, fix=fix)


def _copies_exposed(facts: Facts, limit: Threshold) -> Found | None:
    """G13: copies to the device that overlap nothing, although their memory is pinned."""
    runtime = facts.torch_runtime
    time = min(runtime.pinned_ms, facts.mean["input"])
    share = facts.percent_of_step(time)
    if share < limit["moderate"] or facts.percent["input"] < limit["moderate"]:
        return None
    if runtime.pageable_bytes or max(runtime.loader_ms, runtime.iterator_ms) > time:
        return None
    text = (
        f"**{share:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is copying batches to"
        " the device from pinned memory while nothing computes. On a separate stream, the next"
        f" batch can be copied during {facts.unit.the}."
    )
    return Found(text, severity=limit.severity(share), gain_ms=time)


_LOOP = (
    "+ds = tf.data.Dataset.from_tensor_slices((x, y))\n"
    "+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)\n"
    "-for i in range(0, len(x), n):\n"
    "-    train_step(x[i : i + n], y[i : i + n])\n"
    "+for batch in ds:\n"
    "+    train_step(*batch)"
)

_FILLED = "+for batch in ds:  # one epoch in an earlier cell, so that the cache is full\n+    pass"


def _large_buffer(facts: Facts, limit: Threshold) -> Found | None:
    if not facts.evidence.host_peak_bytes or not len(facts.nodes):
        return None
    from nbprof.analysis.advice import buffers

    return buffers.large_buffer(facts, limit)


RULES: tuple[AdviceRule, ...] = (
    Rule(
        "input_ahead",
        _input_ahead,
        threshold=INPUT_SHARE,
        source=XPROF,
        target=TRACE,
        applies=JAX,
        looks_at="Steps that wait for input from no recorded pipeline",
        title="Prepare batches in other threads, ahead of the loop",
        fix=(
            "+made = grain.MapDataset.range(count).map(make_batch)\n"
            "-for batch in batches:\n"
            "+for batch in made.to_iter_dataset():  # by threads\n"
            "     state = step(state, batch)"
        ),
        refuted_by="{the} takes as long when the first batch is repeated",
        gain_is=ABOUT,
        saves=("input",),
        needs_units=True,
        done=Shown("Steps no longer wait"),
    ),
    Rule(
        "arrays_copied",
        _arrays_copied,
        threshold=_ARRAYS,
        source=XPROF,
        target=_TRACE_COPIES,
        applies=TENSORFLOW_JAX,
        looks_at=(
            "Steps that wait for copies of arrays to the device, where no pipeline was recorded"
        ),
        title="Keep on the device what {plural} share, and copy the rest ahead of time",
        # Freeing and staging the arrays takes additional time.
        refuted_by="{the} takes as long with arrays that are already on the device",
        gain_is=AT_LEAST,
        saves=("input",),
        needs_units=True,
        done=Shown("Steps no longer wait for copies"),
    ),
    Rule(
        "input_outside_tf_data",
        _outside_tf_data,
        threshold=INPUT_SHARE,
        source=XPROF,
        target=INPUT,
        applies=TENSORFLOW,
        looks_at=(
            "Steps that wait for input without tf.data, or with a pipeline that Keras made from"
            " arrays"
        ),
        title="Feed the model through tf.data",
        certainty=INFERRED,
        refuted_by="{the} takes as long when the first batch is repeated",
        gain_is=ABOUT,
        saves=("input",),
        needs_units=True,
        done=Shown("A pipeline of the program's own that Keras did not make from arrays"),
    ),
    Rule(
        "input_copies",
        _input_copies,
        threshold=_COPIES,
        source=XPROF,
        target=Target("trace", "Trace: copies to the device"),
        applies=TENSORFLOW,
        looks_at=(
            "Steps that wait for input while the tf.data pipeline does little work: copies to the"
            " device"
        ),
        title="Copy less to the device, ahead of time",
        fix=f"{_FEWER_BYTES}\n+ds = ds.apply(tf.data.experimental.prefetch_to_device('/gpu:0'))",
        refuted_by="{the} takes as long with batches that are already on the device",
        gain_is=ABOUT,
        saves=("input",),
        done=Shown(
            "Steps no longer wait for copies; with a pipeline on the device, only fewer bytes"
            " are advised"
        ),
    ),
    Rule(
        "cache_missing",
        _cache,
        threshold=Threshold(
            (
                f"{INPUT_SHARE.text}, {{turns:g}} whole epochs ({{iterators:g}} where each has its"
                " own iterator), no random op, an epoch ≤ half of the free memory"
            ),
            **INPUT_SHARE.numbers,
            turns=2,
            iterators=3,
        ),
        source="TensorFlow tf.data performance guide; nbprof's threshold",
        target=_CRITICAL_PATH,
        applies=TENSORFLOW,
        looks_at=(
            "A pipeline without cache whose bottleneck reads or produces the same number of"
            " elements in each epoch"
        ),
        title="Cache what each epoch recomputes",
        fix=(
            " ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)\n"
            "+ds = ds.cache()  # before shuffle, and before what is random"
        ),
        certainty=INFERRED,
        refuted_by=(
            "the elements differ from epoch to epoch, or later epochs wait as long with the cache"
        ),
        gain_is=ABOUT,
        saves=("input",),
        done=Shown("A cache in the pipeline"),
    ),
    Rule(
        "map_of_items",
        _map_of_items,
        threshold=Threshold(
            (
                f"{INPUT_SHARE.text}, ≤ {{most_us:g}} µs an element (a call costs about 10 µs),"
                " its ops < {ops:percent} of that"
            ),
            **INPUT_SHARE.numbers,
            most_us=200.0,
            ops=0.2,
        ),
        source="TensorFlow tf.data performance guide; nbprof's threshold",
        target=_CRITICAL_PATH,
        applies=TENSORFLOW,
        looks_at=(
            "A pipeline whose bottleneck maps a cheap function over elements that are batched later"
        ),
        title="Batch first, then map whole batches",
        fix=(
            "-ds = ds.map(fn).batch(n)\n"
            "+ds = ds.batch(n).map(fn_of_a_batch, num_parallel_calls=tf.data.AUTOTUNE)"
        ),
        refuted_by=(
            "{the} waits as long with a function on whole batches, or the function cannot work"
            " on them"
        ),
        saves=("input",),
        done=Shown("The map is above the batch"),
    ),
    Rule(
        "map_serial",
        _map_serial,
        threshold=INPUT_SHARE,
        source=f"{XPROF}; {GPU_GUIDE}",
        target=_CRITICAL_PATH,
        applies=TENSORFLOW,
        looks_at="A pipeline whose bottleneck is a single-threaded map or interleave",
        title="Run Dataset.map in parallel",
        fix="-ds = ds.map(fn)\n+ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)",
        refuted_by="{the} waits as long when the map runs in parallel",
        gain_is=ABOUT,
        saves=("input",),
        done=Shown("The map or interleave is parallel"),
    ),
    Rule(
        "input_bottleneck",
        _input_bottleneck,
        threshold=INPUT_SHARE,
        source=XPROF,
        target=_CRITICAL_PATH,
        applies=TENSORFLOW,
        looks_at="The iterator with the most self time on the pipeline's critical path",
        refuted_by="{the} takes as long when the first batch is repeated",
        gain_is=ABOUT,
        saves=("input",),
        done=Shown(
            "Steps no longer wait; of what helps, only what the pipeline does not have is advised"
        ),
    ),
    Rule(
        "prefetch_missing",
        _prefetch_missing,
        threshold=INPUT_SHARE,
        source=GPU_GUIDE,
        target=Target("input", "Steps & input: pipeline"),
        applies=TENSORFLOW,
        looks_at="A pipeline that does not end with Prefetch or another iterator that runs ahead",
        title="Prefetch so that input overlaps compute",
        fix="-ds = ds.batch(n)\n+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)",
        refuted_by="{the} waits as long with a prefetch at the end of the pipeline",
        saves=("input",),
        done=Shown("A prefetch, or another iterator that runs ahead, at the end of the pipeline"),
    ),
    Rule(
        "input_outside_steps",
        _outside_steps,
        threshold=Threshold(
            "≥ {moderate:g} % of loop time (high from {high:g} %)",
            moderate=INPUT_MODERATE,
            high=INPUT_HIGH,
        ),
        source="TensorFlow Profiler guide; nbprof's threshold",
        target=TRACE,
        applies=TENSORFLOW_JAX,
        looks_at="Time between steps in which their thread waits for a tf.data iterator",
        title="Fetch the next batch inside {the}",
        refuted_by="{the} takes as long with next(iterator) inside it",
        gain_is="",
        needs_units=True,
        done=Shown("The iterator is asked inside the steps"),
    ),
    Rule(
        "loader_none",
        _loader_none,
        threshold=_ITERATOR,
        source=TORCH_TB,
        target=INPUT,
        applies=PYTORCH,
        looks_at="Steps that wait for an iterator that is not a DataLoader",
        title="Load batches ahead with a DataLoader",
        fix=_FROM_ITERATOR,
        on_npu=True,
        refuted_by="{the} takes as long when the first batch is repeated",
        gain_is=ABOUT,
        saves=("input",),
        done=Shown("A DataLoader"),
    ),
    Rule(
        "loader_in_process",
        _loader_in_process,
        threshold=_CAUSE,
        source=TORCH_TB,
        target=INPUT,
        applies=PYTORCH,
        looks_at="Steps that wait for a DataLoader without workers",
        title="Load batches in worker processes",
        fix=_FROM_PROCESS,
        on_npu=True,
        refuted_by="{the} takes as long when the first batch is repeated",
        gain_is=ABOUT,
        saves=("input",),
        done=Shown("A DataLoader with workers"),
    ),
    Rule(
        "loader_workers",
        _loader_workers,
        threshold=_CAUSE,
        source=TORCH_TB,
        target=INPUT,
        applies=PYTORCH,
        looks_at=(
            "Steps that wait for the workers of a DataLoader; where no core is free for more of"
            " them, the advice is cheaper items"
        ),
        title="Give the DataLoader more workers",
        fix=(
            "-loader = DataLoader(dataset, batch_size=n, num_workers=k)\n"
            "+loader = DataLoader(dataset, batch_size=n, num_workers=k + 1)  # more where more"
            " cores are free"
        ),
        on_npu=True,
        refuted_by="{the} takes as long when the first batch is repeated",
        gain_is=ABOUT,
        saves=("input",),
        needs_units=True,
        done=Shown("The workers keep up; where they have all cores, cheaper items are advised"),
    ),
    Rule(
        "pinned_memory",
        _pinned_memory,
        threshold=_CAUSE,
        source=TORCH_GUIDE,
        target=_TRACE_COPIES,
        applies=PYTORCH,
        looks_at="Copies to the device from pageable memory that block the host",
        title="Copy batches from pinned memory",
        fix=(
            "-loader = DataLoader(dataset, batch_size=n)\n"
            "+loader = DataLoader(dataset, batch_size=n, pin_memory=True)\n"
            "-x = x.to(device)\n"
            "+x = x.to(device, non_blocking=True)"
        ),
        on_npu=True,
        refuted_by="{the} takes as long with pin_memory=True",
        gain_is=ABOUT,
        saves=("input",),
        needs_units=True,
        done=Shown("Copies from pinned memory, or `pin_memory=True` in every recorded DataLoader"),
    ),
    Rule(
        "copies_exposed",
        _copies_exposed,
        threshold=Threshold(
            "≥ {moderate:g} % of step time (high from {high:g} %)", moderate=10.0, high=INPUT_HIGH
        ),
        source=TORCH_GUIDE,
        target=_TRACE_COPIES,
        applies=PYTORCH,
        looks_at="Copies to the device from pinned memory that do not overlap compute",
        title="Copy the next batch during {the}",
        fix=(
            "+side = torch.cuda.Stream()\n"
            "+with torch.cuda.stream(side):  # while the previous step computes\n"
            "+    following = following.to(device, non_blocking=True)\n"
            "+torch.cuda.current_stream().wait_stream(side)"
        ),
        on_npu=True,
        refuted_by="{the} takes as long with batches that are already on the device",
        saves=("input",),
        needs_units=True,
        done=Shown("Copies beside compute"),
    ),
    Rule(
        "large_buffer",
        _large_buffer,
        threshold=Threshold(
            (
                "≥ {least_mib:g} MiB and ≥ {share:percent} of the most resident memory of the"
                " process (high from {high:percent})"
            ),
            least_mib=256,
            share=0.25,
            high=0.5,
        ),
        source=GPU_GUIDE_CHOICE,
        target=INPUT,
        applies=TENSORFLOW,
        looks_at=(
            "Elements in the buffers of shuffle, prefetch, cache, interleave and map, as TensorFlow"
            " states them, by the shapes and types of one"
        ),
        refuted_by="the process takes as much memory without the buffer",
        gain_is="",
        done=Shown("The buffer holds less"),
    ),
)

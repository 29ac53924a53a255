"""Advice rules about input: steps that wait for tf.data, a DataLoader, a plain iterator, or copies
to the device.

Sources: TensorFlow Profiler, torch_tb_profiler, PyTorch's performance tuning guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from nbprof.activity.unit import CALL, Unit
from nbprof.analysis.advice import epochs, tf_data
from nbprof.analysis.advice.checks import INPUT_HIGH, INPUT_MODERATE
from nbprof.analysis.advice.facts import INPUT, INPUT_SHARE, TRACE, AdviceRule, Facts
from nbprof.analysis.rule import (
    ABOUT,
    AT_LEAST,
    GPU_GUIDE,
    INFERRED,
    JAX,
    PYTORCH,
    TENSORFLOW,
    TENSORFLOW_JAX,
    TORCH_GUIDE,
    TORCH_TB,
    XPROF,
    Found,
    Rule,
    Shown,
    Target,
    Threshold,
)
from nbprof.display import wording

# Iterators that only pass on elements of their input.
_HANDS_ON = r"(Root|Model|MaxIntraOpParallelism|PrivateThreadPool|Options|AssertCardinality|(Finite)?(Take|Skip|Repeat)|ForeverRepeat)(V\d+)?\Z"
_COPIES = Threshold(
    f"{INPUT_SHARE.text}; pipeline work < {{pipeline:percent}} of the wait",
    **INPUT_SHARE.numbers,
    pipeline=tf_data.PIPELINE_PART,
)
"""The pipeline causes the wait if its own work is at least this fraction of it; otherwise copies to
the device do.
"""
_CAUSE = Threshold(
    f"{INPUT_SHARE.text}, ≥ {{cause:percent}} of it there", **INPUT_SHARE.numbers, cause=0.2
)
"""A cause counts if it explains at least this fraction of the wait."""

_ARRAYS = Threshold(
    f"{INPUT_SHARE.text}, ≥ {{copies:percent}} of it copies to the device",
    **INPUT_SHARE.numbers,
    copies=0.5,
)

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

# An iterator that makes batches, among those above another.
_BATCHED = re.compile(r"::(?:Padded|Parallel)?Batch(?:V\d+)?(?:::|\Z)")
_TRACE_COPIES = Target("trace", "Trace: copies")
_CRITICAL_PATH = Target("input", "Steps & input: critical path")


def _waits(facts: Facts) -> str:
    share, wait = facts.percent["input"], facts.mean["input"]
    return (
        f"{facts.unit.the.capitalize()} waits **{wording.millis(wait)}** of "
        f"**{wording.millis(facts.mean['step_time'])}** for input (**{share:.0f}%**)"
    )


def _without_pipeline(facts: Facts, limit: Threshold) -> bool:
    """Whether steps wait and no tf.data pipeline was recorded."""
    return facts.waits_for_input(limit) and not facts.in_host_memory and not len(facts.nodes)


def _arrays_copied(facts: Facts, limit: Threshold) -> Found | None:
    """Copies to the device that most of a wait without a pipeline is."""
    copied, size = facts.evidence.copied_ms, facts.evidence.copied_bytes
    if (
        not _without_pipeline(facts, limit)
        or copied is None
        or copied < limit["copies"] * facts.mean["input"]
    ):
        return None
    text = (
        f"{_waits(facts)}, **{wording.millis(copied)}** of it while arrays are copied from host"
        " memory to the device"
    )
    text += f" (**{wording.size(size)}** {facts.unit.per})." if size else "."
    first, last = (
        ("jax.device_put(table)", "state = step(state, batch, table)")
        if facts.jax
        else ("tf.constant(table)", "step(batch, table)")
    )
    fix = (
        f"+table = {first}  # once: what is the same in each step\n"
        " for batch in batches:\n"
        f"     {last}"
    )
    return Found(
        text,
        severity=limit.severity(facts.percent["input"]),
        gain_ms=min(copied, facts.mean["input"]),
        fix=fix,
    )


def _input_ahead(facts: Facts, limit: Threshold) -> Found | None:
    if (
        not _without_pipeline(facts, limit)
        or not facts.jax
        or _arrays_copied(facts, _ARRAYS) is not None
    ):
        return None
    text = f"{_waits(facts)}, and no recorded pipeline prepares it ahead of time."
    return Found(text, severity=limit.severity(facts.percent["input"]), gain_ms=facts.mean["input"])


def _outside_tf_data(facts: Facts, limit: Threshold) -> Found | None:
    level, wait = limit.severity(facts.percent["input"]), facts.mean["input"]
    if _without_pipeline(facts, limit) and not facts.jax and _arrays_copied(facts, _ARRAYS) is None:
        text = f"{_waits(facts)}, and no tf.data pipeline was recorded."
        return Found(text, severity=level, gain_ms=wait, fix=tf_data.FIT if facts.keras else _LOOP)
    main = _pipeline(facts, limit)
    # The pipeline is Keras's own: the program has no map to parallelize.
    return (
        Found(
            f"{_waits(facts)}: {tf_data.FROM_ARRAYS}", severity=level, gain_ms=wait, fix=tf_data.FIT
        )
        if main is not None and _of_arrays(main[1])
        else None
    )


def _input_copies(facts: Facts, limit: Threshold) -> Found | None:
    main, wait = _pipeline(facts, limit), facts.mean["input"]
    if main is None or _of_arrays(main[1]) or not facts.overview["devices"]:
        return None
    each = _work(facts, main[1])
    if each >= limit["pipeline"] * wait:
        return None
    text = (
        f"{_waits(facts)}, but the calls of tf.data take only **{wording.millis(each)}**"
        f" {facts.unit.per}: "
    )
    text += "the rest is copying batches to the device."
    fix = ""
    if facts.nodes["pipeline"].astype(str).str.startswith("Device").any():
        # A pipeline of the device copies ahead of time already.
        fix = _FEWER_BYTES
    return Found(text, severity=limit.severity(facts.percent["input"]), gain_ms=wait, fix=fix)


def _pipeline(facts: Facts, limit: Threshold) -> tuple[pd.Series, pd.DataFrame] | None:
    """The pipeline that steps wait for; None if they do not wait, or if it was not recorded."""
    if not facts.waits_for_input(limit) or facts.in_host_memory or not len(facts.nodes):
        return None
    return facts.once(_main_of)


def _to_blame(facts: Facts) -> tuple[pd.Series, pd.DataFrame] | None:
    """The pipeline, if it is the user's and the steps wait for its own work."""
    main = _pipeline(facts, INPUT_SHARE)
    if (
        main is None
        or _of_arrays(main[1])
        or _work(facts, main[1]) < _COPIES["pipeline"] * facts.mean["input"]
    ):
        return None
    # An eager loop spends most of a wait in Python and in the op that asks for the element; that is
    # there with a perfect pipeline, too.
    waited = _waited(facts, main[1])
    return (
        None
        if waited is not None and 100 * waited < INPUT_SHARE["moderate"] * facts.mean["step_time"]
        else main
    )


def _waited(facts: Facts, nodes: pd.DataFrame) -> float | None:
    """How long the steps waited for the pipeline itself to return an element, ms per step; None if
    its root was not recorded.

    In its first call a pipeline starts: that is no wait of the other steps.
    """
    return waited_ms(nodes, int(facts.overview["steps"]), facts.unit)


def waited_ms(nodes: pd.DataFrame, steps: int, unit: Unit) -> float | None:
    """The same, of the nodes of `main_pipeline` and the number of steps."""
    root = nodes[nodes["parent"].isna()]
    first, starts = float(nodes["first_ms"].max()), int(nodes["starts"].max())
    if steps <= starts and not unit.whole:
        first, starts = 0.0, 0
    return (float(root["total_ms"].sum()) - first) / max(steps - starts, 1) if len(root) else None


def _of_arrays(nodes: pd.DataFrame) -> bool:
    return bool(nodes["long_name"].str.contains(tf_data.OF_ARRAYS).any())


def _work(facts: Facts, nodes: pd.DataFrame) -> float:
    """Pipeline work per step, in ms."""
    return work_ms(nodes, int(facts.overview["steps"]))


def work_ms(nodes: pd.DataFrame, steps: int) -> float:
    """The same, of the nodes of `main_pipeline` and the number of steps."""
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
        How long the first call of each pipeline took, in ms, by host and pipeline.
    """
    # A device pipeline only passes on elements of the host pipeline.
    nodes = nodes[~nodes["pipeline"].astype(str).str.startswith("Device")]
    if not len(nodes):
        # The host pipeline was not recorded, so nothing is known about it.
        return None
    keys = ["host", "pipeline"]
    shape = (
        nodes.assign(place=_place(nodes))
        .drop_duplicates([*keys, "place"])
        .groupby(keys, sort=False)["place"]
        .agg(tuple)
    )
    work = nodes.groupby(keys, sort=False)["self_ms"].sum()
    shape_with_most_work = work.groupby(shape).sum().idxmax()
    alike = shape.index[[s == shape_with_most_work for s in shape]]
    same = nodes[pd.MultiIndex.from_frame(nodes[["host", "pipeline"]]).isin(alike)]
    instance = nodes[(nodes["host"] == alike[0][0]) & (nodes["pipeline"] == alike[0][1])].copy()
    instance = _united(instance, same)
    first = [first_calls[pair] for pair in alike if pair in first_calls]
    instance["first_ms"], instance["starts"] = sum(first), len(first)
    slowest = pipelines[pd.MultiIndex.from_frame(pipelines[["host", "pipeline"]]).isin(alike)].iloc[
        0
    ]
    return slowest, instance


# Each of these makes an iterator of one function for each element that it takes, and numbers them;
# `Zip` and `DirectedInterleave` number inputs that differ.
_BRANCH = re.compile(r"(::(?!Directed)\w*(?:Interleave\w*|FlatMap|Repeat))\[\d+\]")
_PARALLEL_BRANCH = re.compile(r"ParallelInterleave\w*\[\d+\]")


def _place(nodes: pd.DataFrame) -> pd.Series:
    """The long names of iterators, equal for the branches of an interleave."""
    return nodes["long_name"].astype(str).str.replace(_BRANCH, r"\1", regex=True)


def _united(instance: pd.DataFrame, alike: pd.DataFrame) -> pd.DataFrame:
    """The iterators of a pipeline with their times in `alike`, itself and others of its shape; the
    branches of an interleave are one.

    The bottleneck is that of all of them together; of equal ones that of the pipeline itself.
    """
    sums = alike.groupby(_place(alike)).agg(
        {"self_ms": "sum", "total_ms": "sum", "calls": "sum", "blocking": "any"}
    )
    # Of branches that one stands for them which the analysis of the pipeline names.
    distinct = (
        instance.assign(place=_place(instance))
        .sort_values("bottleneck", ascending=False, kind="stable")
        .drop_duplicates("place")
        .sort_index()
    )
    for column in sums.columns:
        distinct[column] = distinct["place"].map(sums[column])
    worst = distinct.sort_values(
        ["blocking", "self_ms", "bottleneck"], ascending=False, kind="stable"
    ).index[0]
    return distinct.assign(bottleneck=distinct.index == worst).drop(columns="place")


def _bottleneck(facts: Facts) -> tuple[pd.Series, pd.DataFrame, pd.Series, bool] | None:
    """The pipeline that causes the wait, its iterators, its bottleneck, and whether that is a
    function on a single thread.
    """
    if (main := _to_blame(facts)) is None:
        return None
    slow = main[1][main[1]["bottleneck"]].iloc[0]
    kind = _kind(slow)
    serial = kind in ("Map", "Interleave") or (
        kind == "MapAndBatch" and str(slow["note"]).startswith("1 thread")
    )
    return *main, slow, serial and not _fills(slow)


def _fills(slow: pd.Series) -> bool:
    """Whether an iterator fills a cache, which later epochs read instead."""
    return "Cache" in str(slow["long_name"]).rpartition("::")[0]


def _kind(node: pd.Series) -> str:
    return str(node["iterator"]).partition("[")[0]


def _takes(slow: pd.Series, nodes: pd.DataFrame) -> str:
    work = float(nodes["self_ms"].sum())
    return (
        f"**{_kind(slow)}** takes **{wording.millis(slow['self_ms'], 1)}** of the"
        f" **{wording.millis(work, 1)}** spent in the pipeline"
        f" (**{100 * float(slow['self_ms']) / work:.0f}%**), over **{int(slow['calls']):,}** calls"
    )


def _cache(facts: Facts, limit: Threshold) -> Found | None:
    if (found := facts.once(_bottleneck)) is None:
        return None
    slow, known = found[2], facts.evidence
    made = epochs.anew(
        facts.nodes,
        slow,
        known.iterators,
        known.iterator_functions,
        limit["turns"],
        limit["iterators"],
    )
    if made is None:
        return None
    text = (
        f"{_takes(slow, found[1])}. In each of **{made.epochs}** epochs {made.iterator} produces"
        f" **{made.calls:,}** elements, at most **{wording.size(made.bytes)}** (half of the free"
        f" memory was **{wording.size(made.budget)}**), without random ops. With a cache it"
        " produces them once."
    )
    return Found(text, severity=limit.severity(facts.percent["input"]), gain_ms=facts.mean["input"])


def _map_of_items(facts: Facts, limit: Threshold) -> Found | None:
    """A map of single elements that are batched afterwards, whose ops take next to none of its
    time.
    """
    if (found := facts.once(_bottleneck)) is None or not (ops := facts.evidence.iterator_functions):
        return None
    slow = found[2]
    kind, above = tf_data.base(str(slow["long_name"])), str(slow["long_name"]).rpartition("::")[0]
    batch = (
        facts.evidence.iterators.get(int(slow["id"]), {}).get("batch_size")
        if kind == "MapAndBatch"
        else 1
    )
    if not (
        kind == "MapAndBatch" or (kind in ("Map", "ParallelMap") and _BATCHED.search(above))
    ) or not isinstance(batch, int):
        return None
    items, took, ran = int(slow["calls"]) * batch, float(slow["self_ms"]), sum(ops.values())
    if not items or ran >= limit["ops"] * took or 1000 * took / items > limit["most_us"]:
        return None
    text = (
        f"{_takes(slow, found[1])}: **{wording.micros(1000 * took / items)}** for each of"
        f" **{items:,}** elements, **{wording.micros(1000 * ran / items)}** of it in the ops of its"
        " function. The rest is call overhead, which a function on whole batches pays once per"
        " batch."
    )
    return Found(text, severity=limit.severity(facts.percent["input"]), gain_ms=facts.mean["input"])


def _map_serial(facts: Facts, limit: Threshold) -> Found | None:
    found = facts.once(_bottleneck)
    if found is None or not found[3]:
        return None
    _, nodes, slow, _ = found
    wait = facts.mean["input"]
    # Branches of a parallel interleave run at once.
    each = (
        " in each branch of the interleave"
        if _PARALLEL_BRANCH.search(str(slow["long_name"]))
        else ""
    )
    text = (
        f"{_takes(slow, nodes)}, on **1 thread**{each}. {facts.unit.the.capitalize()} waits"
        f" **{wording.millis(wait)}** for it."
    )
    return Found(text, severity=limit.severity(facts.percent["input"]), gain_ms=wait)


def _input_bottleneck(facts: Facts, limit: Threshold) -> Found | None:
    found = facts.once(_bottleneck)
    if found is None or found[3]:
        return None
    pipeline, nodes, slow, _ = found
    is_named = str(slow["iterator"]) == str(pipeline["bottleneck"])
    of_generator = tf_data.over_generator(str(slow["long_name"]), nodes["long_name"])
    text, fix = (
        (pipeline["advice"], pipeline["fix"])
        if is_named
        else tf_data.advice(
            str(slow["long_name"]), float(pipeline["max_us"]), of_generator=of_generator
        )
    )
    kind = _kind(slow)
    if _fills(slow):
        text = (
            "It fills a cache in the first epoch; later epochs read the cache and do not wait like"
            " this."
        )
        return Found(
            f"{_takes(slow, nodes)}. {text}",
            severity="low",
            fix=_FILLED,
            title="Record again once the cache is full",
        )
    # A Prefetch is slow because its buffer was empty.
    title = f"Speed up the input of {kind}" if kind == "Prefetch" else f"Speed up {kind}"
    return Found(
        f"{_takes(slow, nodes)}. {text}",
        severity=limit.severity(facts.percent["input"]),
        gain_ms=facts.mean["input"],
        fix=fix,
        title=title,
    )


def _prefetch_missing(facts: Facts, limit: Threshold) -> Found | None:
    if (main := _to_blame(facts)) is None:
        return None
    nodes, wait = main[1], facts.mean["input"]
    # Iterators at the end of the pipeline that already run ahead; a Prefetch after them would hide
    # next to nothing.
    last = nodes[nodes["long_name"].str.count("::") == 1]
    while len(last) and not last["iterator"].astype(str).str.startswith(tf_data.AHEAD).any():
        handing_on = last.loc[last["iterator"].astype(str).str.match(_HANDS_ON), "id"]
        last = nodes[nodes["parent"].isin(handing_on)]
    if len(last):
        return None
    rest = max(facts.mean["step_time"] - wait, 0.0)
    gain = min(wait, rest)
    text = (
        f"The pipeline does not end with prefetch: **{wording.millis(wait)}** of input"
        f" {facts.unit.per} overlaps nothing. Prefetching could hide up to"
        f" **{wording.millis(gain)}** of it behind the other **{wording.millis(rest)}** of"
        f" {facts.unit.the}."
    )
    return Found(text, severity=limit.severity(facts.percent["input"]), gain_ms=gain)


def _outside_steps(facts: Facts, limit: Threshold) -> Found | None:
    """What the steps wait for is in none of them: an iterator that is asked before `Trace`
    begins.
    """
    between, wait, step = (
        facts.evidence.between_ms,
        facts.evidence.between_input_ms,
        facts.mean["step_time"],
    )
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
    trace = (
        'jax.profiler.StepTraceAnnotation("train", step_num=i)'
        if facts.jax
        else 'tf.profiler.experimental.Trace("train", step_num=i, _r=1)'
    )
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


def _loaded(facts: Facts, limit: Threshold) -> str:
    """What PyTorch steps wait for: "", "iterator", "workers" of a DataLoader, or its "process"."""
    runtime, wait = facts.torch_runtime, facts.mean["input"]
    if (
        not facts.waits_for_input(limit)
        or max(runtime.loader_ms, runtime.iterator_ms) < limit["cause"] * wait
    ):
        return ""
    if runtime.loader_ms < limit["cause"] * wait:
        return "iterator"
    return "workers" if "MultiProcessing" in runtime.loader else "process"


def _loader_none(facts: Facts, limit: Threshold) -> Found | None:
    if _loaded(facts, limit) != "iterator":
        return None
    spent = facts.torch_runtime.iterator_ms
    text = (
        f"{_waits(facts)}; **{wording.millis(spent)}** {facts.unit.per} is spent in the loop's"
        " iterator, which is not a DataLoader."
    )
    return Found(
        text,
        severity=limit.severity(facts.percent["input"]),
        gain_ms=min(facts.mean["input"], spent),
        fix=_pinned(facts, _FROM_ITERATOR),
    )


def _pinned(facts: Facts, fix: str) -> str:
    """The code, without pinned memory where no device is that it helps to copy to: there PyTorch
    warns of it.
    """
    return (
        fix
        if facts.overview["devices"]
        else fix.replace("pin_memory=True, ", "").replace(", pin_memory=True", "")
    )


def _loader_in_process(facts: Facts, limit: Threshold) -> Found | None:
    text = ", which loads in the training process: with **num_workers=0** nothing is loaded ahead."
    return (
        replace(_in_loader(facts, limit, text), fix=_pinned(facts, _FROM_PROCESS))
        if _loaded(facts, limit) == "process"
        else None
    )


def _loader_workers(facts: Facts, limit: Threshold) -> Found | None:
    return (
        _in_loader(facts, limit, ", whose workers cannot keep up.")
        if _loaded(facts, limit) == "workers"
        else None
    )


def _in_loader(facts: Facts, limit: Threshold, why: str) -> Found:
    spent = facts.torch_runtime.loader_ms
    text = (
        f"{_waits(facts)}; **{wording.millis(spent)}** {facts.unit.per} is spent in the"
        f" DataLoader{why}"
    )
    return Found(
        text,
        severity=limit.severity(facts.percent["input"]),
        gain_ms=min(facts.mean["input"], spent),
    )


def _pinned_memory(facts: Facts, limit: Threshold) -> Found | None:
    share, wait, runtime = facts.percent["input"], facts.mean["input"], facts.torch_runtime
    copies = runtime.of("copy H2D")
    if share < limit["moderate"] or not runtime.pageable_bytes or copies.ms < limit["cause"] * wait:
        return None
    text = (
        f"**{wording.size(runtime.pageable_bytes)}** {facts.unit.per} are copied to the device from"
        f" pageable memory; {copies.name} blocks the host for **{wording.millis(copies.ms)}**"
        f" {facts.unit.per}. Copies from pinned memory are faster and can be asynchronous."
    )
    fix = "" if runtime.loader else _PINNED_BY_HAND
    return Found(text, severity=limit.severity(share), gain_ms=min(wait, copies.ms), fix=fix)


def _copies_exposed(facts: Facts, limit: Threshold) -> Found | None:
    """G13: copies to the device that overlap nothing, although their memory is pinned."""
    runtime, share, wait = facts.torch_runtime, facts.percent["input"], facts.mean["input"]
    time = min(runtime.pinned_ms, wait)
    part = 100 * time / facts.mean["step_time"] if facts.mean["step_time"] else 0.0
    if (
        part < limit["moderate"]
        or runtime.pageable_bytes
        or max(runtime.loader_ms, runtime.iterator_ms) > time
        or share < limit["moderate"]
    ):
        return None
    text = (
        f"**{part:.0f}%** of {facts.unit.time} (**{wording.millis(time)}**) is copying batches to"
        " the device from pinned memory while nothing computes. On a separate stream, the next"
        f" batch can be copied during {facts.unit.the}."
    )
    return Found(text, severity=limit.severity(part), gain_ms=time)


_LOOP = (
    "+ds = tf.data.Dataset.from_tensor_slices((x, y))\n"
    "+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)\n"
    "-for i in range(0, len(x), n):\n"
    "-    train_step(x[i : i + n], y[i : i + n])\n"
    "+for batch in ds:\n"
    "+    train_step(*batch)"
)

_FILLED = "+for batch in ds:  # one epoch in an earlier cell, so that the cache is full\n+    pass"

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
        looks_at="Steps that wait for copies of arrays to the device, where no pipeline was recorded",
        title="Keep on the device what {plural} share, and copy the rest ahead of time",
        # What frees and stages the arrays comes on top.
        refuted_by="{the} takes as long with arrays that are already on the device",
        gain_is=AT_LEAST,
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
        refuted_by="the elements differ from epoch to epoch, or later epochs wait as long with the cache",
        gain_is=ABOUT,
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
        threshold=_CAUSE,
        source=TORCH_TB,
        target=INPUT,
        applies=PYTORCH,
        looks_at="Steps that wait for an iterator that is not a DataLoader",
        title="Load batches ahead with a DataLoader",
        fix=_FROM_ITERATOR,
        on_npu=True,
        refuted_by="{the} takes as long when the first batch is repeated",
        gain_is=ABOUT,
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
        needs_units=True,
        done=Shown("Copies beside compute"),
    ),
)

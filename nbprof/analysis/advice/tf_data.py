"""Advice for a tf.data pipeline, by the kind and the parameters of its bottleneck iterator.

The kinds are those of TensorFlow Profiler's tf.data bottleneck analysis and of TensorFlow's guide
on the performance of tf.data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from nbprof.activity.unit import MARKED, Unit
from nbprof.analysis.advice.checks import INPUT_MODERATE
from nbprof.display import wording

SLOW_CALL_US = 50.0
"""A call that takes longer is slow: the threshold of TensorFlow Profiler."""

OF_DEVICE = "Iterator::Prefetch::Generator"
"""The source of a device pipeline: TensorFlow's own generator, which fetches the elements of the
host pipeline.
"""
ON_DEVICE = (
    "It fetches and copies elements of the host pipeline: look at that pipeline, and at the copies"
    " to the device."
)

PIPELINE_PART = 0.2
"""A pipeline causes a wait if its work is at least this fraction of it."""
HARDLY, ELSEWHERE, PIPELINE, UNKNOWN = "hardly", "elsewhere", "pipeline", ""

AUTOTUNE = -1
ASYNC = (
    "Prefetch",
    "ParallelInterleave",
    "ParallelMap",
    "ParseExample",
    "MapAndBatch",
    "DataService",
    "LegacyParallelInterleave",
    "ParallelBatch",
)
"""Iterators that produce elements ahead of time, on their own threads."""
_PARALLEL = ("Map", "Interleave")
_FILES = {
    "TFRecord": "tf.data.TFRecordDataset",
    "TextLine": "tf.data.TextLineDataset",
    "FixedLengthRecord": "tf.data.FixedLengthRecordDataset",
}
SOURCES = (
    "TFRecord",
    "SSTable",
    "RecordIO",
    "ArrayRecord",
    "Spanner",
    "TFColumn",
    "SleepwalkRemoteDataset",
    "TextLine",
    "StitchedTimelineDataset",
    "DateKeyDataset",
    "CapacitorProto",
    "LMDB",
    "ExternalDataset",
    "PearModel",
    "FixedLengthRecord",
    "CSV",
    "SyntheticDatasetOp",
    "Sql",
)
_IN_MEMORY = ("FromTensor", "Tensor", "TensorSlice", "SparseTensorSlice")
_REMOTE = (
    "GuzzlerDataGuzzlerRemoteDataset",
    "ReverbDataset",
    "DatasetSampleGame",
    "Courier",
    "ReverbEpisodeDataset",
)
_PLAIN = {
    "Filter": (
        "It tests elements one by one on a single thread. Filter earlier, while elements are cheap,"
        " or filter the files."
    ),
    "Batch": (
        "It copies elements into the batch one by one. Copy in parallel, or produce fewer, larger"
        " elements."
    ),
    "PaddedBatch": (
        "It pads and copies elements one by one. Bucket elements by length to reduce padding."
    ),
    "Unbatch": (
        "It splits batches element by element. Produce single elements in the first place, or keep"
        " the batches."
    ),
    "FlatMap": "It reads inner datasets one after another. interleave reads several at a time.",
    "Shuffle": (
        "It fills its buffer before the first element. A smaller one fills faster; shuffle file"
        " names or indices, not decoded data."
    ),
    "ShuffleAndRepeat": (
        "It fills its buffer before the first element. A smaller one fills faster; shuffle file"
        " names, not decoded data."
    ),
    "Cache": (
        "It fills during the first epoch; later epochs read from it. Cache after expensive steps"
        " and before random ones."
    ),
    "MemoryCacheImpl": (
        "It fills during the first epoch; later epochs read from memory. Start the capture in the"
        " second epoch."
    ),
    "FileCacheImpl": (
        "It writes its file during the first epoch and reads it later. A faster disk or an"
        " in-memory cache helps."
    ),
    "Snapshot": "It writes its input and reads it back later. A faster disk or more shards help.",
    "Scan": (
        "Each element depends on the previous one, so it cannot run in parallel. Move stateless"
        " work into a map."
    ),
    "GroupByWindow": (
        "It groups elements by key on a single thread. Compute the key in a parallel map before it."
    ),
    "GroupByReducer": (
        "It groups elements by key on a single thread. Compute the key in a parallel map before it."
    ),
    "BucketBySequenceLength": (
        "It groups elements by length on a single thread. Compute the length in a parallel map"
        " before it."
    ),
    "Window": (
        "It creates a dataset for each window. batch(n, drop_remainder=True) on the elements is"
        " cheaper."
    ),
    "Rebatch": (
        "It splits and re-joins batches. Use the batch size that each replica needs in the first"
        " place."
    ),
    "Zip": "It waits for its slowest input: look at the iterators below it.",
    "Concatenate": "It passes on its inputs' elements: look at the iterators below it.",
    "Repeat": (
        "It recreates its input for each epoch. Cache the expensive part, or prefetch after it."
    ),
    "ForeverRepeat": (
        "It recreates its input for each epoch. Cache the expensive part, or prefetch after it."
    ),
    "FiniteRepeat": (
        "It recreates its input for each epoch. Cache the expensive part, or prefetch after it."
    ),
    "FiniteSkip": (
        "It produces elements only to drop them. Skip files instead, or start reading at the right"
        " position."
    ),
    "Skip": (
        "It produces elements only to drop them. Skip files instead, or start reading at the right"
        " position."
    ),
    "Shard": (
        "It produces elements only to drop those of other workers. Shard the list of files instead."
    ),
    "DirectedInterleave": (
        "It takes from one input at a time. A prefetch on each input lets them run in parallel."
    ),
    "ParseExample": "It parses protos. Parse whole batches, and only the features you use.",
    "Model": "The time is overhead of the tf.data runtime: produce fewer, larger elements.",
    "Root": "The time is overhead of the tf.data runtime: produce fewer, larger elements.",
    "MaxIntraOpParallelism": (
        "It limits the threads of ops in map functions: raise threading.max_intra_op_parallelism."
    ),
    "PrivateThreadPool": (
        "All functions share its threads: raise options.threading.private_threadpool_size, or leave"
        " it unset."
    ),
}
_FIXES = {
    "Filter": (
        "-ds = ds.map(fn).filter(test)\n"
        "+ds = ds.filter(test).map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
    ),
    "Batch": "-ds = ds.batch(n)\n+ds = ds.batch(n, num_parallel_calls=tf.data.AUTOTUNE)",
    "PaddedBatch": (
        "-ds = ds.padded_batch(n)\n"
        "+ds = ds.bucket_by_sequence_length(length, boundaries, batch_sizes)"
    ),
    "FlatMap": (
        "-ds = files.flat_map(read)\n"
        "+ds = files.interleave(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)"
    ),
    "Unbatch": (
        "-ds = ds.map(fn).unbatch()\n"
        "+ds = ds.map(fn_of_a_batch, num_parallel_calls=tf.data.AUTOTUNE)"
    ),
    "Shuffle": (
        "-ds = ds.map(decode).shuffle(n)\n"
        "+ds = ds.shuffle(n).map(decode, num_parallel_calls=tf.data.AUTOTUNE)"
    ),
    "ParseExample": (
        "-ds = ds.map(parse_one).batch(n)\n"
        "+ds = ds.batch(n).map(parse_batch, num_parallel_calls=tf.data.AUTOTUNE)"
    ),
    "Shard": (
        "-ds = files.interleave(read).shard(workers, index)\n"
        "+ds = files.shard(workers, index).interleave(read)"
    ),
    "Window": (
        "-ds = ds.window(n).flat_map(lambda w: w.batch(n))\n+ds = ds.batch(n, drop_remainder=True)"
    ),
}
_OPTIONS = (
    " options = tf.data.Options()\n"
    "+import os\n"
    "+options.threading.{} = os.cpu_count()\n"
    " ds = ds.with_options(options)"
)
_FIXES["MaxIntraOpParallelism"] = _OPTIONS.format("max_intra_op_parallelism")
_FIXES["PrivateThreadPool"] = _OPTIONS.format("private_threadpool_size")
_PARALLEL_FIX = {
    "Map": "-ds = ds.map(fn)\n+ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)",
    "Interleave": (
        "-ds = files.interleave(read)\n"
        "+ds = files.interleave(read, num_parallel_calls=tf.data.AUTOTUNE)"
    ),
}


_READING = (
    "Reading is slow. Keep the files close to the machine, split them into shards, and read several"
    " at a time."
)


def _interleaved(reader: str) -> str:
    return (
        f"-ds = {reader}(paths)\n"
        "+ds = tf.data.Dataset.from_tensor_slices(paths).interleave(\n"
        f"+    {reader}, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)"
    )


_SLICING = (
    "It slices single elements from tensors in memory. Slice whole batches, or keep the data in"
    " sharded files."
)


_SLICED_BATCHES = (
    "-ds = tf.data.Dataset.from_tensor_slices((x, y)).map(fn).batch(n)\n"
    "+ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(n).map(fn_of_a_batch,"
    " num_parallel_calls=tf.data.AUTOTUNE)"
)


_FETCHING = (
    "It fetches from another machine. Check the network and the server; fetch larger chunks, ahead"
    " of time."
)


_WITH_CODE = {
    "Generator": (
        (
            "A Python generator produces one element at a time while holding the GIL. Read files"
            " with tf.data, or yield only indices and load the data in a parallel map."
        ),
        (
            "-ds = tf.data.Dataset.from_generator(load_all, output_signature=spec)\n"
            "+ds = tf.data.Dataset.range(count)\n"
            "+ds = ds.map(lambda i: tf.numpy_function(load_one, [i], tf.float32),\n"
            "+            num_parallel_calls=tf.data.AUTOTUNE)"
        ),
    ),
    "DataService": (
        "The tf.data service workers cannot keep up: add workers, or give each less to do.",
        (
            "+service = tf.data.experimental.service  # on each additional machine\n"
            "+worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))\n"
            "+worker.join()"
        ),
    ),
}


_NO_SPECIFIC_ADVICE = (
    "nbprof has no specific advice for this iterator. A cache before it, a parallel map instead of"
    " it, or a prefetch after it may help."
)


# The pipeline that Keras builds from arrays (`fit(x, y)`), and the change for the user.
OF_ARRAYS = r"::ParallelMapV2::Zip\[0\]::FlatMap"
FROM_ARRAYS = "Keras assembles each batch from the arrays that it was given."
FIT = (
    "+ds = tf.data.Dataset.from_tensor_slices((x, y))\n"
    "+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)\n"
    "-model.fit(x, y)\n"
    "+model.fit(ds)"
)


def base(long_name: str) -> str:
    """The kind of an iterator: the last part of its name, without version and input index."""
    kind = long_name.rpartition("::")[2].partition("[")[0]
    return re.sub(r"V\d+\Z", "", kind)


def threads(params: Mapping[str, object], kind: str) -> int | None:
    """The number of threads an iterator runs on, if known."""
    for key in ("parallelism", "num_parallel_calls"):
        value = params.get(key)
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        if isinstance(value, int) and value > 0:
            return value
    return 1 if kind in _PARALLEL else None


def note(params: Mapping[str, object], long_name: str) -> str:
    """The line below a node's name: threads, batch, buffer, cycle."""
    texts = []
    count = threads(params, base(long_name))
    if count is not None:
        texts.append(wording.plural(count, "thread"))
    labels = {"batch_size": "batch", "buffer_size": "buffer", "cycle_length": "cycle"}
    for key, label in labels.items():
        if key in params and str(params[key]) != str(AUTOTUNE):
            texts.append(f"{label} {params[key]}")
    return ", ".join(texts)


AHEAD = (
    "Prefetch",
    "MapAndBatch",
    "ParallelMap",
    "ParallelBatch",
    "ParallelInterleave",
    "DataService",
)
"""Iterators that make elements before these are needed."""


def works_ahead(long_names: Iterable[str]) -> bool:
    """True if a pipeline of these iterators goes on while the step does something else."""
    return any(kind.startswith(AHEAD) for name in long_names for kind in name.split("::"))


def over_generator(long_name: str, names: Iterable[str]) -> bool:
    """True if an iterator is the FlatMap that `Dataset.from_generator` builds around its generator;
    `names` are those of its pipeline.
    """
    return base(long_name) == "FlatMap" and f"{long_name}[0]::Generator" in set(names)


def advice(
    long_name: str,
    max_us: float,
    params: Mapping[str, object] | None = None,
    of_arrays: bool = False,
    of_generator: bool = False,
) -> tuple[str, str]:
    """Advice for a pipeline with this bottleneck, and its code ('' if there is none).

    Parameters
    ----------
    long_name : str
        Of the bottleneck, from its root down.
    max_us : float
        The longest call of the pipeline; a pipeline without a slow call needs no change.
    params : mapping, optional
        The iterator's recorded parameters: parallelism, deterministic, buffer_size, cycle_length,
        batch_size …
    of_arrays : bool, optional
        Whether Keras built the pipeline from arrays (`OF_ARRAYS`): then the user cannot change its
        iterators.
    of_generator : bool, optional
        Whether the bottleneck stands for a generator (`over_generator`): then advice for the
        generator helps.
    """
    start = f"The slowest call took **{wording.micros(max_us)}**"
    if max_us <= SLOW_CALL_US:
        return f"{start}; calls up to {SLOW_CALL_US:.0f} µs are not a bottleneck.", ""
    if long_name.startswith(OF_DEVICE):
        text, fix = ON_DEVICE, ""
    elif of_arrays:
        text, fix = f"{FROM_ARRAYS} Give it a tf.data dataset instead.", FIT
    else:
        text, fix = _by_kind("Generator" if of_generator else base(long_name), params or {})
    kind = long_name.rpartition("::")[2].partition("[")[0]
    return f"{start}, most of it in **{kind}**. {text}", fix


def _by_kind(kind: str, params: Mapping[str, object]) -> tuple[str, str]:
    """Advice for an iterator, and its code."""
    count = threads(params, kind)
    if kind in _PARALLEL or (kind in ASYNC and count == 1 and kind != "Prefetch"):
        fix = _PARALLEL_FIX.get(kind, _PARALLEL_FIX["Map"])
        return "It runs on a single thread: run it in parallel.", fix
    if kind in SOURCES:
        return _READING, _interleaved(_FILES.get(kind, "tf.data.TFRecordDataset"))
    if kind in _IN_MEMORY:
        return _SLICING, _SLICED_BATCHES
    if kind in _REMOTE:
        return _FETCHING, "-ds = remote\n+ds = remote.prefetch(tf.data.AUTOTUNE)"
    if kind == "Prefetch":
        return _prefetch(params)
    if kind in ASYNC and kind not in _WITH_CODE:
        return _asynchronous(kind, params, count)
    if kind in _WITH_CODE:
        return _WITH_CODE[kind]
    if kind in _PLAIN:
        return _PLAIN[kind], _FIXES.get(kind, "")
    return _NO_SPECIFIC_ADVICE, "+ds = ds.prefetch(tf.data.AUTOTUNE)"


def _prefetch(params: Mapping[str, object]) -> tuple[str, str]:
    text = (
        "Its buffer was empty: its input produces elements more slowly than the steps consume them,"
        " so speed up the input."
    )
    size = params.get("buffer_size")
    if isinstance(size, int) and size > 0:
        return (
            f"{text} If it is slow only at times, a buffer larger than {size} evens it out.",
            f"-ds = ds.prefetch({size})\n+ds = ds.prefetch(tf.data.AUTOTUNE)",
        )
    return text, ""


def _asynchronous(kind: str, params: Mapping[str, object], count: int | None) -> tuple[str, str]:
    """Advice for an iterator that runs on threads already, and its code."""
    threads = f"on {count} threads" if count else "in parallel"
    text = (
        f"It runs {threads} already: raise the parallelism while cores are free, and make its"
        " function cheaper."
    )
    call = _CALLS.get(kind, "ds.map(fn")
    autotuned = f"{call}, num_parallel_calls=tf.data.AUTOTUNE"
    fix = ""
    if count and not _is_true(params, "autotune"):
        fix = f"-ds = {call}, num_parallel_calls={count})\n+ds = {autotuned})"
    if _is_true(params, "deterministic"):
        text += (
            " It preserves element order, so one slow element holds up all that follow:"
            " deterministic=False avoids this."
        )
        fix = fix or f" ds = {autotuned},\n+    deterministic=False)"
    if kind == "ParseExample":
        text += f" {_PLAIN[kind]}"
    if "Interleave" in kind and isinstance(params.get("cycle_length"), int):
        text += f" It reads {params['cycle_length']} files at a time (cycle_length)."
    return text, fix


_CALLS = {
    "ParallelInterleave": "files.interleave(read",
    "LegacyParallelInterleave": "files.interleave(read",
    "ParallelBatch": "ds.batch(n",
}


def _is_true(params: Mapping[str, object], name: str) -> bool:
    return str(params.get(name, "")).lower() in ("1", "true")


class Cause(NamedTuple):
    """The cause of waits for input: one answer for the advice, the tab, the frames and the text.

    Attributes
    ----------
    kind : str
        HARDLY: steps do not wait, so a change to the input gains little. ELSEWHERE: they wait for
        something other than the recorded pipeline. PIPELINE: they wait for its work. UNKNOWN: the
        wait or the pipeline was not recorded.
    text : str
        The cause in a sentence; '' for PIPELINE and UNKNOWN.
    """

    kind: str = UNKNOWN
    text: str = ""

    @property
    def excuses(self) -> bool:
        """True if nothing in the pipeline needs a change."""
        return self.kind in (HARDLY, ELSEWHERE)


NO_CAUSE = Cause()


class Waits(NamedTuple):
    """Waits of a mean step, in ms.

    Attributes
    ----------
    step, input : float
        Step time, and the part of it that waits for input; NaN if unknown.
    work : float or None
        Work in the calls of the main tf.data pipeline; None if it was not recorded.
    returned : float or None
        Time until the pipeline returned an element, without its start; None if unknown.
    hidden : bool
        Whether time without any recorded event may be input as well.
    """

    step: float
    input: float
    work: float | None = None
    returned: float | None = None
    hidden: bool = False


def cause(waits: Waits, device: bool, unit: Unit = MARKED) -> Cause:
    """The cause of waits for input; `device` tells whether batches are copied to a device."""
    if not waits.step > 0 or math.isnan(waits.input):
        return NO_CAUSE
    little = INPUT_MODERATE * waits.step / 100
    if waits.input < little:
        return _little_input(waits, little, unit)
    if waits.work is None:
        return NO_CAUSE
    start = f"{unit.the.capitalize()} waits {wording.millis(waits.input)} for input, but"
    if waits.work < PIPELINE_PART * waits.input:
        rest = "not their work."
        if device:
            rest = "copying batches to the device. Copy less, ahead of time."
        calls = f"the calls of tf.data take only {wording.millis(waits.work)}"
        return Cause(ELSEWHERE, f"{start} {calls}: the rest is {rest}")
    if waits.returned is not None and waits.returned < little:
        text = (
            f"{start} tf.data returns its element within {wording.millis(waits.returned)}: the rest"
            " is not its work."
        )
        return Cause(ELSEWHERE, text)
    return Cause(PIPELINE)


def _little_input(waits: Waits, little: float, unit: Unit) -> Cause:
    """The cause if steps wait less for input than is worth a change."""
    if not waits.hidden:
        share = wording.percent(100 * waits.input / waits.step)
        text = f"Only {share} of {unit.time} is spent waiting for input: little can be gained here."
        return Cause(HARDLY, text)
    if waits.work is None or waits.work >= little:
        return NO_CAUSE
    text = (
        f"The calls of tf.data take only {wording.millis(waits.work)} of"
        f" {wording.millis(waits.step)} {unit.per}: little can be gained here."
    )
    return Cause(HARDLY, text)


def summary(
    pipelines: pd.DataFrame,
    missing: str = "",
    input_percent: float | None = None,
    unit: Unit = MARKED,
    why: Cause = NO_CAUSE,
) -> dict[str, Any]:
    """The mapping `p.tf_data.summary`: whether the slowest host pipeline is the bottleneck, and the
    next step.

    Parameters
    ----------
    pipelines : DataFrame
        `p.tf_data.pipelines`.
    missing : str
        The reason for which no pipeline was recorded.
    input_percent : float, optional
        Share of the time of units that is spent waiting for input: one long call does not mean that
        the program waits.
    unit : Unit
    why : Cause
        The answer of `cause`.
    """
    columns = ("host", "pipeline", "max_us", "bottleneck", "bottleneck_us")
    result: dict[str, Any] = {"input_bound": None, **dict.fromkeys(columns)}
    on_host = pipelines[pipelines["pipeline"].astype(str).str.startswith("Host")]
    if not len(on_host):
        result["statement"] = missing or "This profile has no calls of tf.data iterators."
        if len(pipelines):
            result["statement"] = (
                "Only device pipelines were recorded. They pass on the elements of a host pipeline,"
                " which is not in this profile."
            )
        return {**result, "next_step": ""}
    slowest = on_host.iloc[0]
    result |= {key: slowest[key] for key in ("host", "pipeline", "bottleneck")}
    result |= {key: float(slowest[key]) for key in ("max_us", "bottleneck_us")}
    result["input_bound"] = result["max_us"] > SLOW_CALL_US
    statement, next_step = _of_slowest(slowest, input_percent, unit, why)
    return {**result, "statement": statement, "next_step": next_step}


def _of_slowest(
    slowest: pd.Series, input_percent: float | None, unit: Unit, why: Cause
) -> tuple[str, str]:
    """A statement on the slowest pipeline, and the next step."""
    elsewhere = "Look elsewhere: see the step breakdown."
    name = f"{slowest['pipeline']} of {slowest['host']}"
    took = f"took {wording.micros(slowest['max_us'])}"
    slow = f"slowest call of pipeline {name} {took}"
    if float(slowest["max_us"]) <= SLOW_CALL_US:
        text = (
            f"The input keeps up: no call of a host pipeline took more than {SLOW_CALL_US:.0f} µs;"
            f" the slowest, of {name}, {took}."
        )
        return text, elsewhere
    if input_percent is not None and input_percent < INPUT_MODERATE:
        count, calls = int(slowest["slow_calls"]), int(slowest["calls"])
        waits = (
            "the program hardly waits" if unit.is_recording else f"the {unit.plural} hardly wait"
        )
        text = (
            f"Single calls are slow, but {waits}: the {slow}, {count:,} of its {calls:,} calls over"
            f" {SLOW_CALL_US:.0f} µs, yet only {input_percent:.1f}% of {unit.time} is spent"
            " waiting for input."
        )
        return text, elsewhere
    if why.kind == ELSEWHERE:
        return f"The {slow}, but that is not what {unit.the} waits for.", why.text
    text = f"The {slow}; calls up to {SLOW_CALL_US:.0f} µs are not a bottleneck."
    advice_text = slowest["advice"].replace("**", "")
    return text, f"Start with {slowest['bottleneck']}: {advice_text}"

"""What helps a tf.data pipeline, by the kind and the parameters of its bottleneck iterator.

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
    *(
        "TFRecord",
        "SSTable",
        "RecordIO",
        "ArrayRecord",
        "Spanner",
        "TFColumn",
        "SleepwalkRemoteDataset",
        "TextLine",
    ),
    *(
        "StitchedTimelineDataset",
        "DateKeyDataset",
        "CapacitorProto",
        "LMDB",
        "ExternalDataset",
        "PearModel",
        "FixedLengthRecord",
        "CSV",
    ),
    *("SyntheticDatasetOp", "Sql"),
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


# The pipeline that Keras builds from arrays (`fit(x, y)`), and what the user can do about it.
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
    if (count := threads(params, base(long_name))) is not None:
        texts.append("1 thread" if count == 1 else f"{count} threads")
    for key, word in (
        ("batch_size", "batch"),
        ("buffer_size", "buffer"),
        ("cycle_length", "cycle"),
    ):
        if key in params and str(params[key]) != str(AUTOTUNE):
            texts.append(f"{word} {params[key]}")
    return ", ".join(texts)


AHEAD = (
    "Prefetch",
    "MapAndBatch",
    "ParallelMap",
    "ParallelBatch",
    "ParallelInterleave",
    "DataService",
)
"""Iterators that make elements before they are asked for."""


def works_ahead(long_names: Iterable[str]) -> bool:
    """Whether a pipeline of these iterators goes on while the step does something else."""
    return any(part.startswith(AHEAD) for name in long_names for part in name.split("::"))


def over_generator(long_name: str, names: Iterable[str]) -> bool:
    """Whether an iterator is the FlatMap that `Dataset.from_generator` builds around its generator;
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
    """What helps a pipeline with this bottleneck, and the code for it ('' if there is none).

    Parameters
    ----------
    long_name : str
        Of the bottleneck, from its root down.
    max_us : float
        The longest call of the pipeline; a pipeline without a slow call needs nothing.
    params : mapping, optional
        The iterator's stated parameters: parallelism, deterministic, buffer_size, cycle_length,
        batch_size …
    of_arrays : bool, optional
        Whether Keras built the pipeline from arrays (`OF_ARRAYS`): then the user cannot change its
        iterators.
    of_generator : bool, optional
        Whether the bottleneck stands for a generator (`over_generator`): then what helps is what
        helps the generator.
    """
    head = f"The slowest call took **{wording.micros(max_us)}**"
    if max_us <= SLOW_CALL_US:
        return f"{head}; calls up to {SLOW_CALL_US:.0f} µs are not a bottleneck.", ""
    params = params or {}
    kind = long_name.rpartition("::")[2].partition("[")[0]
    known = "Generator" if of_generator else base(long_name)
    if long_name.startswith(OF_DEVICE):
        text, fix = ON_DEVICE, ""
    else:
        text, fix = (
            (f"{FROM_ARRAYS} Give it a tf.data dataset instead.", FIT)
            if of_arrays
            else _by_kind(known, params)
        )
    return f"{head}, most of it in **{kind}**. {text}", fix


def _by_kind(kind: str, params: Mapping[str, object]) -> tuple[str, str]:
    count = threads(params, kind)
    if kind in _PARALLEL or (kind in ASYNC and count == 1 and kind != "Prefetch"):
        return "It runs on a single thread: run it in parallel.", _PARALLEL_FIX.get(
            kind, _PARALLEL_FIX["Map"]
        )
    if kind in SOURCES:
        reader = _FILES.get(kind, "tf.data.TFRecordDataset")
        return (
            (
                "Reading is slow. Keep the files close to the machine, split them into shards, and"
                " read several at a time."
            ),
            (
                f"-ds = {reader}(paths)\n"
                "+ds = tf.data.Dataset.from_tensor_slices(paths).interleave(\n"
                f"+    {reader}, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)"
            ),
        )
    if kind == "Generator":
        return (
            (
                "A Python generator produces one element at a time while holding the GIL. Read"
                " files with tf.data, or yield only indices and load the data in a parallel map."
            ),
            (
                "-ds = tf.data.Dataset.from_generator(load_all, output_signature=spec)\n"
                "+ds = tf.data.Dataset.range(count)\n"
                "+ds = ds.map(lambda i: tf.numpy_function(load_one, [i], tf.float32),\n"
                "+            num_parallel_calls=tf.data.AUTOTUNE)"
            ),
        )
    if kind in _IN_MEMORY:
        return (
            (
                "It slices single elements from tensors in memory. Slice whole batches, or keep the"
                " data in sharded files."
            ),
            (
                "-ds = tf.data.Dataset.from_tensor_slices((x, y)).map(fn).batch(n)\n"
                "+ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(n).map(fn_of_a_batch,"
                " num_parallel_calls=tf.data.AUTOTUNE)"
            ),
        )
    if kind == "DataService":
        return (
            "The tf.data service workers cannot keep up: add workers, or give each less to do.",
            (
                "+service = tf.data.experimental.service  # on each additional machine\n"
                "+worker ="
                " service.WorkerServer(service.WorkerConfig(dispatcher_address=address))\n"
                "+worker.join()"
            ),
        )
    if kind in _REMOTE:
        return (
            (
                "It fetches from another machine. Check the network and the server; fetch larger"
                " chunks, ahead of time."
            ),
            "-ds = remote\n+ds = remote.prefetch(tf.data.AUTOTUNE)",
        )
    if kind == "Prefetch":
        return _prefetch(params)
    if kind in ASYNC:
        return _asynchronous(kind, params, count)
    if kind in _PLAIN:
        return _PLAIN[kind], _FIXES.get(kind, "")
    return (
        (
            "nbprof has no specific advice for this iterator. A cache before it, a parallel map"
            " instead of it, or a prefetch after it may help."
        ),
        "+ds = ds.prefetch(tf.data.AUTOTUNE)",
    )


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
    on = f"It runs on {count} threads already" if count else "It runs in parallel already"
    text = f"{on}: raise the parallelism while cores are free, and make its function cheaper."
    fix = ""
    call = {
        "ParallelInterleave": "files.interleave(read",
        "LegacyParallelInterleave": "files.interleave(read",
        "ParallelBatch": "ds.batch(n",
    }.get(kind, "ds.map(fn")
    if count and str(params.get("autotune", "")).lower() not in ("1", "true"):
        fix = (
            f"-ds = {call}, num_parallel_calls={count})\n"
            f"+ds = {call}, num_parallel_calls=tf.data.AUTOTUNE)"
        )
    if str(params.get("deterministic", "")).lower() in ("1", "true"):
        text += (
            " It preserves element order, so one slow element holds up all that follow:"
            " deterministic=False avoids this."
        )
        fix = (
            fix or f" ds = {call}, num_parallel_calls=tf.data.AUTOTUNE,\n+    deterministic=False)"
        )
    if kind == "ParseExample":
        text += f" {_PLAIN[kind]}"
    if "Interleave" in kind and isinstance(params.get("cycle_length"), int):
        text += f" It reads {params['cycle_length']} files at a time (cycle_length)."
    return text, fix


class Cause(NamedTuple):
    """Why steps wait for input: the one answer that the advice, the tab, the frames and the text
    give.

    Attributes
    ----------
    kind : str
        HARDLY: they do not, so that nothing about the input is worth a change. ELSEWHERE: they
        wait, but for something other than the recorded pipeline. PIPELINE: for its work. UNKNOWN:
        how long they wait, or what the pipeline does, was not recorded.
    text : str
        That in a sentence; '' for PIPELINE and UNKNOWN.
    """

    kind: str = UNKNOWN
    text: str = ""

    @property
    def excuses(self) -> bool:
        """Whether nothing in the pipeline needs a change."""
        return self.kind in (HARDLY, ELSEWHERE)


NO_CAUSE = Cause()


class Waits(NamedTuple):
    """What a mean step waits for, in ms.

    Attributes
    ----------
    step, input : float
        Step time, and the part of it that waits for input; NaN if unknown.
    work : float or None
        Work in the calls of the main tf.data pipeline; None if it was not recorded.
    returned : float or None
        How long the pipeline took to return an element, without its start; None if unknown.
    hidden : bool
        Whether time without any recorded event may be input, too.
    """

    step: float
    input: float
    work: float | None = None
    returned: float | None = None
    hidden: bool = False


def cause(waits: Waits, device: bool, unit: Unit = MARKED) -> Cause:
    """Why steps wait for input; `device` says whether batches are copied to a device."""
    if not waits.step > 0 or math.isnan(waits.input):
        return NO_CAUSE
    little = INPUT_MODERATE * waits.step / 100
    calls = (
        None
        if waits.work is None
        else f"the calls of tf.data take only {wording.millis(waits.work)}"
    )
    if waits.input < little:
        if not waits.hidden:
            share = wording.percent(100 * waits.input / waits.step)
            return Cause(
                HARDLY,
                f"Only {share} of {unit.time} is spent waiting for input: little can be gained"
                " here.",
            )
        if calls is None or waits.work is None or waits.work >= little:
            return NO_CAUSE
        return Cause(
            HARDLY,
            f"{calls[0].upper()}{calls[1:]} of {wording.millis(waits.step)} {unit.per}: little can"
            " be gained here.",
        )
    if waits.work is None:
        return NO_CAUSE
    start = f"{unit.the.capitalize()} waits {wording.millis(waits.input)} for input, but "
    if waits.work < PIPELINE_PART * waits.input:
        rest = (
            "copying batches to the device. Copy less, ahead of time."
            if device
            else "not their work."
        )
        return Cause(ELSEWHERE, f"{start}{calls}: the rest is {rest}")
    if waits.returned is not None and waits.returned < little:
        return Cause(
            ELSEWHERE,
            f"{start}tf.data returns its element within {wording.millis(waits.returned)}: the rest"
            " is not its work.",
        )
    return Cause(PIPELINE)


def summary(
    pipelines: pd.DataFrame,
    missing: str = "",
    input_percent: float | None = None,
    unit: Unit = MARKED,
    why: Cause = NO_CAUSE,
) -> dict[str, Any]:
    """The mapping `p.tf_data.summary`: whether the slowest host pipeline is the bottleneck, and
    what to do next.

    `missing` says why no pipeline was recorded, `input_percent` is the share of step time, or of
    that of another `unit`, spent waiting for input: one long call does not mean that the program
    waits. `why` is the answer of `cause`.
    """
    on_host = pipelines[pipelines["pipeline"].astype(str).str.startswith("Host")]
    result: dict[str, Any] = {
        "input_bound": None,
        "host": None,
        "pipeline": None,
        "max_us": None,
        "bottleneck": None,
        "bottleneck_us": None,
    }
    if not len(on_host):
        text = missing or "This profile has no calls of tf.data iterators."
        if len(pipelines):
            text = (
                "Only device pipelines were recorded. They pass on the elements of a host pipeline,"
                " which is not in this profile."
            )
        return {**result, "statement": text, "next_step": ""}
    slowest = on_host.iloc[0]
    bound = float(slowest["max_us"]) > SLOW_CALL_US
    name = f"{slowest['pipeline']} of {slowest['host']}"
    result |= {key: slowest[key] for key in ("host", "pipeline", "bottleneck")}
    result |= {key: float(slowest[key]) for key in ("max_us", "bottleneck_us")}
    result["input_bound"] = bound
    if bound:
        took = f"the slowest call of pipeline {name} took {wording.micros(slowest['max_us'])}"
        usual = f"calls up to {SLOW_CALL_US:.0f} µs are not a bottleneck"
        result["statement"] = f"{took[0].upper()}{took[1:]}; {usual}."
        result["next_step"] = (
            f"Start with {slowest['bottleneck']}: {slowest['advice'].replace('**', '')}"
        )
        if input_percent is not None and input_percent < INPUT_MODERATE:
            slow, calls = int(slowest["slow_calls"]), int(slowest["calls"])
            waits = "the program hardly waits" if unit.whole else f"the {unit.plural} hardly wait"
            result["statement"] = (
                f"Single calls are slow, but {waits}: {took}, {slow:,} of its {calls:,} calls over"
                f" {SLOW_CALL_US:.0f} µs, yet only {input_percent:.1f}% of {unit.time} is spent"
                " waiting for input."
            )
            result["next_step"] = "Look elsewhere: see the step breakdown."
        elif why.kind == ELSEWHERE:
            result["statement"] = (
                f"{took[0].upper()}{took[1:]}, but that is not what {unit.the} waits for."
            )
            result["next_step"] = why.text
    else:
        result["statement"] = (
            f"The input keeps up: no call of a host pipeline took more than {SLOW_CALL_US:.0f} µs; "
            f"the slowest, of {name}, took {wording.micros(slowest['max_us'])}."
        )
        result["next_step"] = "Look elsewhere: see the step breakdown."
    return result

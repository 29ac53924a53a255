"""What helps a tf.data pipeline, by the kind of the iterator that is its bottleneck and by what that states about itself.

The kinds are those of TensorFlow Profiler's tf.data bottleneck analysis and of TensorFlow's guide on the performance of tf.data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from nbprof.analysis.advice.checks import INPUT_MODERATE

SLOW_CALL_US = 50.0
"""A call that takes longer is slow: the threshold of TensorFlow Profiler."""

OF_DEVICE = "Iterator::Prefetch::Generator"
"""What a device pipeline is made of: TensorFlow's own generator, which fetches what the host pipeline makes."""
ON_DEVICE = "It fetches and copies what the host pipeline makes: look at that one, and at the copies to the device."

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
"""Iterators that make elements ahead, on threads of their own."""
_PARALLEL = ("Map", "Interleave")
_FILES = {
    "TFRecord": "tf.data.TFRecordDataset",
    "TextLine": "tf.data.TextLineDataset",
    "FixedLengthRecord": "tf.data.FixedLengthRecordDataset",
}
_SOURCES = (
    *("TFRecord", "SSTable", "RecordIO", "ArrayRecord", "Spanner", "TFColumn", "SleepwalkRemoteDataset", "TextLine"),
    *("StitchedTimelineDataset", "DateKeyDataset", "CapacitorProto", "LMDB", "ExternalDataset", "PearModel", "FixedLengthRecord", "CSV"),
    *("SyntheticDatasetOp", "Sql"),
)
_IN_MEMORY = ("FromTensor", "Tensor", "TensorSlice", "SparseTensorSlice")
_REMOTE = ("GuzzlerDataGuzzlerRemoteDataset", "ReverbDataset", "DatasetSampleGame", "Courier", "ReverbEpisodeDataset")
_PLAIN = {
    "Filter": "It tests one element after another on one thread. Filter earlier, on cheaper elements, or in the files.",
    "Batch": "It copies one element after another into the batch. Copy in parallel, or make fewer and larger elements.",
    "PaddedBatch": "It pads and copies one element after another. Bucket elements by length, so that less is padded.",
    "Unbatch": "It takes batches apart one element after another. Make the elements singly in the first place, or keep the batches.",
    "FlatMap": "It reads one inner dataset after another. interleave does the same with several at a time.",
    "Shuffle": "It fills its buffer before the first element. A smaller one fills faster; shuffle file names or indices, not decoded data.",
    "ShuffleAndRepeat": "It fills its buffer before the first element. A smaller one fills faster; shuffle file names, not decoded data.",
    "Cache": "It fills while the first epoch runs; later epochs read from it. Cache after what is expensive, before what is random.",
    "MemoryCacheImpl": "It fills while the first epoch runs; later epochs read from memory. Let the capture begin in the second epoch.",
    "FileCacheImpl": "It writes in the first epoch and reads from its file later. A faster disk, or a cache in memory, helps.",
    "Snapshot": "It writes what it is given and reads it back later. A faster disk, or more shards, helps.",
    "Scan": "Each element needs the one before it, so it cannot run in parallel. Move what needs no state into a map.",
    "GroupByWindow": "It collects elements by key on one thread. Compute the key in a parallel map before it.",
    "GroupByReducer": "It collects elements by key on one thread. Compute the key in a parallel map before it.",
    "BucketBySequenceLength": "It collects elements by length on one thread. Compute the length in a parallel map before it.",
    "Window": "It makes a dataset of each window. batch(n, drop_remainder=True) on the elements is cheaper.",
    "Rebatch": "It copies batches apart and together. Batch to the size that each replica needs in the first place.",
    "Zip": "It waits for the slowest of its inputs: look at those below it.",
    "Concatenate": "It hands on what its inputs make: look at those below it.",
    "Repeat": "It makes its input anew for each epoch. Cache what that costs, or prefetch behind it.",
    "ForeverRepeat": "It makes its input anew for each epoch. Cache what that costs, or prefetch behind it.",
    "FiniteRepeat": "It makes its input anew for each epoch. Cache what that costs, or prefetch behind it.",
    "FiniteSkip": "It makes elements only to drop them. Skip files, or read from the place where it begins.",
    "Skip": "It makes elements only to drop them. Skip files, or read from the place where it begins.",
    "Shard": "It makes elements only to drop those of other workers. Shard the list of files instead.",
    "DirectedInterleave": "It takes from one of its inputs at a time. A prefetch on each lets them run at once.",
    "ParseExample": "It parses protos. Parse whole batches at a time, and only the features that are used.",
    "Model": "The time is its own, in tf.data's runtime: hand on fewer and larger elements.",
    "Root": "The time is its own, in tf.data's runtime: hand on fewer and larger elements.",
    "MaxIntraOpParallelism": "Ops of the map functions have this many threads: raise threading.max_intra_op_parallelism.",
    "PrivateThreadPool": "All functions share its threads: raise options.threading.private_threadpool_size, or leave it unset.",
}
_FIXES = {
    "Filter": "-ds = ds.map(fn).filter(test)\n+ds = ds.filter(test).map(fn, num_parallel_calls=tf.data.AUTOTUNE)",
    "Batch": "-ds = ds.batch(n)\n+ds = ds.batch(n, num_parallel_calls=tf.data.AUTOTUNE)",
    "PaddedBatch": "-ds = ds.padded_batch(n)\n+ds = ds.bucket_by_sequence_length(length, boundaries, batch_sizes)",
    "FlatMap": "-ds = files.flat_map(read)\n+ds = files.interleave(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)",
    "Unbatch": "-ds = ds.map(fn).unbatch()\n+ds = ds.map(fn_of_a_batch, num_parallel_calls=tf.data.AUTOTUNE)",
    "Shuffle": "-ds = ds.map(decode).shuffle(100_000)\n+ds = ds.shuffle(10_000).map(decode, num_parallel_calls=tf.data.AUTOTUNE)",
    "ParseExample": "-ds = ds.map(parse_one).batch(n)\n+ds = ds.batch(n).map(parse_batch, num_parallel_calls=tf.data.AUTOTUNE)",
    "Shard": "-ds = files.interleave(read).shard(workers, index)\n+ds = files.shard(workers, index).interleave(read)",
    "Window": "-ds = ds.window(n).flat_map(lambda w: w.batch(n))\n+ds = ds.batch(n, drop_remainder=True)",
}
_OPTIONS = " options = tf.data.Options()\n+options.threading.{} = os.cpu_count()\n ds = ds.with_options(options)"
_FIXES["MaxIntraOpParallelism"] = _OPTIONS.format("max_intra_op_parallelism")
_FIXES["PrivateThreadPool"] = _OPTIONS.format("private_threadpool_size")
_PARALLEL_FIX = {
    "Map": "-ds = ds.map(fn)\n+ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)",
    "Interleave": "-ds = files.interleave(read)\n+ds = files.interleave(read, num_parallel_calls=tf.data.AUTOTUNE)",
}


# What Keras makes of arrays (`fit(x, y)`), and what the user can do about it.
OF_ARRAYS = r"::ParallelMapV2::Zip\[0\]::FlatMap"
FROM_ARRAYS = "model.fit puts each batch together from the arrays that it was given."
FIT = "+ds = tf.data.Dataset.from_tensor_slices((x, y))\n+ds = ds.batch(n).prefetch(tf.data.AUTOTUNE)\n-model.fit(x, y)\n+model.fit(ds)"


def base(long_name: str) -> str:
    """The kind of an iterator: the last part of its name without its version and its place among several inputs."""
    kind = long_name.rpartition("::")[2].partition("[")[0]
    return re.sub(r"V\d+\Z", "", kind)


def threads(params: Mapping[str, object], kind: str) -> int | None:
    """How many threads an iterator runs on, where that is known."""
    for key in ("parallelism", "num_parallel_calls"):
        value = params.get(key)
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        if isinstance(value, int) and value > 0:
            return value
    return 1 if kind in _PARALLEL else None


def note(params: Mapping[str, object], long_name: str) -> str:
    """What a node says of itself below its name: threads, batch, buffer, cycle."""
    texts = []
    if (count := threads(params, base(long_name))) is not None:
        texts.append("1 thread" if count == 1 else f"{count} threads")
    for key, word in (("batch_size", "batch"), ("buffer_size", "buffer"), ("cycle_length", "cycle")):
        if key in params and str(params[key]) != str(AUTOTUNE):
            texts.append(f"{word} {params[key]}")
    return ", ".join(texts)


def advice(long_name: str, max_us: float, params: Mapping[str, object] | None = None, of_arrays: bool = False) -> tuple[str, str]:
    """What helps a pipeline with this bottleneck, and the lines of code that do it ('' where there are none to give).

    Parameters
    ----------
    long_name : str
        Of the bottleneck, from its root down.
    max_us : float
        The longest call of the pipeline; a pipeline without a slow call needs nothing.
    params : mapping, optional
        What the iterator states: parallelism, deterministic, buffer_size, cycle_length, batch_size …
    of_arrays : bool, optional
        Whether Keras made the pipeline of arrays (`OF_ARRAYS`): then no iterator of it is the user's to change.
    """
    head = f"The slowest call took **{max_us:,.1f} µs**"
    if max_us <= SLOW_CALL_US:
        return f"{head}; calls up to {SLOW_CALL_US:.0f} µs are no bottleneck.", ""
    params = params or {}
    kind = long_name.rpartition("::")[2].partition("[")[0]
    if long_name.startswith(OF_DEVICE):
        text, fix = ON_DEVICE, ""
    else:
        text, fix = (f"{FROM_ARRAYS} Give it a tf.data dataset instead.", FIT) if of_arrays else _by_kind(base(long_name), params)
    return f"{head}, most of it in **{kind}**. {text}", fix


def _by_kind(kind: str, params: Mapping[str, object]) -> tuple[str, str]:
    count = threads(params, kind)
    if kind in _PARALLEL or (kind in ASYNC and count == 1 and kind != "Prefetch"):
        return "It runs on one thread: let it run on several.", _PARALLEL_FIX.get(kind, _PARALLEL_FIX["Map"])
    if kind in _SOURCES:
        reader = _FILES.get(kind, "tf.data.TFRecordDataset")
        return (
            "Reading is what is slow. Keep the files near the machine, split them into shards, and read several at a time.",
            (
                f"-ds = {reader}(paths)\n+ds = tf.data.Dataset.from_tensor_slices(paths).interleave(\n"
                f"+    {reader}, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)"
            ),
        )
    if kind == "Generator":
        return (
            (
                "A Python generator makes one element at a time under Python's lock. Read files with tf.data, or give out only indices "
                "and load in a parallel map."
            ),
            (
                "-ds = tf.data.Dataset.from_generator(load_all, output_signature=spec)\n+ds = tf.data.Dataset.range(count)\n"
                "+ds = ds.map(lambda i: tf.numpy_function(load_one, [i], tf.float32),\n+            num_parallel_calls=tf.data.AUTOTUNE)"
            ),
        )
    if kind in _IN_MEMORY:
        return (
            "It cuts single elements out of tensors in memory. Cut whole batches, or keep the data in sharded files.",
            (
                "-ds = tf.data.Dataset.from_tensor_slices((x, y)).map(fn).batch(n)\n"
                "+ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(n).map(fn_of_a_batch, num_parallel_calls=tf.data.AUTOTUNE)"
            ),
        )
    if kind == "DataService":
        return (
            "The workers of the tf.data service do not keep up: add workers, or let each do less.",
            (
                "+service = tf.data.experimental.service  # on each machine more\n"
                "+worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))\n+worker.join()"
            ),
        )
    if kind in _REMOTE:
        return (
            "It fetches from another machine. Look at the network and at the server; fetch larger parts, ahead of time.",
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
            "It is of a kind that nbprof knows nothing special about. A cache before it, a parallel map instead, or a prefetch behind it "
            "may help."
        ),
        "+ds = ds.prefetch(tf.data.AUTOTUNE)",
    )


def _prefetch(params: Mapping[str, object]) -> tuple[str, str]:
    text = "Its buffer was empty: what is below it makes elements more slowly than the steps take them, so make that faster."
    size = params.get("buffer_size")
    if isinstance(size, int) and size > 0:
        return f"{text} If it is only slow at times, a buffer larger than {size} evens it out.", (
            f"-ds = ds.prefetch({size})\n+ds = ds.prefetch(tf.data.AUTOTUNE)"
        )
    return text, ""


def _asynchronous(kind: str, params: Mapping[str, object], count: int | None) -> tuple[str, str]:
    on = f"It runs on {count} threads already" if count else "It runs in parallel already"
    text = f"{on}, and the steps still wait for it: raise that while cores are free, and make its function cheaper."
    fix = ""
    call = {
        "ParallelInterleave": "files.interleave(read",
        "LegacyParallelInterleave": "files.interleave(read",
        "ParallelBatch": "ds.batch(n",
    }.get(kind, "ds.map(fn")
    if count and str(params.get("autotune", "")).lower() not in ("1", "true"):
        fix = f"-ds = {call}, num_parallel_calls={count})\n+ds = {call}, num_parallel_calls=tf.data.AUTOTUNE)"
    if str(params.get("deterministic", "")).lower() in ("1", "true"):
        text += " It keeps the order of the elements, so that one slow element holds up all behind it: deterministic=False lifts that."
        fix = fix or f" ds = {call}, num_parallel_calls=tf.data.AUTOTUNE,\n+    deterministic=False)"
    if kind == "ParseExample":
        text += f" {_PLAIN[kind]}"
    if "Interleave" in kind and isinstance(params.get("cycle_length"), int):
        text += f" It reads {params['cycle_length']} files at a time (cycle_length)."
    return text, fix


def summary(pipelines: pd.DataFrame, missing: str = "", input_percent: float | None = None) -> dict[str, Any]:
    """The mapping `p.tf_data.summary`: whether the slowest host pipeline limits the program, and what to do next.

    `missing` says why no pipeline was recorded, `input_percent` how much of the steps waits for input: one call that takes long does not
    make a program wait.
    """
    on_host = pipelines[pipelines["pipeline"].astype(str).str.startswith("Host")]
    out: dict[str, Any] = {"input_bound": None, "host": None, "pipeline": None, "max_us": None, "bottleneck": None, "bottleneck_us": None}
    if not len(on_host):
        text = missing or "No calls of tf.data iterators are in this profile."
        if len(pipelines):
            text = "Only device pipelines were recorded. They hand on what a host pipeline makes, and that one is not in this profile."
        return {**out, "statement": text, "next_step": ""}
    slowest = on_host.iloc[0]
    bound = float(slowest["max_us"]) > SLOW_CALL_US
    where = f"{slowest['pipeline']} of {slowest['host']}"
    out |= {key: slowest[key] for key in ("host", "pipeline", "bottleneck")}
    out |= {key: float(slowest[key]) for key in ("max_us", "bottleneck_us")}
    out["input_bound"] = bound
    if bound:
        took = f"the slowest call of pipeline {where} took {slowest['max_us']:,.1f} µs"
        usual = f"a call that is no bottleneck takes at most {SLOW_CALL_US:.0f} µs"
        out["statement"] = f"The program waits for its input: {took}, and {usual}."
        out["next_step"] = f"Begin with {slowest['bottleneck']}: {slowest['advice'].replace('**', '')}"
        if input_percent is not None and input_percent < INPUT_MODERATE:
            slow, calls = int(slowest["slow_calls"]), int(slowest["calls"])
            out["statement"] = (
                f"Single calls are slow, the steps hardly wait: {took}, {slow:,} of its {calls:,} calls over {SLOW_CALL_US:.0f} µs, "
                f"but only {input_percent:.1f}% of step time waits for input."
            )
            out["next_step"] = "Look for the time elsewhere: in the step breakdown."
    else:
        out["statement"] = (
            f"The input keeps up: no call of a host pipeline took more than {SLOW_CALL_US:.0f} µs, "
            f"the slowest, of {where}, {slowest['max_us']:,.1f} µs."
        )
        out["next_step"] = "Look for the time elsewhere: in the step breakdown."
    return out

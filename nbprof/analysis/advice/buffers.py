"""Advice on buffers of tf.data that take much host memory."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from nbprof.analysis.advice import tf_data
from nbprof.analysis.advice.facts import Facts
from nbprof.analysis.rule import Found, Threshold
from nbprof.display import wording

_MIB = 2**20
_MAPPED = re.compile(r"::(Parallel)?Map(V\d+)?(::|\Z)")
_SHUFFLES = ("Shuffle", "ShuffleAndRepeat")
_MEMORY_CACHE = "MemoryCacheImpl"
_CALLS = {
    **dict.fromkeys(_SHUFFLES, "shuffle"),
    _MEMORY_CACHE: "cache",
    "Prefetch": "prefetch",
    "ParallelInterleave": "interleave",
    "LegacyParallelInterleave": "interleave",
    "ParallelMap": "map",
    "MapAndBatch": "map",
    "ParallelBatch": "batch",
}
"""What people write for an iterator."""
_SEVERAL = 3
_FEWEST = {"shuffle": 20, "cache": 1}
"""Elements from which on fewer can be held; of those not listed, `_SEVERAL`."""
_AUTO = "num_parallel_calls=tf.data.AUTOTUNE"
_FEWER = {
    "interleave": (
        f"-ds = files.interleave(read, {_AUTO})\n"
        "+ds = files.interleave(read, cycle_length=2, num_parallel_calls=2)"
    ),
    "map": f"-ds = ds.map(fn, {_AUTO})\n+ds = ds.map(fn, num_parallel_calls=2)",
    "batch": f"-ds = ds.batch(n, {_AUTO})\n+ds = ds.batch(n, num_parallel_calls=2)",
}
"""Code with fewer elements at a time, by what people write."""


def large_buffer(facts: Facts, limit: Threshold) -> Found | None:
    """The finding on the largest buffer, if it is proven to take much memory."""
    resident, nodes = facts.evidence.host_peak_bytes, facts.nodes
    if not resident or "buffered_bytes" not in nodes or nodes["buffered_bytes"].isna().all():
        return None
    largest = nodes.iloc[int(nodes["buffered_bytes"].fillna(0).to_numpy(np.int64).argmax())]
    held = int(largest["buffered_bytes"])
    # No buffer takes more than its process.
    if held < limit["least_mib"] * _MIB or not limit["share"] * resident <= held <= resident:
        return None
    kind = tf_data.base(str(largest["long_name"]))
    call = _CALLS.get(kind)
    if call is None:
        return None
    elements = int(largest["buffered_elements"])
    if elements < _FEWEST.get(call, _SEVERAL):
        return None
    text = (
        f"The buffer of **{call}** ({largest['iterator']} of {largest['pipeline']}) held"
        f" **{elements:,}** elements, **{wording.size(held)}** of the **{wording.size(resident)}**"
        f" that the process had in memory at most. {_remedy(kind, largest, nodes)}"
    )
    severity = "medium"
    if held >= limit["high"] * resident:
        severity = "high"
    return Found(
        text,
        severity=severity,
        fix=_fix(kind, elements, mapped=_is_mapped(largest, nodes)),
        title=f"Let {call} hold less in memory",
    )


def _is_mapped(node: pd.Series, nodes: pd.DataFrame) -> bool:
    """True if a map makes the elements that an iterator holds."""
    name = str(node["long_name"])
    below = nodes["long_name"][nodes["pipeline"] == node["pipeline"]]
    inputs = (path[len(name) :] for path in below if str(path).startswith(name))
    return any(map(_MAPPED.search, inputs))


def _remedy(kind: str, node: pd.Series, nodes: pd.DataFrame) -> str:
    if kind in _SHUFFLES and _is_mapped(node, nodes):
        return "Shuffle before the map: its elements are names or encoded data, not decoded ones."
    if kind in _SHUFFLES:
        return "A smaller buffer mixes less; shuffling file names or indices mixes as well."
    if kind == _MEMORY_CACHE and _is_mapped(node, nodes):
        return "Cache before the map that makes elements larger, or in a file."
    if kind == _MEMORY_CACHE:
        return "Cache in a file, or leave the cache out where reading is fast enough."
    if kind == "Prefetch":
        return "A few elements ahead are enough where the input keeps up on average."
    return "Fewer elements at a time take less memory."


def _fix(kind: str, elements: int, *, mapped: bool) -> str:
    fewer = max(elements // 10, 1)
    if kind in _SHUFFLES and mapped:
        return (
            f"-ds = ds.map(fn).shuffle({elements + 1})\n"
            f"+ds = ds.shuffle({elements + 1}).map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
        )
    if kind in _SHUFFLES:
        return f"-ds = ds.shuffle({elements + 1})\n+ds = ds.shuffle({fewer})"
    if kind == _MEMORY_CACHE and mapped:
        return (
            "-ds = ds.map(fn).cache()\n"
            "+ds = ds.cache().map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
        )
    if kind == _MEMORY_CACHE:
        return '-ds = ds.cache()\n+ds = ds.cache("cache")'
    if kind == "Prefetch":
        return f"-ds = ds.prefetch({elements})\n+ds = ds.prefetch({min(fewer, 2)})"
    return _FEWER[_CALLS[kind]]

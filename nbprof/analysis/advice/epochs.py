"""Elements that a tf.data pipeline produces anew in each epoch, and whether they fit in memory.

An epoch is either a turn of `Repeat`, whose number is in the names of the iterators below it, or an
iterator that is recreated.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple

import pandas as pd

from nbprof.analysis.advice.tf_data import SOURCES, base

_TURN = re.compile(r"(.*Repeat)\[\d+\](::[^\[]+)")
_FUNCTIONS = (
    "Map",
    "ParallelMap",
    "MapAndBatch",
    "Interleave",
    "ParallelInterleave",
    "LegacyParallelInterleave",
    "FlatMap",
    "Filter",
)
_WORTH = (*_FUNCTIONS, "ParseExample", *SOURCES)
# Iterators that cache elements, and that may produce others the next time.
_CACHED = re.compile("Cache|Snapshot")
_NEW = re.compile("Generator|DataService|Random|Remote|Reverb")
_VARIES = re.compile(r"Random|PyFunc(?!Stateless)|Multinomial|TruncatedNormal|Shuffle|Variable")
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)
_SHAPE = re.compile(r"\[(?:\d+(?:,\d+)*)?\]")
_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("half", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "int64", "uint64", "complex64"), 8),
}


class Anew(NamedTuple):
    """Elements that an iterator produces in each epoch: number of epochs, calls and bytes at most
    in each, and half of the free memory.

    The last call of an epoch may only report the end of the elements.
    """

    iterator: str
    epochs: int
    calls: int
    bytes: int
    budget: int


def anew(
    nodes: pd.DataFrame,
    slow: pd.Series,
    params: Mapping[int, Mapping[str, object]],
    functions: Collection[str],
    turns: float,
    iterators: float,
) -> Anew | None:
    """Elements that the bottleneck produces anew in each epoch; None if the profile does not show
    that, that they are the same, or their size.

    Parameters
    ----------
    nodes : DataFrame
        `p.tf_data.nodes`.
    slow : Series
        The row of the bottleneck.
    params : mapping
        Recorded parameters of iterators, by id.
    functions : collection of str
        Types of the ops that functions of the pipelines ran.
    turns, iterators : float
        Number of epochs that must have as many elements as others: the first and the last may be
        incomplete, and two iterators may be of two datasets.
    """
    name = str(slow["long_name"])
    if base(name) not in _WORTH:
        return None
    nodes = nodes[nodes["host"] == slow["host"]]
    pipeline = nodes[nodes["pipeline"] == slow["pipeline"]]
    turn = _TURN.match(name)
    if turn:
        producer, least = turn[0], turns
        of_turn = rf"{re.escape(turn[1])}\[\d+\]{re.escape(turn[2])}"
        epochs = pipeline[pipeline["long_name"].str.fullmatch(of_turn)]
    elif "Repeat" not in name:
        producer, least = name.partition("[")[0], iterators
        epochs = nodes[nodes["long_name"] == producer]
    else:
        return None
    alike = epochs["calls"].value_counts()
    if not len(alike) or alike.iloc[0] < least:
        return None
    inputs = (f"{producer}::", f"{producer}[")
    names = pipeline["long_name"]
    below = pipeline[(names == producer) | names.map(lambda each: each.startswith(inputs))]
    if not _repeats(pipeline, below, functions):
        return None
    size = _element_bytes(params, int(epochs["id"].iloc[0]), below)
    budget = _memory_budget(params, pipeline)
    calls = int(alike.index[0])
    if size is None or not 0 < size * calls <= budget:
        return None
    return Anew(
        iterator=producer.rpartition("::")[2],
        epochs=len(epochs),
        calls=calls,
        bytes=size * calls,
        budget=budget,
    )


def _repeats(pipeline: pd.DataFrame, below: pd.DataFrame, functions: Collection[str]) -> bool:
    """True if the iterators `below` produce the same elements in each epoch, and no cache keeps
    them.
    """
    kinds = set(below["long_name"].map(base))
    if any(map(_NEW.search, kinds)) or any(map(_CACHED.search, pipeline["long_name"])):
        return False
    if not kinds & set(_FUNCTIONS):
        return True
    return bool(functions) and not any(map(_VARIES.search, functions))


def _element_bytes(
    params: Mapping[int, Mapping[str, object]], producer: int, below: pd.DataFrame
) -> int | None:
    """Bytes of an element of an iterator, with full batches; None if they were not recorded."""
    batch = 0
    for ident in below["id"]:
        size = params.get(int(ident), {}).get("batch_size")
        if isinstance(size, int):
            batch = max(batch, size)
    recorded = params.get(producer, {})
    return _size(str(recorded.get("shapes", "")), str(recorded.get("types", "")), batch)


def _memory_budget(params: Mapping[int, Mapping[str, object]], pipeline: pd.DataFrame) -> int:
    """Half of the free memory in bytes, as the root of a pipeline recorded it; 0 if unknown."""
    megabytes = 0
    for ident in pipeline.loc[pipeline["parent"].isna(), "id"]:
        text = str(params.get(int(ident), {}).get("ram_budget_megabytes", 0))
        if _WHOLE.fullmatch(text):
            megabytes = max(megabytes, int(text))
    return megabytes * 10**6


def _size(shapes: str, types: str, batch: int) -> int | None:
    """Bytes of an element, of a batch those of a full one; None if a size was not recorded."""
    sizes = shapes.split()
    if batch:
        sizes = [shape.replace("[?", f"[{batch}", 1) for shape in sizes]
    kinds = types.split()
    if not sizes or len(sizes) != len(kinds) or not set(kinds) <= set(_BYTES):
        return None
    if not all(map(_SHAPE.fullmatch, sizes)):
        return None
    total = 0
    for shape, kind in zip(sizes, kinds, strict=True):
        total += prod(map(int, re.findall(r"\d+", shape))) * _BYTES[kind]
    return total

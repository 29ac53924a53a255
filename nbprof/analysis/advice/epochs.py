"""Whether a tf.data pipeline makes the same elements anew in each epoch, and whether these fit in
memory.

An epoch is either a turn of `Repeat`, whose number is in the names of the iterators below it, or an
iterator of its own.
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
# What is kept already, or need not be the same the next time.
_KEPT = re.compile("Cache|Snapshot")
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
    """What is made in each epoch: by which iterator, how often it was asked, bytes at most, and
    half of the memory that was free.

    The last call of an epoch may only say that there are no more elements.
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
    """What the bottleneck makes anew in each epoch; None if that, its sameness or its size is not
    in the profile.

    Parameters
    ----------
    nodes : DataFrame
        `p.tf_data.nodes`.
    slow : Series
        The row of the bottleneck.
    params : mapping
        What iterators state about themselves, by id.
    functions : collection of str
        Types of the ops that functions of the pipelines ran.
    turns, iterators : float
        How many epochs must have made equally many elements: the first and the last may be cut, and
        two iterators may be of two datasets.
    """
    name = str(slow["long_name"])
    if base(name) not in _WORTH:
        return None
    nodes = nodes[nodes["host"] == slow["host"]]
    pipeline_nodes = nodes[nodes["pipeline"] == slow["pipeline"]]
    if turn := _TURN.match(name):
        producer, least = turn[0], turns
        epochs = pipeline_nodes[
            pipeline_nodes["long_name"].str.fullmatch(
                rf"{re.escape(turn[1])}\[\d+\]{re.escape(turn[2])}"
            )
        ]
    elif "Repeat" not in name:
        producer, least = name.partition("[")[0], iterators
        epochs = nodes[nodes["long_name"] == producer]
    else:
        return None
    alike = epochs["calls"].value_counts()
    below = pipeline_nodes[
        pipeline_nodes["long_name"].map(
            lambda each: each == producer or each.startswith((f"{producer}::", f"{producer}["))
        )
    ]
    kinds = set(below["long_name"].map(base))
    if (
        not len(alike)
        or alike.iloc[0] < least
        or any(map(_NEW.search, kinds))
        or any(map(_KEPT.search, pipeline_nodes["long_name"]))
    ):
        return None
    if kinds & set(_FUNCTIONS) and (not functions or any(map(_VARIES.search, functions))):
        return None
    parameters_below = [params.get(int(each), {}) for each in below["id"]]
    batch = max(
        (
            size
            for parameters in parameters_below
            if isinstance(size := parameters.get("batch_size"), int)
        ),
        default=0,
    )
    producer_parameters = params.get(int(epochs["id"].iloc[0]), {})
    size = _size(
        str(producer_parameters.get("shapes", "")), str(producer_parameters.get("types", "")), batch
    )
    root = pipeline_nodes.loc[pipeline_nodes["parent"].isna(), "id"]
    budgets = [str(params.get(int(ident), {}).get("ram_budget_megabytes", 0)) for ident in root]
    budget = max((int(text) for text in budgets if _WHOLE.fullmatch(text)), default=0) * 10**6
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


def _size(shapes: str, types: str, batch: int) -> int | None:
    """Bytes of an element, of a batch those of a full one; None where a size is not stated."""
    each = [shape.replace("[?", f"[{batch}", 1) if batch else shape for shape in shapes.split()]
    kinds = types.split()
    if (
        not each
        or len(each) != len(kinds)
        or not all(map(_SHAPE.fullmatch, each))
        or not set(kinds) <= set(_BYTES)
    ):
        return None
    return sum(
        prod(map(int, re.findall(r"\d+", shape))) * _BYTES[kind]
        for shape, kind in zip(each, kinds, strict=True)
    )

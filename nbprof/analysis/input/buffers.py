"""Memory in the buffers of tf.data iterators, by the number of elements that TensorFlow states and
the shapes and types of one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nbprof.activity.activity import MOST_BUFFERED
from nbprof.analysis.advice.tf_data import base

_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "qint8", "quint8"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn"), 1),
    **dict.fromkeys(("half", "bfloat16", "int16", "uint16", "qint16", "quint16"), 2),
    **dict.fromkeys(("float", "int32", "uint32", "qint32"), 4),
    **dict.fromkeys(("double", "int64", "uint64", "complex64"), 8),
    "complex128": 16,
}
"""Of one number, by the names of `tensorflow::DataTypeString`; a string has no fixed size."""
_BATCHES = ("Batch", "ParallelBatch", "MapAndBatch", "PaddedBatch")
_KEEPS_BATCHES = (
    "Prefetch",
    "Cache",
    "MemoryCache",
    "MemoryCacheImpl",
    "Shuffle",
    "ShuffleAndRepeat",
    "Repeat",
    "FiniteRepeat",
    "ForeverRepeat",
    "Take",
    "FiniteTake",
    "Skip",
    "FiniteSkip",
    "Model",
    "Root",
    "MaxIntraOpParallelism",
    "PrivateThreadPool",
)
"""Iterators that pass on each batch as they take it. A map may change its size."""


class Buffered(NamedTuple):
    """The most that the buffer of an iterator held; None if unknown.

    Attributes
    ----------
    elements : int or None
    bytes : int or None
        Of full batches where the elements are batches.
    """

    elements: int | None
    bytes: int | None


def buffered(
    ids: Sequence[int],
    long_names: Sequence[str],
    params: Mapping[int, Mapping[str, object]],
) -> list[Buffered]:
    """By iterator of one pipeline, what its buffer held at most, at any of its recorded calls."""
    parameters = [params.get(ident, {}) for ident in ids]
    of_name = dict(zip(long_names, parameters, strict=True))
    rows = []
    for name, iterator in zip(long_names, parameters, strict=True):
        elements = iterator.get(MOST_BUFFERED)
        if not isinstance(elements, int) or elements < 0:
            rows.append(Buffered(None, None))
            continue
        each = _element_bytes(iterator, _batch_size(name, of_name))
        if each is None:
            rows.append(Buffered(elements, None))
        else:
            rows.append(Buffered(elements, elements * each))
    return rows


def _batch_size(long_name: str, params: Mapping[str, Mapping[str, object]]) -> int | None:
    """The batch size of the elements that an iterator returns; None if they are no batches, or of
    a size that is not stated.
    """
    below = sorted((name for name in params if name.startswith(long_name)), key=len)
    path = long_name
    for name in below:
        if name != path and name.rpartition("::")[0] != path:
            # A branch of several inputs.
            return None
        path, kind = name, base(name)
        if kind in _BATCHES:
            size = params[name].get("batch_size")
            return size if isinstance(size, int) and size > 0 else None
        if kind not in _KEEPS_BATCHES:
            return None
    return None


def _element_bytes(params: Mapping[str, object], batch_size: int | None) -> int | None:
    """Bytes of one element; None if a shape or type leaves it open."""
    shapes, types = str(params.get("shapes", "")), str(params.get("types", "")).split()
    listed = re.findall(r"\[([^\[\]]*)\]", shapes)
    if not types or len(listed) != len(types) or "unknown" in shapes:
        return None
    total = 0
    for shape, kind in zip(listed, types, strict=True):
        sizes = [size for size in shape.split(",") if size]
        if sizes[:1] == ["?"] and batch_size is not None:
            sizes[0] = str(batch_size)
        if kind not in _BYTES or not all(map(str.isdigit, sizes)):
            return None
        total += _BYTES[kind] * math.prod(map(int, sizes))
    return total

"""The nodes of a pipeline of grain: what each of them does, and where its code is.

A node is a `MapDataset`, an `IterDataset` or an iterator of grain, or of a class of the person's
that extends one of them. Attributes are read without running code of theirs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from nbprof.capture.loader_workers.stages import (
    COLLATE,
    DATASET,
    TRANSFORM,
    Stage,
    stage_at,
    stage_of,
)

_LINKS = (
    "_iterator",
    "_parents",
    "_map_parent",
    "_maybe_nonnative_parent",
    "_datasets",
    "_iter_parent",
)
"""Attributes with the nodes that a node takes its elements from."""
_MOST_NODES = 500
_CALLS = {
    "_map_fn": TRANSFORM,
    "_filter_fn": TRANSFORM,
    "_flat_map": TRANSFORM,
    "_batch_fn": COLLATE,
}
"""Attributes with what a node calls for an element."""
_METHODS = ("map", "random_map", "np_random_map", "map_with_index", "flat_map", "filter")
"""Those of a transformation, of which it has one."""
POOL, THREAD, PROCESS, INTERLEAVED = (
    "PrefetchDatasetIterator",
    "ThreadPrefetchDatasetIterator",
    "ProcessPrefetchDatasetIterator",
    "InterleaveDatasetIterator",
)
"""Iterators that take their elements from threads or processes."""
_PROCESS_DATASET = "ProcessPrefetchIterDataset"
HANDS_OVER = (POOL, THREAD, PROCESS, INTERLEAVED)
_WORKS_ITSELF = ("packing", "packing_concat_then_split", "shuffle", "mix")
"""Modules of grain whose nodes take time of their own, though they call nothing of the program."""
_ONE_TO_ONE = (
    "DataLoaderIterator",
    "_DataLoaderStateDatasetIterator",
    "_MapDatasetIterator",
    "_RandomMapDatasetIterator",
    "_MapWithIndexDatasetIterator",
    "_LimitDatasetIterator",
    "_RepeatDatasetIterator",
    THREAD,
)
"""Iterators that make one element of each."""


def is_of_grain(owner: type) -> bool:
    """Return whether grain defines a class."""
    return owner.__module__.startswith("grain.")


def _extends_grain(owner: type) -> bool:
    return any(is_of_grain(each) for each in owner.__mro__)


def attributes_of(thing: Any) -> dict[str, Any]:
    """The attributes of an object; empty if it has none."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def parents(node: Any) -> list[Any]:
    """The nodes that a node takes its elements from."""
    attributes = attributes_of(node)
    linked: list[Any] = []
    for name in _LINKS:
        value = attributes.get(name)
        if isinstance(value, (list, tuple)):
            linked += value[:_MOST_NODES]
        elif value is not None:
            linked.append(value)
    return [each for each in linked if attributes_of(each)]


def below(node: Any) -> Iterator[Any]:
    """A node, and all that its elements come from."""
    seen: set[int] = set()
    waiting = [node]
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop(0)
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += parents(node)


def sources(node: Any) -> list[Any]:
    """The nodes that the elements of a node are read from."""
    return [each for each in below(node) if not parents(each)]


def name_of_source(node: Any) -> str:
    """The class of what is read for the elements of a node; empty if that is unknown, or if it
    reads pipelines.
    """
    for each in sources(node):
        source = attributes_of(each).get("_source")
        if source is None:
            return type(each).__name__
        if isinstance(source, (list, tuple)) and source and _extends_grain(type(source[0])):
            return ""
        return type(source).__name__
    return ""


def processes(root: Any) -> int:
    """The number of worker processes that make the elements of a node."""
    return sum(type(each).__name__ in (PROCESS, _PROCESS_DATASET) for each in below(root))


def made_elsewhere(root: Any) -> list[Any]:
    """The nodes whose elements are the batches of a root, one each, and that threads or processes
    make.
    """
    node, makers = root, []
    while type(node).__name__ in _ONE_TO_ONE:
        above, node = node, next(iter(parents(node)), None)
        if type(above).__name__ == THREAD:
            makers.append(node)
    if type(node).__name__ in (POOL, PROCESS):
        makers += parents(node)
    elif type(node).__name__ == INTERLEAVED:
        makers += [inner for each in parents(node) for inner in parents(each)]
    return makers


def stage_of_node(node: Any) -> Stage | None:
    """The stage that a node is; None if it only passes elements on."""
    attributes = attributes_of(node)
    for name, kind in _CALLS.items():
        if name in attributes:
            return _stage_of_call(kind, attributes[name])
    if not is_of_grain(type(node)):
        return _stage_of_class(TRANSFORM if parents(node) else DATASET, node)
    if "_operation" in attributes:
        return stage_of(TRANSFORM, attributes["_operation"], "__call__")
    transform = attributes.get("_transform")
    if transform is not None:
        return _stage_of_transform(transform)
    if "_source" in attributes:
        return stage_of(DATASET, attributes["_source"], "__getitem__")
    if not parents(node):
        return _stage_of_class(DATASET, node)
    works = type(node).__module__.rpartition(".")[2] in _WORKS_ITSELF
    return _stage_of_class(TRANSFORM, node) if works else None


def _stage_of_class(kind: str, node: Any) -> Stage:
    """The stage of a node that does something itself, by its code also behind a timer."""
    owner, code = type(node), None
    for name in ("__next__", "__getitem__"):
        method = getattr(owner, name, None)
        if method is not None:
            code = getattr(inspect.unwrap(method), "__code__", None)
    return stage_at(kind, owner.__qualname__, owner.__module__, code)


def _stage_of_transform(transform: Any) -> Stage:
    for name in _METHODS:
        method = getattr(type(transform), name, None)
        if method is not None:
            return stage_of(TRANSFORM, transform, name)
    return _stage_of_function(TRANSFORM, transform)


def _stage_of_call(kind: str, function: Any) -> Stage | None:
    """The stage of what a node calls: the person's code in what grain puts around it."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.isclass(owner) and not inspect.ismodule(owner):
        # A method of a transformation.
        inner = attributes_of(owner).get("_transform")
        if inner is not None and is_of_grain(type(owner)):
            return _stage_of_transform(inner)
        code = getattr(getattr(function, "__func__", None), "__code__", None)
        return stage_at(kind, type(owner).__qualname__, type(owner).__module__, code)
    batches = attributes_of(function).get("values_batch_fn")
    if batches is not None:
        return _stage_of_call(kind, batches)
    if not _is_lambda_of_grain(function):
        return _stage_of_function(kind, function)
    # Of a DataLoader, around a transformation; or what takes the data out of a record.
    transform = inspect.getclosurevars(function).nonlocals.get("transform")
    return None if transform is None else _stage_of_transform(transform)


def _stage_of_function(kind: str, function: Any) -> Stage:
    if hasattr(function, "__code__") or hasattr(function, "__func__"):
        return stage_of(kind, function)
    return stage_of(kind, function, "__call__")


def _is_lambda_of_grain(function: Any) -> bool:
    module = str(getattr(function, "__module__", ""))
    return module.startswith("grain.") and getattr(function, "__name__", "") == "<lambda>"

"""A pipeline of tf.data in which the first part is replaced by another dataset."""

from __future__ import annotations

import sys
from typing import Any

from nbprof.capture.experiments.tf_data import graph_of

_VARIES = ("Shuffle", "Random", "Generator")
"""Parts of the names of ops of datasets whose elements differ from epoch to epoch."""
_HARMLESS = ("Assert", "StatefulPartitionedCall")
"""Ops whose own state does not change what they return; functions that are called are seen."""


def chain(dataset: Any) -> list[Any]:
    """The dataset and those that it reads from, the last one first, as far as each reads one."""
    datasets = []
    while dataset is not None:
        datasets.append(dataset)
        dataset = getattr(dataset, "_input_dataset", None)
    return datasets


def is_a(dataset: Any, *kinds: str) -> bool:
    """Return whether a dataset is of one of these kinds, such as ``Batch``."""
    return type(dataset).__name__.lstrip("_") in {f"{kind}Dataset" for kind in kinds}


def repeats_itself(dataset: Any) -> bool:
    """Return whether each pass over the dataset surely gives the same elements.

    It has no op that is random, and none that keeps state or calls Python.
    """
    graph = graph_of(dataset)
    ops = {node.op for node in graph.node}
    within: set[str] = set()
    for function in graph.library.function:
        within |= {node.op for node in function.node_def}
    if any(part in op for op in ops | within for part in _VARIES):
        return False
    return not any(_is_stateful(op) for op in within)


def _is_stateful(op: str) -> bool:
    if op in _HARMLESS or "Dataset" in op:
        # Datasets are called stateful only so that they are not computed ahead of time.
        return False
    registry = sys.modules["tensorflow.python.framework.op_def_registry"]
    definition = registry.get(op)
    # An op that is a function of the library is seen there.
    return definition is not None and bool(definition.is_stateful)


def with_replaced(dataset: Any, part: Any, other: Any) -> Any:
    """The pipeline of `dataset` that reads `other` where it reads `part`.

    Parameters
    ----------
    dataset : DatasetV2
    part : DatasetV2
        One of `chain`.
    other : DatasetV2
        With the same elements.

    Raises
    ------
    LookupError
        The part is not found in the graph of the pipeline.
    """
    if part is dataset:
        return other.with_options(dataset.options())
    tensorflow = sys.modules["tensorflow"]
    graph = graph_of(dataset)
    name, last = _node_of(graph, dataset, part)
    needed = _needed(graph, last, name)
    nodes = [node for node in graph.node if node.name in needed]
    del graph.node[:]
    graph.node.extend(nodes)

    def build(variant: Any) -> Any:
        return tensorflow.graph_util.import_graph_def(
            graph, input_map={f"{name}:0": variant}, return_elements=[f"{last}:0"]
        )[0]

    signature = [tensorflow.TensorSpec((), tensorflow.variant)]
    variant = sys.modules["tensorflow.python.data.ops.dataset_ops"]._VariantDataset(
        tensorflow.compat.v1.wrap_function(build, signature)(other._variant_tensor),
        dataset.element_spec,
    )
    # Its tensor refers to the other dataset, not to what that keeps, such as a cache.
    variant._nbprof_reads = other
    return variant.with_options(dataset.options())


def _node_of(graph: Any, dataset: Any, part: Any) -> tuple[str, str]:
    """The names of the nodes of a part and of the whole."""
    nodes = {node.name: node for node in graph.node}
    returned = next(node for node in graph.node if node.op == "_Retval")
    last = name = _name(returned.input[0])
    for each in chain(dataset):
        if name not in nodes or not nodes[name].op.startswith(type(each).__name__.lstrip("_")):
            break
        if each is part:
            return name, last
        name = _name(nodes[name].input[0])
    raise LookupError("the pipeline cannot be taken apart")


def _needed(graph: Any, last: str, without: str) -> set[str]:
    nodes = {node.name: node for node in graph.node}
    needed: set[str] = set()
    waiting = [last]
    while waiting:
        name = waiting.pop()
        if name in needed or name == without:
            continue
        needed.add(name)
        waiting += [_name(each) for each in nodes[name].input]
    return needed


def _name(tensor: str) -> str:
    return tensor.lstrip("^").partition(":")[0]

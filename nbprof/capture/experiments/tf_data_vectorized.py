"""The experiment that maps a function of tf.data over batches in place of items."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

from nbprof.capture.experiments.edits import calls_of_method, located
from nbprof.capture.experiments.experiment import Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.experiments.tf_data import Rebuilt, assigned, is_dataset
from nbprof.capture.experiments.tf_data_rest import chain, is_a, repeats_itself, with_replaced

_MAPS = ("Map", "ParallelMap")
_OF_BATCH = "of_batch"
"""The function in a changed cell."""


def _batches(dataset: Any) -> Any:
    """The dataset that batches what a map returns; None if there is none."""
    for part in chain(dataset):
        if is_a(part, "Batch", "ParallelBatch") and is_a(part._input_dataset, *_MAPS):
            return part
    return None


def _vectorized(dataset: Any) -> Any:
    """The dataset with the map behind the batch; its function still computes item by item."""
    batches = _batches(dataset)
    if batches is None or _why_not(dataset):
        return dataset
    tensorflow = sys.modules["tensorflow"]
    mapped = batches._input_dataset
    function = mapped._map_func._func
    calls = None
    if is_a(mapped, "ParallelMap"):
        calls = tensorflow.data.AUTOTUNE

    def of_batch(*items: Any) -> Any:
        return tensorflow.vectorized_map(lambda row: function(*row), items)

    rows = mapped._input_dataset.batch(batches._batch_size, batches._drop_remainder)
    return with_replaced(dataset, batches, rows.map(of_batch, num_parallel_calls=calls))


def _why_not(dataset: Any) -> str:
    batches = _batches(dataset)
    if batches is None:
        return "the pipeline has no map that is followed by a batch"
    mapped = batches._input_dataset
    if not repeats_itself(mapped):
        return "the function of the map is random, keeps state, or calls Python"
    if callable(getattr(mapped._map_func, "_func", None)):
        return ""
    return "the function of the map is not known"


def _refusal(observation: Observation) -> str:
    if not observation.datasets:
        return "no dataset of tf.data was read"
    reasons = [_reason(each) for each in observation.datasets]
    return reasons[0] if all(reasons) else ""


def _reason(dataset: Any) -> str:
    try:
        return _why_not(dataset)
    except Exception as error:
        return f"the pipeline could not be read: {type(error).__name__}"


def _in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The map and the batch behind it, in the statement that makes the only dataset."""
    _, statement = assigned(source, observed)
    tensorflow = source.name_of(sys.modules["tensorflow"])
    if statement is None or not tensorflow or not source.is_free(_OF_BATCH):
        return None
    nodes = list(ast.walk(statement))
    batches = []
    for call in calls_of_method(source, "", "batch"):
        if call in nodes and isinstance(call.func, ast.Attribute) and is_dataset(source, call):
            batches.append(call)
    if len(batches) != 1:
        return None
    (batch,) = batches
    mapped = batch.func.value  # type: ignore[attr-defined]
    if mapped not in calls_of_method(source, "", "map") or len(mapped.args) != 1:
        return None
    if any(each.func.end_lineno != each.end_lineno for each in (mapped, batch)):
        # Lines of arguments are not written anew.
        return None
    function = source.text_of(mapped.args[0])
    if not isinstance(mapped.args[0], ast.Name):
        function = f"({function})"
    size = ", ".join(source.text_of(each) for each in (*batch.args, *batch.keywords))
    options = "".join(f", {source.text_of(each)}" for each in mapped.keywords)
    code = (
        f"def {_OF_BATCH}(*items):\n"
        f"    return {tensorflow}.vectorized_map(lambda row: {function}(*row), items)"
    )
    return located(
        source,
        source.before(statement, code),
        source.swapped(batch, f"batch({size})", f"map({_OF_BATCH}{options})"),
    )


EXPERIMENTS = (
    Experiment(
        "tf_data_vectorized_map",
        "batch before the map, and a map of whole batches",
        "tensorflow",
        ("map_of_items", "map_serial", "input_bottleneck"),
        _refusal,
        lambda _: Rebuilt(_vectorized),
        "- dataset.map(function).batch(size)\n"
        "+ def of_batch(*items):\n"
        "+     return tf.vectorized_map(lambda row: function(*row), items)\n"
        "+ dataset.batch(size).map(of_batch)",
        touches=("map",),
        edit=_in_source,
    ),
)

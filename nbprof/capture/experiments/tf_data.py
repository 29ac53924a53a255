"""Experiments on pipelines of tf.data: prefetch, parallel maps, threads of their own."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from nbprof.capture.experiments.edits import calls_of_method, located, made_by_program, name_of
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation, dataset_class
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.patches import Patches

_AHEAD = 4
"""Batches that are prefetched."""
_OPTIONS = "pipeline_options"
"""The variable that holds them in a changed cell."""
_SERIAL = "MapDataset"
_THREADS = 16
"""Threads of a pipeline that has its own: of maps that wait, many run on one core."""


class Rebuilt(Change):
    """Datasets are replaced by others where they are iterated over.

    Parameters
    ----------
    rebuild : callable
        Makes the other dataset.
    """

    warmup = _AHEAD + 1

    def __init__(self, rebuild: Callable[[Any], Any]) -> None:
        self._rebuild = rebuild

    def apply(self, patches: Patches) -> None:  # noqa: D102
        dataset = dataset_class()
        original = dataset.__iter__
        nested = [False]

        @wraps(original)
        def iterate(self_: Any) -> Any:
            if nested[0] or not sys.modules["tensorflow"].executing_eagerly():
                return original(self_)
            nested[0] = True
            try:
                return original(self._rebuild(self_))
            finally:
                nested[0] = False

        patches.replace(dataset, "__iter__", iterate)


def _prefetched(dataset: Any) -> Any:
    return dataset.prefetch(_AHEAD)


def _with_threads(dataset: Any) -> Any:
    options = sys.modules["tensorflow"].data.Options()
    options.threading.private_threadpool_size = _THREADS
    return dataset.with_options(options)


def _parallel(dataset: Any) -> Any:
    """The dataset with parallel calls of each map, in the same order."""
    tensorflow = sys.modules["tensorflow"]
    graph = graph_of(dataset)
    if not _has_serial_map(graph):
        return dataset
    count = graph.node.add(name="nbprof_parallel_calls", op="Const")
    count.attr["dtype"].type = tensorflow.int64.as_datatype_enum
    count.attr["value"].tensor.CopyFrom(
        tensorflow.make_tensor_proto(tensorflow.data.AUTOTUNE, tensorflow.int64)
    )
    for node in graph.node:
        if node.op == _SERIAL:
            _make_parallel(node, count.name)
    returned = [node.input[0] for node in graph.node if node.op == "_Retval"]
    nodes = [node for node in graph.node if node.op != "_Retval"]
    del graph.node[:]
    graph.node.extend(nodes)

    def build() -> Any:
        tensors = tensorflow.graph_util.import_graph_def(
            graph, return_elements=[_tensor(returned[0])]
        )
        return tensors[0]

    variant = sys.modules["tensorflow.python.data.ops.dataset_ops"]._VariantDataset(
        tensorflow.compat.v1.wrap_function(build, [])(), dataset.element_spec
    )
    return variant.with_options(dataset.options())


def _make_parallel(node: Any, count: str) -> None:
    inputs = list(node.input)
    controls = 0
    while controls < len(inputs) and inputs[-1 - controls].startswith("^"):
        controls += 1
    inputs.insert(len(inputs) - controls, count)
    node.op = "ParallelMapDatasetV2"
    node.input[:] = inputs
    node.attr["deterministic"].s = b"true"


def _tensor(name: str) -> str:
    return name if ":" in name else f"{name}:0"


def graph_of(dataset: Any) -> Any:
    """The graph of a pipeline, with the functions of its maps."""
    tensorflow = sys.modules["tensorflow"]
    policy = sys.modules["tensorflow.python.data.ops.options"].ExternalStatePolicy.IGNORE
    serialized = dataset._as_serialized_graph(external_state_policy=policy).numpy()
    return tensorflow.compat.v1.GraphDef.FromString(serialized)


def _has_serial_map(graph: Any) -> bool:
    return any(node.op == _SERIAL for node in graph.node)


def _not_prefetched(observation: Observation) -> str:
    if not observation.datasets:
        return "no dataset of tf.data was read"
    if all(type(dataset).__name__ == "_PrefetchDataset" for dataset in observation.datasets):
        return "the pipeline prefetches already"
    return ""


def _no_threads(observation: Observation) -> str:
    if not observation.datasets:
        return "no dataset of tf.data was read"
    if all(dataset.options().threading.private_threadpool_size for dataset in observation.datasets):
        return "the pipeline has threads of its own already"
    return ""


def _not_parallel(observation: Observation) -> str:
    if not observation.datasets:
        return "no dataset of tf.data was read"
    try:
        if any(_has_serial_map(graph_of(dataset)) for dataset in observation.datasets):
            return ""
    except Exception as error:
        return f"the pipeline could not be read: {type(error).__name__}"
    return "the pipeline has no map that makes one call at a time"


def _prefetched_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The end of the statement that makes the only dataset."""
    _, statement = assigned(source, observed)
    if statement is None:
        return None
    return located(source, source.with_method(statement, f".prefetch({_AHEAD})"))


def assigned(source: Source, observed: Sequence[Observation]) -> tuple[str, ast.Assign | None]:
    """The variable of the only dataset that the program makes, and the statement that binds it;
    None if that is not sure.
    """
    datasets = made_by_program(_datasets, observed)
    name = name_of(observed, datasets[0]) if len(datasets) == 1 else ""
    return name, source.assignment(name) if name else None


def _threads_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """Lines below the statement that makes the only dataset."""
    tensorflow = source.name_of(sys.modules["tensorflow"])
    name, statement = assigned(source, observed)
    if not tensorflow or statement is None or not source.is_free(_OPTIONS):
        return None
    code = (
        f"{_OPTIONS} = {tensorflow}.data.Options()\n"
        f"{_OPTIONS}.threading.private_threadpool_size = {_THREADS}\n"
        f"{name} = {name}.with_options({_OPTIONS})"
    )
    return located(source, source.after(statement, code))


def _parallel_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The calls of `map` that make one call at a time, if all of them are in the cell."""
    tensorflow = source.name_of(sys.modules["tensorflow"])
    datasets = made_by_program(_datasets, observed)
    if not tensorflow or len(datasets) != 1:
        return None
    serial = sum(node.op == _SERIAL for node in graph_of(datasets[0]).node)
    calls = []
    for call in calls_of_method(source, "", "map"):
        parallel = any(keyword.arg == "num_parallel_calls" for keyword in call.keywords)
        if not parallel and len(call.args) == 1 and is_dataset(source, call):
            calls.append(call)
    if len(calls) != serial:
        return None
    arguments = {"num_parallel_calls": f"{tensorflow}.data.AUTOTUNE"}
    method = dataset_class().map
    edits = [source.with_arguments(call, arguments, method) for call in calls]
    return located(source, *edits)


def _datasets(observation: Observation) -> list[Any]:
    return observation.datasets


def is_dataset(source: Source, node: ast.expr) -> bool:
    """Return whether an expression is a chain of calls that begins with a dataset."""
    while isinstance(node, (ast.Call, ast.Attribute)):
        value = source.value(node)
        if isinstance(value, type) and issubclass(value, dataset_class()):
            return True
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(source.value(node), dataset_class())


EXPERIMENTS = (
    Experiment(
        "tf_data_prefetch",
        "prefetch at the end of the pipeline",
        "tensorflow",
        ("prefetch_missing", "input_bottleneck"),
        _not_prefetched,
        lambda _: Rebuilt(_prefetched),
        f"- dataset\n+ dataset.prefetch({_AHEAD})",
        touches=("prefetch",),
        edit=_prefetched_in_source,
    ),
    Experiment(
        "tf_data_parallel_map",
        "parallel calls of each map",
        "tensorflow",
        ("map_serial", "input_bottleneck"),
        _not_parallel,
        lambda _: Rebuilt(_parallel),
        "- dataset.map(function)\n+ dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)",
        touches=("map",),
        edit=_parallel_in_source,
    ),
    Experiment(
        "tf_data_threads",
        f"{_THREADS} threads of the pipeline's own",
        "tensorflow",
        ("input_bottleneck", "map_serial"),
        _no_threads,
        lambda _: Rebuilt(_with_threads),
        "+ options = tf.data.Options()\n"
        f"+ options.threading.private_threadpool_size = {_THREADS}\n"
        "+ dataset = dataset.with_options(options)",
        touches=("pipeline threads",),
        edit=_threads_in_source,
    ),
)

"""The experiment on a PyDataset of Keras: threads that read batches ahead."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import wraps
from types import FunctionType
from typing import Any, TypeGuard

from nbprof.capture.experiments.edits import in_constructor, located, made_by_program
from nbprof.capture.experiments.experiment import Change, Experiment, available_cores
from nbprof.capture.experiments.observation import Observation, py_dataset_adapter
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.patches import Patches

_WORKERS = 4 * available_cores()
_AHEAD = 2 * _WORKERS
"""Batches that wait in the queue at most."""
_ARGUMENTS = {"workers": str(_WORKERS), "max_queue_size": str(_AHEAD)}


class Workers(Change):
    """Threads read a PyDataset that the training thread reads otherwise."""

    warmup = _WORKERS

    def apply(self, patches: Patches) -> None:  # noqa: D102
        adapter = py_dataset_adapter()
        original = adapter.__init__

        @wraps(original)
        def make(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
            if not _why_not(dataset):
                _set(dataset, patches)
            original(self, dataset, *args, **kwargs)
            patches.on_restore(lambda: _stop(self))

        patches.replace(adapter, "__init__", make)


def _set(dataset: Any, patches: Patches) -> None:
    before = dataset.workers, dataset.max_queue_size

    def put_back() -> None:
        dataset.workers, dataset.max_queue_size = before

    patches.on_restore(put_back)
    dataset.workers, dataset.max_queue_size = _WORKERS, _AHEAD


def _stop(adapter: Any) -> None:
    """End the threads of a fit that did not end by itself."""
    if adapter.enqueuer is not None:
        with suppress(Exception):  # of reading a batch that nobody asks for any more
            adapter.enqueuer.stop()


def _why_not(dataset: Any) -> str:
    if dataset.workers > 1 or dataset.use_multiprocessing:
        return f"the PyDataset has {dataset.workers} workers already"
    return ""


def _refusal(observation: Observation) -> str:
    if not observation.py_datasets:
        return "no PyDataset of Keras was read"
    reasons = [_why_not(dataset) for dataset in observation.py_datasets]
    return reasons[0] if all(reasons) else ""


def _in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The call of `super().__init__`, if the cell defines the class of the only dataset; or the
    call that makes it, if the class has the constructor of Keras.
    """
    datasets = made_by_program(_py_datasets, observed)
    if len(datasets) != 1:
        return None
    kind = type(datasets[0])
    constructor = sys.modules["keras"].utils.PyDataset.__init__
    if kind.__init__ is constructor:
        return in_constructor(_py_datasets, _ARGUMENTS)(source, observed)
    calls = []
    for definition in source.tree.body:
        if isinstance(definition, ast.ClassDef) and _defines(definition, kind):
            calls += [node for node in ast.walk(definition) if _is_constructor_of_parent(node)]
    if len(calls) != 1:
        return None
    return located(source, source.with_arguments(calls[0], _ARGUMENTS, constructor))


def _py_datasets(observation: Observation) -> list[Any]:
    return observation.py_datasets


def _defines(definition: ast.ClassDef, kind: type) -> bool:
    """Return whether a class has the methods of a definition, at the same lines."""
    methods = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    nodes = [each for each in definition.body if isinstance(each, ast.FunctionDef)]
    if any(node.decorator_list for node in nodes) or definition.name != kind.__name__:
        return False
    lines = {(each.__name__, each.__code__.co_firstlineno) for each in methods}
    return lines == {(node.name, node.lineno) for node in nodes}


def _is_constructor_of_parent(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    parent = node.func.value
    return (
        node.func.attr == "__init__"
        and isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id == "super"
    )


EXPERIMENTS = (
    Experiment(
        "keras_workers",
        f"PyDataset with {_WORKERS} threads",
        "keras",
        ("input_outside_tf_data", "input_ahead", "input_bottleneck"),
        _refusal,
        lambda _: Workers(),
        f"- super().__init__()\n+ super().__init__(workers={_WORKERS}, max_queue_size={_AHEAD})",
        unequal="random items always differ, as threads draw numbers in any order",
        touches=("keras input",),
        edit=_in_source,
    ),
)

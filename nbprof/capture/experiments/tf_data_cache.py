"""The experiment that caches in memory what a pipeline of tf.data makes anew in each epoch."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil

from nbprof.capture.experiments.edits import calls_of_method, located
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.program import Refused
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.experiments.tf_data import Rebuilt, assigned, is_dataset
from nbprof.capture.experiments.tf_data_rest import chain, is_a, repeats_itself, with_replaced
from nbprof.capture.patches import Patches

_SHARE = 0.25
"""Part of the free memory that the cache may take."""
_LONGEST_S = 60.0
"""Time in which the cache has to be filled."""
_WORK = ("Map", "ParallelMap", "FlatMap", "Interleave", "ParallelInterleave", "Filter")


class Cached(Change):
    """Pipelines read a cache that is full, as all epochs but the first do.

    Parameters
    ----------
    observation : Observation
    """

    def __init__(self, observation: Observation) -> None:
        self._epochs = observation.epochs
        self._rebuilt = Rebuilt(self._read)
        self._lasting = {id(part) for each in observation.datasets for part in chain(each)}
        # With the dataset itself, so that no other one gets its address.
        self._caches: dict[int, tuple[Any, Any]] = {}

    def apply(self, patches: Patches) -> None:  # noqa: D102
        patches.on_restore(self._drop_passing)
        self._rebuilt.apply(patches)

    def _read(self, dataset: Any) -> Any:
        if _why_not(dataset, self._epochs):
            return dataset
        part = _part(dataset, self._epochs)
        if id(part) not in self._caches:
            self._caches[id(part)] = part, _filled(part)
        return with_replaced(dataset, part, self._caches[id(part)][1])

    def _drop_passing(self) -> None:
        """Drop caches of datasets that the program makes anew in each run."""
        for key in self._caches.keys() - self._lasting:
            del self._caches[key]

    def close(self) -> None:  # noqa: D102
        self._caches.clear()


def _filled(dataset: Any) -> Any:
    """The dataset with a cache that is full. Raises `Refused` if it gets too large."""
    cached = dataset.cache()
    flat = sys.modules["tensorflow"].nest.flatten
    free = _SHARE * psutil.virtual_memory().available
    began = time.perf_counter()
    for item in cached:
        free -= sum(_bytes(tensor.numpy()) for tensor in flat(item))
        if free < 0:
            raise Refused("the cache would take more than a quarter of the free memory")
        if time.perf_counter() - began > _LONGEST_S:
            raise Refused(f"the cache is not full after {_LONGEST_S:g} s")
    return cached


def _bytes(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    if value.dtype.hasobject:
        return sum(map(len, value.ravel()))
    return int(value.nbytes)


def _part(dataset: Any, epochs: int) -> Any:
    """The last dataset whose elements each epoch makes anew; None if there is none."""
    again = epochs > 1
    for part in chain(dataset):
        if again and int(part.cardinality()) > 0 and repeats_itself(part):
            return part
        again = again or (is_a(part, "Repeat") and int(part._count) != 1)
    return None


def _why_not(dataset: Any, epochs: int) -> str:
    datasets = chain(dataset)
    if any(is_a(part, "Cache") for part in datasets):
        return "the pipeline has a cache already"
    part = _part(dataset, epochs)
    if part is None:
        return (
            "no part of the pipeline is repeated with elements that are surely the same: what is"
            " random, calls Python, or is of unknown length is not cached"
        )
    if not any(is_a(each, *_WORK) for each in chain(part)):
        return "what could be cached is in memory already"
    if not _is_dense(part):
        return "its elements are not tensors"
    return ""


def _is_dense(dataset: Any) -> bool:
    tensorflow = sys.modules["tensorflow"]
    specs = tensorflow.nest.flatten(dataset.element_spec)
    return all(type(spec) is tensorflow.TensorSpec for spec in specs)


def _refusal(observation: Observation) -> str:
    if not observation.datasets:
        return "no dataset of tf.data was read"
    reasons = [_reason(observation.epochs, each) for each in observation.datasets]
    return reasons[0] if all(reasons) else ""


def _reason(epochs: int, dataset: Any) -> str:
    try:
        return _why_not(dataset, epochs)
    except Exception as error:
        return f"the pipeline could not be read: {type(error).__name__}"


def _in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The end of the statement that makes the only dataset, or a call in it, before which the part
    that is cached ends.
    """
    _, statement = assigned(source, observed)
    if statement is None:
        return None
    (dataset,) = observed[0].datasets
    part = _part(dataset, observed[0].epochs)
    if part is dataset:
        return located(source, source.with_method(statement, ".cache()"))
    reader = next(each for each in chain(dataset) if each._input_dataset is part)
    method = type(reader).__name__.strip("_").removesuffix("Dataset").lower()
    nodes = list(ast.walk(statement))
    calls = [call for call in calls_of_method(source, "", method) if call in nodes]
    if len(calls) != 1 or not is_dataset(source, calls[0]):
        return None
    return located(source, source.with_method_before(calls[0], ".cache()"))


EXPERIMENTS = (
    Experiment(
        "tf_data_cache",
        "cache of what each epoch makes anew",
        "tensorflow",
        ("cache_missing", "map_serial", "input_bottleneck"),
        _refusal,
        Cached,
        "- dataset.map(function).repeat()\n+ dataset.map(function).cache().repeat()",
        # A cache makes maps before it run once, however they do.
        touches=("map",),
        edit=_in_source,
    ),
)

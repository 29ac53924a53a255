"""The experiment on a PyDataset of Keras: threads that read batches ahead."""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from typing import Any

from nbprof.capture.experiments.experiment import Change, Experiment, available_cores
from nbprof.capture.experiments.observation import Observation, py_dataset_adapter
from nbprof.capture.patches import Patches

_WORKERS = 4 * available_cores()
_AHEAD = 2 * _WORKERS
"""Batches that wait in the queue at most."""


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
    ),
)

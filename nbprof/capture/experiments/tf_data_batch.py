"""The experiment with larger batches of a pipeline of tf.data."""

from __future__ import annotations

from typing import Any

from nbprof.capture.experiments.experiment import LARGER, LARGER_BATCH, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.tf_data import Rebuilt
from nbprof.capture.experiments.tf_data_rest import chain, is_a


def _batch(dataset: Any) -> Any:
    """The last part of the pipeline that makes batches; None if there is none."""
    for part in chain(dataset):
        if is_a(part, "Batch", "ParallelBatch"):
            return part
    return None


def _larger(dataset: Any) -> Any:
    part = _batch(dataset)
    if part is None:
        return dataset
    return dataset.rebatch(LARGER * part._batch_size, part._drop_remainder)


def _refusal(observation: Observation) -> str:
    if not observation.datasets:
        return "no dataset of tf.data was read"
    if any(_batch(dataset) is None for dataset in observation.datasets):
        return "a pipeline makes no batches"
    return ""


EXPERIMENTS = (
    Experiment(
        "tf_data_larger_batch",
        f"batches {LARGER} times as large",
        "tensorflow",
        ("tiny_batch", "tiny_ops"),
        _refusal,
        lambda _: Rebuilt(_larger),
        f"- dataset.batch(size)\n+ dataset.batch({LARGER} * size)",
        examples=LARGER,
        tradeoff=LARGER_BATCH,
    ),
)

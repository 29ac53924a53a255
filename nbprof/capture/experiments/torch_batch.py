"""The experiment with larger batches of a DataLoader."""

from __future__ import annotations

import sys
from typing import Any

from nbprof.capture.experiments.experiment import LARGER, LARGER_BATCH, Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.torch_loader import Copied


def _attributes(loader: Any) -> dict[str, Any]:
    size = LARGER * loader.batch_size
    sampler = type(loader.batch_sampler)(loader.sampler, size, loader.drop_last)
    return {"batch_size": size, "batch_sampler": sampler}


def _why_not(loader: Any) -> str:
    data = sys.modules["torch.utils.data"]
    if isinstance(loader.dataset, data.IterableDataset) or not hasattr(loader.sampler, "__len__"):
        return "the number of its items is not known"
    if loader.batch_size is None:
        return "the loader puts batches together in a way of its own"
    if loader.batch_sampler is None or type(loader.batch_sampler).__name__ != "BatchSampler":
        return "the items of the loader have no order of their own"
    if len(loader.sampler) < LARGER * loader.batch_size:
        return "the dataset has too few items"
    return ""


def _refusal(observation: Observation) -> str:
    if not observation.loaders:
        return "no DataLoader was read"
    reasons = [_why_not(loader) for loader in observation.loaders]
    return next((reason for reason in reasons if reason), "")


def _larger(observation: Observation) -> Change:
    return Copied(_attributes, _why_not, observation)


EXPERIMENTS = (
    Experiment(
        "larger_batch",
        f"batches {LARGER} times as large",
        "torch",
        ("tiny_batch", "tiny_ops"),
        _refusal,
        _larger,
        f"- DataLoader(dataset, batch_size)\n+ DataLoader(dataset, {LARGER} * batch_size)",
        examples=LARGER,
        tradeoff=LARGER_BATCH,
    ),
)

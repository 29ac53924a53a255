"""The peak of a program as PyTorch's own profiler records it on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from tests.fit.models import Case

STEPS = 2


def measured_peak(case: Case) -> int:
    """Bytes at the peak of the first steps, from the allocations and frees of the CPU's allocator.

    The recording begins before the model is built, so that all its memory is in it. Workspaces of
    oneDNN, which is a library of the CPU alone, are left out.
    """
    with (
        without_onednn(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        model, batch = case.model(), case.batch()
        if case.optimizer is None:
            _infer(model, batch)
        else:
            _train(case, model, batch)
    events = [
        event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    events.sort(key=lambda event: event.start_ns())
    return int(np.cumsum([event.nbytes() for event in events]).max())


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def _train(case: Case, model: Any, batch: Any) -> None:
    optimizer = case.optimizer(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        if isinstance(batch, dict):
            output = model(**batch)
            value = output["loss"]
        elif case.loss is not None:
            output = model(*batch[:-1])
            value = case.loss(output, batch[-1])
        else:
            output = model(*batch) if isinstance(batch, tuple) else model(batch)
            value = output.sum()
        value.backward()
        optimizer.step()


def _infer(model: Any, batch: Any) -> None:
    with torch.no_grad():
        for _ in range(STEPS):
            output = model(batch)
    del output

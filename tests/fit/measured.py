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
CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")


def measured_peak(case: Case) -> int:
    """Bytes at the peak of the first steps, from the allocations and frees of the CPU's allocator.

    The recording begins before the model is built, so that all its memory is in it. What a
    convolution allocates and frees again is left out: a workspace of the algorithm that the library
    chose for this CPU.
    """
    with (
        one_op_per_time_step(case),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        model, batch = case.model(), case.batch()
        if case.optimizer is None:
            _infer(model, batch)
        else:
            _train(case, model, batch)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    memory = [event for event in events if event.name() == "[memory]"]
    changes = np.array([event.nbytes() for event in memory])
    times = np.array([event.start_ns() for event in memory])
    for event in events:
        if event.name() in CONVOLUTIONS:
            first, last = np.searchsorted(times, [event.start_ns(), event.end_ns()])
            _leave_out_workspaces(changes[first:last])
    return int(changes.cumsum().max())


def _leave_out_workspaces(changes: np.ndarray) -> None:
    """Set to 0 what is allocated and freed again."""
    for index, change in enumerate(changes):
        if change < 0:
            before = np.flatnonzero(changes[:index] == -change)
            if before.size:
                changes[before[-1]] = changes[index] = 0


@contextlib.contextmanager
def one_op_per_time_step(case: Case) -> Iterator[None]:
    """Recurrent layers without oneDNN, whose op for a whole layer has a workspace."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(enabled and not case.is_recurrent)
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

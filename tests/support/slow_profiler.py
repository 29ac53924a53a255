"""PyTorch's profiler, made slow on purpose: how long a recorded step takes beyond a bare one is
known then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch.utils._python_dispatch import TorchDispatchMode

from nbprof.capture.torch import TorchBackend


class SlowOps(TorchDispatchMode):
    """Spends so many µs more in each op of the thread, and counts them."""

    def __init__(self, us: float) -> None:
        super().__init__()
        self.us = us
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        end = time.perf_counter_ns() + round(1000 * self.us)
        result = func(*args, **(kwargs or {}))
        self.ops += 1
        while time.perf_counter_ns() < end:
            pass
        return result


@contextmanager
def slow_profiler(us: float) -> Iterator[SlowOps]:
    """While it is entered, nbprof records PyTorch with a profiler that spends so many µs per op."""
    mode = SlowOps(us)
    start, stop = TorchBackend.start, TorchBackend.stop

    def slow_start(self: TorchBackend, *args: Any) -> Any:
        notes = start(self, *args)
        mode.__enter__()
        return notes

    def slow_stop(self: TorchBackend) -> None:
        mode.__exit__(None, None, None)
        stop(self)

    with (
        mock.patch.object(TorchBackend, "start", slow_start),
        mock.patch.object(TorchBackend, "stop", slow_stop),
    ):
        yield mode

"""The program's own clock: when each of its steps ended, whether nbprof records or not.

It reads a clock where the framework or the loop ends a step, and asks nbprof nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

import nbprof

Floats = npt.NDArray[np.float64]


@dataclass
class Ends:
    """When steps ended, in s: by the loop that marks them, and by the framework."""

    of_loop: list[float] = field(default_factory=list)
    of_framework: list[float] = field(default_factory=list)

    def durations(self, count: int) -> Floats:
        """The time of each step in ms, NaN of the first, and of the last if nobody asked for a
        further batch; empty if as many did not end, or the loop marks them in another way.
        """
        ends = self.of_loop or self.of_framework
        if len(ends) not in (count, count - 1):
            return np.zeros(0)
        times = 1000 * np.diff(np.array(ends), prepend=np.nan)
        return np.append(times, np.full(count - len(ends), np.nan))


@contextmanager
def ends_of_steps(framework: str) -> Iterator[Ends]:
    """Reads the clock at the end of each step."""
    ends = Ends()

    def ended(*_: Any, **__: Any) -> None:
        ends.of_framework.append(time.perf_counter())

    with ExitStack() as stack:
        marked = _marked(nbprof.steps, lambda: ends.of_loop.append(time.perf_counter()))
        stack.enter_context(mock.patch.object(nbprof, "steps", marked))
        if framework == "torch":
            from torch.optim.optimizer import register_optimizer_step_post_hook

            stack.callback(register_optimizer_step_post_hook(ended).remove)
        elif framework == "keras":
            from keras.src.callbacks import CallbackList

            of_keras = CallbackList.on_train_batch_end

            def batch_ended(*args: Any, **named: Any) -> None:
                ended()
                of_keras(*args, **named)

            stack.enter_context(mock.patch.object(CallbackList, "on_train_batch_end", batch_ended))
        yield ends


def _marked(steps: Callable[..., Any], ended: Callable[[], None]) -> Callable[..., Any]:
    """`nbprof.steps` of items whose loop is heard to ask for the next one."""

    def items(given: Iterable[Any]) -> Iterator[Any]:
        for item in given:
            yield item
            ended()

    return lambda given, **options: steps(items(given), **options)

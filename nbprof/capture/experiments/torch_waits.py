"""Experiments without waits for the GPU: `torch.cuda.synchronize`, and `.item()` in each step."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

from nbprof.capture.experiments.code_replaced import calling, swap
from nbprof.capture.experiments.edits import without_waits
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import (
    Observation,
    is_read_from_device,
    of_program,
)
from nbprof.capture.experiments.torch_settings import no_gpu
from nbprof.capture.patches import Patches


class NoSynchronize(Change):
    """Calls that wait for the GPU return at once; the end of the turn waits."""

    def apply(self, patches: Patches) -> None:  # noqa: D102
        function = sys.modules["torch"].cuda.synchronize
        swap(function, calling(lambda *_, **__: None, function.__code__), patches)


class NoItem(Change):
    """`.item()` gives a copy that stays on the GPU, which the program reads when it needs it.

    Floating-point numbers of the program alone: a count may be the key of a dictionary, and what
    libraries read they may need as a number.
    """

    def apply(self, patches: Patches) -> None:  # noqa: D102
        tensor = sys.modules["torch"].Tensor
        original = tensor.item

        @wraps(original)
        def item(self: Any) -> Any:
            if not is_read_from_device(self) or not of_program(sys._getframe()):
                return original(self)
            # The program may change the tensor later.
            return self.detach().clone()

        patches.replace(tensor, "item", item)


def _no_waits(observation: Observation) -> str:
    if why := no_gpu(observation):
        return why
    return "" if "torch" in observation.waits else "torch.cuda.synchronize is not called"


def _no_items(observation: Observation) -> str:
    if why := no_gpu(observation):
        return why
    return "" if observation.items else "the program reads no number of the GPU by .item()"


EXPERIMENTS = (
    Experiment(
        "no_synchronize",
        "no waits for the GPU",
        "torch",
        ("waits",),
        _no_waits,
        lambda _: NoSynchronize(),
        "- torch.cuda.synchronize()",
        touches=("waits",),
        edit=without_waits("torch"),
    ),
    Experiment(
        "no_item",
        "numbers kept on the GPU until they are needed",
        "torch",
        ("waits",),
        _no_items,
        lambda _: NoItem(),
        "- losses.append(loss.item())\n"
        "+ losses.append(loss.detach().clone())  # and .item() where they are shown",
        touches=("items",),
    ),
)

"""Experiments without waits for the GPU: `torch.cuda.synchronize`, and `.item()` in each step."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import wraps
from typing import Any

from nbprof.capture.experiments.code_replaced import calling, swap
from nbprof.capture.experiments.edits import calls_of_method, cell_of, located, without_waits
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation, of_program
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.experiments.torch_settings import no_gpu
from nbprof.capture.patches import Patches

_DEVICE = "cuda"


class NoSynchronize(Change):
    """Calls that wait for the GPU return at once; the end of the turn waits."""

    def apply(self, patches: Patches) -> None:  # noqa: D102
        function = sys.modules["torch"].cuda.synchronize
        swap(function, calling(lambda *_, **__: None, function.__code__), patches)


class NoItem(Change):
    """`.item()` gives a copy that stays on the GPU, which the program reads when it needs it.

    What libraries read they may need as a number.
    """

    def apply(self, patches: Patches) -> None:  # noqa: D102
        tensor = sys.modules["torch"].Tensor
        original = tensor.item

        @wraps(original)
        def item(self: Any) -> Any:
            if self.device.type != _DEVICE or self.ndim or not of_program(sys._getframe()):
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
    return "" if observation.items else ".item() is not called"


def _detached_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The calls of `.item()` in the one cell that makes them."""
    lines = observed[0].items
    cell = cell_of(lines, source, observed)
    if cell is None:
        return None
    edits = []
    for call in calls_of_method(cell, "", "item"):
        has_arguments = call.args or call.keywords
        if (cell.filename, call.lineno) in lines and not has_arguments:
            assert isinstance(call.func, ast.Attribute)
            text = f"{cell.text_of(call.func.value)}.detach().clone()"
            edits.append((call.lineno, cell.with_other(call, text)))
    if {line for line, _ in edits} != {line for _, line in lines}:
        return None
    return located(cell, *(edit for _, edit in edits))


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
        "- losses.append(loss.item())\n+ losses.append(loss.detach().clone())",
        touches=("items",),
        edit=_detached_in_source,
    ),
)

"""Experiments on settings of PyTorch: attention kernels, TF32, algorithms of cuDNN, checkpoints."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from typing import Any

from nbprof.capture.experiments.code_replaced import calling, swap
from nbprof.capture.experiments.edits import at_begin, cell_of, located
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import POSTFIXED, Edit, Located, Source
from nbprof.capture.patches import Patches

_KERNELS = ("flash", "mem_efficient", "cudnn")


class Setting(Change):
    """A setting of the process has another value.

    Parameters
    ----------
    read, write : callable
        Of the setting.
    value : object
    """

    def __init__(
        self, read: Callable[[], Any], write: Callable[[Any], object], value: object
    ) -> None:
        self._read = read
        self._write = write
        self._value = value

    def apply(self, patches: Patches) -> None:  # noqa: D102
        before = self._read()
        patches.on_restore(lambda: self._write(before))
        self._write(self._value)


def _attention(_: Observation) -> Change:
    return Setting(_enabled, _enable, tuple(True for _ in _KERNELS))


def _enabled() -> tuple[bool, ...]:
    settings = sys.modules["torch"].backends.cuda
    return tuple(bool(getattr(settings, f"{name}_sdp_enabled")()) for name in _KERNELS)


def _enable(values: tuple[bool, ...]) -> None:
    settings = sys.modules["torch"].backends.cuda
    for name, value in zip(_KERNELS, values, strict=True):
        getattr(settings, f"enable_{name}_sdp")(value)


def _tf32(_: Observation) -> Change:
    torch = sys.modules["torch"]
    return Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high")


def _benchmark(_: Observation) -> Change:
    cudnn = sys.modules["torch"].backends.cudnn

    def write(value: bool) -> None:
        cudnn.benchmark = value

    return Setting(lambda: cudnn.benchmark, write, True)


class NotAgain(Change):
    """Activations are kept for the backward pass in place of being computed again."""

    def apply(self, patches: Patches) -> None:  # noqa: D102
        function = sys.modules["torch.utils.checkpoint"].checkpoint
        swap(function, calling(_direct, function.__code__), patches)


_OPTIONS = (
    "use_reentrant",
    "context_fn",
    "determinism_check",
    "debug",
    "early_stop",
    "preserve_rng_state",
)
"""Of the checkpoint itself; the others are of the function."""


def _direct(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    for option in _OPTIONS:
        kwargs.pop(option, None)
    return function(*args, **kwargs)


def _direct_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The calls that compute activations again, in the one cell that makes them."""
    lines = observed[0].checkpoints
    cell = cell_of(lines, source, observed)
    if cell is None:
        return None
    function = sys.modules["torch.utils.checkpoint"].checkpoint
    calls = []
    for call in cell.calls():
        if (cell.filename, call.lineno) in lines and cell.value(call.func) is function:
            calls.append(call)
    if {call.lineno for call in calls} != {line for _, line in lines}:
        return None
    return located(cell, *(_direct_call(cell, call) for call in calls))


def _direct_call(source: Source, call: ast.Call) -> Edit | None:
    """The call of the function itself: ``block(x)`` of ``checkpoint(block, x)``."""
    names = [keyword.arg for keyword in call.keywords]
    if not call.args or isinstance(call.args[0], ast.Starred) or None in names:
        return None
    function = source.text_of(call.args[0])
    if not isinstance(call.args[0], POSTFIXED):
        function = f"({function})"
    arguments = [source.text_of(each) for each in call.args[1:]]
    for keyword in call.keywords:
        if keyword.arg not in _OPTIONS:
            arguments.append(f"{keyword.arg}={source.text_of(keyword.value)}")
    return source.with_other(call, f"{function}({', '.join(arguments)})")


def _disabled_kernels() -> list[str]:
    """Statements that enable the kernels of attention that are disabled."""
    lines = []
    for name, is_enabled in zip(_KERNELS, _enabled(), strict=True):
        if not is_enabled:
            lines.append(f"{{name}}.backends.cuda.enable_{name}_sdp(True)")
    return lines


def no_gpu(observation: Observation) -> str:
    """Why it is not tried: nothing computes on an NVIDIA GPU; '' if something does."""
    del observation
    torch = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        return ""
    return "it needs a GPU, and the program uses none"


def _all_enabled(observation: Observation) -> str:
    if not observation.roots:
        return "no module of PyTorch was called"
    if all(_enabled()):
        return "PyTorch chooses among all kernels of attention already"
    return ""


def _not_tf32(observation: Observation) -> str:
    if why := no_gpu(observation):
        return why
    if sys.modules["torch"].get_float32_matmul_precision() != "highest":
        return "products of float32 are of lower precision already"
    return ""


def _not_benchmark(observation: Observation) -> str:
    if why := no_gpu(observation):
        return why
    if sys.modules["torch"].backends.cudnn.benchmark:
        return "cuDNN measures its algorithms already"
    if not any(root.images for root in observation.roots):
        return "no model has images, of four dimensions, as its input"
    return ""


def _no_checkpoints(observation: Observation) -> str:
    return "" if observation.checkpoints else "torch.utils.checkpoint is not used"


EXPERIMENTS = (
    Experiment(
        "attention_kernels",
        "all kernels of attention",
        "torch",
        ("attention",),
        _all_enabled,
        _attention,
        "- torch.backends.cuda.enable_flash_sdp(False)",
        touches=("attention",),
        edit=at_begin("torch", _disabled_kernels),
    ),
    Experiment(
        "tf32",
        "TF32 for products of float32",
        "torch",
        ("tensor_cores", "mixed_precision"),
        _not_tf32,
        _tf32,
        '+ torch.set_float32_matmul_precision("high")',
        unequal="TF32 multiplies with 10 bits of the mantissa",
        touches=("precision",),
        edit=at_begin("torch", lambda: ['{name}.set_float32_matmul_precision("high")']),
    ),
    Experiment(
        "cudnn_benchmark",
        "the fastest algorithms of cuDNN, measured",
        "torch",
        ("tensor_cores",),
        _not_benchmark,
        _benchmark,
        "+ torch.backends.cudnn.benchmark = True",
        touches=("convolutions",),
        edit=at_begin("torch", lambda: ["{name}.backends.cudnn.benchmark = True"]),
    ),
    Experiment(
        "no_checkpoints",
        "activations kept, and not computed again",
        "torch",
        (),
        _no_checkpoints,
        lambda _: NotAgain(),
        "- y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)\n+ y = block(x)",
        touches=("checkpoints",),
        edit=_direct_in_source,
    ),
)

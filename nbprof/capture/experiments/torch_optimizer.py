"""Experiments on optimizers of PyTorch: fused and foreach kernels, gradients set to None."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

from nbprof.capture.experiments.edits import calls_of_method, in_constructor, located
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation
from nbprof.capture.experiments.source import Located, Source
from nbprof.capture.patches import Patches

_RULES = ("optimizer_loop", "tiny_eager_ops", "host_ops", "host_bound", "small_kernels")


class Groups(Change):
    """Options of all parameter groups, set before an optimizer steps.

    Parameters
    ----------
    options : dict of str to bool
    takes : callable
        Returns why an optimizer does not take them; '' if it does.
    """

    def __init__(self, options: dict[str, bool], takes: Callable[[Any], str]) -> None:
        self._options = options
        self._takes = takes

    def apply(self, patches: Patches) -> None:  # noqa: D102
        from torch.optim.optimizer import (  # type: ignore[import-not-found,unused-ignore]
            register_optimizer_step_pre_hook,
        )

        changed: list[tuple[dict[str, Any], dict[str, Any]]] = []
        seen: set[int] = set()

        def stepping(optimizer: Any, *_: Any) -> None:
            if id(optimizer) in seen:
                return
            seen.add(id(optimizer))
            if self._takes(optimizer):
                return
            for group in optimizer.param_groups:
                changed.append((group, {name: group[name] for name in self._options}))
                group.update(self._options)
            self._move_counts(optimizer)

        def put_back() -> None:
            for group, before in changed:
                group.update(before)

        handle = register_optimizer_step_pre_hook(stepping)
        patches.on_restore(put_back)
        patches.on_restore(handle.remove)

    def _move_counts(self, optimizer: Any) -> None:
        """Fused kernels count their steps on the device of the parameter."""
        if not self._options.get("fused"):
            return
        for parameter, state in optimizer.state.items():
            count = state.get("step")
            if hasattr(count, "to") and count.device != parameter.device:
                state["step"] = count.to(parameter.device)


class NoZeros(Change):
    """Gradients are set to None in place of zero."""

    def apply(self, patches: Patches) -> None:  # noqa: D102
        torch = sys.modules["torch"]
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._replace(owner, patches)

    @staticmethod
    def _replace(owner: Any, patches: Patches) -> None:
        original = owner.zero_grad

        @wraps(original)
        def zero_grad(self: Any, set_to_none: bool = True) -> Any:
            del set_to_none
            return original(self, True)

        patches.replace(owner, "zero_grad", zero_grad)


def _not_fused(optimizer: Any) -> str:
    name = type(optimizer).__name__
    if not type(optimizer).__module__.startswith("torch.optim") or not hasattr(
        optimizer, "param_groups"
    ):
        return f"{name} is not an optimizer of torch.optim"
    groups = optimizer.param_groups
    if not all("fused" in group for group in groups):
        return f"{name} has no fused kernel"
    if all(group["fused"] for group in groups):
        return f"{name} is fused already"
    if any(group.get("differentiable") for group in groups):
        return f"{name} is differentiable"
    for group in groups:
        for parameter in group["params"]:
            if not parameter.is_floating_point():
                return f"{name} has parameters that are not floating-point numbers"
    return ""


def _not_foreach(optimizer: Any) -> str:
    name = type(optimizer).__name__
    groups = optimizer.param_groups
    if not all("foreach" in group for group in groups):
        return f"{name} has no foreach kernels"
    if all(group["foreach"] or group.get("fused") for group in groups):
        return f"{name} uses foreach or fused kernels already"
    if all(group["foreach"] is None and _on_gpu(group) for group in groups):
        return f"{name} uses foreach kernels on a GPU by default"
    return ""


def _on_gpu(group: dict[str, Any]) -> bool:
    return any(parameter.is_cuda for parameter in group["params"])


def _refusal(takes: Callable[[Any], str], observation: Observation) -> str:
    if not observation.optimizers:
        return "no optimizer of PyTorch stepped"
    reasons = [takes(optimizer) for optimizer in observation.optimizers]
    if all(reasons):
        return reasons[0]
    return ""


def _optimizers(observation: Observation) -> list[Any]:
    return observation.optimizers


def _in_zero_grad(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The only call that asks for zeros, of the optimizer or of the model."""
    del observed
    calls = []
    for call in calls_of_method(source, "", "zero_grad"):
        values = [*call.args[:1], *(each.value for each in call.keywords)]
        if any(isinstance(value, ast.Constant) and value.value is False for value in values):
            calls.append(call)
    if len(calls) != 1:
        return None
    method = sys.modules["torch"].optim.Optimizer.zero_grad
    return located(source, source.with_arguments(calls[0], {"set_to_none": "True"}, method))


def _no_zeros(observation: Observation) -> str:
    if observation.zeros:
        return ""
    return "gradients are set to None already, or never reset"


EXPERIMENTS = (
    Experiment(
        "fused_optimizer",
        "fused optimizer",
        "torch",
        _RULES,
        partial(_refusal, _not_fused),
        lambda _: Groups({"fused": True, "foreach": False}, _not_fused),
        "- torch.optim.AdamW(parameters, ...)\n+ torch.optim.AdamW(parameters, ..., fused=True)",
        touches=("optimizer",),
        edit=in_constructor(_optimizers, {"fused": "True"}, without=("foreach",)),
    ),
    Experiment(
        "foreach_optimizer",
        "foreach optimizer",
        "torch",
        _RULES,
        partial(_refusal, _not_foreach),
        lambda _: Groups({"foreach": True}, _not_foreach),
        "- torch.optim.AdamW(parameters, ...)\n+ torch.optim.AdamW(parameters, ..., foreach=True)",
        touches=("optimizer",),
        edit=in_constructor(_optimizers, {"foreach": "True"}, without=("fused",)),
    ),
    Experiment(
        "zero_grad",
        "gradients set to None",
        "torch",
        ("tiny_eager_ops", "host_ops", "host_bound", "small_kernels"),
        _no_zeros,
        lambda _: NoZeros(),
        "- optimizer.zero_grad(set_to_none=False)\n+ optimizer.zero_grad()",
        touches=("gradients",),
        edit=_in_zero_grad,
    ),
)

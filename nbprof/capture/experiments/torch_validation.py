"""The experiment without the forward passes by which a loop of PyTorch validates its model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation, around_roots
from nbprof.capture.patches import Patches


class Repeated(Change):
    """A pass of a trained model without gradients gives the result of the first one of its shapes.

    So what the program does with the result runs as before.

    Parameters
    ----------
    observation : Observation
    """

    is_long = True

    def __init__(self, observation: Observation) -> None:
        self._modules = _trained(observation)

    def apply(self, patches: Patches) -> None:  # noqa: D102
        torch = sys.modules["torch"]
        tree = torch.utils._pytree
        results: dict[Any, Any] = {}

        def copied(value: Any) -> Any:
            return value.clone() if isinstance(value, torch.Tensor) else value

        def around(module: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if torch.is_grad_enabled() or not any(module is each for each in self._modules):
                return call(module, *args, **kwargs)
            leaves, form = tree.tree_flatten((args, kwargs))
            shapes = [getattr(leaf, "shape", None) for leaf in leaves]
            key = id(module), module.training, str(form), str(shapes)
            if key not in results:
                results[key] = call(module, *args, **kwargs)
            return tree.tree_map(copied, results[key])

        patches.on_restore(results.clear)
        around_roots(patches, around)

    def close(self) -> None:  # noqa: D102
        self._modules = []


def _trained(observation: Observation) -> list[Any]:
    """The modules that run both with gradients and without."""
    graded = [root.module for root in observation.roots if root.graded and root.training]
    ungraded = [root.module for root in observation.roots if not root.graded]
    trained = set(map(id, graded))
    return [module for module in ungraded if id(module) in trained]


def _refusal(observation: Observation) -> str:
    if observation.backward and _trained(observation):
        return ""
    return "no model that is trained runs without gradients in the first steps"


EXPERIMENTS = (
    Experiment(
        "no_validation",
        "no passes without gradients within the steps",
        "torch",
        ("validation", "periodic"),
        _refusal,
        Repeated,
        "- validate(model)\n+ if step % 1000 == 0:\n+     validate(model)",
        tradeoff="where these passes only validate, run them less often or on fewer examples",
    ),
)

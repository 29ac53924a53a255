"""Steps of DeepSpeed's engine.

With ZeRO, one step of the engine has the optimizer step once for each group of parameters, so these
steps are not steps of the training.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from nbprof.capture.patches import Patches

MODULE = "deepspeed.runtime.engine"
ORIGIN = "steps of the engine of DeepSpeed"
_STEP = "_take_model_step"
"""The method that updates the weights, also in a pipeline; a public `step` may only accumulate."""


class Steps(Protocol):
    """The steps of optimizers.

    Attributes
    ----------
    skipped : int
        Steps without an update.
    """

    skipped: int

    def single_step(self, optimizer: Any, origin: str) -> AbstractContextManager[None]:
        """Let the steps of optimizers in the block be one step of `optimizer`."""


def hook(module: ModuleType, patches: Patches, steps: Steps) -> None:
    """Let each update of the weights by an engine of DeepSpeed be one step."""
    engine = getattr(module, "DeepSpeedEngine", None)
    if engine is None or _STEP not in vars(engine):
        return
    original: Callable[..., Any] = vars(engine)[_STEP]

    @wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        before = self.skipped_steps
        with steps.single_step(getattr(self, "basic_optimizer", None) or self, ORIGIN):
            result = original(self, *args, **kwargs)
            steps.skipped += self.skipped_steps - before
        return result

    patches.replace(engine, _STEP, step)

"""Listens to `generate` of transformers: the caches that a model has after each token.

Neither the model nor its caches are patched: a compiled model would be compiled again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from nbprof.capture.patches import Patches
from nbprof.capture.torch_tensors import KnownTensors

_UPDATE = "_update_model_kwargs_for_generation"


def hook(patches: Patches, tensors: Callable[[], KnownTensors | None]) -> bool:
    """Have the caches of each token noted; returns False as long as no model is imported.

    Parameters
    ----------
    patches : Patches
        Remembers what to restore.
    tensors : callable
        Returns what notes them, None while nothing is recorded.
    """
    mixin = getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None)
    if mixin is None or _UPDATE not in vars(mixin):
        return False
    original = vars(mixin)[_UPDATE]

    @wraps(original)
    def token_ends(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        arguments = original(*args, **kwargs)
        known = tensors()
        if known is not None:
            known.generated(arguments)
        return arguments

    patches.replace(mixin, _UPDATE, token_ends)
    return True

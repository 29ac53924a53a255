"""The experiment on waits for results of JAX: the host goes on, and the end of the turn waits."""

from __future__ import annotations

import sys
from typing import Any

from nbprof.capture.experiments.code_replaced import calling, swap
from nbprof.capture.experiments.edits import without_waits
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation, array_class
from nbprof.capture.patches import Patches


class NoWaits(Change):
    """`block_until_ready` returns at once; where a value is needed, that waits as before."""

    def apply(self, patches: Patches) -> None:  # noqa: D102
        function = sys.modules["jax"].block_until_ready
        swap(function, calling(_same, function.__code__), patches)
        array = array_class()
        original = array.block_until_ready

        def block_until_ready(self: Any) -> Any:
            return self

        # A method of nanobind has no names for `wraps` to copy; the turn waits by the original.
        block_until_ready.__wrapped__ = original  # type: ignore[attr-defined]
        patches.replace(array, "block_until_ready", block_until_ready)


def _same(x: Any) -> Any:
    return x


def _no_waits(observation: Observation) -> str:
    return "" if "jax" in observation.waits else "block_until_ready is not called"


EXPERIMENTS = (
    Experiment(
        "jax_no_waits",
        "no block_until_ready in the loop",
        "jax",
        ("result_waits",),
        _no_waits,
        lambda _: NoWaits(),
        "- loss.block_until_ready()",
        touches=("waits",),
        edit=without_waits("jax"),
    ),
)
